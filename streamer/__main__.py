"""`python -m streamer`, and the command itself. Out: an exit status."""

import os
import signal


def interrupt(number: int, _: object) -> None:
    """Ctrl-C ends the process at once, whatever its threads wait for, also during imports."""
    if os.isatty(2):  # a line or a bar may have begun
        os.write(2, b"\n")
    os._exit(128 + number)


def main() -> int:
    """Runs the command line."""
    os.environ["PYTHONSAFEPATH"] = "1"  # processes of ours import nothing from where they start
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, interrupt)
    from streamer.cli import main as run

    return run()


if __name__ == "__main__":
    raise SystemExit(main())
