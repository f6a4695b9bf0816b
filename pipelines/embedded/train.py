"""Train both embedded models from nothing to a calibrated pair with its card: one command.

Each stage is a module of its own that skips or resumes finished work. Run the command again after
an interruption.
"""

import argparse
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from pipelines.embedded.heldout import made
from pipelines.embedded.recordings import missing, table

LENGTHS_S = (3, 10, 30, 60)
STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def run(name: str, *more: object) -> None:
    """Run a module of this package, or bench.NAME, in a process. Raises SystemExit if it fails.

    The process has a group of its own: Ctrl-C reaches this one alone, which ends it.
    """
    module = name if "." in name else f"pipelines.embedded.{name}"
    command = [sys.executable, "-m", module, *map(str, more)]
    print("+", *command[1:], flush=True)
    process = subprocess.Popen(command, start_new_session=True)
    try:
        if process.wait() != 0:
            told = "finished work is kept: run it again to continue"
            raise SystemExit(f"{name} failed (see above); {told}")
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
        process.wait()


def require_recordings(clones: Path) -> None:
    """Raises SystemExit with one line if there is no recording at all."""
    known = table()["source"]
    if len(missing(clones, known)) == len({row["repository"] for row in known}):
        way = f"`python -m pipelines.embedded.recordings --clones {clones}` lists what to clone"
        raise SystemExit(
            f"no recordings of people in {clones}: {way}; or train without them: --without-people"
        )


def people(args: argparse.Namespace) -> None:
    """Shards of recorded people, noise beside them, and the folder of held-out people."""
    shards = ("--out", args.cache / "people", "--num", args.people_shards)
    of = ("--clones", args.clones, "--noise", args.cache / "noise")
    run("people", *of, *shards, "--workers", args.workers)
    run("people_held", "--clones", args.clones, "--out", args.cache / "people-held")


def synthesise(args: argparse.Namespace) -> None:
    """Shards of synthetic voices."""
    shards = ("--out", args.cache / "train", "--num", args.shards)
    run("synthesis", *shards, "--workers", args.workers)


def count_syllables(args: argparse.Namespace) -> None:
    """The network that counts syllables, from recordings of known text."""
    data, folder = args.cache / "rate", args.cache / "runs" / "rate"
    run("rate_data", "--clones", args.clones, "--out", data)
    of = ("--data", data, "--run", folder)
    learning = ("--noise", args.cache / "noise", "--minutes", args.rate_minutes)
    run("rate_fit", "train", *of, *learning)
    run("rate_fit", "write", *of, "--weights", args.measures / "density.npz")


def learn(args: argparse.Namespace) -> tuple[Path, Path]:
    """The runs of both, which learn from the same turns."""
    runs, data = args.cache / "runs", [args.cache / "train"]
    noise: list[object] = []
    if not args.without_people:
        data, noise = [*data, args.cache / "people"], ["--noise", args.cache / "noise"]
    run("rate_tracks", *data)
    learning = ("--data", *data, *noise, "--out", runs, "--steps", args.steps)
    computing = ("--device", args.device, "--workers", max(1, args.workers // 2))
    run("joint", *learning, "--audio-s", args.audio_s, *computing)
    return runs / "edge", runs / "cloud"


def export(args: argparse.Namespace, edge: Path, cloud: Path) -> tuple[object, ...]:
    """Write both model folders; the options that name them."""
    for size, folder in (("edge", edge), ("cloud", cloud)):
        run("export", "--size", size, "--run", folder / "last.pt", "--out", args.out / size)
    return ("--edge", args.out / "edge", "--cloud", args.out / "cloud")


def weigh_levels(args: argparse.Namespace) -> None:
    """The errors of the measures."""
    folder = args.cache / "levels"
    folder.mkdir(parents=True, exist_ok=True)
    rows = [folder / f"{side}.jsonl" for side in ("train", "calibrates")]
    for file in (file for file in rows if not file.exists()):
        of = ("--clones", args.clones, "--side", file.stem, "--num", args.speakers)
        run("level_rows", *of, "--out", file)
    run("level_weights", *rows, "--write", args.measures / "level_errors.json")


def calibrate(args: argparse.Namespace, pair: tuple[object, ...]) -> None:
    """The gate's thresholds, from held-out voices and half the held-out people."""
    folder = args.cache / "gate" / "voices"
    rows = [row for seconds in LENGTHS_S for row in made(args.clips, seconds, 21, folder)]
    files = [folder / row["file"] for row in rows]
    if not args.without_people:
        files += gate_people(args, 0)
    promise = ("--risk", args.risk, "--confidence", args.confidence)
    run("gate", "fit", *files, *pair, *promise)


def gate_people(args: argparse.Namespace, half: int) -> list[Path]:
    """Recordings of one half of the held-out people: 0 calibrates, 1 checks."""
    folder = args.cache / "gate" / ("people", "others")[half]
    run("people_held", "--clones", args.clones, "--out", folder, "--half", half)
    return sorted(folder.glob("wav/*.wav"))


def report(args: argparse.Namespace, pair: tuple[object, ...]) -> None:
    """Evaluate the exported pair, and write its card."""
    folder = args.cache.resolve() / "report"
    folder.mkdir(parents=True, exist_ok=True)
    alone = ("bench.people", *pair, "--only", "table", "--words", "models")
    run(*alone, "--data", args.cache / "gate" / "voices", "--name", folder / "voices")
    if not args.without_people:
        run(*alone, "--data", args.cache / "people-held", "--name", folder / "people")
        run("gate", "check", *gate_people(args, 1), *pair, "--out", folder / "gate.json")
    run("card", "--report", folder, "--out", args.out / "MODEL_CARD.md")


def train(args: argparse.Namespace) -> None:
    """All stages, in order."""
    if not args.without_people:
        require_recordings(args.clones)
        people(args)
    synthesise(args)
    if not args.without_people:
        count_syllables(args)
        weigh_levels(args)
    pair = export(args, *learn(args))
    calibrate(args, pair)
    report(args, pair)


def _stop(*_: object) -> None:
    for number in STOPS:  # a second Ctrl-C while the others end would leave some of them
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def options(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--cache", type=Path, default=Path(".cache/embedded"), help="shards, runs, clips, report")
    add("--out", type=Path, default=Path("streamer/model/embedded"), help="where the models go")
    measures = Path("streamer/core/measures")
    add("--measures", type=Path, default=measures, help="where the measures' weights go")
    add("--shards", type=int, default=160, help="of 40 sessions, about 10 minutes of speech each")
    add("--clones", type=Path, default=Path(".cache/recordings"), help="clones of recordings.toml")
    add("--without-people", action="store_true", help="synthetic voices alone")
    add("--people-shards", type=int, default=100, help="of 40 sessions, both ways")
    add("--workers", type=int, default=4)
    add("--rate-minutes", type=float, default=60.0, help="of the syllable network, on one core")
    add("--audio-s", type=float, default=120.0, help="seconds of audio in a step")
    add("--steps", type=int, default=5000, help="of both models")
    add("--device", default="cpu", help="what both models learn on, or cuda")
    add("--speakers", type=int, default=300, help="of each side, to weigh the measures by")
    add("--clips", type=int, default=150, help="held-out recordings of each length for the gate")
    add("--risk", type=float, default=0.05, help="of the gate's preset fluent")
    add("--confidence", type=float, default=0.9, help="with which it is kept")
    return parser.parse_args(argv)


def main() -> int:
    args = options()
    for number in STOPS:
        signal.signal(number, _stop)
    try:
        train(args)
    except KeyboardInterrupt:
        print("\nstopped; run it again to go on", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
