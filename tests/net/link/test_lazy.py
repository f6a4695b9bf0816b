"""Audio that waits until a verdict is wanted."""

from __future__ import annotations

from dataclasses import replace

from speech import SAMPLES

from bench.proxy import Proxy
from bench.watched import opened
from streamer import Describer
from streamer.assembly.models import Models
from streamer.config import Config
from streamer.core.audio.pcm import from_pcm16
from streamer.core.audio.trim import trimmed
from streamer.core.decoding.gate import Gate
from streamer.recording import describe_recording


async def test_lazy_audio_crosses_only_when_a_verdict_is_wanted(verifier, wanted):
    """Eager: while someone speaks. Lazy: not a byte of it before the first request, then the whole
    turn, once."""
    pcm = SAMPLES[0].read_bytes()[44:]
    heard = 2 * len(trimmed(from_pcm16(pcm)))  # bytes; silence at its ends stays here
    for mode, audio, before in (
        ("exact", "eager", 0.9),
        ("exact", "lazy", 0.0),
        ("gated", "lazy", 0.0),
    ):
        async with (
            Proxy(int(verifier.rsplit(":", 1)[1])) as proxy,
            Describer.open(
                mode=mode, cloud=f"ws://127.0.0.1:{proxy.port}", cloud_audio=audio, threshold=0.0
            ) as describer,
            describer.session() as session,
        ):
            await session.feed(pcm)
            await session._stream.catch_up(0)
            assert before * heard <= proxy.num_up < 2_000 + (1.1 * heard if before else 0)
            await session.commit()
            events = [event async for event in session]
            assert heard < events[-1].bytes_up < 1.1 * heard + 2_000
            assert events[-1].verified_share > 0.5
            if mode == "exact":
                assert list(events[-1].ids) == wanted["exact"][SAMPLES[0].name]["ids"]


class NeverDoubts(Models):
    """Their gate never fires."""

    @property
    def plan(self):
        return replace(super().plan, gate=Gate(entropy=99.0, density=None, loop=False))


async def test_lazy_audio_of_a_turn_without_requests_never_crosses(verifier):
    """Nothing goes up, whatever the verifier could say."""
    options = {"cloud": verifier, "mode": "gated", "cloud_audio": "lazy"}
    async with opened(NeverDoubts(Config.from_mapping(options))) as parts:
        for file in SAMPLES:
            found = await describe_recording(parts, file)
            assert (found.bytes_up, found.bytes_down, found.cloud_calls) == (0, 0, 0)
