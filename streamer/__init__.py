"""Describe HOW someone speaks, in one sentence, the moment they stop.

    import streamer

    d = streamer.describe("samples/plain.wav")
    print(d)                                # the sentence
    if rate := d.levels["rate"]:            # one attribute; None without speech
        print(rate.name)
    print(d.measures.rate_syllables_per_s)  # its number

    with streamer.open(mode="exact") as describer:      # models stay loaded
        print(describer.describe("samples/slow_soft.wav"))

Live audio: `Describer.open(...)` and its `session`. A server: `streamer serve`.
Importing this package loads no model code.
"""

from importlib import import_module as _import_module

TYPE_CHECKING = False
if TYPE_CHECKING:  # each under its own name: so type checkers see a public one
    from typing import Any

    from streamer.audio.source import AudioError as AudioError
    from streamer.config import Config as Config
    from streamer.config import ConfigError as ConfigError
    from streamer.core.attributes import voice_line as voice_line
    from streamer.core.attributes import voice_profile as voice_profile
    from streamer.core.description import Description as Description
    from streamer.core.description import TextDelta as TextDelta
    from streamer.core.measures.speech_measures import Measures as Measures
    from streamer.core.measures.speech_measures import SpeechMeasures as SpeechMeasures
    from streamer.core.timeline import Conversation as Conversation
    from streamer.core.timeline import conversation as conversation
    from streamer.describer import Describer as Describer
    from streamer.extras.coach.nudges import Nudge as Nudge
    from streamer.extras.coach.options import Baseline as Baseline
    from streamer.extras.coach.options import BaselineError as BaselineError
    from streamer.extras.coach.options import Coach as Coach
    from streamer.extras.coach.session import BaselineKnown as BaselineKnown
    from streamer.extras.coach.session import CoachNews as CoachNews
    from streamer.intervals import FilledPauses as FilledPauses
    from streamer.intervals import Interval as Interval
    from streamer.intervals import filled_pauses as filled_pauses
    from streamer.intervals import measure_intervals as measure_intervals
    from streamer.intervals import read_intervals as read_intervals
    from streamer.intervals import syllable_rate as syllable_rate
    from streamer.model.checkpoint.weights import ModelError as ModelError
    from streamer.programs import BackgroundSession as BackgroundSession
    from streamer.programs import BlockingDescriber as BlockingDescriber
    from streamer.programs import describe as describe
    from streamer.programs import describe_many as describe_many
    from streamer.programs import open as open
    from streamer.stages.events import Cleared as Cleared
    from streamer.stages.events import LiveUpdate as LiveUpdate
    from streamer.stages.events import NothingToCommit as NothingToCommit
    from streamer.stages.events import SlowReader as SlowReader
    from streamer.stages.events import SpeechStarted as SpeechStarted
    from streamer.stages.events import SpeechStopped as SpeechStopped
    from streamer.stages.events import TargetLost as TargetLost
    from streamer.stages.events import TurnCommitted as TurnCommitted
    from streamer.stages.events import TurnDetection as TurnDetection
    from streamer.stages.events import TurnFailed as TurnFailed
    from streamer.stages.stream import LiveSession as LiveSession
    from streamer.timeline import write_timeline as write_timeline

__version__ = "0.1.0"
_HOMES = {  # module -> the public names that it has
    "audio.source": "AudioError",
    "config": "Config ConfigError",
    "core.attributes": "voice_line voice_profile",
    "core.description": "Description TextDelta",
    "core.measures.speech_measures": "Measures SpeechMeasures",
    "core.timeline": "Conversation conversation",
    "describer": "Describer",
    "extras.coach.nudges": "Nudge",
    "extras.coach.options": "Baseline BaselineError Coach",
    "extras.coach.session": "BaselineKnown CoachNews",
    "intervals": "FilledPauses Interval filled_pauses measure_intervals read_intervals "
    "syllable_rate",
    "model.checkpoint.weights": "ModelError",
    "programs": "BackgroundSession BlockingDescriber describe describe_many open",
    "stages.events": "Cleared LiveUpdate NothingToCommit SlowReader SpeechStarted SpeechStopped "
    "TargetLost TurnCommitted TurnDetection TurnFailed",
    "stages.stream": "LiveSession",
    "timeline": "write_timeline",
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}
__all__ = sorted([*_HOME_OF, "__version__"])


def __dir__() -> list[str]:
    """The public names, also those that are not loaded yet."""
    return __all__


def __getattr__(name: str) -> "Any":
    """Load a public name when it is first used (PEP 562)."""
    if name not in _HOME_OF:
        raise AttributeError(f"module 'streamer' has no attribute {name!r}")
    return getattr(_import_module(f"streamer.{_HOME_OF[name]}"), name)
