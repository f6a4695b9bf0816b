"""Numbers between the channels of a call: shares of talk, overlap, dead air, gaps, interruptions.

Each channel is one speaker. A stretch of talk is speech whose pauses are shorter than
MERGE_S: after a longer one the floor is free (Heldner and Edlund, "Pauses, gaps and overlaps in
conversations", J. Phonetics 38, 2010, for the terms).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamer.core.description import Description
from streamer.core.measures.frames import runs, without_gaps
from streamer.core.text.chinese import comma, told
from streamer.core.timeline import Timeline

STEP_S = 0.01
MERGE_S = 0.7
DEAD_S = 2.0  # nobody speaks for so long
BACKCHANNEL_S = 1.0  # shorter talk during another's ("yes", "mhm") interrupts nobody
Stretch = tuple[float, float, int]  # of talk: begin and end in s, channel


@dataclass(frozen=True)
class Conversation:
    """A call. Shares are of the seconds in which anybody speaks; the times of all begin and end
    with the first and the last speech.

    talk_share: of each channel. dead_air_s: in stretches of 2 s and more without speech.
    gap_median_s: between the end of one speaker's talk and the begin of another's, None without
    such a change. interruptions: of each channel, how often it took the floor while another spoke:
    it begins during the other's talk, speaks for 1 s or more, and the other stops first.
    """

    talk_share: tuple[float, ...]
    overlap_share: float
    dead_air_s: float
    turns: tuple[int, ...]
    gap_median_s: float | None
    interruptions: tuple[int, ...]

    def as_json(self) -> dict[str, Any]:
        """Plain types, rounded to 3 decimals."""
        found = asdict(self).items()
        return {name: v if v is None else np.round(v, 3).tolist() for name, v in found}

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


def conversation(channels: Sequence[Description]) -> Conversation | None:
    """The numbers between channels of one recording, each described alone with measures. None for
    fewer than two, where one was not measured, or where no channel has speech."""
    known = [timeline for found in channels if (timeline := found.timeline) is not None]
    if len(known) < max(2, len(channels)):
        return None
    flags = _speech(known)
    return _of(flags) if flags.any() else None


def marks_between(channels: Sequence[Timeline]) -> list[tuple[float, float, str]]:
    """(begin, end in s, "overlap" or "dead air") of each in a call, in order."""
    num = _speech(channels).sum(0)
    marks = [(begin, end, "overlap") for begin, end in runs(num > 1)]
    marks += [(begin, end, "dead air") for begin, end in _dead(num)]
    return [(begin / 100, end / 100, kind) for begin, end, kind in sorted(marks)]


def _dead(num: NDArray[np.int64]) -> list[tuple[int, int]]:
    """(first, end) of each stretch of dead air. num: how many speak in each step."""
    gaps = itertools.pairwise(runs(num > 0))
    return [(end, begin) for (_, end), (begin, _) in gaps if begin - end >= DEAD_S / STEP_S]


def _speech(channels: Sequence[Timeline]) -> NDArray[np.bool_]:
    """Who speaks in each 10 ms, [n_channels, n_steps]."""
    curves = [each.curves for each in channels]
    speech = [np.repeat(each.speech, round(each.step_s / STEP_S)) for each in curves]
    longest = max(map(len, speech))
    return np.array([np.pad(each, (0, longest - len(each))) for each in speech])


def _stretches(flags: NDArray[np.bool_]) -> list[Stretch]:
    """The stretches of talk of all channels, in order. flags: as `_speech` gives them."""
    least = round(MERGE_S / STEP_S)
    found: list[Stretch] = []
    for channel, each in enumerate(flags):
        talk = runs(without_gaps(each, least))
        found += [(begin * STEP_S, end * STEP_S, channel) for begin, end in talk]
    return sorted(found)


def _turns(stretches: Sequence[Stretch]) -> list[Stretch]:
    """Stretches of one speaker are a turn until another takes the floor. Talk that lies within
    another's takes no floor."""
    turns: list[Stretch] = []
    for begin, end, channel in stretches:
        if turns and turns[-1][2] == channel:
            turns[-1] = (turns[-1][0], max(end, turns[-1][1]), channel)
        elif not turns or end > turns[-1][1]:
            turns.append((begin, end, channel))
    return turns


def _interrupts(stretch: Stretch, stretches: Sequence[Stretch]) -> bool:
    """Whether it begins during another's talk, which stops first, and is long enough."""
    begin, end, own = stretch
    if end - begin < BACKCHANNEL_S:
        return False
    return any(other != own and a < begin < b < end for a, b, other in stretches)


def _of(flags: NDArray[np.bool_]) -> Conversation:
    """flags: as `_speech` gives them."""
    stretches = _stretches(flags)
    turns = _turns(stretches)
    gaps = [b[0] - a[1] for a, b in itertools.pairwise(turns) if a[1] <= b[0]]
    interrupting = [each[2] for each in stretches if _interrupts(each, stretches)]
    num, talk = flags.sum(0), flags.sum(1)
    speakers = [turn[2] for turn in turns]
    channels = range(len(flags))
    return Conversation(
        talk_share=tuple((talk / talk.sum()).tolist()),
        overlap_share=float((num > 1).sum() / (num > 0).sum()),
        dead_air_s=sum((end - begin) * STEP_S for begin, end in _dead(num)),
        turns=tuple(map(speakers.count, channels)),
        gap_median_s=median(gaps) if gaps else None,
        interruptions=tuple(map(interrupting.count, channels)),
    )
