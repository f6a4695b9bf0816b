"""A first turn costs ten times a second one: kernels are loaded, or compiled. In: a thinker. Out:
warm.

Measured 2026-11 on the embedded pair: 0.78 s for the first turn, 0.09 s for the second; 13 s where
the kernels are not yet compiled for this processor, which `python -m streamer.model.warm` does
ahead (`make setup` runs it).
"""

from __future__ import annotations

import numpy as np

from streamer.core.audio.pcm import SAMPLE_RATE_HZ
from streamer.core.rules.sampling import Sampling
from streamer.core.rules.settings import Rules
from streamer.model.audio.pitch_track import PitchTrack, f0_of
from streamer.model.drafters import IncrementalDrafter
from streamer.model.offline import hear_parts
from streamer.model.scheduler import drive
from streamer.model.thinker import Thinker

SAMPLES = SAMPLE_RATE_HZ * 5 // 2  # one whole window and a part of one


def warm_up(thinker: Thinker) -> None:
    """Take `thinker` once through everything a turn does, on noise; no slot stays taken."""
    noise = np.random.default_rng(0).normal(0.0, 0.01, SAMPLES).astype(np.float32)
    for (listener,), _ in hear_parts([thinker], [noise], prefills=False):
        drafter = IncrementalDrafter(listener, Rules(), Sampling(), {"rate": (0, -1, -2, -3, -4)})
        drive(listener.engine, drafter.draft(4))
        for k in (4, 6):  # a verification feeds k + 1 ids
            listener.sequence.extend(range(k + 1))
            drive(listener.engine, listener.feed(num_logits=k + 1))
    rows = PitchTrack().finish(noise)  # a turn may be measured, and is to compile nothing
    f0_of(rows, np.ones(len(rows), bool))


def main() -> None:
    """Compile what the embedded pair needs and leave it on disk."""
    from streamer.model.thinker import load

    for role in ("edge", "cloud"):
        warm_up(load("embedded", role))


if __name__ == "__main__":
    main()
