"""Says how the user speaks, as a frame of a Pipecat pipeline."""

from pipecat_streamer.processor import VoiceProfileFrame, VoiceProfileProcessor

__all__ = ["VoiceProfileFrame", "VoiceProfileProcessor"]
__version__ = "0.1.0"
