"""`streamer describe` with a verifier elsewhere says what one process says; errors are one line."""

import os

import pytest
import tiny
from far import verifying
from processes import describe
from speech import RATE_HZ, SAMPLES, speech

from bench.proxy import Proxy
from streamer import Describer
from streamer.core.attributes import parse
from streamer.core.audio.pcm import from_pcm16
from streamer.core.audio.trim import trimmed


@pytest.mark.parametrize("mode", ["exact", "cloud", "gated"])
def test_two_processes_say_what_one_says(verifier, wanted, mode):
    status, rows, told = describe(*SAMPLES, "--mode", mode, "--cloud", verifier)
    assert (status, told) == (0, "")
    for row in rows:
        one = wanted["gated" if mode == "gated" else "exact"][os.path.basename(row["file"])]
        for name in ("text", "ids", "stop_reason"):
            assert row[name] == one[name]
        assert row["mode"] == mode
    assert len(rows) == len(SAMPLES)


async def test_chance_and_the_form_are_the_same_on_both_sides(verifier):
    """Tokens that break the form are chosen again on both sides: at T 1.5 that is often."""
    texts = []
    for mode, cloud in (("cloud", "embedded"), ("exact", verifier), ("cloud", verifier)):
        async with Describer.open(mode=mode, cloud=cloud, temperature=1.5, seed=2) as d:
            texts.append((await d.describe((speech(4, 3), RATE_HZ))).text)
            assert None not in parse(texts[-1], d.attributes).values(), texts[-1]
    assert texts == texts[:1] * 3


async def test_each_turn_has_its_language(tmp_path):
    edge, cloud = tiny.save_bilingual(tmp_path)
    source, languages = (speech(4, 3), RATE_HZ), ("zh", "en", "zh")
    async with Describer.open(mode="cloud", edge=edge, cloud=cloud) as near:
        wanted = [await near.describe(source, language=each) for each in languages]
    with verifying("--cloud", cloud) as (url, _):
        async with Describer.open(mode="exact", edge=edge, cloud=url) as d:
            found = [await d.describe(source, language=each) for each in languages]
    assert [one.ids for one in found] == [one.ids for one in wanted]
    assert [one.text.isascii() for one in found] == [False, True, False]


async def test_lazy_audio_crosses_only_when_a_verdict_is_wanted(verifier, wanted):
    """Eager crosses during speech, lazy as a whole after the first request."""
    pcm = SAMPLES[0].read_bytes()[44:]
    heard = 2 * len(trimmed(from_pcm16(pcm)))  # bytes; silence at its ends stays here
    port = int(verifier.rsplit(":", 1)[1])
    for mode, audio, before in (
        ("exact", "eager", 0.9),
        ("exact", "lazy", 0),
        ("gated", "lazy", 0),
    ):
        options = {"mode": mode, "cloud_audio": audio, "threshold": 0.0}
        async with (
            Proxy(port) as proxy,
            Describer.open(cloud=f"ws://127.0.0.1:{proxy.port}", **options) as describer,
            describer.session() as session,
        ):
            await session.feed(pcm)
            await session.catch_up(0)
            assert before * heard <= proxy.num_up < 2_000 + (1.1 * heard if before else 0)
            await session.commit()
            events = [event async for event in session]
            assert heard < events[-1].bytes_up < 1.1 * heard + 2_000
            assert events[-1].verified_share > 0.5
            if mode == "exact":
                assert list(events[-1].ids) == wanted["exact"][SAMPLES[0].name]["ids"]
