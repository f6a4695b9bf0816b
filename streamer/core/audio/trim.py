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


class Trim:
    """`push` a turn's samples [n], multiples of 1 / 32768, cut anywhere; `finish` it. What both
    return, joined, does not depend on the cut. Bounded: it holds at most 2.5 s."""

    def __init__(self) -> None:
        # The turn's sample that is heard first, below 0 where silence stands for the lead; None
        # before any sound. And the one after the last that is heard, as far as it is known.
        self.begin: int | None = None
        self.end = 0
        self._held = NOTHING  # not given yet
        self._num_pushed = 0
        self._first: int | None = None  # the first sound's begin in _held
        self._ends = np.zeros(0, np.int64)  # of the sounds in _held, until it begins
        self._tail = 0  # samples that may still be given without a sound among them
        self._before = NOTHING  # the samples before the next
        self._squares = np.zeros(2 * SOUND_SAMPLES - 1, np.int64)  # of the samples before the next
        self._room = _LOUD  # none is known yet

    def push(self, samples: Samples, is_last: bool = False) -> Samples:
        """The samples that are heard for certain now. is_last: silence is pushed after the turn. It
        is judged as if the last sample went on, without a step, and no landmark is waited for."""
        levels, enough = self._levels(
            np.repeat(self._before[-1:], len(samples)) if is_last else samples
        )
        sounds = np.flatnonzero(levels >= enough)
        ends = np.concatenate([self._ends, len(self._held) + sounds + 1])
        self._held = np.concatenate([self._held, samples])
        self._num_pushed += len(samples)
        if self.begin is not None:
            return self._give(ends)
        if not len(ends):
            self._held = self._held[-KEPT_SAMPLES:]
            return NOTHING
        if self._first is None:
            self._first = self._first_of(int(ends[0]), int(enough[sounds[0]]))
        if not is_last and len(self._held) < self._first + LANDMARK_SAMPLES:
            self._ends = ends
            return NOTHING
        # begin a lead before the first sound; silence stands for samples that the turn lacks
        peak = at_landmark(self._held, self._first)
        begin = peak - -(-(peak - self._first + LEAD_SAMPLES) // STEP_SAMPLES) * STEP_SAMPLES
        self.begin = self._num_pushed - len(self._held) + begin
        missing = np.zeros(max(0, -begin), np.float32)
        self._held = np.concatenate([missing, self._held[max(0, begin) :]])
        self._ends = ends[:0]
        return self._give(ends - begin)

    def finish(self) -> Samples:
        """The turn is over: what is left to hear, as if silence followed; without any sound, what
        there was."""
        if self.begin is None and self._first is None:
            return self._held
        rest = self.push(np.zeros(SOUND_SAMPLES, np.float32), is_last=True)
        return np.concatenate([rest, np.zeros(self._tail, np.float32)])

    def _give(self, ends: NDArray[np.int64]) -> Samples:
        """The held samples that are heard. ends: of all sounds among them [n], ascending."""
        if len(ends):
            self.end = self._num_pushed - len(self._held) + int(ends[-1]) + TAIL_SAMPLES
        long = np.flatnonzero(np.diff(ends) > TAIL_SAMPLES + MAX_PAUSE_SAMPLES)
        given, at = [], 0
        for part in np.split(ends, long + 1) if len(ends) else []:
            first, last = int(part[0]), int(part[-1])
            tail = at + min(self._tail, first - at)
            begin = max(tail, first - MAX_PAUSE_SAMPLES)
            given += [self._held[at:tail], self._held[begin:last]]
            at, self._tail = last, TAIL_SAMPLES
        tail = min(len(self._held), at + self._tail)
        given.append(self._held[at:tail])
        self._tail -= tail - at
        self._held = self._held[max(tail, len(self._held) - MAX_PAUSE_SAMPLES) :]
        return np.concatenate(given)

    def _first_of(self, end: int, enough: int) -> int:
        """The first sound of those held before `end`, as the room is known now: a turn may begin
        within speech, and its first dip tells how loud the room is. So far back that its lead is
        held too, however the turn was cut."""
        begin = max(0, end - KEPT_SAMPLES + LEAD_SAMPLES + STEP_SAMPLES)
        own = _squares(_led(self._held[:begin], self._held[begin:end]))
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


def at_landmark(samples: Samples, begin: int) -> int:
    """The loudest sample of the half second from `begin` on."""
    return begin + int(np.argmax(np.abs(samples[begin : begin + LANDMARK_SAMPLES])))


class Span:
    """The samples of a turn from the first to the last that `trim` hears, with long pauses, and
    MARGIN_SAMPLES around them. Voice activity and the measures hear these. Holds 3 s, or the pause
    that goes on."""

    def __init__(self, trim: Trim) -> None:
        self.is_open = False  # whether it is known where it begins
        self.begin = 0  # the turn's sample where it begins; below 0 as in Trim
        self._trim = trim
        self._held = [NOTHING]  # not given yet
        self._end = 0  # of what is given
        self._num_pushed = 0

    def push(self, samples: Samples, is_last: bool = False) -> Samples:
        """Take samples [n] that `trim` has taken, too; return those that are in it for certain.
        is_last: the turn and `trim` are over; without any sound, the last 2 s are in it."""
        self._held.append(samples)
        self._num_pushed = num = self._num_pushed + len(samples)
        begin, end = self._trim.begin, self._trim.end
        if begin is None:
            self._held = [np.concatenate(self._held)[-SPAN_KEPT_SAMPLES:]]
            if not is_last:
                return NOTHING
            begin, end = max(0, num - KEPT_SAMPLES), num
        else:
            begin, end = begin - MARGIN_SAMPLES, end + MARGIN_SAMPLES
        if is_last:
            self._held.append(np.zeros(max(0, end - num), np.float32))
            num = max(num, end)
        elif min(end, num) == self._end:  # a pause goes on, and is copied once
            return NOTHING
        held = np.concatenate(self._held)
        if not self.is_open:
            self.is_open, self.begin = True, begin
            first = begin - (num - len(held))
            held = np.concatenate([np.zeros(max(0, -first), np.float32), held[max(0, first) :]])
        self._end = min(end, num)
        num_given = max(0, len(held) - (num - self._end))
        self._held = [held[num_given:]]
        return held[:num_given]


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
