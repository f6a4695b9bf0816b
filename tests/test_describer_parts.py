"""Long recordings in parts, through the public API: where a part begins and ends, what is told on the
way, how deltas grow."""

from dataclasses import dataclass
from functools import partial

import numpy as np
import pytest
from sound_files import wav
from speech import RATE_HZ, speech

from bench.arms import models_of
from bench.watched import Between, Passing, opened
from streamer import Describer, TextDelta
from streamer.recording import Listeners, as_live, describe_recording


@pytest.fixture
def options(tiny_pair):
    return {"edge": str(tiny_pair[0]), "cloud": str(tiny_pair[1])}


async def test_a_long_recording_is_described_in_parts(options, tmp_path):
    file = wav(
        tmp_path / "long.wav",
        np.concatenate([speech(61, 1), np.zeros(59 * RATE_HZ, np.float32), speech(10, 2)]),
    )
    async with Describer.open(mode="edge", **options) as describer:
        result = await describer.describe(file)
    assert [round(part.audio_s) for part in result.parts] == [60, 60, 10]
    assert result.text == "".join(part.text for part in result.parts)
    assert (
        result.parts[0].n_tokens + result.parts[1].n_tokens + result.parts[2].n_tokens
        == result.n_tokens
    )
    assert result.audio_s == pytest.approx(130, abs=0.01)


async def test_progress_and_where_a_part_begins_are_told(options, tmp_path):
    file, told, begun = (
        wav(tmp_path / "long.wav", np.concatenate([speech(61, 1), speech(9, 2)])),
        [],
        {},
    )
    async with Describer.open(mode="edge", **options) as describer:
        result = await describer.describe(
            file, lambda d: begun.setdefault(d.from_s, d.text), lambda *at: told.append(at)
        )
        short = []
        await describer.describe(wav(tmp_path / "short.wav", speech(4, 1)), short.append)
    assert list(begun) == [0.0, result.parts[0].audio_s]
    assert {delta.from_s for delta in short} == {None}
    assert [of_s for _, of_s in told] == [pytest.approx(70, abs=0.01)] * len(told)
    steps = np.diff([0.0, *(heard_s for heard_s, _ in told), 70.0])
    assert len(told) >= 12
    assert (steps < 7).all()


@pytest.mark.parametrize(("mode", "most"), [("edge", 1), ("gated", 5), ("exact", 9)])
async def test_a_sentence_grows_however_fast_it_is_drafted(options, samples, mode, most):
    """Runs of blocks are drafted in one go (core/decoding/pace.py); what is shown comes by ids,
    blocks and verdicts."""
    deltas = []
    async with Describer.open(mode=mode, k=4, **options) as describer:
        result = await describer.describe(samples[0], deltas.append)
        async with describer.session(16_000) as session:
            await session.feed((speech(4, 1) * 32767).astype("<i2").tobytes())
            await session.commit()
            live = [event async for event in session if isinstance(event, TextDelta)]
    assert sum((delta.ids for delta in deltas), ()) == result.ids
    assert max(len(delta.ids) for delta in [*deltas, *live]) <= most
    assert len(deltas) >= len(result.ids) / most
    assert len(live) >= 2


async def test_a_recording_a_little_longer_than_a_turn_has_its_times(options, tmp_path):
    """60.01 s: the last 10 ms once were a part of their own, without speech and so without TTFT."""
    file = wav(tmp_path / "long.wav", np.pad(speech(60, 1), (0, 160)))
    silent_end = wav(tmp_path / "end.wav", np.pad(speech(60, 1), (0, 6 * RATE_HZ)))
    async with Describer.open(mode="edge", **options) as describer:
        for result, seconds in (
            (await describer.describe(file), [58, 2]),
            (await describer.describe(silent_end), [60, 6]),
        ):
            assert [round(part.audio_s) for part in result.parts] == seconds
            assert 0 < result.ttft_ms <= result.total_ms
        assert result.parts[1].stop_reason == "no_speech"
        assert result.stop_reason == result.parts[0].stop_reason


@pytest.mark.parametrize("n", [0, 1, 1_601, 31_999, 32_040, 32_041, 64_040, 64_041, 100_000])
def test_the_last_piece_is_what_a_microphone_sends_last(n):
    """Whole windows first, then what lies behind the last of them, at most 100 ms of it apart;
    nothing is lost."""
    source = np.arange(n, dtype=np.float32)
    pieces = list(as_live(iter([source[: n // 3], source[n // 3 :]])))
    np.testing.assert_array_equal(np.concatenate([np.zeros(0, np.float32), *pieces]), source)
    num_whole = max(0, (n - 41) // 32_000)
    rest = n - 32_000 * num_whole - 40 * (num_whole > 0)
    last = (rest - 1) % 1_600 + 1 if rest else 0
    lengths = [32_040, *[32_000] * (num_whole - 1)][:num_whole]
    assert [len(piece) for piece in pieces] == [
        length for length in (*lengths, rest - last, last) if length
    ]


async def test_ttft_is_the_first_text_and_prefill_ends_with_the_first_step(options, samples):
    async with Describer.open(mode="exact", **options) as describer:
        deltas = []
        result = await describer.describe(samples[0], deltas.append)
    with_text = [delta for delta in deltas if delta.text]
    assert result.ttft_ms == with_text[0].at_ms
    assert 0 < result.prefill_ms < result.ttft_ms
    assert result.tokens_per_s == pytest.approx(
        1000 * result.n_tokens / (result.total_ms - result.prefill_ms)
    )


@dataclass(frozen=True)
class HalfCharacters(Passing):
    """An emitter; the first two of what it is given complete no character."""

    late: list

    def push(self, ids):
        self.late.append(self.inner.push(ids))
        num = len(self.late)
        return "".join(self.late) if num == 3 else "" if num < 3 else self.late[-1]


async def test_half_a_character_is_no_first_text(options, samples):
    """The first delta may complete no character; TTFT is what a reader sees."""
    deltas = []
    async with opened(models_of(mode="edge", **options)) as parts:
        slow = Between(parts, emitter_of=partial(HalfCharacters, late=[]))
        result = await describe_recording(slow, samples[0], Listeners(deltas.append))
    assert [bool(delta.text) for delta in deltas[:3]] == [False, False, True]
    assert result.ttft_ms == deltas[2].at_ms
    assert result.text == "".join(delta.text for delta in deltas)
