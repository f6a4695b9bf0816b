"""Sentences in Chinese and in English, by a tiny random pair that speaks both."""

import warnings

import anyio
import pytest
import tiny
from speech import RATE_HZ, speech

from pipelines.embedded.export import card
from streamer import Describer
from streamer.assembly.models import PromiseWarning
from streamer.model.checkpoint.card import read_card

CARD = card("tiny")
SOURCE = (speech(4, 3), RATE_HZ)


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """Keywords of a describer."""
    edge, cloud = tiny.save_bilingual(tmp_path_factory.mktemp("bilingual"))
    return {"edge": edge, "cloud": cloud}


async def test_a_session_has_a_language_of_its_own(pair):
    """Streamed as a whole recording; live updates speak it, too. Two at once on one pair."""
    pcm = (speech(6, 5) * 32767).astype("<i2")
    found = {}

    async def keep(d, language):
        async with d.session(RATE_HZ, language=language, live_update_s=2) as session:
            for at in range(0, len(pcm), 10_000):
                await session.feed(pcm[at : at + 10_000].tobytes())
            await session.commit()
            events = [event async for event in session]
        for event in events:
            if text := getattr(event, "text", ""):
                assert text.isascii() == (language == "en"), text
        found[language] = events[-1]

    async with Describer.open(mode="exact", **pair) as d:
        async with anyio.create_task_group() as group:
            for language in ("zh", "en"):
                group.start_soon(keep, d, language)
        for language, one in found.items():
            whole = await d.describe((pcm, RATE_HZ), language=language)
            assert (one.text, one.language) == (whole.text, language)
        with pytest.raises(ValueError, match="language is 'de'; these models speak zh and en"):
            await d.describe(SOURCE, language="de")


async def test_a_promise_holds_for_its_language(pair, tmp_path):
    """The thresholds serve both languages; the promise is claimed for the one of its card."""
    promise = {"risk": 0.1, "confidence": 0, "signal": "entropy", "num_clips": 9}
    promise |= {"date": "2026-11-26", "cloud": "tiny"}
    gate = {"fluent": {"entropy": 0.5, "promise": promise}}
    tiny.save_tiny(tmp_path / "edge", 1, card={**CARD, "gate": gate})
    assert read_card(tmp_path / "edge").speaking("en").presets["fluent"].threshold == 0.5
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", PromiseWarning)
        async with Describer.open(edge=str(tmp_path / "edge"), cloud=pair["cloud"]) as d:
            await d.load()
            assert not told
            await d.describe(SOURCE, language="en")
    assert [str(each.message) for each in told] == [
        "the gate's promise was not made for sentences in en; "
        "leave that out, or take mode exact to be sure"
    ]
