"""What crosses the link between an edge and a verifier. In: messages. Out: bytes, and back;
WireError for garbage.

One link carries many turns, each on a channel of its own (the edge numbers them). Audio crosses
once, as PCM16; then ids only: a Verify is at most 24 bytes and 3 per id, a Judged a few bytes and
2 per id that stands.
Every bound of a field is checked on arrival.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

import msgspec
import numpy as np
from msgspec import Meta, Struct
from numpy.typing import NDArray

from streamer.core.audio.pcm import MAX_MAGNITUDE, PCM16_SCALE, from_pcm16
from streamer.core.decoding.verdict import Verdict, VerifyRequest

VERSION = 4
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
Level = Annotated[int, Meta(ge=0, lt=MAX_LEVELS)]
Word = Annotated[str, Meta(max_length=200)]


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
    """Samples of the turn at 16 kHz mono from number `start` on: PCM16, or float32 where they are
    not on its grid."""

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
    """A Verify with an empty draft, and after its Judged one for each further id, unasked, to the
    answer's end."""

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
    """A Finish of a turn whose measures were asked for. ranges: attribute -> the lowest and the
    highest level that its sentence may say."""

    channel: Channel
    num_samples: Count
    ranges: Annotated[dict[Word, tuple[Level, Level]], Meta(max_length=MAX_ATTRIBUTES)]


class OpenedMessage(Message, tag=1, frozen=True):
    """The turn has a KV slot and `num_samples` so far: send what follows. model: fingerprint of who
    verifies."""

    channel: Channel
    epoch: Count
    num_samples: Count
    model: Word


class HeardMessage(Message, tag=2, frozen=True):
    """So many samples are prefilled, said after each Audio; after Finish, all of them and the
    suffix."""

    channel: Channel
    epoch: Count
    num_samples: Count
    is_finished: bool


class Judged(Message, tag=3, frozen=True):
    """A verdict: see core/decoding/verdict.py. log_probs: float16, little-endian; empty: not
    told."""

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


def pack_ids(ids: Iterable[int]) -> bytes:
    """Ids below 2**24 as 3 bytes each, little-endian."""
    words = np.fromiter(ids, dtype="<u4")
    return words.view(np.uint8).reshape(-1, 4)[:, :3].tobytes()


def unpack_ids(data: bytes) -> tuple[int, ...]:
    """Raises WireError for half an id."""
    if len(data) % 3:
        raise WireError(f"{len(data)} bytes are no whole number of ids")
    parts = np.frombuffer(data, np.uint8).reshape(-1, 3).astype(np.int64)
    return tuple((parts[:, 0] | parts[:, 1] << 8 | parts[:, 2] << 16).tolist())


def judged_message(channel: int, epoch: int, verdict: Verdict) -> Judged:
    """`verdict` on its way."""
    told = np.array(verdict.log_probs, "<f2").tobytes()
    return Judged(channel, epoch, verdict.number, verdict.n_accepted, verdict.next_id, told)


def verdict_of(message: Judged) -> Verdict:
    """A verdict as it arrived. Raises WireError for numbers that are no log-probabilities of its
    ids."""
    n = message.n_accepted + 1
    if len(message.log_probs) not in (0, 2 * n):
        raise WireError(f"{len(message.log_probs)} bytes are no log-probabilities of {n} ids")
    found = np.frombuffer(message.log_probs, "<f2")
    if not (np.isfinite(found) & (found <= 0)).all():
        raise WireError("numbers that are no log-probabilities")
    told = tuple(found.tolist())
    return Verdict(message.number, message.n_accepted, message.next_id, told)


def verify_message(channel: int, epoch: int, request: VerifyRequest) -> VerifyMessage:
    """`request` on its way."""
    prefix = int.from_bytes(request.prefix, "big")
    packed = pack_ids(request.unverified), pack_ids(request.draft)
    return VerifyMessage(channel, epoch, request.number, request.base, prefix, *packed)


def request_of(message: VerifyMessage | Decode) -> VerifyRequest:
    """A request as it arrived. Raises WireError."""
    draft = unpack_ids(message.draft) if isinstance(message, VerifyMessage) else ()
    prefix = message.prefix.to_bytes(8, "big")
    return VerifyRequest(
        message.number, message.base, prefix, unpack_ids(message.unverified), draft
    )


def pack_audio(samples: NDArray[np.float32]) -> tuple[bytes, bool]:
    """Samples [n] as PCM16 where that loses nothing (the chunker sees to it), else as float32:
    (data, is_float)."""
    scaled = samples * PCM16_SCALE
    pcm = np.clip(scaled, -PCM16_SCALE, PCM16_SCALE - 1).astype("<i2")
    if np.array_equal(pcm, scaled):
        return pcm.tobytes(), False
    return samples.astype("<f4").tobytes(), True


def num_samples_of(message: AudioMessage) -> int:
    return len(message.data) // (4 if message.is_float else 2)


def unpack_audio(message: AudioMessage) -> NDArray[np.float32]:
    """Samples [n] float32, bit for bit those that were packed. Raises WireError."""
    width = 4 if message.is_float else 2
    if len(message.data) % width:
        raise WireError(f"{len(message.data)} bytes are no whole number of samples")
    if message.is_float:
        samples = np.frombuffer(message.data, "<f4").astype(np.float32)
        if not (np.abs(samples) <= MAX_MAGNITUDE).all():
            raise WireError("samples that are no audio")
        return samples
    return from_pcm16(message.data)
