"""The messages of the link, version 5, as MessagePack arrays.

A websocket carries one turn. The edge opens the turn, sends its audio and its end, then asks about
blocks; the verifier says how much it has heard and answers each request. Closing the websocket with
1000 ends the turn; after any other end the edge opens another websocket and resumes the turn.
Every bound of a field is checked on arrival.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import numpy as np
from msgspec import Meta, Struct
from numpy.typing import NDArray

from streamer.core.audio.pcm import MAX_MAGNITUDE, PCM16_SCALE, from_pcm16
from streamer.core.decoding.plan import Verdict, VerifyRequest
from streamer.core.rules.settings import FLOOR

VERSION = 5
PATH = "/v1/verify"
VERSION_QUERY = "wire"  # PATH?wire=5: a verifier refuses other versions before the upgrade
MAX_IDS = 320  # of one list: the longest answer and the longest draft, with room
MAX_ATTRIBUTES = 16
MAX_LEVELS = 32  # of one attribute
MAX_AUDIO_BYTES = 65_536  # of one Audio: 2 s of PCM16
MAX_MESSAGE_BYTES = MAX_AUDIO_BYTES + 1_024

Count = Annotated[int, Meta(ge=0, lt=1 << 31)]
Id = Annotated[int, Meta(ge=0, lt=1 << 24)]
Ids = Annotated[tuple[Id, ...], Meta(max_length=MAX_IDS)]
Word = Annotated[str, Meta(max_length=200)]
Weight = Annotated[int, Meta(ge=FLOOR, le=0)]
Weights = Annotated[
    dict[Word, Annotated[tuple[Weight, ...], Meta(max_length=MAX_LEVELS)]],
    Meta(max_length=MAX_ATTRIBUTES),
]


class WireError(ValueError):
    """The bytes are not a message of this protocol."""


class Message(Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """A MessagePack array: the kind, then the fields."""


class Open(Message, tag=1, frozen=True):
    """Begin a turn, or resume it after its websocket was cut.

    session: 16 random bytes that name the turn. model: the fingerprint that the verifier must
    have, "" for any. rules and sampling: how the edge chooses ids; `phrases` among the rules is a
    digest of the phrases of their form, "" for none.
    """

    session: Annotated[bytes, Meta(min_length=16, max_length=16)]
    model: Word
    tokenizer: Word
    language: Word
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

    @property
    def num_samples(self) -> int:
        return len(self.data) // (4 if self.is_float else 2)

    def samples(self) -> NDArray[np.float32]:
        """Samples [n] float32, bit for bit as packed. Raises WireError."""
        width = 4 if self.is_float else 2
        if len(self.data) % width:
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


class Verify(Message, tag=4, frozen=True):
    """One block: see VerifyRequest in core/decoding/plan.py.

    runs_on: the verifier then decodes alone to the end, a Judged per id.
    """

    number: Count
    base: Count
    prefix: Annotated[bytes, Meta(min_length=8, max_length=8)]
    unverified: Ids
    draft: Ids
    runs_on: bool = False

    @classmethod
    def of(cls, request: VerifyRequest, runs_on: bool = False) -> Verify:
        r = request
        return cls(r.number, r.base, r.prefix, r.unverified, r.draft, runs_on)

    def request(self) -> VerifyRequest:
        return VerifyRequest(self.number, self.base, self.prefix, self.unverified, self.draft)


class Opened(Message, tag=1, frozen=True):
    """The turn has a KV slot and `num_samples`: send the rest. model: its fingerprint."""

    num_samples: Count
    model: Word


class Heard(Message, tag=2, frozen=True):
    """`num_samples` are prefilled; is_finished: all of the turn, and the suffix."""

    num_samples: Count
    is_finished: bool


class Judged(Message, tag=3, frozen=True):
    """See Verdict in core/decoding/plan.py. log_probs: float16, or empty."""

    number: Count
    n_accepted: Count
    next_id: Id
    log_probs: Annotated[bytes, Meta(max_length=2 * MAX_IDS)] = b""

    @classmethod
    def of(cls, verdict: Verdict) -> Judged:
        packed = np.array(verdict.log_probs, "<f2").tobytes()
        return cls(verdict.number, verdict.n_accepted, verdict.next_id, packed)

    def verdict(self) -> Verdict:
        """Raises WireError for log-probabilities that cannot be."""
        n = self.n_accepted + 1
        if len(self.log_probs) not in (0, 2 * n):
            raise WireError(f"{len(self.log_probs)} bytes are no log-probabilities of {n} ids")
        found = np.frombuffer(self.log_probs, "<f2")
        if not (np.isfinite(found) & (found <= 0)).all():
            raise WireError("numbers that are no log-probabilities")
        return Verdict(self.number, self.n_accepted, self.next_id, tuple(found.tolist()))


class Refused(Message, tag=4, frozen=True):
    """The request was not applied: see Refusal in core/decoding/plan.py."""

    number: Count
    reason: Word


class Rejected(Message, tag=5, frozen=True):
    """The verifier does not serve the turn (any more); is_final: opening it again is useless."""

    is_final: bool
    reason: Word


Up = Open | Audio | Finish | Verify
Down = Opened | Heard | Judged | Refused | Rejected
_encoder = msgspec.msgpack.Encoder()
_up: msgspec.msgpack.Decoder[Up] = msgspec.msgpack.Decoder(Up)
_down: msgspec.msgpack.Decoder[Down] = msgspec.msgpack.Decoder(Down)


def encode(message: Up | Down) -> bytes:
    return _encoder.encode(message)


def decode_up(data: bytes | str) -> Up:
    """A message from an edge. Raises WireError."""
    return _decode(_up, data)


def decode_down(data: bytes | str) -> Down:
    """A message from a verifier. Raises WireError."""
    return _decode(_down, data)


def _decode(decoder: Any, data: bytes | str) -> Any:
    if isinstance(data, str):
        raise WireError("a text message; this link is binary")
    try:
        return decoder.decode(data)
    except (msgspec.MsgspecError, RecursionError, UnicodeError, ValueError) as error:
        raise WireError(str(error)[:200]) from None
