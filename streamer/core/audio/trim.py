"""A turn's samples come in; those between its first and its last sound go out.

How long somebody waited before they spoke, or after, says nothing of how they spoke. And what is
heard begins at a sample that the sound itself names. So the same speech gives the same log-mel
frames wherever it lies in a recording, also in a room that is not quiet: a sound is what rises
over the room's own noise. docs/measured.md has the effect on levels of people.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from streamer.core.audio.pcm import PCM16_SCALE, SAMPLE_RATE_HZ, WINDOW_SAMPLES, Samples

# A sound is what is louder than this over so many samples, and 6 dB louder than the room. Speech
# far below it is hardly more than the steps of PCM16.
SOUND_DBFS = -55.0
SOUND_SAMPLES = SAMPLE_RATE_HZ // 50
OVER_ROOM = 4  # in energy
# This loud it is a sound in any room: of somebody who speaks over loud music nothing is cut.
LOUD_DBFS = -35.0
# The room is the quietest stretch so far that is steady: within 3 dB of the one before it. Noise
# that sets in after digital silence, as where a microphone is opened, is steady a little later.
STEADY = 2  # in energy
# Heard before the first sound is known as one, and after the last: speech rises and fades. Where
# the turn itself has no more, silence stands for it: so the first sound has its place in a frame.
LEAD_SAMPLES = SAMPLE_RATE_HZ // 10
TAIL_SAMPLES = SAMPLE_RATE_HZ // 10
AROUND_SAMPLES = LEAD_SAMPLES + TAIL_SAMPLES  # so much more than the turn itself may be heard
# A pause inside a turn waits until sound follows it. The last 2 s of a longer one are heard: the
# measure of pauses has its length. So no silence after the speech is ever heard.
MAX_PAUSE_SAMPLES = WINDOW_SAMPLES
KEPT_SAMPLES = WINDOW_SAMPLES  # of a turn without any sound, the last 2 s are heard
Energies = NDArray[np.int64]
NOTHING: Samples = np.zeros(0, np.float32)


def _energy(dbfs: float) -> int:
    """The energy of SOUND_SAMPLES at that level, in steps of PCM16."""
    return int(SOUND_SAMPLES * (float(PCM16_SCALE) * 10 ** (dbfs / 20)) ** 2)


_SOUND, _LOUD = _energy(SOUND_DBFS), _energy(LOUD_DBFS)
_NO_ROOM = _LOUD  # none is known yet


class Trim:
    """`push` a turn's samples [n], multiples of 1 / 32768, cut anywhere; `finish` it. What both
    return, joined, does not depend on the cut. Bounded: it holds at most 2 s."""

    def __init__(self) -> None:
        self._held = NOTHING  # not given yet
        self._has_begun = False
        self._tail = 0  # samples that may still be given without a sound among them
        self._squares = np.zeros(2 * SOUND_SAMPLES - 1, np.int64)  # of the samples before the next
        self._room = _NO_ROOM

    def push(self, samples: Samples) -> Samples:
        """The samples that are heard for certain now."""
        levels, enough = self._levels(samples)
        sounds = np.flatnonzero(levels >= enough)
        first_new = len(self._held)
        self._held = np.concatenate([self._held, samples])
        if not self._has_begun:
            if not len(sounds):
                self._held = self._held[-KEPT_SAMPLES:]
                return NOTHING
            self._has_begun = True
            first = self._first(first_new + int(sounds[0]) + 1, int(enough[sounds[0]]))
            missing = np.zeros(max(0, LEAD_SAMPLES - first), np.float32)
            self._held = np.concatenate([missing, self._held[max(0, first - LEAD_SAMPLES) :]])
            first_new += LEAD_SAMPLES - first
        return self._give(first_new + sounds + 1)

    def finish(self) -> Samples:
        """The turn is over: the silence that is left to hear; without any sound, what there was."""
        return np.zeros(self._tail, np.float32) if self._has_begun else self._held

    def _give(self, ends: NDArray[np.int64]) -> Samples:
        """The held samples that are heard. ends: of all sounds among them [n], ascending."""
        long = np.flatnonzero(np.diff(ends) > TAIL_SAMPLES + MAX_PAUSE_SAMPLES)
        firsts, lasts = (
            (ends[:1], ends[-1:])
            if not len(long)
            else (ends[np.concatenate([[0], long + 1])], ends[np.concatenate([long, [-1]])])
        )
        given, at = [], 0
        for first, last in zip(firsts.tolist(), lasts.tolist(), strict=True):
            tail = at + min(self._tail, first - at)
            begin = max(tail, first - MAX_PAUSE_SAMPLES)
            given += [self._held[at:tail], self._held[begin:last]]
            at, self._tail = last, TAIL_SAMPLES
        tail = min(len(self._held), at + self._tail)
        given.append(self._held[at:tail])
        self._tail -= tail - at
        self._held = self._held[max(tail, len(self._held) - MAX_PAUSE_SAMPLES) :]
        return np.concatenate(given)

    def _first(self, end: int, enough: int) -> int:
        """The first sound of those held before `end`, as the room is known now: a turn may begin
        within speech, and its first dip tells how loud the room is. So far back that its lead is
        held too, however the turn was cut."""
        begin = max(0, end - KEPT_SAMPLES + LEAD_SAMPLES)
        squares = np.concatenate(
            [np.zeros(SOUND_SAMPLES - 1, np.int64), _squares(self._held[begin:end])]
        )
        return begin + int(np.argmax(_stretches(squares) >= enough))

    def _levels(self, samples: Samples) -> tuple[Energies, Energies]:
        """Of the stretch that each of them ends: its energy, and how much makes it a sound."""
        squares = np.concatenate([self._squares, _squares(samples)])
        self._squares = squares[-(2 * SOUND_SAMPLES - 1) :]
        stretches = _stretches(squares)
        before, now = stretches[:-SOUND_SAMPLES], stretches[SOUND_SAMPLES:]
        steady = (now > 0) & (now <= STEADY * before) & (before <= STEADY * now)
        rooms = np.concatenate([[self._room], np.where(steady, now, _NO_ROOM)])
        rooms = np.minimum.accumulate(rooms)
        self._room = int(rooms[-1])
        return now, np.clip(OVER_ROOM * rooms[1:], _SOUND, _LOUD)


def _squares(samples: Samples) -> Energies:
    """Whole numbers: no rounding, so no cut decides."""
    whole = np.rint(np.clip(samples, -1, 1) * PCM16_SCALE).astype(np.int64)
    return whole * whole


def _stretches(squares: Energies) -> Energies:
    """The sums of all SOUND_SAMPLES that follow each other."""
    sums = np.concatenate([np.zeros(1, np.int64), np.cumsum(squares)])
    return sums[SOUND_SAMPLES:] - sums[:-SOUND_SAMPLES]


def trimmed(samples: Samples) -> Samples:
    """The samples of a whole turn that are heard [n]."""
    trim = Trim()
    return np.concatenate([trim.push(samples), trim.finish()])
