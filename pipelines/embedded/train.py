"""In: nothing but a seed. Out: both embedded models, from synthesis to evaluation, in one resumable command.

Each stage is a module of its own and skips or resumes what is already there: run it again after an interruption.
"""

import argparse
import subprocess
import sys
from pathlib import Path

CACHE = Path(".cache/embedded")


def run(module: str, *arguments: object) -> None:
    command = [sys.executable, "-m", f"pipelines.embedded.{module}", *map(str, arguments)]
    print("+", *command[1:], flush=True)
    subprocess.run(command, check=True)


def synthesise(shards: int, workers: int) -> None:
    """Training shards in `workers` processes, and six shards of held-out voices."""
    base = [sys.executable, "-m", "pipelines.embedded.synthesis"]
    per_worker = -(-shards // workers)
    jobs = [[*base, "--out", CACHE / "train", "--first", first, "--step", workers, "--num", per_worker]
            for first in range(workers)]  # fmt: skip
    jobs.append([*base, "--out", CACHE / "held", "--held-out", "--num", 6, "--seed", 9])
    processes = [subprocess.Popen([str(part) for part in job]) for job in jobs]
    if sum([process.wait() for process in processes]):  # a list: all of them are waited for
        raise SystemExit("synthesis failed")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shards", type=int, default=240, help="of 40 sessions, about 10 minutes of speech each")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--edge-steps", type=int, default=2500)
    parser.add_argument("--cloud-steps", type=int, default=5000)
    parser.add_argument("--distil-steps", type=int, default=400)
    args = parser.parse_args()
    runs, data = CACHE / "runs", CACHE / "train"
    edge, cloud, distilled = (runs / name for name in ("edge", "cloud", "distilled"))
    synthesise(args.shards, args.workers)
    run("joint", "--size", "edge", "--data", data, "--out", edge, "--steps", args.edge_steps,
        "--world", args.workers, "--audio-s", 60)  # fmt: skip
    run("joint", "--size", "cloud", "--init", edge / "last.pt", "--data", data, "--out", cloud,
        "--steps", args.cloud_steps, "--world", args.workers, "--audio-s", 60)  # fmt: skip
    run("distil", "--edge", edge / "last.pt", "--cloud", cloud / "last.pt", "--data", data, "--out", distilled,
        "--steps", args.distil_steps)  # fmt: skip
    run("evaluate", "--edge", f"edge={distilled}/last.pt", "--cloud", f"cloud={cloud}/last.pt",
        "--data", CACHE / "held", "--out", CACHE / "report")  # fmt: skip
    run("plots", edge, cloud, distilled, "--out", CACHE / "report")
    for size, folder in (("edge", distilled), ("cloud", cloud)):
        run("export", "--size", size, "--run", folder / "last.pt", "--out", f"streamer/model/embedded/{size}",
            "--gate", CACHE / "report" / "gate.json")  # fmt: skip


if __name__ == "__main__":
    main()
