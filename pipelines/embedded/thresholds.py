"""In: the exported pair, held-out recordings. Out: the gate's thresholds in both
`streamer.json`, and their curves.

`streamer calibrate` writes the edge's, whose card counts; the cloud's card gets a copy, for it
belongs to the pair.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

from streamer.model.checkpoint.card import FILE, write_gate


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--edge", type=Path, default=Path("streamer/model/embedded/edge"))
    parser.add_argument("--cloud", type=Path, default=Path("streamer/model/embedded/cloud"))
    parser.add_argument(
        "--risk", type=float, default=0.05, help="of preset fluent; of quality half of it"
    )
    parser.add_argument("--confidence", type=float, default=0.9)
    parser.add_argument("clips", nargs="+", type=Path, help="held-out recordings")
    args = parser.parse_args()
    options = {
        "--risk": args.risk,
        "--confidence": args.confidence,
        "--edge": args.edge,
        "--cloud": args.cloud,
    }
    command = [
        sys.executable,
        "-m",
        "streamer",
        "calibrate",
        "--by-folder",
        "--force",
        *args.clips,
        *sum(options.items(), ()),
    ]
    subprocess.run([str(part) for part in command], check=True)
    gate = json.loads((args.edge / FILE).read_text("utf-8"))["gate"]
    write_gate(args.cloud, args.cloud / FILE, gate)


if __name__ == "__main__":
    main()
