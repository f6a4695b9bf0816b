"""`python -m streamer`, and the command itself. Out: an exit status."""

import os
import sys


def main() -> int:
    """Runs the command line. Ctrl-C ends it without a word also while its modules are imported,
    which takes a second on a busy machine."""
    os.environ["PYTHONSAFEPATH"] = "1"  # processes of ours import nothing from where they start
    try:
        from streamer.cli import main as run

        return run()
    except KeyboardInterrupt:
        return 130


def _forget_working_directory() -> None:
    """`python -m` puts the working directory first on the path: a file numpy.py in a downloaded
    folder would run. It stays only where this package itself lies in it."""
    home = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    if not sys.flags.safe_path and os.path.realpath(sys.path[0]) != os.path.realpath(home):
        del sys.path[0]


if __name__ == "__main__":
    _forget_working_directory()
    raise SystemExit(main())
