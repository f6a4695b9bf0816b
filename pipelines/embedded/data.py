"""Turns of 1.5-60 s as normalised log-mel, their levels and their sentence, drawn from shards of
phrases.

Turns are put together online from one session's phrases, in the mel domain: tempo, pauses, gain and
tilt move the labels (which are measured on the clean result); then rooms, microphones and noise are
added, which do not. A phrase has two mels: what was said, which is measured, and what a codec or a
room made of it, which the model hears.
"""

import random
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.signal import lfilter

from pipelines.embedded.corpus import Corpus, Phrase
from pipelines.embedded.labels import ATTRIBUTES, NUM_LEVELS, Measures, frame_power, measure
from pipelines.embedded.mel import normalise
from pipelines.embedded.noise import noise_bank, recorded_noise
from pipelines.embedded.sentences import no_speech, sentence
from streamer.core.measures.frames import BAND_HZ, decibel

MAX_FRAMES = 6000
SILENCE = -10.0  # log10 of the extractor's floor
ENGLISH = 0.4  # of the sentences
RECORDED = 0.55  # of the turns of people: whole clips as they were recorded
UNCHANGED = 0.55  # of those: without a room, a microphone or noise
MICROPHONE = 0.15  # share of the turns whose bands a microphone changes, but not their labels


@dataclass(frozen=True)
class Turn:
    """One training example. `levels` is None without speech; one of its values is None if it is
    unknown."""

    mel: np.ndarray  # [n_frames, 128] float32, normalised
    # [n_frames, 5], of the clean signal: f0 in Hz or 0; the phrase's syllables per second or 0;
    # speech 1 or 0; syllables in the frame, or nan where they were not counted; level in dBFS
    tracks: np.ndarray
    words: list[str]
    levels: dict[str, int | None] | None
    measures: Measures | None
    voice: str
    language: str = "zh"


def split(mel: np.ndarray, rng: random.Random) -> list[int]:
    """Frames at which a phrase can pause: the quietest within every drawn 0.4-1.6 s; ends with
    its length."""
    loudness, cuts, at = mel[:, 5:60].mean(1), [], 0
    while (at := at + rng.randint(40, 160)) < len(mel) - 25:
        at = at - 12 + int(np.argmin(loudness[at - 12 : at + 12]))
        cuts.append(at)
    return [*cuts, len(mel)]


class Joined(NamedTuple):
    """`mel` [n, 256] raw: clean beside heard; `tracks` [n, 4] without the level."""

    mel: np.ndarray
    tracks: np.ndarray
    syllables: float | None
    is_of_people: bool

    def measured(self) -> Measures:
        """Measures of the clean mel; in a synthetic voice, the level tells speech from silence."""
        speech = self.tracks[:, 2] > 0 if self.is_of_people else None
        return measure(self.mel[:, :128], self.tracks[:, 0], self.syllables, speech)


def trimmed(clip: Phrase, rng: random.Random) -> Joined:
    """A whole clip with 20 to 500 ms of its room at each end, most often 150."""
    both, tracks = clip.parts()
    spoken = np.flatnonzero(tracks[:, 2])
    before, after = (15 if rng.random() < 0.5 else rng.randint(2, 50) for _ in range(2))
    at = slice(max(0, spoken[0] - before), spoken[-1] + 1 + after)
    return Joined(both[at], tracks[at], clip.syllables, True)


def together(parts: list[Joined]) -> Joined:
    """One after the other; the syllables are known if those of all are."""
    counts = [part.syllables for part in parts]
    syllables = None if None in counts else sum(counts)
    mel, tracks = (np.concatenate([part[i] for part in parts]) for i in (0, 1))
    return Joined(mel, tracks, syllables, parts[0].is_of_people)


def quietest(mel: np.ndarray) -> np.ndarray:
    """The spectrum of a recording's quietest frames."""
    return np.percentile(mel, 8, axis=0)


def room_tone(floor: np.ndarray, num_frames: int, rng: random.Random) -> np.ndarray:
    """Silence as a recording has it: its `floor`, with the flicker of noise."""
    chance = np.random.default_rng(rng.randrange(2**31))
    flicker = np.log10(np.maximum(chance.gamma(3.0, 1 / 3, (num_frames, len(floor))), 1e-3))
    return np.maximum(floor + flicker, SILENCE).astype(np.float32)


def join(phrases: list[Phrase], num_frames: int, rng: random.Random) -> Joined:
    """Phrases in random order with drawn pauses, up to about `num_frames`."""
    shares = (0.0, rng.uniform(0.04, 0.15), rng.uniform(0.17, 0.42))
    share = rng.choices(shares, (0.36, 0.36, 0.28))[0]
    longest = min(MAX_FRAMES - 400, 1.15 * num_frames) * (1 - share)
    debt, most = rng.uniform(5, 40) * (share > 0), min(90.0, max(26.0, share * num_frames))
    mels, tracks, syllables, spoken = [], [], 0.0, 0
    toned = phrases[0].is_of_people and rng.random() < 0.75
    while spoken < 0.8 * longest:
        fitting = [p for p in phrases if len(p) <= longest - spoken]
        if not fitting:
            break
        phrase = rng.choice(fitting)
        (mel, track), at = phrase.parts(), 0
        floor = quietest(mel) if toned else None
        for cut in split(mel, rng) if share else [len(mel)]:
            mels.append(mel[at:cut])
            tracks.append(track[at:cut])
            debt += share / (1 - share) * (cut - at)
            gap = 0
            if debt > rng.uniform(19, most):
                gap = int(debt)
            elif cut == len(mel):
                gap = rng.randint(0, 10)
            debt = 0.0 if gap > 10 else debt
            still = np.full((gap, 256), SILENCE, np.float32)
            mels.append(still if floor is None else room_tone(floor, gap, rng))
            tracks.append(np.zeros((gap, 4), np.float32))
            at = cut
        is_counted = syllables is not None and phrase.syllables is not None
        syllables = syllables + phrase.syllables if is_counted else None
        spoken += len(mel)
    if not spoken:
        raise ValueError("no phrase is short enough")
    mel, track = np.concatenate(mels[:-1]), np.concatenate(tracks[:-1])
    return Joined(mel, track, syllables, phrases[0].is_of_people)


def stretch(said: Joined, factor: float) -> Joined:
    """Slow down by `factor`: linear in time for the mel, nearest for the tracks."""
    mel = said.mel
    at = np.arange(int(len(mel) * factor)) / factor
    low = np.minimum(at.astype(int), len(mel) - 1)
    part = (at - low)[:, None].astype(np.float32)
    slower = mel[low] * (1 - part) + mel[np.minimum(low + 1, len(mel) - 1)] * part
    tracks = said.tracks[low] / np.float32([1, factor, 1, factor])
    return said._replace(mel=slower, tracks=tracks)


def colour(mel: np.ndarray, slope_db: float, gain_db: float) -> np.ndarray:
    """Tilt by dB per octave around 1 kHz, and gain; the floor stays. `mel` is [n, 128] or [n,
    256]."""
    octaves = np.clip(np.log2(np.maximum(BAND_HZ, 30) / 1000), -3.5, 3)
    change = np.tile((slope_db * octaves + gain_db).astype(np.float32) / 10, mel.shape[1] // 128)
    return np.maximum(mel + change, SILENCE)


def as_loud(both: np.ndarray) -> np.ndarray:
    """Both mels [n, 256], the heard one at the level of the clean one: a band or a room changes no
    label of loudness."""
    said, heard = (frame_power(half).mean() for half in (both[:, :128], both[:, 128:]))
    gain = np.float32(np.log10(said / max(heard, 1e-12)))
    return np.concatenate([both[:, :128], np.maximum(both[:, 128:] + gain, SILENCE)], 1)


def stretch_of(banks: list[np.ndarray], num_frames: int, rng: random.Random) -> np.ndarray:
    """Noise of 0 dBFS as mel power [num_frames, 128] from a drawn bank, repeated where it is
    shorter."""
    bank = rng.choice(banks)
    return bank[(rng.randrange(len(bank)) + np.arange(num_frames)) % len(bank)]


class Composer:
    """Draws turns: `speech` and `silence`. One random.Random per call makes each turn
    reproducible.

    noise: a folder of people.py's noise, for louder noise, babble, telephones and breaths.
    """

    def __init__(self, corpus: Corpus, seed: int, noise: Path | None = None) -> None:
        self.corpus = corpus
        self.noises = noise_bank(seed)
        self.recorded = recorded_noise(noise) if noise else {}

    def speech(self, num_frames: int, rng: random.Random) -> Turn:
        """A turn of about `num_frames`. Raises ValueError when the drawn phrases hold too little
        speech."""
        name, phrases = self.corpus.draw(rng)
        clips = self.corpus.whole.get(name)
        if clips and rng.random() < RECORDED:
            return self.told(*self.as_recorded(clips, num_frames, rng), clips[0].voice, rng)
        factor = 2.0 ** rng.uniform(-0.3, 0.3)
        if phrases[0].natural and rng.random() < 0.5:
            factor = 1.0
        said = stretch(join(phrases, int(num_frames / factor), rng), factor)
        said = said._replace(mel=self.styled(said, phrases[0].natural, rng))
        return self.told(said, True, phrases[0].voice, rng)

    def as_recorded(
        self, clips: list[Phrase], num_frames: int, rng: random.Random
    ) -> tuple[Joined, bool]:
        """Whole clips of one session, up to about `num_frames`, and whether a room, a microphone or
        noise is to be added. Tempo, level and tilt may be drawn. The same ValueError as of
        `speech`."""
        factor = 2.0 ** rng.uniform(-0.25, 0.25) if rng.random() < 0.25 else 1.0
        wanted = min(num_frames, MAX_FRAMES - 400) / factor
        parts: list[Joined] = []
        num = 0
        for clip in rng.sample(clips, len(clips)):
            if num < 0.8 * wanted and num + len(clip) <= 1.15 * wanted:
                parts.append(trimmed(clip, rng))
                num += len(parts[-1].mel)
        if num < 0.5 * wanted:
            raise ValueError("no clip is short enough, or there are too few")
        said = stretch(together(parts), factor)
        is_changed = rng.random() >= UNCHANGED
        mel = said.mel
        if rng.random() < (0.5 if is_changed else 0.3):
            slope = rng.choice((0.0, rng.uniform(-2.5, 2.5)))
            mel = colour(mel, slope, float(np.clip(rng.gauss(0, 8), -18, 15)))
        if not is_changed or rng.random() < 0.5:
            mel = np.concatenate([mel[:, :128]] * 2, 1)
        return said._replace(mel=mel), is_changed

    def told(self, said: Joined, is_changed: bool, voice: str, rng: random.Random) -> Turn:
        """The turn of a clean signal: its levels, its sentence, and the sound that is heard."""
        clean = said.measured()
        levels = clean.levels()
        prominence = dict(zip(ATTRIBUTES, np.nan_to_num(clean.vector()).tolist(), strict=True))
        spoken = {k: rng.randrange(NUM_LEVELS[k]) if v is None else v for k, v in levels.items()}
        language = "en" if rng.random() < ENGLISH else "zh"
        words = sentence(spoken, prominence, rng, language)
        level_db = decibel(frame_power(said.mel[:, :128]))[:, None]
        said = said._replace(
            mel=as_loud(said.mel), tracks=np.concatenate([said.tracks, level_db], 1)
        )
        heard, tracks = said.mel[:MAX_FRAMES, 128:], said.tracks[:MAX_FRAMES]
        if is_changed:
            heard, tracks = self.placed(said, rng)
            heard = self.record(heard, clean.loudness, rng)
        heard = normalise(heard).astype(np.float32)
        return Turn(heard, tracks, words, levels, clean, voice, language)

    def styled(self, said: Joined, natural: bool, rng: random.Random) -> np.ndarray:
        """Both mels with a drawn tilt and level; what is natural keeps its own half of the time."""
        mel, first = said.mel, said.measured()
        tilt = rng.uniform(*rng.choice(((-19, -13), (-13, -6), (-6, 1))))
        level = rng.uniform(*rng.choice(((-46, -38), (-38, -29), (-29, -20), (-20, -13))))
        if not (natural and rng.random() < 0.5):
            mel = colour(mel, float(np.clip((tilt - first.timbre) / 2.2, -6, 6)), 0.0)
        if natural and rng.random() < 0.5:
            return mel
        return colour(mel, 0.0, level - said._replace(mel=mel).measured().loudness)

    def placed(self, said: Joined, rng: random.Random) -> tuple[np.ndarray, np.ndarray]:
        """The heard mel and its tracks, with silence at both ends."""
        often = 0.6 if self.recorded else 0.8
        edges = [
            rng.randint(0, 50) if rng.random() < often else rng.randint(50, 150) for _ in range(2)
        ]
        heard = np.pad(said.mel[:, 128:], (edges, (0, 0)), constant_values=SILENCE)[:MAX_FRAMES]
        if said.is_of_people and rng.random() < 0.75:
            floor = quietest(said.mel[:, 128:])
            before, after = (room_tone(floor, n, rng) for n in edges)
            heard = np.concatenate([before, said.mel[:, 128:], after])[:MAX_FRAMES]
        return heard, np.pad(said.tracks, (edges, (0, 0)))[:MAX_FRAMES]

    def record(self, mel: np.ndarray, level_db: float, rng: random.Random) -> np.ndarray:
        """A room, a microphone and a noise floor: what the labels do not see."""
        power = 10.0**mel
        if rng.random() < 0.35:
            decay = 10 ** (-6 / (100 * rng.uniform(0.15, 0.8)))
            tail = lfilter([0, 1 - decay], [1, -decay], power, axis=0).astype(np.float32)
            power += tail * 10 ** (-rng.uniform(-2, 20) / 10)
        if rng.random() < MICROPHONE:
            heights = [rng.gauss(0, 1.2) for _ in range(8)]
            bands = np.interp(np.arange(128), np.linspace(0, 127, 8), heights)
            power *= 10 ** (bands.astype(np.float32) / 10)
        if rng.random() < 0.7:
            least, most = (-1, 20) if rng.random() < 0.3 else (14, 55)
            power += stretch_of(self.noises, len(power), rng) * 10 ** (
                (level_db - rng.uniform(least, most)) / 10
            )
        if self.recorded:
            power = self.around(power, level_db, rng)
        return np.log10(np.maximum(power, 1e-10))

    def around(self, power: np.ndarray, level_db: float, rng: random.Random) -> np.ndarray:
        """Add recorded breaths, other people, louder noise, or a telephone's band."""
        for kind, chance, least, most in (("noise", 0.25, -1, 25), ("babble", 0.25, 0, 20)):
            if rng.random() < chance and kind in self.recorded:
                layer = stretch_of(self.recorded[kind], len(power), rng)
                power = power + layer * 10 ** ((level_db - rng.uniform(least, most)) / 10)
        if rng.random() < 0.2 and "breaths" in self.recorded:
            for _ in range(1 + len(power) // 400):
                breath = rng.choice(self.recorded["breaths"])[: len(power)]
                at = rng.randrange(len(power) - len(breath) + 1)
                gain = 10 ** ((level_db - rng.uniform(22, 50)) / 10)
                power[at : at + len(breath)] += breath * gain
        if rng.random() < 0.1:
            low, high = rng.uniform(150, 350), rng.uniform(3200, 3900)
            octaves = np.log2(np.maximum(BAND_HZ, 20))
            outside = np.maximum(np.log2(low) - octaves, octaves - np.log2(high)).clip(0)
            narrow = power * 10 ** (-rng.uniform(24, 90) * outside.astype(np.float32) / 10)
            before, after = (frame_power(np.log10(p + 1e-12)).mean() for p in (power, narrow))
            power = narrow * np.float32(before / max(after, 1e-12))
        return power

    def silence(self, num_frames: int, rng: random.Random) -> Turn:
        """Nobody speaks: noise, hum, tones, breaths, animals, a crowd, or nothing at all."""
        power = np.full((num_frames, 128), 1e-10, np.float32)
        for _ in range(rng.randint(0, 3)):
            is_recorded = "noise" in self.recorded and rng.random() < 0.5
            banks = self.recorded["noise"] if is_recorded else self.noises
            layer = stretch_of(banks, num_frames, rng) * 10 ** (rng.uniform(-75, -15) / 10)
            if rng.random() < 0.4:  # comes and goes, like breathing or a passing car
                period, phase = rng.uniform(50, 500), rng.uniform(0, 6)
                wave = np.sin(np.arange(num_frames) * 2 * np.pi / period + phase)
                swell = wave * rng.uniform(1, 12) / 10
                layer = layer * 10 ** swell[:, None].astype(np.float32)
            power += layer
        mel = normalise(np.log10(power)).astype(np.float32)
        language = "en" if rng.random() < ENGLISH else "zh"
        tracks = np.zeros((num_frames, 5), np.float32)
        return Turn(mel, tracks, no_speech(language), None, None, "none", language)

    def batch(self, audio_s: float, rng: random.Random) -> list[Turn]:
        """Turns of like length that sum up to about `audio_s`; lengths are about log-uniform
        over 1.5-60 s."""
        length_s = 1.5 * 40 ** (rng.random() ** 1.35)
        turns = []
        for _ in range(max(1, int(audio_s / length_s))):
            num_frames = int(100 * min(60.0, length_s * rng.uniform(0.85, 1.15)))
            try:
                make = self.silence if rng.random() < 0.05 else self.speech
                turns.append(make(num_frames, rng))
            except ValueError:
                continue
        return turns or self.batch(audio_s, rng)
