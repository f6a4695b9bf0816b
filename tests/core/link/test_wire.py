"""The messages of the link: what is sent arrives, sizes hold their budget, garbage is WireError and
nothing else."""

from contextlib import suppress

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamer.core.decoding.verdict import Verdict, VerifyRequest
from streamer.core.link import packing, wire

IDS = st.lists(st.integers(0, 151_935), max_size=40).map(tuple)


@given(
    number=st.integers(1, 255),
    base=st.integers(0, 127),
    prefix=st.binary(min_size=8, max_size=8),
    unverified=IDS,
    draft=IDS,
    channel=st.integers(0, 255),
    epoch=st.integers(1, 65_535),
)
def test_a_request_arrives_within_its_budget(
    number, base, prefix, unverified, draft, channel, epoch
):
    """At most 24 bytes and 3 per id, for any vocabulary of Qwen's size."""
    request = VerifyRequest(number, base, prefix, unverified, draft)
    data = wire.encode(packing.verify_message(channel, epoch, request))
    assert len(data) <= 24 + 3 * (len(unverified) + len(draft)) + (len(unverified) > 85)
    message = wire.decode_up(data)
    assert (message.channel, message.epoch) == (channel, epoch)
    assert packing.request_of(message) == request


def test_a_verdict_is_a_few_bytes():
    """And 2 for each id that stands; what was rounded to float16 arrives as it was."""
    told = tuple(np.array([-0.001, -2.5, 0.0, -7.7, -1e4], np.float16).tolist())
    verdict = Verdict(20, 4, 151_000, told)
    data = wire.encode(packing.judged_message(0, 1, verdict))
    assert len(data) <= 13 + 2 * len(told)
    arrived = packing.verdict_of(wire.decode_down(data))
    assert (arrived, arrived.log_probs) == (verdict, told)


@pytest.mark.parametrize("told", [[-1.0], [-1.0, 0.5], [-1.0, np.nan], [-np.inf, 0.0], [0.0] * 3])
def test_log_probabilities_that_cannot_be_are_garbage(told):
    data = np.array(told, "<f2").tobytes()
    with pytest.raises(wire.WireError, match="log-probabilities"):
        packing.verdict_of(wire.Judged(0, 1, 20, 1, 9, data))
    assert packing.verdict_of(wire.Judged(0, 1, 20, 1, 9)).log_probs == ()


@settings(max_examples=300)
@given(st.binary(max_size=300))
def test_garbage_is_refused(data):
    for decode in (wire.decode_up, wire.decode_down):
        with suppress(wire.WireError):
            assert wire.encode(decode(data))


@pytest.mark.parametrize(
    "data", [b"", "text", b"\x91" * 5_000, wire.encode(wire.Ping(4)) + b"1", b"\x94\x04\x00\x01"]
)
def test_known_garbage(data):
    with pytest.raises(wire.WireError):
        wire.decode_up(data)


def test_half_ids_and_half_samples_are_garbage():
    with pytest.raises(wire.WireError, match="whole number of ids"):
        packing.unpack_ids(b"1234")
    for is_float, size in ((False, 3), (True, 6)):
        with pytest.raises(wire.WireError, match="whole number of samples"):
            packing.unpack_audio(wire.AudioMessage(0, 0, bytes(size), is_float))
    with pytest.raises(wire.WireError, match="no audio"):
        packing.unpack_audio(wire.AudioMessage(0, 0, np.array([np.nan], "<f4").tobytes(), True))


@given(st.lists(st.integers(-32_768, 32_767), max_size=50), st.booleans())
def test_samples_arrive_bit_for_bit(values, is_loud):
    """On PCM16's grid as 2 bytes each, beyond full scale or off the grid as 4."""
    samples = np.array(values, np.float32) / 32_768
    if is_loud:
        samples = np.concatenate([samples, np.array([1.5, 1e-9], np.float32)])
    data, is_float = packing.pack_audio(samples)
    assert is_float == is_loud
    assert len(data) == (4 if is_float else 2) * len(samples)
    assert np.array_equal(packing.unpack_audio(wire.AudioMessage(0, 0, data, is_float)), samples)


@given(
    st.dictionaries(
        st.text(max_size=12),
        st.lists(st.integers(-1023, 0), min_size=1, max_size=32).map(tuple),
        max_size=16,
    )
)
def test_level_weights_arrive(weights):
    message = wire.FinishWithin(3, 16_000, weights)
    assert wire.decode_up(wire.encode(message)) == message


@pytest.mark.parametrize(
    "weights",
    [
        {"rate": (0, 1)},
        {"rate": (-1024, 0)},
        {"rate": ()},
        {"rate": (0,) * 33},
        {"rate": (-0.5, 0)},
        {"rate": None},
        {"x" * 201: (0, -1)},
        {str(i): (0, -1) for i in range(17)},
        [("rate", 0, -1)],
    ],
)
def test_weights_out_of_bounds_are_garbage(weights):
    data = msgspec.msgpack.encode([8, 3, 16_000, weights])
    with pytest.raises(wire.WireError):
        wire.decode_up(data)
