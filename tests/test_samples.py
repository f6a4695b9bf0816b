"""Each bundled sample is spoken as its name says."""

import pytest
from places import ROOT

from streamer import Describer

# attribute -> the levels that the name allows, lowest 0
NAMES = {
    "fast_loud": {"rate": (3, 4), "loudness": (3,)},
    "pauses": {"pauses": (2,)},
    "plain": {"rate": (1, 2, 3), "loudness": (2,), "pauses": (0,)},
    "slow_soft": {"rate": (0, 1), "loudness": (0, 1)},
}


@pytest.mark.parametrize("mode", ["edge", "exact"])
async def test_the_sentence_of_a_sample_agrees_with_its_name(mode):
    assert {path.stem for path in (ROOT / "samples").glob("*.wav")} == set(NAMES)
    async with Describer.open(mode=mode) as describer:
        for name, levels in NAMES.items():
            found = await describer.describe(str(ROOT / "samples" / f"{name}.wav"))
            said = {attribute: found.attributes[attribute] for attribute in levels}
            assert all(said[attribute] in allowed for attribute, allowed in levels.items()), name
