"""The messages of the link, version 5, as MessagePack arrays.

A websocket carries one turn. The edge opens the turn, sends its audio and its end, then asks about
blocks; the verifier says how much it has heard and answers each request. Closing the websocket with
1000 ends the turn; after any other end the edge opens another websocket and resumes the turn.
Every bound of a field is checked on arrival. VerifyRequest, Verdict and Refusal are those that the
state machine knows (core/decoding/plan.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import msgspec
import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from streamer.core.audio.pcm import MAX_MAGNITUDE, PCM16_SCALE, from_pcm16
from streamer.core.decoding.plan import Count, Message, Refusal, Verdict, VerifyRequest, Word
from streamer.core.rules.settings import FLOOR

VERSION = 5
PATH = "/v1/verify"
VERSION_QUERY = "wire"  # PATH?wire=5: a verifier refuses other versions before the upgrade
MAX_AUDIO_BYTES = 65_536  # of one Audio: 2 s of PCM16
MAX_MESSAGE_BYTES = MAX_AUDIO_BYTES + 1_024

Weight = Annotated[int, Meta(ge=FLOOR, le=0)]
AttributeWeights = Annotated[tuple[Weight, ...], Meta(max_length=32)]
Weights = Annotated[dict[Word, AttributeWeights], Meta(max_length=16)]


class WireError(ValueError):
    """The bytes are not a message of this protocol."""


class Open(Message, tag=1, frozen=True):
    """Begin a turn, or resume it after its websocket was cut.

    session: 16 random bytes that name the turn. model: the fingerprint that the verifier must
    have, "" for any. phrases: a digest of the phrases of the rules' form, "" for none. rules and
    sampling: how the edge chooses ids.
    """

    session: Annotated[bytes, Meta(min_length=16, max_length=16)]
    model: Word
    tokenizer: Word
    phrases: Word
    rules: dict[Word, bool | int | float | Word]
    sampling: tuple[float, float, Annotated[int, Meta(ge=0)]]  # temperature, top-p, seed


class Audio(Message, tag=2, frozen=True):
    """16 kHz mono from sample `start` on: PCM16, or float32 where PCM16 would lose something."""

    start: Count
    data: Annotated[bytes, Meta(max_length=MAX_AUDIO_BYTES)]
    is_float: bool

    @classmethod
    def of(cls, start: int, samples: NDArray[np.float32]) -> Audio:
        """Pack samples [n] float32 without loss."""
        scaled = samples * PCM16_SCALE
        pcm = np.clip(scaled, -PCM16_SCALE, PCM16_SCALE - 1).astype("<i2")
        if np.array_equal(pcm, scaled):
            return cls(start, pcm.tobytes(), False)
        return cls(start, samples.astype("<f4").tobytes(), True)

    def samples(self) -> NDArray[np.float32]:
        """Samples [n] float32, bit for bit as packed. Raises WireError."""
        if len(self.data) % (4 if self.is_float else 2):
            raise WireError(f"{len(self.data)} bytes are no whole number of samples")
        if not self.is_float:
            return from_pcm16(self.data)
        samples = np.frombuffer(self.data, "<f4").astype(np.float32)
        if not (np.abs(samples) <= MAX_MAGNITUDE).all():
            raise WireError("samples that are no audio")
        return samples


class Finish(Message, tag=3, frozen=True):
    """The turn has `num_samples`: prefill the rest.

    weights: of the levels that the sentence may say (core/rules/settings.py).
    """

    num_samples: Count
    weights: Weights


class Heard(Message, tag=2, frozen=True):
    """`num_samples` are prefilled; is_finished: all of the turn, and the suffix.

    model: the verifier's fingerprint in the first one of a websocket, after which the edge sends
    what is missing; "" in the others.
    """

    num_samples: Count
    is_finished: bool
    model: Word = ""


class Rejected(Message, tag=5, frozen=True):
    """The verifier does not serve the turn (any more); is_final: opening it again is useless."""

    is_final: bool
    reason: Word


Up = Open | Audio | Finish | VerifyRequest
Down = Heard | Verdict | Refusal | Rejected
encode = msgspec.msgpack.Encoder().encode


def _reader(kind: Any) -> Callable[[bytes | str], Any]:
    decode = msgspec.msgpack.Decoder(kind).decode

    def read(data: bytes | str) -> Any:
        if isinstance(data, str):
            raise WireError("a text message; this link is binary")
        try:
            return decode(data)
        except (msgspec.MsgspecError, RecursionError, UnicodeError, ValueError) as error:
            raise WireError(str(error)[:200]) from None

    return read


# read a message from an edge, and one from a verifier; they raise WireError
decode_up: Callable[[bytes | str], Up] = _reader(Up)
decode_down: Callable[[bytes | str], Down] = _reader(Down)
