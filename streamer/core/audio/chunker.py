"""PCM of any rate, channels and cut comes in; float32 mono at 16 kHz, full scale 1.0, goes out.

The band that a telephone's rate cut off is guessed (telephone.py).
"""

from __future__ import annotations

import numpy as np
import soxr
from numpy.typing import NDArray

from streamer.core.audio import pcm
from streamer.core.audio.pcm import SAMPLE_RATE_HZ, Samples
from streamer.core.audio.telephone import TELEPHONE_HZ, HighBand

# Measured 2026-11, soxr 1.1, 24 kHz in, 20 ms pushes (max lag of the output, gain at 7 kHz,
# worst alias): LQ 20 ms, -12.8 dB, -109 dB; MQ 38 ms, 0.0 dB, -116 dB; HQ 37 ms, 0.0 dB, -134
# dB. At 44.1 and 48 kHz the same within 4 ms, at 96 kHz MQ 38 ms and HQ 79 ms, from 8 kHz MQ
# 118 ms. LQ would darken the timbre that we describe, so: MQ. The lag is soxr's own block;
# `finish` flushes it at once, so it never delays the end of a turn. CPU 0.3-0.6 ms per second
# of audio. soxr's stream gives the same bits for every cut of its input (1 to 384 kHz tried),
# so it needs no buffer in front.
QUALITY = "MQ"


class BadAudio(ValueError):
    """A rate, a channel count, or samples (NaN, infinite, absurdly large) that are no audio."""


class Chunker:
    """Turns pushes of any size into 16 kHz mono; all output joined does not depend on how input was
    cut.

    Bounded: between calls it holds less than one frame of bytes, soxr's filter (some tens of ms),
    and 30 ms for what is guessed. Feed one kind of input per clip, bytes or frames. `finish` ends
    the clip and leaves the chunker ready for the next.

    Raises BadAudio for a rate outside 1..384 kHz or a channel count outside 1..1024.
    """

    def __init__(self, sample_rate: int, channels: int = 1) -> None:
        if not pcm.MIN_RATE_HZ <= sample_rate <= pcm.MAX_RATE_HZ:
            rates = f"{pcm.MIN_RATE_HZ}..{pcm.MAX_RATE_HZ} Hz"
            raise BadAudio(f"sample rate {sample_rate} Hz is outside {rates}")
        if not 1 <= channels <= pcm.MAX_CHANNELS:
            raise BadAudio(f"{channels} channels: there must be 1..{pcm.MAX_CHANNELS}")
        self.sample_rate = sample_rate
        self.channels = channels
        self.mixed: str | None = None  # one line, where a finished clip had channels not heard
        self._resampler = None
        if sample_rate != SAMPLE_RATE_HZ:
            self._resampler = soxr.ResampleStream(
                sample_rate, SAMPLE_RATE_HZ, 1, "float32", QUALITY
            )
        self._begin()

    def _begin(self) -> None:
        self._num_frames = 0  # input frames taken since the clip began
        self._rest = b""
        self._mixer = Mixer(self.channels, self.sample_rate)
        self._high_band = HighBand() if self.sample_rate == TELEPHONE_HZ else None

    def push_pcm16(self, data: bytes | bytearray | memoryview) -> Samples:
        """Takes little-endian int16, channels interleaved, cut at any byte; returns samples [n] (n
        may be 0).

        A sample or frame cut in two waits for its other half.
        """
        data = self._rest + bytes(data)
        whole = len(data) - len(data) % (2 * self.channels)
        self._rest = data[whole:]
        return self.push(pcm.from_pcm16(data[:whole]).reshape(-1, self.channels))

    def push(self, frames: NDArray[np.floating]) -> Samples:
        """Takes frames [n, channels] (or [n] when mono), full scale 1.0; returns samples [m] (m may
        be 0).

        Raises BadAudio (and takes nothing of this push) at NaN, infinite or absurd samples,
        ValueError when the shape is not this stream's.
        """
        frames = np.asarray(frames)
        if frames.ndim == 1 and self.channels == 1:
            frames = frames[:, np.newaxis]
        if frames.ndim != 2 or frames.shape[1] != self.channels:
            raise ValueError(
                f"expected frames of {self.channels} channels, got shape {frames.shape}"
            )
        self._check(frames)
        self._num_frames += len(frames)
        mono = self._mixer.push(frames.astype(np.float32, copy=False))
        if self._resampler is None:
            return mono
        found: Samples = self._resampler.resample_chunk(mono)
        return found if self._high_band is None else self._high_band.push(found)

    def _check(self, frames: NDArray[np.floating]) -> None:
        good = np.abs(frames) <= pcm.MAX_MAGNITUDE  # false for NaN, too
        if good.all():
            return
        row, column = np.argwhere(~good)[0]
        at_seconds = (self._num_frames + int(row)) / self.sample_rate
        where = f" in channel {column}" if self.channels > 1 else ""  # counted from 0
        what = f"sample value {frames[row, column]}{where}; give finite ones"
        raise BadAudio(f"bad audio at {at_seconds:.3f} s: {what}")

    def finish(self) -> Samples:
        """Ends the clip: returns what was still held, samples [n], and starts afresh.

        An incomplete last frame (an odd byte) cannot be heard, and is dropped.
        """
        nothing = np.zeros((0, self.channels), np.float32)
        mono, high_band = self._mixer.push(nothing, is_last=True), self._high_band
        self.mixed = self._mixer.told()
        self._begin()
        if self._resampler is None:
            return mono
        tail: Samples = self._resampler.resample_chunk(mono, last=True)
        self._resampler.clear()
        return tail if high_band is None else high_band.push(tail, is_last=True)


BLOCKS_PER_S = 20
KEPT = 0.8  # of the energies, from block to block: a memory of a quarter of a second
LOUDER = 2  # in energy: a channel that takes over
DEAD = 1e-4  # of the strongest channel's energy in the whole recording (-40 dB)


class Mixer:
    """One channel of several: the loudest of late, with a crossfade where another becomes louder.

    A sum of channels is no voice: microphones some centimetres apart hear it .1 to 20 ms apart, and
    two wires may be swapped. Holds under one block of 50 ms. `told` names the silent channels.
    """

    def __init__(self, channels: int, sample_rate: int) -> None:
        self._size = max(1, sample_rate // BLOCKS_PER_S)
        self._held = np.zeros((0, channels), np.float32)
        self._energies = np.zeros(channels)  # of the last blocks
        self._whole = np.zeros(channels)  # of all
        self._heard: int | None = None  # the channel, once one held sound

    def push(self, frames: Samples, is_last: bool = False) -> Samples:
        """Take frames [n, channels]; return the samples that are known now [m]."""
        if frames.shape[1] == 1:
            return frames[:, 0].copy()
        held = np.concatenate([self._held, frames])
        num = len(held) if is_last else len(held) // self._size * self._size
        self._held = held[num:].copy()
        blocks = [held[at : at + self._size] for at in range(0, num, self._size)]
        return np.concatenate([np.zeros(0, np.float32), *map(self._mix, blocks)])

    def told(self) -> str | None:
        """One line where not every channel is heard."""
        dead = np.flatnonzero(self._whole < DEAD * self._whole.max())
        if not len(dead):
            return None
        names = ", ".join(map(str, dead[:8])) + (", ..." if len(dead) > 8 else "")
        return f"channel{'s' * (len(dead) > 1)} {names} hold{'s' * (len(dead) == 1)} no sound"

    def _mix(self, block: Samples) -> Samples:
        """One block [n, channels]; where the channel changes, it fades into the other. Silence as
        long as every channel is silent."""
        # one channel after the other: sums along channels take a tenth of the time
        exact = block.T.astype(np.float64, order="C")
        exact -= exact.mean(1, keepdims=True)  # a DC offset is no sound
        energies = np.square(exact).sum(1)
        self._energies = KEPT * self._energies + energies
        self._whole += energies
        before, now = self._heard, int(self._energies.argmax())
        if self._energies[now] <= LOUDER * (0.0 if before is None else self._energies[before]):
            if before is None:
                return np.zeros(len(block), np.float32)
            now = before
        self._heard = now
        if before is None or before == now:
            return block[:, now].copy()
        way = np.linspace(0, 1, len(block), dtype=np.float32)
        return block[:, before] + way * (block[:, now] - block[:, before])
