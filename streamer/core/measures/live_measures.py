"""Measures while somebody speaks. In: the turn's track. Out: Measures, 5 for a second of audio."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from streamer.core.audio.pcm import SAMPLE_RATE_HZ
from streamer.core.measures.frames import FRAMES_PER_S
from streamer.core.measures.speech_measures import SpeechMeasures
from streamer.core.measures.turn_track import TurnTrack

EVERY_SAMPLES = SAMPLE_RATE_HZ // 5
LAST_S = (2, 7, 20)


@dataclass(frozen=True, slots=True)
class Measures:
    """A turn that goes on: all of it so far, and its last 2, 7 and 20 s. heard_s: up to where.
    F0 is known up to 25 ms before that."""

    turn: int
    heard_s: float
    so_far: SpeechMeasures
    last: Mapping[int, SpeechMeasures]

    def as_json(self) -> dict[str, Any]:
        """Plain types; the keys of `last` are seconds as text."""
        last = {str(seconds): found.as_json() for seconds, found in self.last.items()}
        return {"heard_s": round(self.heard_s, 3), "so_far": self.so_far.as_json(), "last_s": last}


def measure_so_far(turn: int, track: TurnTrack) -> Measures:
    """What is known now."""
    frames = track.frames()
    so_far = frames.measures()
    heard_s = len(frames.f0) / FRAMES_PER_S
    last = {s: frames.last(s).measures() if heard_s > s else so_far for s in LAST_S}
    return Measures(turn, heard_s, so_far, last)
