"""Noise, rooms, codecs and silence: changes of the sound that leave the way of speaking alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.signal import butter, fftconvolve, sosfilt

from pipelines.embedded import codecs
from pipelines.embedded.codecs import coded_as, telephone_call
from pipelines.embedded.speak import SAMPLE_RATE

Range = tuple[float, float]
SOUND_M_S = 343.0
PINK = 0.5
# Images of one sign add up towards 0 Hz, where no voice is; Allen and Berkley take that away, too.
NO_RUMBLE = butter(2, 80.0, "highpass", fs=SAMPLE_RATE, output="sos")
# libsndfile's compression levels for these rates in kbit/s, mono at 16 kHz
OPUS_16 = 0.96
MP3_32 = 0.84


@dataclass(frozen=True)
class Heard:
    """A recording to change. level_db: its active level, dBFS; others: of other speakers."""

    samples: np.ndarray
    level_db: float
    others: list[np.ndarray]
    chance: np.random.Generator


def noise(heard: Heard, snr_db: float, exponent: float = 0.25) -> np.ndarray:
    """With noise between white (exponent 0) and pink (0.5), `snr_db` under the active level."""
    return _added(heard, _coloured(heard, len(heard.samples), exponent), snr_db)


def _coloured(heard: Heard, num: int, exponent: float) -> np.ndarray:
    spectrum = np.fft.rfft(heard.chance.standard_normal(num))
    colour = np.maximum(np.fft.rfftfreq(num, 1 / SAMPLE_RATE), 50) ** -exponent
    return np.fft.irfft(spectrum * colour, num)


def beside(heard: Heard, dbfs: float, before_s: float, after_s: float) -> np.ndarray:
    """With pink noise of that level before and after."""
    sound = _coloured(heard, int((before_s + after_s) * SAMPLE_RATE), PINK)
    noises = np.split(sound / sound.std() * 10 ** (dbfs / 20), [int(before_s * SAMPLE_RATE)])
    return _clipped(np.concatenate([noises[0], heard.samples, noises[1]]))


def babble(heard: Heard, snr_db: float) -> np.ndarray:
    """With the other speakers at once, equally loud, `snr_db` under the active level together."""
    length = len(heard.samples)
    voices = [np.resize(voice, length) / (voice.std() + 1e-9) for voice in heard.others]
    return _added(heard, np.sum(voices, 0), snr_db)


def _added(heard: Heard, sound: np.ndarray, snr_db: float) -> np.ndarray:
    gain = 10 ** ((heard.level_db - snr_db) / 20) / (sound.std() + 1e-12)
    return _clipped(heard.samples + gain * sound)


def room(heard: Heard, away_m: Range, fall_s: Range) -> np.ndarray:
    """In a random room: distance to the microphone, and time in which sound falls by 60 dB."""
    return _clipped(fftconvolve(heard.samples, room_response(heard.chance, away_m, fall_s)))


def room_response(chance: np.random.Generator, away_m: Range, fall_s: Range) -> np.ndarray:
    """A room's impulse response of energy 1, from its direct sound on.

    The image method of Allen and Berkley (1979); the walls reflect by Eyring's formula.
    """
    size = chance.uniform((4.0, 3.0, 2.4), (7.0, 6.0, 3.2))
    drawn_s = chance.uniform(*fall_s)
    towards = chance.standard_normal(3) * (1, 1, 0.2)
    away = chance.uniform(*away_m) * towards / np.linalg.norm(towards)
    from_wall = 0.3 + np.abs(away)
    speaker = chance.uniform(from_wall, np.maximum(size - from_wall, from_wall))
    surface = 2 * (size[0] * size[1] + size[1] * size[2] + size[0] * size[2])
    reflected = float(np.sqrt(np.exp(-0.161 * size.prod() / (surface * drawn_s))))
    delays, gains = _images(size, speaker, speaker + away, reflected, SOUND_M_S * 0.8 * drawn_s)
    at = np.round(delays * SAMPLE_RATE).astype(int)
    response = np.bincount(at - at.min(), gains)
    # low and wide rooms ring longer than Eyring says
    t = np.arange(len(response)) / SAMPLE_RATE
    response *= 10.0 ** (-3 * t * max(0.0, 1 / drawn_s - 1 / falls_in(response)))
    response = sosfilt(NO_RUMBLE, response)
    return response / np.sqrt((response**2).sum())


def falls_in(response: np.ndarray) -> float:
    """Seconds in which a response falls by 60 dB, from its fall from -5 to -25 dB (Schroeder)."""
    left = 10 * np.log10(np.cumsum(response[::-1] ** 2)[::-1] / (response**2).sum() + 1e-12)
    first, last = (int(np.argmax(left < db)) for db in (-5, -25))
    return 3 * max(1, last - first) / SAMPLE_RATE


def _images(
    size: np.ndarray, speaker: np.ndarray, microphone: np.ndarray, reflected: float, reach_m: float
) -> tuple[np.ndarray, np.ndarray]:
    """(delays in s, gains) of the mirror images of `speaker` within `reach_m` of `microphone`."""
    offsets, bounces = [], []
    for axis in range(3):
        count = int(reach_m / (2 * size[axis])) + 1
        rooms, side = np.meshgrid(np.arange(-count, count + 1), (0, 1), indexing="ij")
        offset = (1 - 2 * side) * speaker[axis] - microphone[axis] + 2 * rooms * size[axis]
        offsets.append(offset.ravel())
        bounces.append((np.abs(rooms - side) + np.abs(rooms)).ravel())
    x, y, z = np.meshgrid(*offsets, indexing="ij", sparse=True)
    a, b, c = np.meshgrid(*bounces, indexing="ij", sparse=True)
    distance = np.sqrt(x**2 + y**2 + z**2).ravel()
    near = distance < reach_m
    distance = np.maximum(distance[near], 0.1)
    return distance / SOUND_M_S, reflected ** (a + b + c).ravel()[near] / distance


def telephone(heard: Heard) -> np.ndarray:
    return _clipped(codecs.telephone(heard.samples))


def opus(heard: Heard) -> np.ndarray:
    return coded_as(heard.samples, SAMPLE_RATE, "OGG", "OPUS", compression_level=OPUS_16)[0]


def mp3(heard: Heard) -> np.ndarray:
    constant = {"compression_level": MP3_32, "bitrate_mode": "CONSTANT"}
    coded, _ = coded_as(heard.samples, SAMPLE_RATE, "MP3", "MPEG_LAYER_III", **constant)
    return _clipped(coded)


def shifted(heard: Heard) -> np.ndarray:
    """Without its first 20 to 140 samples, a fraction of a frame."""
    return heard.samples[int(heard.chance.integers(20, 141)) :]


def _clipped(samples: np.ndarray) -> np.ndarray:
    return np.clip(samples, -1, 1).astype(np.float32)


CHANGES: dict[str, Callable[[Heard], np.ndarray]] = {
    "shift in a frame": shifted,
    "silence, 1 s around": lambda heard: np.pad(heard.samples, SAMPLE_RATE),
    "5 s at -60 dBFS before": lambda heard: beside(heard, -60, 5, 0),
    "5 s 40 dB under it before": lambda heard: beside(heard, heard.level_db - 40, 5, 0),
    "5 s 40 dB under it after": lambda heard: beside(heard, heard.level_db - 40, 0, 5),
    "opus 16 kbit/s": opus,
    "mp3 32 kbit/s": mp3,
    "telephone": telephone,
    "mu-law": lambda heard: _clipped(telephone_call(heard.samples)),
    "noise 20 dB": lambda heard: noise(heard, 20),
    "noise 10 dB": lambda heard: noise(heard, 10),
    "noise 3 dB": lambda heard: noise(heard, 3),
    "pink noise 10 dB": lambda heard: noise(heard, 10, PINK),
    "pink noise 3 dB": lambda heard: noise(heard, 3, PINK),
    "babble 10 dB": lambda heard: babble(heard, 10),
    "babble 3 dB": lambda heard: babble(heard, 3),
    "room, 0.5 to 1 m": lambda heard: room(heard, (0.5, 1.0), (0.2, 0.5)),
    "room, 1 to 2 m": lambda heard: room(heard, (1.0, 2.0), (0.3, 0.7)),
}
