"""Messages arrive as they were sent, keep to their sizes, and garbage raises WireError only."""

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamer.core.decoding.plan import Verdict, VerifyRequest
from streamer.core.link import wire

IDS = st.lists(st.integers(0, 151_935), max_size=40).map(tuple)


def over_the_wire(message):
    decode = wire.decode_up if isinstance(message, wire.Up) else wire.decode_down
    return decode(wire.encode(message))


@given(
    number=st.integers(1, 255),
    base=st.integers(0, 127),
    prefix=st.binary(min_size=8, max_size=8),
    unverified=IDS,
    draft=IDS,
    runs_on=st.booleans(),
)
def test_a_request_has_24_bytes_and_5_per_id(number, base, prefix, unverified, draft, runs_on):
    request = VerifyRequest(number, base, prefix, unverified, draft, runs_on)
    assert len(wire.encode(request)) <= 24 + 5 * (len(unverified) + len(draft))
    assert over_the_wire(request) == request


def test_a_verdict_is_a_few_bytes_and_2_for_each_id_that_stands():
    told = np.array([-0.001, -2.5, 0.0, -7.7, -1e4], "<f2")
    verdict = Verdict(20, 4, 151_000, told.tobytes())
    assert len(wire.encode(verdict)) <= 11 + 2 * len(told)
    assert over_the_wire(verdict).log_probs == tuple(told.tolist())


@pytest.mark.parametrize(
    "data",
    [
        *(b"", "text", b"\x91" * 5_000, wire.encode(wire.Finish(4, {})) + b"1", [4, 0, 1]),
        *([4, 1, 0, bytes(9), [], []], [4, 1, 0, bytes(8), [1 << 24], []]),
        *([4, 1, 0, bytes(8), [-1], []], [4, 1, 0, bytes(8), [], [0] * 321]),
        *([3, 16_000, {"rate": weights}] for weights in ((0, 1), (-1024, 0), (0,) * 33)),
        *([3, 16_000, {"x" * 201: (0, -1)}], [3, 16_000, {str(i): (0, -1) for i in range(17)}]),
    ],
)
def test_known_garbage_of_an_edge(data):
    with pytest.raises(wire.WireError):
        wire.decode_up(msgspec.msgpack.encode(data) if isinstance(data, list) else data)


@pytest.mark.parametrize("verdict", [[1, 0, -1], [1, 0, 1 << 24], [1, -1, 5], [-1, 0, 5]])
def test_ids_and_numbers_that_cannot_be_are_garbage_of_a_verifier(verdict):
    with pytest.raises(wire.WireError):
        wire.decode_down(msgspec.msgpack.encode([3, *verdict]))


@pytest.mark.parametrize("told", [[-1.0], [-1.0, 0.5], [-1.0, np.nan], [-np.inf, 0.0], [0.0] * 3])
def test_log_probabilities_that_cannot_be_are_garbage(told):
    data = msgspec.msgpack.encode([3, 20, 1, 9, np.array(told, "<f2").tobytes()])
    with pytest.raises(wire.WireError, match="log-probabilities"):
        wire.decode_down(data)


@given(st.lists(st.integers(-32_768, 32_767), max_size=50), st.booleans())
def test_samples_arrive_bit_for_bit(values, is_loud):
    """On PCM16's grid as 2 bytes each; beyond full scale or off the grid as 4."""
    samples = np.array(values, np.float32) / 32_768
    if is_loud:
        samples = np.concatenate([samples, np.array([1.5, 1e-9], np.float32)])
    message = wire.Audio.of(7, samples)
    assert message.is_float == is_loud
    assert len(message.data) == (4 if is_loud else 2) * len(samples)
    assert np.array_equal(over_the_wire(message).samples(), samples)
