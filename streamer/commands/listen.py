"""`streamer listen`: the microphone in this terminal. Gauges and the coach's word while somebody
speaks, the sentence at each pause."""

from __future__ import annotations

import functools
import math
import signal
import sys
from typing import Any

import anyio
import anyio.to_thread

from streamer.commands.options import ListenOptions
from streamer.commands.process import Failed, aligned, fail, opened, put, tell
from streamer.config import Config, ConfigError
from streamer.core.attributes import ABSENT
from streamer.core.audio.pcm import SAMPLE_RATE_HZ
from streamer.core.description import Description, one_line
from streamer.core.measures.levels import MEASURES, NUM_LEVELS, level_of
from streamer.core.measures.speech_measures import Measures, SpeechMeasures
from streamer.core.text import told
from streamer.extras import missing
from streamer.progress import fitted
from streamer.stages.events import CoachEvent, TurnFailed

PIECE_S = 0.02
SHOWN_S = 2  # of speech that the gauges are of
WORDS = {
    "too_fast": "slow down",
    "too_slow": "speed up",
    "too_soft": "louder, please",
    "flat": "vary your pitch",
    "long_silence": "keep talking",
    "no_pause": "take a breath",
}
SLOW = "the models are slower than the speaker, so audio is left out"
NO_PORTAUDIO = "install PortAudio (Debian: apt-get install libportaudio2)"


async def run(options: ListenOptions, config: Config) -> int:
    """Run until Ctrl-C and the answer to the last turn. Raises ConfigError, ModelError, Failed."""
    if (why := missing("streamer listen", "sounddevice")) is not None:
        raise ConfigError(f"{why}; {NO_PORTAUDIO}" if "cannot be loaded" in why else why)
    async with opened(config) as describer:
        rate, microphone = open_microphone(options.microphone)
        tell("listening; speak, pause, read. Ctrl-C ends it.")
        listening = describer.session(rate, vad=True, measures=True, coach=True)
        async with listening as session, anyio.create_task_group() as group:
            is_over = False

            async def end_on_interrupt() -> None:
                nonlocal is_over
                with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
                    await anext(signals)
                    is_over = True
                    await anext(signals)  # ends all at once
                    group.cancel_scope.cancel()

            async def feed() -> None:
                way = "end other programs" if config.mode == "edge" else "take --mode edge"
                fail_once = functools.cache(screen.fail)
                while not is_over:
                    try:
                        read = await anyio.to_thread.run_sync(microphone.read, int(rate * PIECE_S))
                    except Exception as error:  # of PortAudio
                        raise Failed(f"the microphone is lost ({error}); plug it in") from None
                    piece, is_left_out = read
                    if is_left_out:
                        fail_once(f"{SLOW}; {way}")
                    await session.feed(bytes(piece))
                microphone.close()
                await session.end()

            screen = Screen(describer.languages[0])
            group.start_soon(end_on_interrupt)
            group.start_soon(feed)
            async for event in session:
                screen.show(event)
            screen.erase()
            group.cancel_scope.cancel()
    return 0


def open_microphone(device: str | None) -> tuple[int, Any]:
    """(rate in Hz, a stream of sounddevice that gives PCM16 mono). Raises Failed."""
    import sounddevice

    chosen = int(device) if device is not None and device.isdigit() else device
    try:
        rate = int(sounddevice.query_devices(chosen, "input")["default_samplerate"])
        rate = rate or SAMPLE_RATE_HZ
        stream = sounddevice.RawInputStream(rate, device=chosen, channels=1, dtype="int16")
        stream.start()
    except (sounddevice.PortAudioError, ValueError) as error:
        cause = str(error).partition("\n")[0]
        raise Failed(
            f"no microphone can be opened ({cause}); plug one in, close programs that use it, or "
            "name another by --microphone"
        ) from None
    return rate, stream


class Screen:
    """Gauges on stderr if it is a terminal; sentences on stdout. language: of all that it shows."""

    def __init__(self, language: str) -> None:
        self._language = language
        self._num_drawn = 0  # lines of gauges

    def show(self, event: Any) -> None:
        match event:
            case Measures() if sys.stderr.isatty():
                self.erase()
                lines = gauges(event.last.get(SHOWN_S, event.so_far), self._language)
                tell("\n".join(map(fitted, lines)))
                self._num_drawn = len(lines)
            case CoachEvent(wire_type="streamer.nudge"):
                nudge: Any = event
                self.erase()
                tell(f"  {told(self._language, WORDS[nudge.kind])}")
            case Description():
                self.erase()
                if event.text:
                    put(one_line(event.text))
                if event.warning:
                    fail(event.warning)
            case TurnFailed():
                self.fail(event.message)

    def fail(self, message: str) -> None:
        """A line that no gauge erases."""
        self.erase()
        fail(message)

    def erase(self) -> None:
        """Write before anything else is written to the terminal."""
        if self._num_drawn:
            print(f"\x1b[{self._num_drawn}F\x1b[J", end="", file=sys.stderr, flush=True)
        self._num_drawn = 0


def gauges(found: SpeechMeasures, language: str) -> list[str]:
    """A line for each attribute with a number: a gauge of its levels, the number, its unit."""
    rows = []
    for name, (field, unit, times, decimals) in MEASURES.items():
        value = getattr(found, field)
        level, number = -1, ABSENT
        if value is not None and not math.isnan(value):
            level = level_of(name, value)
            number = f"{times * value:.{decimals}f} {told(language, unit)}"
        boxes = "".join("■" if i == level else "□" for i in range(NUM_LEVELS[name]))
        rows.append((told(language, name), boxes, number))
    return aligned(rows)
