"""One turn: its samples between the first and the last sound, and the items of hearing it.

How long somebody waited before they spoke, or after, says nothing of how they spoke. And what is
heard begins at a sample that the sound itself names. So the same speech gives the same log-mel
frames wherever it lies in a recording, also in a room that is not quiet: a sound is what rises
over the room's own noise. docs/measured.md has the effect on levels of people.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

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
BEFORE_SAMPLES = RUMBLE_SAMPLES + 2 * SOUND_SAMPLES - 2  # that a sample's level is judged by
# This loud it is a sound in any room: of somebody who speaks over loud music nothing is cut.
LOUD_DBFS = -35.0
# The room's level is that of the quietest steady stretch so far. A stretch is steady if its level
# is within 3 dB of that of the stretch before it.
STEADY = 2  # in energy
# Heard before the first sound is known as one, and after the last: speech rises and fades. Where
# the turn itself has no more, silence stands for it: so the first sound has its place in a frame.
LEAD_SAMPLES = SAMPLE_RATE_HZ // 10
TAIL_SAMPLES = SAMPLE_RATE_HZ // 10
# Hearing begins a whole number of steps before the loudest sample of the first half second. A step
# is 16 frames of log-mel and 5 of voice activity. Noise around a sound moves its begin by some
# samples; the frames stay in place. With 5 s of pink noise at -60 dBFS before 897 recordings of
# people, .04 of seven levels change (2026-11).
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


class Recent(Growing):
    """The last samples of a sound, counted from its first one; silence lies around it."""

    begin = 0  # of those that are held

    @property
    def end(self) -> int:
        """The number of samples until now."""
        return self.begin + len(self)

    def between(self, first: int, end: int) -> Samples:
        """The samples from `first` to `end` [end - first]; those that it forgot are silent, too."""
        held = self.values[max(0, first - self.begin) : max(0, end - self.begin)]
        before, after = max(0, min(self.begin, end) - first), max(0, end - max(first, self.end))
        return np.concatenate([np.zeros(before, np.float32), held, np.zeros(after, np.float32)])

    def peak(self, first: int) -> int:
        """The loudest sample of the LANDMARK_SAMPLES from `first` on."""
        return first + int(np.argmax(np.abs(self.between(first, first + LANDMARK_SAMPLES))))

    def forget(self, before: int) -> None:
        """Forget the samples before this one."""
        if (num := min(before, self.end) - self.begin) > 0:
            self.drop(num)
            self.begin += num

    def take(self, end: int) -> Samples:
        """Take the held samples before `end`."""
        found = self.between(self.begin, max(self.begin, min(end, self.end)))
        self.forget(end)
        return found


class Trim:
    """`push` a turn's samples, multiples of 1 / 32768, in pieces of any size. The pieces that it
    returns, joined, are the same for each cut. It holds at most 3 s, or the current pause."""

    def __init__(self) -> None:
        # The turn's sample where the span begins, below 0 where silence stands for the lead; None
        # before any sound. And the one after the last that is heard, as far as it is known.
        self.span_begin: int | None = None
        self._end = 0
        self._span_end = 0  # end of the part of the span that was returned
        self._turn = Recent()
        self._first: int | None = None  # the turn's sample where the first sound begins
        self._ends = np.zeros(0, np.int64)  # where sounds ended that are not given yet
        self._at = 0  # the turn's sample that is given next
        self._room = _LOUD  # none is known yet

    def push(self, samples: Samples, is_last: bool = False) -> tuple[Samples, Samples]:
        """Take samples [n]; return those that are heard for certain now, and the next of the span:
        from the first to the last that is heard, with long pauses, and MARGIN_SAMPLES around them.
        Voice activity and the measures hear the span.

        is_last: the turn is over, and none are pushed. Silence follows, and no landmark is waited
        for. Both are the last 2 s of a turn without any sound.
        """
        levels, enough = self._levels(samples, is_last)
        sounds, turn = np.flatnonzero(levels >= enough), self._turn
        self._ends = np.concatenate([self._ends, turn.end + sounds + 1])
        turn.append(samples)
        if self._first is None:
            if is_last or not len(sounds):
                return self._without_sound(is_last)
            self._first = self._first_of(int(self._ends[0]), int(enough[sounds[0]]))
        if self.span_begin is None:
            if not is_last and turn.end < self._first + LANDMARK_SAMPLES:
                return NOTHING, NOTHING
            # a whole number of steps before the landmark, with a lead before the first sound
            peak = turn.peak(self._first)
            num_steps = -(-(peak - self._first + LEAD_SAMPLES) // STEP_SAMPLES)
            self._at = self._end = peak - num_steps * STEP_SAMPLES
            self.span_begin = self._span_end = self._at - MARGIN_SAMPLES
        heard = self._give(is_last)
        begin, end = self._span_end, self._end + MARGIN_SAMPLES
        self._span_end = end if is_last else min(end, turn.end)
        spoken = turn.between(begin, self._span_end)
        turn.forget(min(self._at, self._span_end, turn.end - BEFORE_SAMPLES))
        return heard, spoken

    def _without_sound(self, is_last: bool) -> tuple[Samples, Samples]:
        end = self._turn.end
        if not is_last:
            self._turn.forget(end - SPAN_KEPT_SAMPLES)
            return NOTHING, NOTHING
        self.span_begin = max(0, end - KEPT_SAMPLES)
        rest = self._turn.between(self.span_begin, end)
        return rest, rest

    def _give(self, is_last: bool) -> Samples:
        """The samples that are heard, to the last sound and its tail."""
        long = np.flatnonzero(np.diff(self._ends) > TAIL_SAMPLES + MAX_PAUSE_SAMPLES)
        turn, given = self._turn, []
        for part in np.split(self._ends, long + 1) if len(self._ends) else []:
            first, last = int(part[0]), int(part[-1])
            tail = min(max(self._at, self._end), first)
            given += [turn.between(self._at, tail)]
            given += [turn.between(max(tail, first - MAX_PAUSE_SAMPLES), last)]
            self._at, self._end = last, last + TAIL_SAMPLES
        self._ends = self._ends[:0]
        tail = max(self._at, self._end if is_last else min(turn.end, self._end))
        given.append(turn.between(self._at, tail))
        self._at = max(tail, turn.end - MAX_PAUSE_SAMPLES)
        return np.concatenate(given)

    def _first_of(self, end: int, enough: int) -> int:
        """The first sound before `end`, as the room is known now: a turn may begin within speech,
        and its first dip tells the room's level. So far back that its lead is held, for any cut."""
        begin = max(0, end - KEPT_SAMPLES + LEAD_SAMPLES + STEP_SAMPLES)
        own = _squares(self._led(begin, self._turn.between(begin, end), RUMBLE_SAMPLES - 1))
        squares = np.pad(own, (SOUND_SAMPLES - 1, 0))
        return begin + int(np.argmax(_sums(squares, SOUND_SAMPLES) >= enough))

    def _levels(self, samples: Samples, is_last: bool) -> tuple[Energies, Energies]:
        """The energy of the stretch that each of them ends, and how much makes it a sound. Silence
        is judged as if the last sample went on, without a step."""
        end = self._turn.end
        if is_last:
            samples = np.repeat(self._turn.between(end - 1, end), SOUND_SAMPLES)
        stretches = _sums(_squares(self._led(end, samples, BEFORE_SAMPLES)), SOUND_SAMPLES)
        before, now = stretches[:-SOUND_SAMPLES], stretches[SOUND_SAMPLES:]
        steady = (now > 0) & (now <= STEADY * before) & (before <= STEADY * now)
        rooms = np.concatenate([[self._room], np.where(steady, now, _LOUD)])
        rooms = np.minimum.accumulate(rooms)
        self._room = int(rooms[-1])
        return now, np.clip(OVER_ROOM * rooms[1:], _SOUND, _LOUD)

    def _led(self, first: int, samples: Samples, num: int) -> Samples:
        """The samples [n] from the turn's sample `first` on, after the `num` before them. The first
        one stands for those that the turn does not have: it does not begin with a step."""
        known = np.concatenate([self._turn.between(max(0, first - num), first), samples])
        return np.concatenate([np.repeat(known[:1], num + len(samples) - len(known)), known])


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
    return np.concatenate([trim.push(samples)[0], trim.push(NOTHING, is_last=True)[0]])


# The items of hearing, in order: for each turn TurnOpened, Heard*, then Closed or Dropped. Windows
# are opaque here; samples are 16 kHz mono; `turn` counts from 0, per session.


@dataclass(frozen=True, slots=True)
class TurnOpened:
    """A turn begins. at_ms: where voice activity began it, padding included; else None."""

    turn: int
    at_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Heard:
    """New complete windows, and the largest log-mel value of the turn until now.

    provisional: the last window as if the turn ended here, where a live update is due. samples: [n]
    float32, those that are heard now, for a model that hears them elsewhere. num_taken: how long
    the turn is, with the silence at its ends that is not heard (`Trim`). measures: a
    function that measures the turn so far; None without measures, or where no update is due.
    """

    turn: int
    windows: tuple[Any, ...]
    maximum: float
    provisional: Any = None
    samples: Any = None
    num_taken: int = 0
    measures: Any = None


@dataclass(frozen=True, slots=True)
class Closed:
    """The turn's audio is over; `rest` is its last window, if there is one left.

    goes_on: it is only a part, cut at max_turn_s; the next turn is what follows.
    stopped_ms, last_speech_ms: of the session, where voice activity ended the turn, else None.
    """

    turn: int
    rest: tuple[Any, ...]
    maximum: float
    num_samples: int
    has_speech: bool
    last_speech: int | None  # the turn's sample where speech ended last
    stopped_ms: int | None = None
    last_speech_ms: int | None = None
    goes_on: bool = False
    # the turn's SpeechMeasures, unless nothing needs them; computes, so call it off the event loop
    measures: Callable[[], Any] | None = None
    # its Curves, likewise, where measures were asked for, not only needed for the words
    curves: Callable[[], Any] | None = None
    is_quiet: bool = False  # there is sound, and hardly a sample of it is over QUIET_DBFS


@dataclass(frozen=True, slots=True)
class Dropped:
    """The turn's audio was cleared before it was committed."""

    turn: int


Item = TurnOpened | Heard | Closed | Dropped
