"""A recording over time: curves of its pitch, level, speech and syllables, its turns with their
sentences; and of a call, the numbers between its channels.

docs/measures.md documents the JSON; docs/timeline.schema.json is its schema.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamer.core.measures.frames import (
    FRAMES_PER_S,
    PAUSE_FRAMES,
    Flags,
    Floats,
    Frames,
    decibel,
    runs,
    without_gaps,
)
from streamer.core.text import comma, told

MAX_POINTS = 360_000  # an hour in steps of 10 ms, 4.7 MB; of a longer recording the step doubles
RATE_STEP_S = 0.5
RATE_OVER_S = 2.0  # the rate at a time is that of the 2 s around it,
MIN_RATE_S = 1.0  # where at least this much of them is no pause


@dataclass(frozen=True, eq=False)
class Curves:
    """One point a step. f0_hz: 0 without voiced speech; power: mean square; syllables: how many."""

    step_s: float
    f0_hz: Floats
    power: Floats
    speech: Flags
    syllables: Floats

    def __len__(self) -> int:
        return len(self.f0_hz)

    @property
    def _arrays(self) -> tuple[NDArray[Any], ...]:
        return self.f0_hz, self.power, self.speech, self.syllables

    @classmethod
    def of(cls, frames: Frames, before: int, num: int) -> Curves:
        """A turn of `num` steps: `frames` are those from `before` on, with silence around them."""
        speech = frames.counted()
        held: list[Any] = []
        for values in (frames.f0 * speech, frames.power, speech, frames.density * speech):
            part = values[max(0, -before) : max(0, num - before)]
            held.append(np.zeros(num, values.dtype))
            held[-1][max(0, before) :][: len(part)] = part
        return cls(1 / FRAMES_PER_S, *held)

    @classmethod
    def joined(cls, turns: Sequence[Curves]) -> Curves:
        """The curves of consecutive turns, all in steps of 10 ms; at most MAX_POINTS."""
        arrays = map(np.concatenate, zip(*(turn._arrays for turn in turns), strict=True))
        return cls(turns[0].step_s, *arrays).thinned(MAX_POINTS)

    def thinned(self, max_points: int) -> Curves:
        """The same in steps twice as long, and again, until it has at most `max_points`."""
        if len(self) <= max_points:
            return self
        even = len(self) // 2 * 2
        f0, power, speech, syllables = (v[:even].reshape(-1, 2) for v in self._arrays)
        f0_hz = (f0.sum(1) / np.maximum(1, (f0 > 0).sum(1))).astype(np.float32)
        arrays = f0_hz, power.mean(1), np.any(speech, 1), syllables.sum(1)
        return Curves(2 * self.step_s, *arrays).thinned(max_points)

    @property
    def level_dbfs(self) -> Floats:
        """[n]; -120 is silence."""
        return decibel(self.power)

    @property
    def talk_s(self) -> list[tuple[float, float]]:
        """(begin, end) of each stretch of speech. Between two lies a pause of 180 ms or more."""
        return [(begin * self.step_s, end * self.step_s) for begin, end in runs(self._talking())]

    @property
    def pauses_s(self) -> list[tuple[float, float]]:
        """(begin, end) of each."""
        return [(end, begin) for (_, end), (begin, _) in itertools.pairwise(self.talk_s)]

    @property
    def nuclei_s(self) -> list[float]:
        """A time in s for each syllable: where their count passes a half, and each whole more."""
        added = np.cumsum(self.syllables, dtype=float)
        halves = np.arange(0.5, added[-1] if len(added) else 0.0)
        return ((np.searchsorted(added, halves) + 0.5) * self.step_s).tolist()

    def rates(self) -> Iterator[tuple[float, float | None]]:
        """(time in s, syllables per second of speech there), every RATE_STEP_S; None in a pause."""
        added = np.concatenate([[0], np.cumsum(self.syllables, dtype=float)])
        spoken = np.concatenate([[0], np.cumsum(self._talking())])
        half = round(RATE_OVER_S / 2 / self.step_s)
        for i in range(int(len(self) * self.step_s / RATE_STEP_S) + 1):
            at = round(i * RATE_STEP_S / self.step_s)
            first, last = max(0, at - half), min(len(self), at + half)
            seconds = float(spoken[last] - spoken[first]) * self.step_s
            rate = float(added[last] - added[first]) / max(seconds, MIN_RATE_S)
            yield i * RATE_STEP_S, rate if seconds >= MIN_RATE_S else None

    def _talking(self) -> Flags:
        """From the first speech to the last, without pauses."""
        return without_gaps(self.speech, PAUSE_FRAMES / FRAMES_PER_S / self.step_s - 1e-6)


@dataclass(frozen=True, eq=False)
class Timeline:
    """One recording, or a channel of one. `streamer.write_timeline` writes it to a file."""

    file: str
    duration_s: float
    curves: Curves
    turns: Sequence[Any]  # Descriptions with measures
    channel: int | None = None  # of the recording, from 0; None: the loudest at each time

    def as_json(self) -> dict[str, Any]:
        """Plain types; the field names have the units. None: unvoiced, or a pause."""
        curves = self.curves
        rates = [rate if rate is None else round(rate, 2) for _, rate in curves.rates()]
        return {
            "version": 1,
            # strict readers refuse half of a pair, as in a name that is no UTF-8
            "file": self.file.encode(errors="backslashreplace").decode(),
            **({} if self.channel is None else {"channel": self.channel}),
            "duration_s": round(self.duration_s, 3),
            "step_s": curves.step_s,
            "f0_hz": [None if hz == 0 else round(hz, 1) for hz in curves.f0_hz.tolist()],
            "level_dbfs": [round(level, 1) for level in curves.level_dbfs.tolist()],
            "rate_step_s": RATE_STEP_S,
            "rate_syllables_per_s": rates,
            "pauses": [{"start_s": round(a, 3), "end_s": round(b, 3)} for a, b in curves.pauses_s],
            "turns": [
                {
                    "start_s": round(turn.start_s, 3),
                    "end_s": round(turn.end_s, 3),
                    "text": turn.text,
                    "language": turn.language,
                    "attributes": turn.attributes,
                    "levels": turn.levels,
                    "measures": turn.measures.as_json(),
                }
                for turn in self.turns
            ],
        }


# For a call, where each channel is one speaker. A stretch of talk is speech with pauses shorter
# than MERGE_STEPS: after a longer pause anybody may speak (Heldner and Edlund, "Pauses, gaps
# and overlaps in conversations", J. Phonetics 38, 2010, for the terms). A step has 10 ms.
MERGE_STEPS = 70
DEAD_STEPS = 200  # a silence of all speakers of this length or more is dead air
BACKCHANNEL_STEPS = 100  # shorter talk during another's ("yes", "mhm") is no interruption
Span = tuple[float, float, str]  # begin and end in s, and its label


@dataclass(frozen=True)
class Conversation:
    """A call. Shares are of the seconds in which anybody speaks; the times of all begin and end
    with the first and the last speech.

    talk_share: of each channel. dead_air_s: in stretches of 2 s and more without speech.
    gap_median_s: between the end of one speaker's talk and the begin of another's, None without
    such a change. interruptions: of each channel, how often it took the floor while another spoke:
    it begins during the other's talk, speaks for 1 s or more, and the other stops first. between:
    each overlap and each dead air, in order.
    """

    talk_share: tuple[float, ...]
    overlap_share: float
    dead_air_s: float
    turns: tuple[int, ...]
    gap_median_s: float | None
    interruptions: tuple[int, ...]
    between: tuple[Span, ...] = field(default=(), repr=False)

    def as_json(self) -> dict[str, Any]:
        """Plain types, rounded to 3 decimals, without `between`."""
        row = asdict(self)
        del row["between"]
        return {name: v if v is None else np.round(v, 3).tolist() for name, v in row.items()}

    def __str__(self) -> str:
        return self.told_in("en")

    def told_in(self, language: str) -> str:
        """One line."""
        talk = " / ".join(f"{share:.0%}" for share in self.talk_share)
        parts = [
            told(language, "between channels: talk {}, overlap {:.0%}", talk, self.overlap_share),
            told(language, "dead air {:.1f} s", self.dead_air_s),
        ]
        if self.gap_median_s is not None:
            parts.append(told(language, "gap {:.1f} s (median)", self.gap_median_s))
        parts.append(told(language, "interruptions {}", " / ".join(map(str, self.interruptions))))
        return comma(language).join(parts)


def conversation(channels: Sequence[Any]) -> Conversation | None:
    """The numbers between channels of one recording, Descriptions of each alone with measures. None
    for fewer than two, where one was not measured, or where no channel has speech."""
    curves = [line.curves for found in channels if (line := found.timeline) is not None]
    if len(curves) < max(2, len(channels)):
        return None
    speech = [np.repeat(each.speech, round(each.step_s * FRAMES_PER_S)) for each in curves]
    num = max(map(len, speech))
    flags = np.array([np.pad(each, (0, num - len(each))) for each in speech])
    return conversation_of(flags) if flags.any() else None


def conversation_of(speech: Flags) -> Conversation:
    """speech [n_channels, n_steps]: who speaks in each 10 ms; somebody does."""
    stretches = sorted(
        (begin, end, channel)
        for channel, flags in enumerate(speech)
        for begin, end in runs(without_gaps(flags, MERGE_STEPS))
    )
    # A turn goes on until another speaker takes the floor: not by talk that lies within the turn.
    turns: list[tuple[int, int, int]] = []
    for begin, end, channel in stretches:
        if turns and turns[-1][2] == channel:
            turns[-1] = (turns[-1][0], max(end, turns[-1][1]), channel)
        elif not turns or end > turns[-1][1]:
            turns.append((begin, end, channel))
    gaps = [b[0] - a[1] for a, b in itertools.pairwise(turns) if a[1] <= b[0]]
    interrupting = [
        own
        for begin, end, own in stretches
        if end - begin >= BACKCHANNEL_STEPS
        and any(other != own and a < begin < b < end for a, b, other in stretches)
    ]
    num, talk = speech.sum(0), speech.sum(1)
    pauses = [(end, begin) for (_, end), (begin, _) in itertools.pairwise(runs(num > 0))]
    dead = [(begin, end, "dead air") for begin, end in pauses if end - begin >= DEAD_STEPS]
    marks = sorted([(begin, end, "overlap") for begin, end in runs(num > 1)] + dead)
    speakers = [turn[2] for turn in turns]
    return Conversation(
        talk_share=tuple((talk / talk.sum()).tolist()),
        overlap_share=float((num > 1).sum() / (num > 0).sum()),
        dead_air_s=sum(end - begin for begin, end, _ in dead) / FRAMES_PER_S,
        turns=tuple(map(speakers.count, range(len(speech)))),
        gap_median_s=median(gaps) / FRAMES_PER_S if gaps else None,
        interruptions=tuple(map(interrupting.count, range(len(speech)))),
        between=tuple((a / FRAMES_PER_S, b / FRAMES_PER_S, kind) for a, b, kind in marks),
    )
