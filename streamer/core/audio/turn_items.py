"""The results of hearing, in order, per session: frozen dataclasses; windows are opaque here.

For each turn: TurnOpened, Heard*, then Closed or Dropped. Samples are 16 kHz mono; `turn` counts
from 0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


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
    the turn is, with the silence at its ends that is not heard (core/audio/trim.py). measures: a
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
