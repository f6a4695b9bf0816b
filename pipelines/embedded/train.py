"""Train both embedded models from nothing to calibrated thresholds, in one resumable command.

Each stage is a module of its own that skips or resumes finished work: run the command again after
an interruption.
"""

import argparse
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from pipelines.embedded.recordings import missing, table

LENGTHS_S = (3, 10, 30, 60)
STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def started(commands: Sequence[Sequence[str]]) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Processes in groups of their own: Ctrl-C is for this one, which ends them without a
    traceback each."""
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for command in commands:
            processes.append(subprocess.Popen(command, start_new_session=True))
        yield processes
    finally:
        for process in processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)
        for process in processes:
            process.wait()


def run(module: str, *arguments: object) -> None:
    command = [sys.executable, "-m", f"pipelines.embedded.{module}", *map(str, arguments)]
    print("+", *command[1:], flush=True)
    with started([command]) as (process,):
        if process.wait():
            told = "what was done before it is kept: run it again to go on"
            raise SystemExit(f"{module} failed (above); {told}")


def synthesise(cache: Path, shards: int, held_shards: int, workers: int) -> None:
    """Training shards in `workers` processes, and shards of held-out voices beside them."""
    base = [sys.executable, "-m", "pipelines.embedded.synthesis"]
    per_worker = -(-shards // workers)
    base_train = [*base, "--out", cache / "train", "--step", workers, "--num", per_worker]
    jobs = [[*base_train, "--first", first] for first in range(workers)]
    jobs.append([*base, "--out", cache / "held", "--held-out", "--num", held_shards, "--seed", 9])
    together(jobs, "synthesis")


def together(jobs: list[list], what: str) -> None:
    """Run the commands side by side, and wait for all of them."""
    with started([[str(part) for part in job] for job in jobs]) as processes:
        if sum([abs(process.wait()) for process in processes]):
            raise SystemExit(f"{what} failed; run it again, whole shards are kept")


def people(args: argparse.Namespace) -> None:
    """Shards of recorded people, noise beside them, and the folder of held-out people."""
    base = [sys.executable, "-m", "pipelines.embedded.people", "--clones", args.clones]
    base += ["--out", args.cache / "people", "--step", args.workers]
    base += ["--num", -(-args.people_shards // args.workers)]
    jobs = [[*base, "--first", n] for n in range(args.workers)]
    jobs[0] += ["--noise", args.cache / "noise"]
    together(jobs, "reading recordings")
    count_syllables(args)
    if not (args.cache / "people-held" / "manifest.jsonl").exists():
        run("recordings", "--clones", args.clones, "--held-out", args.cache / "people-held")


def count_syllables(args: argparse.Namespace) -> None:
    """Train the syllable network on recordings of known text, and write the weights that ship."""
    data, folder = args.cache / "rate", args.cache / "runs" / "rate"
    run("rate_data", "--clones", args.clones, "--out", data)
    noise, minutes = ("--noise", args.cache / "noise"), ("--minutes", args.rate_minutes)
    run("rate_fit", "train", "--data", data, *noise, "--out", folder, *minutes)
    run("rate_fit", "write", "--data", data, "--run", folder)


def require_recordings(clones: Path) -> None:
    """Say in one line what to do where there is no recording at all."""
    known = table()["source"]
    if len(missing(clones, known)) == len({row["repository"] for row in known}):
        way = f"`python -m pipelines.embedded.recordings --clones {clones}` lists what to clone"
        raise SystemExit(
            f"no recordings of people in {clones}: {way}; or train without them: --without-people"
        )


def learn(args: argparse.Namespace) -> tuple[Path, Path]:
    """The edge, the cloud that starts from its tower, the edge distilled on the cloud; the runs
    of both."""
    runs, data = args.cache / "runs", [args.cache / "train"]
    noise: list = []
    if not args.without_people:
        data, noise = [*data, args.cache / "people"], ["--noise", args.cache / "noise"]
    run("rate_tracks", *data)
    edge, cloud, distilled = (runs / name for name in ("edge", "cloud", "distilled"))
    common = ("--data", *data, *noise, "--world", args.workers, "--audio-s", 60)
    run("joint", "--size", "edge", "--out", edge, "--steps", args.edge_steps, *common)
    began = ("--init", edge / "last.pt", "--lr", 1.5e-3)
    run("joint", "--size", "cloud", *began, "--out", cloud, "--steps", args.cloud_steps, *common)
    both = ("--edge", edge / "last.pt", "--cloud", cloud / "last.pt", "--data", *data, *noise)
    run("distil", *both, "--out", distilled, "--steps", args.distil_steps)
    return distilled, cloud


def ship(args: argparse.Namespace, edge: Path, cloud: Path) -> None:
    """Export both, calibrate their gate on held-out recordings, evaluate what was exported."""
    for size, folder in (("edge", edge), ("cloud", cloud)):
        run("export", "--size", size, "--run", folder / "last.pt", "--out", args.out / size)
    clips = []
    for seconds in LENGTHS_S:
        folder = args.cache / "gate" / str(seconds)
        if not (folder / "labels.jsonl").exists():
            run("heldout", "--out", folder, "--num", args.clips, "--seconds", seconds, "--seed", 21)
        clips += sorted(folder.glob("*.wav"))[: args.clips]
    if not args.without_people:
        clips += gate_people(args)
    pair = ("--edge", args.out / "edge", "--cloud", args.out / "cloud")
    report = args.cache / "report"
    report.mkdir(parents=True, exist_ok=True)
    promise = ("--risk", args.risk, "--confidence", args.confidence)
    run("thresholds", *pair, *promise, *clips)
    run("evaluate", *pair, "--data", args.cache / "held", "--num", args.evaluate, "--out", report)
    if not args.without_people:
        run("people_check", *pair, "--data", args.cache / "people-held", "--out", report)
    run("card", "--report", report, "--out", args.out / "MODEL_CARD.md")


def gate_people(args: argparse.Namespace) -> list[Path]:
    """Recordings of half the held-out people; the other half checks."""
    folder = args.cache / "gate" / "people"
    if not folder.exists():
        run("people_gate", "--clones", args.clones, "--out", folder)
    return sorted(folder.glob("*.wav"))


def _stop(*_: object) -> None:
    for number in STOPS:  # a second Ctrl-C while the others end would leave some of them
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--cache", type=Path, default=Path(".cache/embedded"), help="shards, runs, clips, report")
    add("--out", type=Path, default=Path("streamer/model/embedded"), help="where the models go")
    add("--shards", type=int, default=160, help="of 40 sessions, about 10 minutes of speech each")
    add("--held-shards", type=int, default=8, help="of voices that training never hears")
    add("--clones", type=Path, default=Path(".cache/recordings"), help="clones of recordings.toml")
    add("--without-people", action="store_true", help="synthetic voices alone")
    add("--people-shards", type=int, default=100, help="of 40 sessions, both ways")
    add("--workers", type=int, default=4)
    add("--rate-minutes", type=float, default=60.0, help="of the syllable network, on one core")
    add("--edge-steps", type=int, default=3500)
    add("--cloud-steps", type=int, default=3500)
    add("--distil-steps", type=int, default=200)
    add("--clips", type=int, default=150, help="held-out recordings of each length for the gate")
    add("--risk", type=float, default=0.05, help="of the gate's preset fluent")
    add("--confidence", type=float, default=0.9, help="with which it is kept")
    add("--evaluate", type=int, default=165, help="held-out turns of each length")
    args = parser.parse_args()
    for number in STOPS:
        signal.signal(number, _stop)
    try:
        if not args.without_people:
            require_recordings(args.clones)
            people(args)
        synthesise(args.cache, args.shards, args.held_shards, args.workers)
        ship(args, *learn(args))
    except KeyboardInterrupt:
        print("\nstopped; run it again to go on", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
