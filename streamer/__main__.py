"""`python -m streamer`, and the command itself. Out: an exit status."""

import os
import sys

CPU_INFO = "/proc/cpuinfo"
# NumPy is compiled for x86-64-v2 and aborts without it
NEEDED = ("ssse3", "sse4_1", "sse4_2", "popcnt")


def main() -> int:
    """Runs the command line. Ctrl-C ends it without a word also while its modules are imported,
    which takes a second on a busy machine."""
    if missing := missing_instructions():
        told = f"this processor has no {', '.join(missing)}, which NumPy needs (x86-64-v2, 2009)"
        print(f"streamer: {told}; in QEMU, take -cpu host or Nehalem", file=sys.stderr)
        return 1
    os.environ["PYTHONSAFEPATH"] = "1"  # processes of ours import nothing from where they start
    import signal  # the working directory is off the path by now

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, lambda number, frame: os._exit(128 + number))
    try:
        from streamer.cli import main as run

        return run()
    except KeyboardInterrupt:  # while an error was told
        return 130
    except MemoryError:
        print("streamer: the system gives no more memory; see `ulimit -a`", file=sys.stderr)
        return 1


def missing_instructions() -> list[str]:
    """Those of NEEDED that an x86-64 processor lacks, where the system says it."""
    try:
        with open(CPU_INFO) as file:
            flags = next((line.split()[2:] for line in file if line.startswith("flags")), NEEDED)
    except OSError:
        return []
    return [name for name in NEEDED if name not in flags]


def _forget_working_directory() -> None:
    """`python -m` puts the working directory first on the path: a file numpy.py in a downloaded
    folder would run. It stays only where this package itself lies in it."""
    home = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    if not sys.flags.safe_path and os.path.realpath(sys.path[0]) != os.path.realpath(home):
        del sys.path[0]


if __name__ == "__main__":
    _forget_working_directory()
    raise SystemExit(main())
