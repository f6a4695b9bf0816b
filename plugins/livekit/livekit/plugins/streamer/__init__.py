"""Says how the user speaks, beside each transcript: wrap your STT in `streamer.STT`."""

from livekit.agents import Plugin

from .stt import STT, SpeechStream, VoiceContext, logger
from .version import __version__

__all__ = ["STT", "SpeechStream", "VoiceContext", "__version__"]


class StreamerPlugin(Plugin):
    def __init__(self) -> None:
        super().__init__(__name__, __version__, __package__, logger)


Plugin.register_plugin(StreamerPlugin())
