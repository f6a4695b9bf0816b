"""Measures of a recording without the models: of given stretches (words of a recogniser, subtitles,
annotations), its filled pauses, its syllable rate."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from streamer.audio.file import Audio, Source, chunks_of, open_audio
from streamer.config import ConfigError
from streamer.core.audio.pcm import SAMPLE_RATE_HZ, Chunker, OffsetFilter, Samples, on_grid
from streamer.core.audio.turn import NOTHING
from streamer.core.measures.frames import FRAMES_PER_S
from streamer.core.measures.speech_measures import SpeechMeasures
from streamer.model.audio import density
from streamer.model.audio.ear import SoundTrack, TurnMeasurer
from streamer.model.audio.turns import measure
from streamer.model.audio.vad import TurnVoice, VoiceActivity

MOST_S = 1e7  # 115 days: longer ones are no times of a recording
MOST_HELD_SAMPLES = 60 * SAMPLE_RATE_HZ  # before the first speech
CUE = re.compile(r"^(\S+)\s+-->\s+(\S+)[^\n]*\n(.*?)(?:\n\s*\n|\Z)", re.S | re.M)
TAG = re.compile(r"<[^<>]*>")
# a text, a place of the long format's lists, or a number
TOKEN = re.compile(r'"(?P<text>(?:[^"]|"")*)"|\[\d*\]|(?P<number>-?\d+(?:\.\d+)?(?:e-?\d+)?)')


@dataclass(frozen=True)
class Interval:
    """Seconds of the recording, and what is said there, if it is known."""

    start_s: float
    end_s: float
    text: str = ""


def measure_intervals(
    source: Source,
    intervals: Iterable[Interval | Sequence[float]],
    channel: int | None = None,
    track: int | None = None,
) -> list[SpeechMeasures]:
    """The measures of each interval, in their order. No model is loaded.

    source, channel, track: as in `Describer.describe`. intervals: `Interval`s or (start, end) in s.
    A measure is None where speech is too short to tell: 200 ms of it are needed, and for a pitch
    200 ms of voice. Raises AudioError, and ValueError for an interval that ends before it begins.
    """
    with open_audio(source, track) as audio:
        return measures_in(audio, intervals, channel)


def measures_in(
    audio: Audio, intervals: Iterable[Interval | Sequence[float]], channel: int | None = None
) -> list[SpeechMeasures]:
    """The same of an open recording."""
    spans = [_span(each) for each in intervals]
    voice = TurnVoice(MOST_HELD_SAMPLES, silent=0)
    measurer = TurnMeasurer()
    num = 0
    for samples in map(OffsetFilter().push, chunks_of(audio, channel)):
        num += len(samples)
        measurer.push(*voice.hear(samples))
        measurer.work()
    measurer.push(*voice.hear(NOTHING, is_last=True))
    frames = measurer.frames()
    begin_s, num_s = voice.begin / SAMPLE_RATE_HZ, num / SAMPLE_RATE_HZ
    found = []
    for start, end in spans:
        first, last = (max(0, round((at - begin_s) * FRAMES_PER_S)) for at in (start, end))
        measures = frames.at(slice(first, last)).measures()
        if start < begin_s:  # sound without speech, of which only the length is known
            measures = replace(measures, audio_s=max(0.0, min(end, num_s) - start))
        found.append(measures)
    return found


def _span(interval: Interval | Sequence[float]) -> tuple[float, float]:
    if isinstance(interval, Interval):
        interval = interval.start_s, interval.end_s
    try:
        start, end = map(float, interval)
    except (TypeError, ValueError):
        raise ValueError(f"{interval!r} is no interval; give (start, end) in seconds") from None
    if not 0 <= start <= end <= MOST_S:
        raise ValueError(f"the interval {start} to {end} s ends before it begins, or is no time")
    return start, end


def read_intervals(path: str | Path) -> list[Interval]:
    """The cues of .srt or .vtt, the first tier of intervals of a .TextGrid, or the words (else the
    segments) of whisper's .json. Intervals without a text are left out of a TextGrid, as pauses
    are. Raises ConfigError with one line for a file that is none of these."""
    path = Path(path)
    if (read := READERS.get(path.suffix.lower())) is None:
        told = "give a file in .srt, .vtt, .TextGrid or whisper's .json"
        raise ConfigError(f"intervals {path}: {told}")
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"intervals {path}: {error.strerror}") from None
    # Praat writes UTF-16 by default where a text is not ASCII
    encoding = "utf-16" if data.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf-8-sig"
    try:
        found = read(data.decode(encoding, errors="replace").replace("\r\n", "\n"))
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError):
        raise ConfigError(f"intervals {path}: cannot be read as {path.suffix}") from None
    if not found:
        raise ConfigError(f"intervals {path}: holds no interval")
    try:
        list(map(_span, found))
    except ValueError as error:
        raise ConfigError(f"intervals {path}: {error}; mend it there") from None
    return found


def _of_cues(text: str) -> list[Interval]:
    return [
        Interval(_seconds(start), _seconds(end), " ".join(TAG.sub("", told).split()))
        for start, end, told in CUE.findall(text)
    ]


def _seconds(clock: str) -> float:
    """01:02,500 -> 62.5."""
    parts = reversed(clock.replace(",", ".").split(":"))
    return sum(float(part) * 60**i for i, part in enumerate(parts))


def _of_textgrid(text: str) -> list[Interval]:
    """Both of Praat's text formats are the same values; the long one has their names beside."""
    values = [found.group(found.lastgroup) for found in TOKEN.finditer(text) if found.lastgroup]
    at = values.index("IntervalTier")
    rows = values[at + 5 : at + 5 + 3 * int(float(values[at + 4]))]
    return [
        Interval(float(start), float(end), words.replace('""', '"'))
        for start, end, words in zip(rows[::3], rows[1::3], rows[2::3], strict=True)
        if words.strip()
    ]


def _of_whisper(text: str) -> list[Interval]:
    segments: list[dict[str, Any]] = json.loads(text)["segments"]
    words = [word for segment in segments for word in segment.get("words", ())]
    words = [word for word in words if {"start", "end"} <= word.keys()]  # else it was not aligned
    found = []
    for row in words or segments:
        said = row.get("word", row.get("text", "")).strip()
        found.append(Interval(float(row["start"]), float(row["end"]), said))
    return found


READERS = {".srt": _of_cues, ".vtt": _of_cues, ".textgrid": _of_textgrid, ".json": _of_whisper}


@dataclass(frozen=True)
class FilledPauses:
    """times_s: begin and end of each. per_min: from first to last speech; None without speech."""

    times_s: Sequence[tuple[float, float]]
    per_min: float | None

    def __len__(self) -> int:
        return len(self.times_s)

    def as_json(self) -> dict[str, Any]:
        """Plain types."""
        per_min = None if self.per_min is None else round(self.per_min, 2)
        times = [{"start_s": a, "end_s": b} for a, b in self.times_s]
        return {"count": len(self), "filled_pauses_per_min": per_min, "times": times}


def filled_pauses(
    source: Source, channel: int | None = None, track: int | None = None
) -> FilledPauses:
    """Those of a recording; source, channel, track: as in `Describer.describe`. No model is loaded.
    Raises AudioError."""
    voice = VoiceActivity()
    sound = SoundTrack()
    changes = density.Changes()
    with open_audio(source, track) as audio:
        for samples in map(OffsetFilter().push, chunks_of(audio, channel)):
            changes.add(sound.add(samples, voice.push(samples)))
    changes.add(sound.add(NOTHING, voice.push(NOTHING, is_last=True), is_last=True))
    frames = sound.frames()
    spoken = np.flatnonzero(frames.speech)
    if not len(spoken):
        return FilledPauses((), None)
    found = density.filled_pauses(frames, changes.values)
    minutes = (spoken[-1] + 1 - spoken[0]) / FRAMES_PER_S / 60
    times = [(begin / FRAMES_PER_S, end / FRAMES_PER_S) for begin, end in found]
    return FilledPauses(times, len(found) / float(minutes))


def syllable_rate(samples: Samples, rate: int) -> float | None:
    """Syllables per second of speech, without its pauses of at least 180 ms.

    samples: [n] float32 of one channel, full scale 1.0; rate: in Hz. Returns None without
    speech. Raises BadAudio (a ValueError) for a rate outside 1..384 kHz, and for samples
    that are no audio. docs/measures.md says how far the rate is from that of the text.
    """
    chunker = Chunker(rate)
    sound = np.concatenate([chunker.push(samples), chunker.finish()])
    return measure(OffsetFilter().push(on_grid(sound))).rate_syllables_per_s
