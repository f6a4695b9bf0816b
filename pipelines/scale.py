"""The fleet as a job of Ray: `ray job submit --working-dir . -- python -m pipelines.scale [FILE]`.

It is `streamer fleet` with the file that is named, or pipelines/fleet.toml, on the cluster that the
job runs in. The file's [ray] needs `address = "auto"`.
"""

from __future__ import annotations

import sys
from pathlib import Path

from streamer.cli import main

FLEET = Path(__file__).parent / "fleet.toml"

if __name__ == "__main__":
    sys.exit(main(["fleet", "--config", *(sys.argv[1:] or [str(FLEET)])]))
