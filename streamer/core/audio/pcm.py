"""PCM of any rate, channels and cut comes in; float32 mono at 16 kHz, full scale 1.0, goes out.

Audio's numbers for all rooms: rates, lengths, scales. The band that a telephone cut off is guessed.
"""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from soxr import ResampleStream

Samples = NDArray[np.float32]

SAMPLE_RATE_HZ = 16_000
SAMPLES_PER_MS = SAMPLE_RATE_HZ // 1_000
LIVE_SAMPLES = SAMPLE_RATE_HZ // 10  # 100 ms: what a live source sends at a time
WINDOW_SAMPLES = 2 * SAMPLE_RATE_HZ  # what the audio tower encodes at a time
BEHIND_SAMPLES = 40  # a window's log-mel is complete this many samples after its boundary

MIN_RATE_HZ = 1_000
MAX_RATE_HZ = 384_000
MAX_CHANNELS = 1024
# A float WAV that holds integers as they are reaches 2**31. Above that there is no audio, and
# from 1e17 on the power spectrum overflows float32 into NaN features.
MAX_MAGNITUDE = 2.0**31

PCM16_SCALE = np.float32(32_768)

QUIET_DBFS = -35.0  # speech of -50 dBFS stays under it


def from_pcm16(data: bytes | memoryview) -> Samples:
    """Little-endian int16 as samples [n]; `data` must hold whole ones."""
    return np.frombuffer(data, dtype="<i2").astype(np.float32) / PCM16_SCALE


def on_grid(samples: Samples) -> Samples:
    """Rounded to multiples of 1 / 32768 (-101 dB): so PCM16 on a link loses no bit."""
    return np.rint(samples * PCM16_SCALE) / PCM16_SCALE


Law = Literal["pcmu", "pcma"]  # mu-law, A-law
Encoding = Literal["pcm16", "pcmu", "pcma"]  # of live audio
G711_RATE_HZ = 8_000


@functools.cache
def _levels_of(law: Law) -> Samples:
    """Samples of the 256 codes: of a sign, 3 bits of segment and 4 of step, whose middle is meant.

    mu-law: bits inverted; segments begin at 33 << segment, less 33, in units of 14 bit PCM. A-law:
    even bits inverted; the first two segments have the same steps, in units of 13 bit PCM.
    """
    code = np.arange(256) ^ (0xFF if law == "pcmu" else 0x55)
    segment, step = code >> 4 & 7, 2 * (code & 0xF)
    if law == "pcmu":
        size = (((step + 33) << segment) - 33) << 2
    else:
        size = np.where(segment == 0, step + 1, (step + 33) << np.maximum(segment - 1, 0)) << 3
    is_negative = (code >= 0x80) == (law == "pcmu")
    return np.where(is_negative, -size, size).astype(np.float32) / PCM16_SCALE


def from_g711(data: bytes, law: Law) -> Samples:
    """Samples [n] of n bytes, at the rate they came with, 8 kHz as a rule."""
    return np.take(_levels_of(law), np.frombuffer(data, np.uint8))


MEAN_SAMPLES = 4096  # 256 ms: the lowest voice, 60 Hz, changes by 2 % at most
SILENT_SAMPLES = 16  # zeros in a row: digital silence, not a waveform that crosses 0


class OffsetFilter:
    """Subtract from each sample the mean of the last 256 ms, or of the shorter sound so far.

    Digital silence stays silent and counts in no mean, so it changes nothing beside it. Sums are of
    whole steps of PCM16, so they are exact. The result is rounded to such steps.
    """

    def __init__(self) -> None:
        self._past = np.zeros(0, np.int64)  # at most MEAN_SAMPLES
        self._num_zeros = SILENT_SAMPLES  # in a row, before the next sample

    def push(self, samples: Samples) -> Samples:
        """Take samples [n], full scale 1.0; return as many, multiples of 1 / 32768."""
        whole = np.rint(samples * PCM16_SCALE).astype(np.int64)
        at = np.arange(1, len(whole) + 1)
        zeros = at - np.maximum.accumulate(np.where(whole != 0, at, -self._num_zeros))
        self._num_zeros = min(int(zeros[-1]), SILENT_SAMPLES) if len(zeros) else self._num_zeros
        is_sound = zeros < SILENT_SAMPLES
        found = np.zeros(len(whole), np.float32)
        sound = whole[is_sound]
        known = np.concatenate([self._past, sound])
        self._past, num_past = known[-MEAN_SAMPLES:], len(self._past)
        sums = np.cumsum(known)
        sums[MEAN_SAMPLES:] -= sums[:-MEAN_SAMPLES]
        sums = sums[num_past:]
        counts = np.minimum(np.arange(num_past + 1, len(known) + 1), MEAN_SAMPLES)
        means = (2 * sums + counts) // (2 * counts)
        found[is_sound] = (sound - means).astype(np.float32) / PCM16_SCALE
        return found


# Measured 2026-11, soxr 1.1, 24 kHz in, 20 ms pushes (max lag of the output, gain at 7 kHz,
# worst alias): LQ 20 ms, -12.8 dB, -109 dB; MQ 38 ms, 0.0 dB, -116 dB; HQ 37 ms, 0.0 dB, -134
# dB. At 44.1 and 48 kHz the same within 4 ms, at 96 kHz MQ 38 ms and HQ 79 ms, from 8 kHz MQ
# 118 ms. LQ would darken the timbre that we describe, so: MQ. The lag is soxr's own block;
# `finish` flushes it at once, so it never delays the end of a turn. CPU 0.3-0.6 ms per second
# of audio. Its stream gives the same bits for every cut (1 to 384 kHz tried): no buffer in front.
QUALITY = "MQ"


class BadAudio(ValueError):
    """A rate, a channel count, or samples (NaN, infinite, absurdly large) that are no audio."""


class Chunker:
    """Turns pushes of any size into 16 kHz mono: joined, it is the same for every cut.

    Bounded: between calls it holds soxr's filter (some tens of ms), a block of the mixer, and 30 ms
    for what is guessed. `finish` ends the clip and leaves the chunker ready for the next.

    Raises BadAudio for a rate outside 1..384 kHz or a channel count outside 1..1024.
    """

    def __init__(self, sample_rate: int, channels: int = 1) -> None:
        if not MIN_RATE_HZ <= sample_rate <= MAX_RATE_HZ:
            rates = f"{MIN_RATE_HZ}..{MAX_RATE_HZ} Hz"
            raise BadAudio(f"sample rate {sample_rate} Hz is outside {rates}")
        if not 1 <= channels <= MAX_CHANNELS:
            raise BadAudio(f"{channels} channels: there must be 1..{MAX_CHANNELS}")
        self.sample_rate = sample_rate
        self.channels = channels
        self.mixed: str | None = None  # one line, where a finished clip had channels not heard
        self._resampler = None
        if sample_rate != SAMPLE_RATE_HZ:
            self._resampler = ResampleStream(sample_rate, SAMPLE_RATE_HZ, 1, "float32", QUALITY)
        self._begin()

    def _begin(self) -> None:
        self._num_frames = 0  # input frames taken since the clip began
        self._mixer = Mixer(self.channels, self.sample_rate)
        self._high_band = HighBand() if self.sample_rate == TELEPHONE_HZ else None

    def push(self, frames: NDArray[np.floating]) -> Samples:
        """Takes frames [n, channels], [n] when mono, full scale 1.0; returns samples [m], m >= 0.

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
        good = np.abs(frames) <= MAX_MAGNITUDE  # false for NaN, too
        if good.all():
            return
        row, column = np.argwhere(~good)[0]
        at_seconds = (self._num_frames + int(row)) / self.sample_rate
        where = f" in channel {column}" if self.channels > 1 else ""  # counted from 0
        what = f"sample value {frames[row, column]}{where}; give finite ones"
        raise BadAudio(f"bad audio at {at_seconds:.3f} s: {what}")

    def finish(self) -> Samples:
        """Ends the clip: returns what was still held, samples [n], and starts afresh."""
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
        """One block [n, channels]: fades where the channel changes, silence until one has sound."""
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


# The rate that a guess is made for. At 11 and 12 kHz it changes as many levels (2026-11).
TELEPHONE_HZ = 8_000
HOP_SAMPLES = 160
FRAME_SAMPLES = 2 * HOP_SAMPLES
FIRST_BIN, BAND_BINS, NUM_BANDS = 2, 8, 9  # the known bands: 100 to 3,700 Hz, 400 each
# Bounds of the guessed bands. They begin at 3,700 Hz, with the slope of the resampler.
HIGH_BINS = [74, 82, 98, 114, 130, 146, 161]
SQUARE_DB = np.float32(10)  # unit of the squares, dB
FRAME_KEPT = 0.99  # of a frame's weight, one frame later: the past second counts
# The mean of dB lies under the dB of the mean. 6 dB more changes the fewest levels of people.
MORE_DB = np.float32(6.0)
# A frame counts as this far under the past at most. Else the guess would swell after speech.
LEAST_SINCE_DB = np.float32(-15.0)
LEAST_POWER = np.float32(1e-9)
# A bin's mean power, where white noise at full scale has 22: under -107 dBFS nothing is known.
SILENT_DB = -85.0
BLOCK_FRAMES = 200  # at once: a recording of an hour takes no more memory than two seconds
NUM_PATTERNS = 256  # of noise, one a frame, again and again


class HighBand:
    """In: samples at 16 kHz that came at 8, as from a telephone. Out: the same, with noise where
    that rate cut the voice off, as loud as the rest of it lets guess.

    The models and measures hear up to 8 kHz. Where that is empty they hear a darker and faster
    voice: so it is the missing part that changes words on a telephone, not its code. The guess is a
    sum over a frame's levels in dB and their squares, and does not depend on how loud the source
    is. The same bits for every cut. It holds under 30 ms of samples.
    """

    def __init__(self) -> None:
        self._held = np.zeros(HOP_SAMPLES, np.float32)  # from the next frame's first sample on
        self._rest = np.zeros(HOP_SAMPLES, np.float32)  # of the last frame's noise
        self._num = 0  # frames heard
        self._sum = self._weight = 0.0  # of the mean power of the frames heard

    def push(self, samples: Samples, is_last: bool = False) -> Samples:
        """Take samples [n]; return those that are known now. is_last: the clip ends here."""
        before = 0 if self._num else HOP_SAMPLES  # half of the first frame lies before the clip
        num_open = len(self._held) + len(samples) - before
        silence = np.zeros(FRAME_SAMPLES if is_last else 0, np.float32)
        held = np.concatenate([self._held, samples, silence])
        num = max(0, len(held) // HOP_SAMPLES - 1)
        self._held = held[num * HOP_SAMPLES :].copy()
        if not num:
            return np.zeros(0, np.float32)
        found: Samples = held[: num * HOP_SAMPLES].copy()
        frames = np.lib.stride_tricks.sliding_window_view(held, FRAME_SAMPLES)[::HOP_SAMPLES]
        for first in range(0, num, BLOCK_FRAMES):
            noise = self._noise(frames[first : min(first + BLOCK_FRAMES, num)])
            firsts, seconds = noise[:, :HOP_SAMPLES], noise[:, HOP_SAMPLES:]
            earlier = np.concatenate([self._rest[np.newaxis], seconds[:-1]])
            self._rest = seconds[-1].copy()
            at = first * HOP_SAMPLES
            found[at : at + firsts.size] += (earlier + firsts).reshape(-1)
        return found[before:][:num_open]

    def _noise(self, frames: Samples) -> Samples:
        """The noise to add, in frames [n, FRAME_SAMPLES]."""
        window, patterns, _, _ = _tables()
        spectrum = np.fft.rfft(frames * window)
        power = (spectrum.real**2 + spectrum.imag**2).astype(np.float32, copy=False)
        gains = 10 ** (self._guess(power) / 20)
        turns = patterns[(self._num + np.arange(len(frames))) % NUM_PATTERNS]
        self._num += len(frames)
        high = np.zeros_like(spectrum)
        high[:, HIGH_BINS[0] :] = turns * np.repeat(gains, np.diff(HIGH_BINS), 1)
        return np.fft.irfft(high, FRAME_SAMPLES).astype(np.float32, copy=False) * window

    def _guess(self, power: Samples) -> Samples:
        """dB of the guessed bands [n, 6], -inf in silence, of the next frames' power [n, 161]."""
        known = power[:, FIRST_BIN : FIRST_BIN + NUM_BANDS * BAND_BINS]
        # no sums by numpy, nor a matrix product: their order may depend on the number of frames
        bands = functools.reduce(np.add, (known[:, i::BAND_BINS] for i in range(BAND_BINS)))
        bands = bands / np.float32(BAND_BINS) + LEAST_POWER
        mean = functools.reduce(np.add, np.split(bands, NUM_BANDS, axis=1)) / np.float32(NUM_BANDS)
        level = 10 * np.log10(mean)
        over = 10 * np.log10(bands) - level
        past = []
        for each in mean[:, 0].tolist():
            self._sum = FRAME_KEPT * self._sum + each
            self._weight = FRAME_KEPT * self._weight + 1
            past.append([self._sum / self._weight])
        past_db = (10 * np.log10(np.array(past))).astype(np.float32)
        since = np.maximum(level - past_db, LEAST_SINCE_DB)
        _, _, constant, factors = _tables()
        found = level + (constant + MORE_DB)
        inputs = np.concatenate([over, over * over / SQUARE_DB, since], axis=1)
        for i, weights in enumerate(factors):
            found = found + inputs[:, i : i + 1] * weights
        return np.where(level > SILENT_DB, found, np.float32(-np.inf))


@functools.cache
def _tables() -> tuple[Samples, NDArray[np.complex64], Samples, Samples]:
    """A window whose square, in steps of half of it, adds up to one; noise of level one
    [NUM_PATTERNS, bins from HIGH_BINS on]; a constant for each guessed band, dB over the mean of
    the known ones [6]; and factors of the known bands over it, their squares, and a frame's level
    over that of the past [2 * NUM_BANDS + 1, 6]. Raises OSError where the file is missing."""
    window = np.sin(np.pi * np.arange(FRAME_SAMPLES) / FRAME_SAMPLES).astype(np.float32)
    turns = np.random.default_rng(0).random((NUM_PATTERNS, HIGH_BINS[-1] - HIGH_BINS[0]))
    patterns = np.exp(2j * np.pi * turns).astype(np.complex64)
    learnt = json.loads(Path(__file__).with_name("telephone.json").read_text("utf-8"))
    constant, factors = (np.array(learnt[name], np.float32) for name in ("constant", "weights"))
    return window, patterns, constant, factors
