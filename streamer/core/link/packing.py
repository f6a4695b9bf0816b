"""Ids, samples, requests, verdicts as messages hold them (wire.py), and back; or WireError."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from streamer.core.audio.pcm import MAX_MAGNITUDE, PCM16_SCALE, from_pcm16
from streamer.core.decoding.verdict import Verdict, VerifyRequest
from streamer.core.link.wire import AudioMessage, Decode, Judged, VerifyMessage, WireError


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
    """A verdict as it arrived. Raises WireError for what are no log-probabilities of its ids."""
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
    """(data, is_float): samples [n] as PCM16 where that loses nothing, else as float32."""
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
