"""A loaded model that takes as long as a larger one. In: a thinker, what each of its steps shall
cost. Out: the same thinker, slower.

`python -m bench.slowed --step-ms 6 --id-ms 0.2 --window-ms 10` is `streamer verifier --port 0` with
such a cloud. One id comes of one step then, as with models that torch runs.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass
from typing import Any

from streamer import cli
from streamer.model import thinker as models
from streamer.model.audio.mel import WINDOW_FRAMES


@dataclass(frozen=True)
class Costs:
    """Milliseconds: a step of one id, each further id of it, a window of 2 s in the tower."""

    step_ms: float
    id_ms: float
    window_ms: float


def slow(thinker: Any, costs: Costs) -> Any:
    """Every step and every window takes so much longer from now on."""
    text, tower = thinker.engine.text, thinker.engine.tower
    step, encode = text.step, tower.encode

    def slow_step(ids: Any, *more: Any) -> Any:
        time.sleep((costs.step_ms + costs.id_ms * (len(ids) - 1)) / 1000)
        return step(ids, *more)

    def slow_encode(features: Any) -> Any:
        time.sleep(costs.window_ms * len(features) * features.shape[-1] / WINDOW_FRAMES / 1000)
        return encode(features)

    text.step, tower.encode = slow_step, slow_encode
    return thinker


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("step", "id", "window"):
        parser.add_argument(f"--{name}-ms", type=float, required=True)
    costs = Costs(**vars(parser.parse_args()))
    load = models.load
    models.load = lambda *given: slow(load(*given), costs)  # type: ignore[assignment]
    return cli.main(["verifier", "--port", "0"])


if __name__ == "__main__":
    sys.exit(main())
