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
from streamer.core.measures.frames import Growing

# A sound has a level above SOUND_DBFS over SOUND_SAMPLES, and 8 dB above the room's. Speech far
# below that is hardly more than the steps of PCM16.
SOUND_DBFS = -55.0
SOUND_SAMPLES = SAMPLE_RATE_HZ // 50
# The level is that of each sample less the mean of the 10 ms that it ends: a rumble under 50 Hz is
# most of a room's noise, and makes it seem unsteady.
RUMBLE_SAMPLES = SAMPLE_RATE_HZ // 100
OVER_ROOM = 6  # 8 dB, in energy
# This loud it is a sound in any room: of somebody who speaks over loud music nothing is cut.
LOUD_DBFS = -35.0
# The room is the quietest stretch so far that is steady: within 3 dB of the one before it. Noise
# that sets in after digital silence, as where a microphone is opened, is steady a little later.
STEADY = 2  # in energy
# Heard before the first sound is known as one, and after the last: speech rises and fades. Where
# the turn itself has no more, silence stands for it: so the first sound has its place in a frame.
LEAD_SAMPLES = SAMPLE_RATE_HZ // 10
TAIL_SAMPLES = SAMPLE_RATE_HZ // 10
# What is heard begins a whole number of steps before the loudest sample of the first half second.
# A step is 16 frames of log-mel and 5 of voice activity. So noise around a sound, which moves its
# begin by some samples, moves no frame: with pink noise of -60 dBFS for 5 s before 897 recordings
# of people, .04 of seven levels change (2026-11).
LANDMARK_SAMPLES = SAMPLE_RATE_HZ // 2
STEP_SAMPLES = 2560
# This much more is measured at each end, silence where the turn has none: the noise around speech.
MARGIN_SAMPLES = STEP_SAMPLES
# So much more than the turn itself may be heard: lead and tail.
AROUND_SAMPLES = LEAD_SAMPLES + STEP_SAMPLES + SOUND_SAMPLES + TAIL_SAMPLES
# A pause inside a turn waits until sound follows it. The last 2 s of a longer one are heard: the
# measure of pauses has its length. So no silence after the speech is ever heard.
MAX_PAUSE_SAMPLES = WINDOW_SAMPLES
KEPT_SAMPLES = WINDOW_SAMPLES  # of a turn without any sound, the last 2 s are heard
SPAN_KEPT_SAMPLES = KEPT_SAMPLES + LANDMARK_SAMPLES + MARGIN_SAMPLES
Energies = NDArray[np.int64]
NOTHING: Samples = np.zeros(0, np.float32)


def _energy(dbfs: float) -> int:
    """The energy of SOUND_SAMPLES at that level, as _squares gives it."""
    return int(SOUND_SAMPLES * (RUMBLE_SAMPLES * float(PCM16_SCALE) * 10 ** (dbfs / 20)) ** 2)


_SOUND, _LOUD = _energy(SOUND_DBFS), _energy(LOUD_DBFS)


class Recent:
    """The last samples of a sound, counted from its first one; silence lies around it."""

    def __init__(self) -> None:
        self._held = Growing()
        self.begin = 0  # of those that are held
        self.end = 0

    def add(self, samples: Samples) -> None:
        self._held.append(samples)
        self.end += len(samples)

    def between(self, first: int, end: int) -> Samples:
        """The samples from `first` to `end` [end - first], of which none was forgotten."""
        held = self._held.values[max(0, first - self.begin) : max(0, end - self.begin)]
        before, after = max(0, min(0, end) - first), max(0, end - max(first, self.end))
        return np.concatenate([np.zeros(before, np.float32), held, np.zeros(after, np.float32)])

    def forget(self, before: int) -> None:
        """Forget the samples before this one."""
        num = min(before, self.end) - self.begin
        if num > 0:
            self._held.drop(num)
            self.begin += num

    def take(self, end: int) -> Samples:
        """Take the held samples before `end`."""
        found = self.between(self.begin, max(self.begin, min(end, self.end)))
        self.forget(end)
        return found


class Trim:
    """`push` a turn's samples [n], multiples of 1 / 32768, cut anywhere; `finish` it. What both
    return, joined, does not depend on the cut.

    `span`, called after each of them, gives the samples from the first to the last that is heard,
    with long pauses, and MARGIN_SAMPLES around them. Voice activity and the measures hear these.
    Bounded: it holds 3 s, or the pause that goes on.
    """

    def __init__(self) -> None:
        # The turn's sample that is heard first, below 0 where silence stands for the lead; None
        # before any sound. And the one after the last that is heard, as far as it is known.
        self.begin: int | None = None
        self.end = 0
        self.span_begin: int | None = None  # the same of the span
        self._span_end = 0  # of what is given of it
        self._turn = Recent()
        self._first: int | None = None  # the turn's sample where the first sound begins
        self._ends = np.zeros(0, np.int64)  # where sounds ended, until the turn begins
        self._at = 0  # the turn's sample that is given next
        self._tail = 0  # samples that may still be given without a sound among them
        self._before = NOTHING  # the samples before the next
        self._squares = np.zeros(2 * SOUND_SAMPLES - 1, np.int64)  # of the samples before the next
        self._room = _LOUD  # none is known yet

    def push(self, samples: Samples, is_last: bool = False) -> Samples:
        """The samples that are heard for certain now. is_last: silence is pushed after the turn. It
        is judged as if the last sample went on, without a step, and no landmark is waited for."""
        judged = np.repeat(self._before[-1:], len(samples)) if is_last else samples
        levels, enough = self._levels(judged)
        sounds = np.flatnonzero(levels >= enough)
        ends = np.concatenate([self._ends, self._turn.end + sounds + 1])
        self._turn.add(samples)
        if self.begin is not None:
            return self._give(ends)
        if not len(ends):
            self._turn.forget(self._turn.end - SPAN_KEPT_SAMPLES)
            return NOTHING
        if self._first is None:
            self._first = self._first_of(int(ends[0]), int(enough[sounds[0]]))
        if not is_last and self._turn.end < self._first + LANDMARK_SAMPLES:
            self._ends = ends
            return NOTHING
        # a whole number of steps before the landmark, with a lead before the first sound
        peak = loudest(self._turn.between(self._first, self._first + LANDMARK_SAMPLES))
        num_steps = -(-(peak + LEAD_SAMPLES) // STEP_SAMPLES)
        self.begin = self._at = self._first + peak - num_steps * STEP_SAMPLES
        self._ends = ends[:0]
        return self._give(ends)

    def finish(self) -> Samples:
        """The turn is over: what is left to hear, as if silence followed; without any sound, the
        last 2 s."""
        if self.begin is None and self._first is None:
            return self._turn.between(max(0, self._turn.end - KEPT_SAMPLES), self._turn.end)
        rest = self.push(np.zeros(SOUND_SAMPLES, np.float32), is_last=True)
        return np.concatenate([rest, np.zeros(self._tail, np.float32)])

    def span(self, is_last: bool = False) -> Samples:
        """The next samples of the span. is_last: the turn is finished."""
        num = self._turn.end
        if self.begin is not None:
            begin, end = self.begin - MARGIN_SAMPLES, self.end + MARGIN_SAMPLES
        elif is_last:  # without any sound, the last 2 s
            begin, end = max(0, num - KEPT_SAMPLES), num
        else:
            return NOTHING
        if self.span_begin is None:
            self.span_begin = self._span_end = begin
        begin, self._span_end = self._span_end, end if is_last else min(end, num)
        return self._turn.between(begin, self._span_end)

    def _give(self, ends: NDArray[np.int64]) -> Samples:
        """The samples that are heard. ends: of all sounds that are not given yet [n], ascending."""
        long = np.flatnonzero(np.diff(ends) > TAIL_SAMPLES + MAX_PAUSE_SAMPLES)
        turn, given = self._turn, []
        for part in np.split(ends, long + 1) if len(ends) else []:
            first, last = int(part[0]), int(part[-1])
            tail = min(self._at + self._tail, first)
            given += [turn.between(self._at, tail)]
            given += [turn.between(max(tail, first - MAX_PAUSE_SAMPLES), last)]
            self._at, self._tail, self.end = last, TAIL_SAMPLES, last + TAIL_SAMPLES
        tail = min(turn.end, self._at + self._tail)
        given.append(turn.between(self._at, tail))
        self._tail -= tail - self._at
        self._at = max(tail, turn.end - MAX_PAUSE_SAMPLES)
        turn.forget(min(self._at, self._span_end))
        return np.concatenate(given)

    def _first_of(self, end: int, enough: int) -> int:
        """The first sound before `end`, as the room is known now: a turn may begin within speech,
        and its first dip tells how loud the room is. So far back that its lead is held too, however
        the turn was cut."""
        begin = max(0, end - KEPT_SAMPLES + LEAD_SAMPLES + STEP_SAMPLES)
        before = self._turn.between(max(0, begin - RUMBLE_SAMPLES), begin)
        own = _squares(_led(before, self._turn.between(begin, end)))
        squares = np.concatenate([np.zeros(SOUND_SAMPLES - 1, np.int64), own])
        return begin + int(np.argmax(_sums(squares, SOUND_SAMPLES) >= enough))

    def _levels(self, samples: Samples) -> tuple[Energies, Energies]:
        """The energy of the stretch that each of them ends, and how much makes it a sound."""
        samples = _led(self._before, samples)
        self._before = samples[len(samples) - (RUMBLE_SAMPLES - 1) :]
        squares = np.concatenate([self._squares, _squares(samples)])
        self._squares = squares[-(2 * SOUND_SAMPLES - 1) :]
        stretches = _sums(squares, SOUND_SAMPLES)
        before, now = stretches[:-SOUND_SAMPLES], stretches[SOUND_SAMPLES:]
        steady = (now > 0) & (now <= STEADY * before) & (before <= STEADY * now)
        rooms = np.concatenate([[self._room], np.where(steady, now, _LOUD)])
        rooms = np.minimum.accumulate(rooms)
        self._room = int(rooms[-1])
        return now, np.clip(OVER_ROOM * rooms[1:], _SOUND, _LOUD)


def loudest(samples: Samples) -> int:
    """The place of the loudest sample."""
    return int(np.argmax(np.abs(samples)))


def _led(before: Samples, samples: Samples) -> Samples:
    """The samples [n] after the RUMBLE_SAMPLES - 1 before them; the first one stands for those that
    the turn does not have: it does not begin with a step."""
    known = np.concatenate([before[max(0, len(before) - (RUMBLE_SAMPLES - 1)) :], samples])
    missing = RUMBLE_SAMPLES - 1 + len(samples) - len(known)
    return np.concatenate([np.repeat(known[:1], missing), known])


def _squares(samples: Samples) -> Energies:
    """The squares of RUMBLE_SAMPLES times the samples [n], without rumble, after the first
    RUMBLE_SAMPLES - 1. Whole numbers: no rounding, so no cut decides."""
    whole = np.rint(np.clip(samples, -1, 1) * PCM16_SCALE).astype(np.int64)
    found: Energies = RUMBLE_SAMPLES * whole[RUMBLE_SAMPLES - 1 :] - _sums(whole, RUMBLE_SAMPLES)
    return found * found


def _sums(values: Energies, num: int) -> Energies:
    """The sums of all `num` values that follow each other."""
    sums = np.concatenate([np.zeros(1, np.int64), np.cumsum(values)])
    return sums[num:] - sums[:-num]


def trimmed(samples: Samples) -> Samples:
    """The samples of a whole turn that are heard [n]."""
    trim = Trim()
    return np.concatenate([trim.push(samples), trim.finish()])
