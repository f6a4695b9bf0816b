"""`streamer listen`: the microphone in this terminal. Gauges and the coach's word while somebody
speaks, the sentence at each pause."""

from __future__ import annotations

import math
import signal
from collections.abc import Callable, Mapping
from typing import Any

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from streamer.commands.options import ListenOptions
from streamer.commands.process import fail, loading, models_of, put, tell
from streamer.config import Config, ConfigError, combined
from streamer.core.audio.pcm import SAMPLE_RATE_HZ
from streamer.core.description import Description, one_line
from streamer.core.installed import missing
from streamer.core.measures.levels import MEASURES, NUM_LEVELS, level_of
from streamer.core.measures.speech_measures import Measures, SpeechMeasures
from streamer.core.readings import ABSENT, UNITS
from streamer.describer import Describer
from streamer.stages.events import CoachEvent, TurnFailed
from streamer.stages.stream import LiveSession

PIECE_S = 0.02
MOST_PIECES = 500  # that wait, 10 s: later ones are left out
SHOWN_S = 2  # of speech that the gauges are of
NUDGE_S = 4.0  # for which a word stays
WORDS = {
    "too_fast": "slow down",
    "too_slow": "a little faster",
    "too_soft": "louder",
    "flat": "more melody",
    "long_silence": "a long silence",
    "no_pause": "pause and breathe",
}
SLOW = "the models are slower than the speaker, so audio is left out; take --mode edge"
NO_PORTAUDIO = "install PortAudio (Debian: apt-get install libportaudio2)"


def run(options: ListenOptions, given: Mapping[str, Any]) -> int:
    """The exit status: 1 if the microphone or a model failed. Raises ConfigError."""
    config = combined(None, given)
    if (why := missing("streamer listen", "rich", "sounddevice")) is not None:
        raise ConfigError(f"{why}; {NO_PORTAUDIO}" if "cannot be loaded" in why else why)
    return anyio.run(_listen, options, config)


async def _listen(options: ListenOptions, config: Config) -> int:
    from streamer.model.checkpoint.weights import ModelError

    async with Describer.open(config) as describer:
        try:
            with loading(models_of(config)):
                await describer.load()
            rate, microphone, pieces = open_microphone(options.microphone)
        except (ModelError, OSError) as error:
            fail(str(error))
            return 1
        tell("listening; speak, pause, read. Ctrl-C ends it.")
        listening = describer.session(rate, vad=True, measures=True, coach=True)
        async with listening as session:
            await _converse(session, microphone, pieces)
    return 0


async def _converse(
    session: LiveSession, microphone: Any, pieces: MemoryObjectReceiveStream[bytes]
) -> None:
    """Until the answer to the last turn. The first Ctrl-C ends the audio, a second one all."""
    with Screen() as screen:
        async with anyio.create_task_group() as group:
            group.start_soon(_feed, session, pieces)
            group.start_soon(_end_on_interrupt, microphone, group.cancel_scope)
            async for event in session:
                screen.show(event)
            group.cancel_scope.cancel()


async def _feed(session: LiveSession, pieces: MemoryObjectReceiveStream[bytes]) -> None:
    async for piece in pieces:
        await session.feed(piece)
    await session.end()


async def _end_on_interrupt(microphone: Any, scope: anyio.CancelScope) -> None:
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        num = 0
        async for _ in signals:
            num += 1
            if num == 1:
                await anyio.to_thread.run_sync(microphone.end)
            else:
                scope.cancel()


class Microphone:
    """PortAudio's stream. Its thread puts pieces of PCM16 mono on the event loop."""

    def __init__(self, stream: Any, pieces: MemoryObjectSendStream[bytes], call: Any) -> None:
        self._stream = stream
        self._pieces = pieces
        self._call = call

    def end(self) -> None:
        """Close it; pieces that wait are still read. On another thread than the loop's."""
        self._stream.close()
        self._call(self._pieces.close)


def open_microphone(device: str | None) -> tuple[int, Microphone, MemoryObjectReceiveStream[bytes]]:
    """(rate in Hz, the microphone, its pieces). Raises OSError with one line."""
    import asyncio

    import sounddevice

    call = asyncio.get_running_loop().call_soon_threadsafe
    chosen = int(device) if device is not None and device.isdigit() else device
    send, receive = anyio.create_memory_object_stream[bytes](MOST_PIECES)

    put_piece = putting(send)
    try:
        rate = int(sounddevice.query_devices(chosen, "input")["default_samplerate"])
        stream = sounddevice.RawInputStream(
            rate or SAMPLE_RATE_HZ,
            int(rate * PIECE_S),
            chosen,
            1,
            "int16",
            callback=lambda data, *_: call(put_piece, bytes(data)),
        )
        stream.start()
    except (sounddevice.PortAudioError, ValueError) as error:
        told = str(error).partition("\n")[0]
        raise OSError(
            f"no microphone can be opened ({told}); plug one in, close programs that use it, or "
            "name another by --microphone"
        ) from None
    return rate, Microphone(stream, send, call), receive


def putting(pieces: MemoryObjectSendStream[bytes]) -> Callable[[bytes], None]:
    """Puts a piece into the queue; if it is full, the piece is left out, which is said once."""
    is_told = False

    def put_piece(piece: bytes) -> None:
        nonlocal is_told
        try:
            pieces.send_nowait(piece)
        except anyio.WouldBlock:
            if not is_told:
                fail(SLOW)
            is_told = True
        except (anyio.ClosedResourceError, anyio.BrokenResourceError):
            """All is over."""

    return put_piece


class Screen:
    """Gauges on stderr if it is a terminal; sentences on stdout."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.live import Live

        self._console = Console(stderr=True)
        self._live = Live(console=self._console, transient=True, auto_refresh=False)
        self._nudge: tuple[str, float] | None = None  # a word, until when in the session

    def __enter__(self) -> Screen:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def show(self, event: Any) -> None:
        """One event of the session."""
        match event:
            case Measures():
                self._gauges(event)
            case CoachEvent(wire_type="streamer.nudge"):
                nudge: Any = event
                self._nudge = WORDS[nudge.kind], nudge.t_s + NUDGE_S
                if not self._console.is_terminal:
                    tell(f"  {WORDS[nudge.kind]}")
            case Description():
                self._say(event)
            case TurnFailed():
                fail(event.message)

    def _say(self, found: Description) -> None:
        self._live.update("", refresh=self._live.is_started)
        if found.text:
            put(one_line(found.text))
        if found.warning:
            fail(found.warning)

    def _gauges(self, event: Measures) -> None:
        if self._live.is_started:
            word = ""
            if self._nudge is not None and event.heard_s < self._nudge[1]:
                word = self._nudge[0]
            shown = event.last.get(SHOWN_S, event.so_far)
            self._live.update("\n".join([*gauges(shown), f"  {word}"]), refresh=True)


def gauges(found: SpeechMeasures) -> list[str]:
    """A line for each attribute with a number: a gauge of its levels, the number, its unit."""
    lines = []
    for name, field in MEASURES.items():
        value = getattr(found, field)
        unit, times, decimals = UNITS[name]
        level = -1 if value is None or math.isnan(value) else level_of(name, value)
        boxes = "".join("■" if i == level else "□" for i in range(NUM_LEVELS[name]))
        told = ABSENT if level < 0 else f"{times * value:.{decimals}f} {unit}"
        lines.append(f"  {name:9} {boxes:6} {told}")
    return lines
