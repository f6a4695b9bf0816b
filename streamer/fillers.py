"""Count the filled pauses of a recording; nothing runs unless it is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from streamer.audio.file import Source, open_audio
from streamer.core.audio.pcm import OffsetFilter
from streamer.core.measures.fillers import Changes, find
from streamer.core.measures.frames import FRAMES_PER_S
from streamer.model.audio.ear import SoundTrack
from streamer.model.audio.turns import NOTHING
from streamer.model.audio.vad import VoiceActivity
from streamer.recording import chunks_of


@dataclass(frozen=True)
class FilledPauses:
    """times_s: begin and end of each. per_min: of the time from the first speech to the last; None
    without speech."""

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
    voice, sound, offset, changes = VoiceActivity(), SoundTrack(), OffsetFilter(), Changes()
    with open_audio(source, track) as audio:
        for chunk in chunks_of(audio, channel):
            samples = offset.push(chunk)
            changes.add(sound.add(samples, voice.push(samples)))
    changes.add(sound.add(NOTHING, voice.finish(NOTHING), is_last=True))
    frames = sound.track.frames()
    spoken = np.flatnonzero(frames.speech)
    if not len(spoken):
        return FilledPauses((), None)
    found = find(frames, changes.values[: len(frames.f0)])
    minutes = (spoken[-1] + 1 - spoken[0]) / FRAMES_PER_S / 60
    times = [(begin / FRAMES_PER_S, end / FRAMES_PER_S) for begin, end in found]
    return FilledPauses(times, len(found) / minutes)
