"""Each bundled sample is spoken as its name says, whatever else is in the recording."""

import numpy as np
import pytest
import soundfile
from places import ROOT

from streamer import Describer

# attribute -> the levels that the name allows, lowest 0
NAMES = {
    "fast_loud": {"rate": (3, 4), "loudness": (3,)},
    "pauses": {"pauses": (2,)},
    "plain": {"rate": (1, 2, 3), "loudness": (2,), "pauses": (0,)},
    "slow_soft": {"rate": (0, 1), "loudness": (0, 1)},
}
SILENCE = np.zeros(5 * 16_000, np.float32)
ROOM = np.random.default_rng(0).normal(0, 1e-3, 5 * 16_000).astype(np.float32)
CHANGES = {
    "silence before": lambda x: np.concatenate([SILENCE, x]),
    "silence after": lambda x: np.concatenate([x, SILENCE, SILENCE]),
    "a room's noise before": lambda x: np.concatenate([ROOM, x]),
    "a room's noise after": lambda x: np.concatenate([x, ROOM]),
    "an offset": lambda x: x + np.float32(0.03),
    "a dead channel with an offset": lambda x: np.stack([0 * x + np.float32(0.1), x], 1),
    "the centre of six channels": lambda x: np.stack([x if i == 2 else 0 * x for i in range(6)], 1),
    "channels out of phase": lambda x: np.stack([x, -x, 0 * x, 0 * x], 1),
}


@pytest.mark.parametrize("mode", ["edge", "exact"])
async def test_the_sentence_of_a_sample_agrees_with_its_name(mode):
    """At most 0.05 of the seven levels change with the recording: one may lie beside an edge."""
    assert {path.stem for path in (ROOT / "samples").glob("*.wav")} == set(NAMES)
    changed = []
    async with Describer.open(mode=mode) as describer:
        for name, levels in NAMES.items():
            sound, rate = soundfile.read(ROOT / "samples" / f"{name}.wav", dtype="float32")
            wanted = (await describer.describe((sound, rate))).attributes
            assert all(wanted[each] in allowed for each, allowed in levels.items()), name
            for change, of in CHANGES.items() if mode == "edge" else ():
                found = (await describer.describe((of(sound), rate))).attributes
                changed += [(name, change, a) for a in wanted if found[a] != wanted[a]]
    assert len(changed) <= len(NAMES) * len(CHANGES) * 0.05, changed
