"""What crosses the link. In: messages. Out: bytes, and back; WireError for garbage.

One link carries many turns, each on a channel of its own (the edge numbers them). Audio crosses
once, as PCM16; then ids only: a Verify is at most 24 bytes and 3 per id, a Judged a few bytes and
2 per id that stands.
Every bound of a field is checked on arrival.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from streamer.core.rules.level_weights import FLOOR

VERSION = 5
PATH = "/v1/verify"
MAX_CHANNELS = 256
MAX_EPOCH = 1 << 15  # a turn beyond it begins at 1: an epoch takes three bytes at most
MAX_IDS = 320  # of one Verify: the longest answer and the longest draft, with room
MAX_ATTRIBUTES = 16
MAX_LEVELS = 32  # of one attribute
MAX_AUDIO_BYTES = 65_536  # of one Audio: 2 s of PCM16
MAX_MESSAGE_BYTES = MAX_AUDIO_BYTES + 1_024

Channel = Annotated[int, Meta(ge=0, lt=MAX_CHANNELS)]
Count = Annotated[int, Meta(ge=0, lt=1 << 31)]
Hash = Annotated[int, Meta(ge=0)]  # 64 bits as an integer: a byte shorter than as bytes
PackedIds = Annotated[bytes, Meta(max_length=3 * MAX_IDS)]
Word = Annotated[str, Meta(max_length=200)]
# MessagePack takes one byte for a weight down to one nat under the best, at most three
Weight = Annotated[int, Meta(ge=FLOOR, le=0)]
Weights = Annotated[
    dict[Word, Annotated[tuple[Weight, ...], Meta(min_length=1, max_length=MAX_LEVELS)]],
    Meta(max_length=MAX_ATTRIBUTES),
]


class WireError(ValueError):
    """Bytes that are no message of this protocol; the link is closed."""


class Message(Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """A MessagePack array: kind, then the fields."""


class Open(Message, tag=1, frozen=True):
    """Hear a turn on `channel`, or go on with it after the link was cut.

    session: 16 random bytes that name the turn. epoch: one more than the channel's last, for each
    turn and each link that it is opened on: no reply to what is over is taken for a reply to what
    has begun. model: the fingerprint that the verifier must have, "" for any. rules, sampling: how
    ids are chosen, the edge's own; among the rules `phrases`, a digest of those that their form
    goes by, "" for none.
    """

    channel: Channel
    session: Annotated[bytes, Meta(min_length=16, max_length=16)]
    epoch: Count
    version: Count
    model: Word
    tokenizer: Word
    language: Word
    rules: dict[Word, bool | int | float | Word]
    sampling: tuple[float, float, Hash]  # temperature, top-p, seed


class AudioMessage(Message, tag=2, frozen=True):
    """16 kHz mono from sample `start` on: PCM16, or float32 where it is not on its grid."""

    channel: Channel
    start: Count
    data: Annotated[bytes, Meta(max_length=MAX_AUDIO_BYTES)]
    is_float: bool


class Finish(Message, tag=3, frozen=True):
    """The turn has `num_samples`; prefill what is left of it."""

    channel: Channel
    num_samples: Count


class VerifyMessage(Message, tag=4, frozen=True):
    """See VerifyRequest."""

    channel: Channel
    epoch: Count
    number: Count
    base: Count
    prefix: Hash
    unverified: PackedIds
    draft: PackedIds


class Decode(Message, tag=5, frozen=True):
    """A Verify without a draft, then a Judged unasked for each id to the answer's end."""

    channel: Channel
    epoch: Count
    number: Count
    base: Count
    prefix: Hash
    unverified: PackedIds


class Close(Message, tag=6, frozen=True):
    """The turn is over, or given up."""

    channel: Channel


class Ping(Message, tag=7, frozen=True):
    """Answered by a Pong with the same token."""

    token: Count


class FinishWithin(Message, tag=8, frozen=True):
    """A Finish of a turn whose words are weighted by its measures."""

    channel: Channel
    num_samples: Count
    weights: Weights


class OpenedMessage(Message, tag=1, frozen=True):
    """The turn has a KV slot and `num_samples`: send what follows. model: its fingerprint."""

    channel: Channel
    epoch: Count
    num_samples: Count
    model: Word


class HeardMessage(Message, tag=2, frozen=True):
    """So much is prefilled, said after each Audio; after Finish, all of it and the suffix."""

    channel: Channel
    epoch: Count
    num_samples: Count
    is_finished: bool


class Judged(Message, tag=3, frozen=True):
    """See core/decoding/verdict.py. log_probs: float16, little-endian; empty: not told."""

    channel: Channel
    epoch: Count
    number: Count
    n_accepted: Count
    next_id: Annotated[int, Meta(ge=0, lt=1 << 24)]
    log_probs: Annotated[bytes, Meta(max_length=2 * MAX_IDS)] = b""


class Refused(Message, tag=4, frozen=True):
    """The request `number` was not applied: see core/decoding/verdict.py's Refusal."""

    channel: Channel
    epoch: Count
    number: Count
    reason: Word


class Rejected(Message, tag=5, frozen=True):
    """There is no such turn here (any more). `is_final`: it makes no sense to ask again."""

    channel: Channel
    epoch: Count
    is_final: bool
    reason: Word


class Pong(Message, tag=6, frozen=True):
    token: Count


Up = Open | AudioMessage | Finish | FinishWithin | VerifyMessage | Decode | Close | Ping
OfTurn = AudioMessage | Finish | FinishWithin | VerifyMessage | Decode  # of one that is open
Down = OpenedMessage | HeardMessage | Judged | Refused | Rejected | Pong
_encoder = msgspec.msgpack.Encoder()
_up: msgspec.msgpack.Decoder[Up] = msgspec.msgpack.Decoder(Up)
_down: msgspec.msgpack.Decoder[Down] = msgspec.msgpack.Decoder(Down)


def encode(message: Up | Down) -> bytes:
    return _encoder.encode(message)


def decode_up(data: bytes | str) -> Up:
    """What an edge sent. Raises WireError."""
    return _decode(_up, data)


def decode_down(data: bytes | str) -> Down:
    """What a verifier sent. Raises WireError."""
    return _decode(_down, data)


def _decode(decoder: Any, data: bytes | str) -> Any:
    if isinstance(data, str):
        raise WireError("a text message; this link is binary")
    try:
        return decoder.decode(data)
    except (msgspec.MsgspecError, RecursionError, UnicodeError, ValueError) as error:
        raise WireError(str(error)[:200]) from None
