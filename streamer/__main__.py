"""`python -m streamer`, and the command itself. Out: an exit status."""


def main() -> int:
    """Runs the command line. Ctrl-C ends it without a word also while its modules are imported,
    which takes a second on a busy machine."""
    try:
        from streamer.cli import main as run

        return run()
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    raise SystemExit(main())
