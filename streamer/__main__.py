"""`python -m streamer`, and the command itself. Out: an exit status."""

import os
import signal


def main() -> int:
    """Runs the command line. Ctrl-C ends it without a word also while its modules are imported,
    which takes a second on a busy machine."""
    os.environ["PYTHONSAFEPATH"] = "1"  # processes of ours import nothing from where they start
    is_usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if is_usual:
        signal.signal(signal.SIGINT, lambda number, frame: os._exit(128 + number))
    from streamer.cli import main as run
    from streamer.commands.process import interrupt

    if is_usual:
        signal.signal(signal.SIGINT, interrupt)
    return run()


if __name__ == "__main__":
    raise SystemExit(main())
