"""Describe HOW someone speaks, in one sentence, the moment they stop.

    import streamer

    d = streamer.describe("samples/plain.wav")
    print(d)                                # the sentence
    print(d.levels["rate"].name)            # one attribute
    print(d.measures.rate_syllables_per_s)  # its number

    with streamer.open(mode="exact") as describer:      # models stay loaded
        print(describer.describe("samples/slow_soft.wav"))

Live audio: `Describer.open(...)` and its `session`. A server: `streamer serve`.

The packages in flow order: `core` (pure: chunker, rules, gate, state machine, wire) -> `model`
(log-mel, tower, KV slots, engines) -> `stages` (async: one stream, many streams on one model) ->
`net` (realtime server, link to a verifier) -> `assembly` (joins these) -> `describer` (the public
API), `session`, `recording`, `blocking` (without async) -> `cli` and `commands`. `config` holds the
options, `audio` reads files, `extras` are optional. Importing this package loads no model code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from streamer.audio.source import AudioError
    from streamer.background_session import BackgroundSession
    from streamer.blocking import BlockingDescriber, describe, describe_many
    from streamer.blocking import open_describer as open
    from streamer.config import Config, ConfigError
    from streamer.core.conversation import Conversation, conversation
    from streamer.core.description import Description, TextDelta
    from streamer.core.measures.speech_measures import Measures, SpeechMeasures
    from streamer.core.voice_words import voice_line, voice_profile
    from streamer.describer import Describer
    from streamer.extras.coach.nudges import Nudge
    from streamer.extras.coach.options import Baseline, BaselineError, Coach
    from streamer.extras.coach.session import BaselineKnown, CoachNews
    from streamer.fillers import FilledPauses, filled_pauses
    from streamer.intervals import Interval, measure_intervals, read_intervals
    from streamer.model.audio.ear import syllable_rate
    from streamer.model.checkpoint.weights import ModelError
    from streamer.stages.events import (
        Cleared,
        LiveUpdate,
        NothingToCommit,
        SpeechStarted,
        SpeechStopped,
        TurnCommitted,
        TurnDetection,
        TurnFailed,
    )
    from streamer.stages.ports import SlowReader, TargetLost
    from streamer.stages.stream import LiveSession
    from streamer.timeline.write import write_timeline

__version__ = "0.1.0"
__all__ = [
    "AudioError",
    "BackgroundSession",
    "Baseline",
    "BaselineError",
    "BaselineKnown",
    "BlockingDescriber",
    "Cleared",
    "Coach",
    "CoachNews",
    "Config",
    "ConfigError",
    "Conversation",
    "Describer",
    "Description",
    "FilledPauses",
    "Interval",
    "LiveSession",
    "LiveUpdate",
    "Measures",
    "ModelError",
    "NothingToCommit",
    "Nudge",
    "SlowReader",
    "SpeechMeasures",
    "SpeechStarted",
    "SpeechStopped",
    "TargetLost",
    "TextDelta",
    "TurnCommitted",
    "TurnDetection",
    "TurnFailed",
    "__version__",
    "conversation",
    "describe",
    "describe_many",
    "filled_pauses",
    "measure_intervals",
    "open",
    "read_intervals",
    "syllable_rate",
    "voice_line",
    "voice_profile",
    "write_timeline",
]
_HOMES = {  # module -> the public names that it has
    "audio.source": ("AudioError",),
    "background_session": ("BackgroundSession",),
    "blocking": ("BlockingDescriber", "describe", "describe_many", "open"),
    "config": ("Config", "ConfigError"),
    "core.conversation": ("Conversation", "conversation"),
    "core.description": ("Description", "TextDelta"),
    "core.measures.speech_measures": ("Measures", "SpeechMeasures"),
    "describer": ("Describer",),
    "extras.coach.options": ("Baseline", "BaselineError", "Coach"),
    "extras.coach.session": ("BaselineKnown", "CoachNews"),
    "extras.coach.nudges": ("Nudge",),
    "fillers": ("FilledPauses", "filled_pauses"),
    "intervals": ("Interval", "measure_intervals", "read_intervals"),
    "model.audio.ear": ("syllable_rate",),
    "model.checkpoint.weights": ("ModelError",),
    "stages.events": (
        *("Cleared", "LiveUpdate", "NothingToCommit", "SpeechStarted", "SpeechStopped"),
        *("TurnCommitted", "TurnDetection", "TurnFailed"),
    ),
    "stages.ports": ("SlowReader", "TargetLost"),
    "stages.stream": ("LiveSession",),
    "timeline.write": ("write_timeline",),
    "core.voice_words": ("voice_line", "voice_profile"),
}
_NAMED = {"open": "open_describer"}  # under its own name it would hide Python's
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __dir__() -> list[str]:
    """The public names, also those that are not loaded yet."""
    return sorted(__all__)


def __getattr__(name: str) -> Any:
    """Load a public name when it is first used (PEP 562)."""
    if name not in _HOME_OF:
        raise AttributeError(f"module 'streamer' has no attribute {name!r}")
    from importlib import import_module

    home = import_module(f"streamer.{_HOME_OF[name]}")
    return getattr(home, _NAMED.get(name, name))
