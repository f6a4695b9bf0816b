"""In what pieces audio is handed on, however it is fed. In: a session's options. Out: seconds."""

from __future__ import annotations

from streamer.stages.events import SessionOptions

# A hop to a thread for every 20 ms of a microphone costs more than hearing them. Voice activity
# judges every 32 ms and shall not wait; nothing else cares before the turn ends, and its last
# piece goes on at once.
PIECE_S = 0.1
VOICE_PIECE_S = 0.032
RECORDED_PIECE_S = 2.0  # at most, and what is fed goes on at once
MAX_QUEUED_S = 5.0  # of audio, then `feed` waits


def piece_s_of(options: SessionOptions) -> float:
    """Of one piece."""
    if options.is_recording:
        return RECORDED_PIECE_S
    return PIECE_S if options.turn_detection is None else VOICE_PIECE_S
