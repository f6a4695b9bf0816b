"""The words stay with the measures: on both sides alike, near and far, shown or not."""

from __future__ import annotations

import random

import pytest
from far import verifying
from places import ROOT
from speech import SAMPLES

from streamer import Describer
from streamer.assembly import parts
from streamer.core.attributes import parse
from streamer.core.measures.levels import MEASURES, NUM_LEVELS, SURE, levels_of, said_ranges
from streamer.core.rules.form import BEGIN
from streamer.core.rules.settings import Rules
from streamer.model.thinker import form_of, load

FAST = str(ROOT / "samples" / "fast_loud.wav")


async def said(mode: str, files=(FAST,), measures=True, **options):
    async with Describer.open(mode=mode, **options) as describer:
        found = [await describer.describe(str(file), measures=measures) for file in files]
        return found, describer.attributes


def gaps(found, levels) -> dict[str, int]:
    """attribute -> how many levels the sentence is off its measure, where that is known."""
    return {
        name: abs(found.attributes[name] - level)
        for name, level in levels.items()
        if name in MEASURES and level is not None
    }


async def test_a_sentence_that_contradicts_its_measure_is_set_right() -> None:
    """Of this synthetic voice the models say that it is slower than it is. The words follow the
    measures in each mode, also where the measures are not shown."""
    [free], _ = await said("exact", measures=False, words="models")
    texts = {}
    for mode in ("edge", "gated", "exact", "cloud"):
        [found], phrases = await said(mode)
        [unshown], _ = await said(mode, measures=False)
        assert unshown.text == found.text
        assert unshown.measures is None
        levels = levels_of(found.measures)
        ranges = said_ranges(found.measures, phrases)
        assert max(gaps(found, levels).values()) <= 1
        assert all(low <= found.attributes[n] <= high for n, (low, high) in ranges.items())
        for name, (low, high) in ranges.items():
            if low == high:
                assert found.confidence[name] == SURE[name]
        texts[mode] = found.text
    assert gaps(free, levels)["rate"] > 0
    assert texts["exact"] == texts["cloud"] != free.text


async def test_the_models_alone_are_asked_where_words_are_theirs(monkeypatch) -> None:
    def never(*_):
        raise AssertionError("the measures were not asked for")

    monkeypatch.setattr(parts, "said_ranges", never)
    [found], _ = await said("exact", measures=False, words="models")
    assert found.text.endswith("。")
    assert found.measures is None


def drawn_ranges(seed: int) -> dict[str, tuple[int, int]]:
    chance = random.Random(seed)
    return {
        name: tuple(sorted(chance.choices(range(num), k=2)))
        for name, num in NUM_LEVELS.items()
        if name in MEASURES and chance.random() < 0.8
    }


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(i, marks=pytest.mark.long) for i in range(1, 5))]
)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
async def test_exact_says_what_the_cloud_says_within_any_ranges(
    monkeypatch, temperature, seed
) -> None:
    """The edge keeps to them too, and the sentence has its form."""
    texts = {}
    for mode in ("edge", "exact", "cloud"):
        async with Describer.open(mode=mode, temperature=temperature, seed=seed) as describer:
            for i in range(5):
                ranges = drawn_ranges(i)
                monkeypatch.setattr(parts, "said_ranges", lambda *_, r=ranges: r)
                found = await describer.describe(str(SAMPLES[i % 2]), measures=True)
                texts[mode, i] = found.text
                levels = parse(found.text, describer.attributes)
                assert None not in levels.values()
                assert all(low <= levels[n] <= high for n, (low, high) in ranges.items())
    assert all(texts["exact", i] == texts["cloud", i] for i in range(5))


async def test_a_verifier_elsewhere_is_told_the_ranges() -> None:
    [here], _ = await said("cloud")
    with verifying() as (url, _):
        for mode in ("exact", "cloud"):
            [there], _ = await said(mode, cloud=url)
            assert (there.text, there.ids) == (here.text, here.ids)


async def test_a_live_turn_says_what_the_recording_says() -> None:
    import soundfile

    pcm, rate = soundfile.read(FAST, dtype="int16")
    [recorded], _ = await said("exact")
    async with (
        Describer.open(mode="exact") as describer,
        describer.session(rate, measures=True) as session,
    ):
        for at in range(0, len(pcm), 1_600):
            await session.feed(pcm[at : at + 1_600].tobytes())
        await session.commit()
        *_, found = [event async for event in session]
    assert found.text == recorded.text


async def test_exact_says_what_the_cloud_says_under_any_weights(monkeypatch) -> None:
    """Also where weights only favour levels, greedy and drawn."""
    chance = random.Random(3)
    for temperature in (0.0, 1.0):
        weights = {
            name: tuple(chance.sample([0, *(-chance.randrange(200) for _ in range(num - 1))], num))
            for name, num in NUM_LEVELS.items()
        }
        monkeypatch.setattr(parts, "weights_of_ranges", lambda *_, w=weights: w)
        texts = {
            mode: (await said(mode, temperature=temperature))[0][0].text
            for mode in ("exact", "cloud")
        }
        assert texts["exact"] == texts["cloud"]


def test_the_form_of_a_card_is_made_once() -> None:
    """Weights make a view of it: its table is shared."""
    thinker = load("embedded", "edge")
    whole = form_of(thinker, Rules())
    held = form_of(thinker, Rules(), {"rate": (0, -1, -2, -3, -4)})
    assert whole is form_of(thinker, Rules())
    assert held is not whole
    assert held.allowed(BEGIN) is whole.allowed(BEGIN)
