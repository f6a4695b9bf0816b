"""The public API: `Describer` describes recordings and live sessions.

The event loop never waits for a model: each runs on a thread of its own.
"""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack, cast

import anyio
import anyio.to_thread
import numpy as np
from anyio.abc import TaskGroup

from streamer.assembly import Models, PromiseWarning, background, open_parts, patient, saying
from streamer.audio.file import Audio, Source, chunks_of, open_audio
from streamer.config import Config, Options
from streamer.core.attributes import names_of
from streamer.core.audio.pcm import LIVE_SAMPLES, SAMPLE_RATE_HZ, WINDOW_SAMPLES, Encoding, Samples
from streamer.core.audio.turn import Closed
from streamer.core.decoding.plan import Counts
from streamer.core.description import Description, TextDelta, for_voice, join_parts
from streamer.core.measures.speech_measures import PitchReference
from streamer.core.rules.settings import ALL
from streamer.extras import load
from streamer.stages.events import (
    CoachOptions,
    SessionOptions,
    TargetLost,
    TurnDetection,
    TurnFailed,
    cause_of,
    quietly,
)
from streamer.stages.parts import CLOSED, Parts, poster
from streamer.stages.stream import LiveSession, open_stream

if TYPE_CHECKING:
    from streamer.net.link.client import RemoteCloud


class Describer:
    """Describes how people speak. Open it with `Describer.open(...)`; models load when needed."""

    def __init__(self, config: Config, stack: AsyncExitStack) -> None:
        self.config = config
        self._stack = stack  # closes all that the first session starts
        self._parts: Parts | None = None
        self.link: RemoteCloud | None = None  # to a verifier elsewhere, once that is loaded
        self._is_closed = False
        self._starting = anyio.Lock()
        self._models = Models(config)
        self._group: TaskGroup | None = None  # for the link to a verifier elsewhere
        # recordings at once: each has a part that is heard and a part that is answered
        self._at_once = anyio.CapacityLimiter(max(1, config.num_slots // 2))

    @classmethod
    @asynccontextmanager
    async def open(
        cls, config: Config | str | Path | None = None, /, **options: Unpack[Options]
    ) -> AsyncIterator[Describer]:
        """A describer from keywords, a Config, or the path of a TOML pipeline. Raises ConfigError.

        `async with Describer.open(mode="gated", edge="embedded", cloud="embedded") as d: ...`
        Keywords are the fields of Config; the error about an unknown one lists all.
        """
        async with AsyncExitStack() as stack:
            describer = cls(Config.of(config, options), stack)
            if describer._models.verifier_url is not None:
                describer._group = await stack.enter_async_context(background())
            try:
                yield describer
            finally:
                describer._is_closed = True

    async def load(self) -> Parts:
        """Load models and connect now instead of at the first use. Raises ModelError."""
        async with self._starting:
            if self._is_closed:
                raise RuntimeError(CLOSED)
            if self._parts is None:
                opening = open_parts(self._models, self._group)
                self._parts = await self._stack.enter_async_context(opening)
                if self._models.verifier_url is not None:
                    self.link = cast("RemoteCloud", self._parts.cloud)
                self._models.check_promise(self._parts.plan.rules)
        return self._parts

    @property
    def attributes(self) -> Mapping[str, Any]:
        """Attribute -> its levels, lowest first, with names and phrases, in the describer's
        language. Raises ModelError."""
        return self._models.phrases[self._models.language]

    def attributes_in(self, language: str) -> Mapping[str, Any]:
        """The same in one of `languages`. Raises ModelError, and ValueError for another one."""
        return self._models.phrases[self._models.speaking(language)]

    @property
    def languages(self) -> tuple[str, ...]:
        """The languages of sentences, the describer's own first. Raises ModelError."""
        return tuple(self._models.phrases)

    @property
    def said(self) -> tuple[str, ...]:
        """The attributes that sentences name, which may be asked for alone. Raises ModelError."""
        return names_of(self.config.said, self._models.can_say)

    async def describe(
        self,
        source: Source,
        on_delta: Callable[[TextDelta], None] | None = None,
        on_heard: Callable[[float, float], None] | None = None,
        *,
        measures: bool = False,
        attributes: str | None = None,
        language: str | None = None,
        channel: int | None = None,
        track: int | None = None,
        pitch_reference: PitchReference = None,
    ) -> Description:
        """Describe a recording: a path (any common format), "-" for stdin, an open binary file, or
        samples and their rate, `(samples, 16_000)`, samples [n] or [n, channels], float32 of full
        scale 1.0 or int16.

        Called on the event loop: `on_delta` for each committed piece; `on_heard` every 2 s of a
        recording, with the seconds heard and the seconds in all. measures: show `measures`, numbers
        with units, in the Description.
        attributes: the ones that the sentence names, as in Config, among the describer's.
        language: of the sentence, one of `languages`; None: the describer's.
        channel: this one alone, from 0, such as one side of a call; None: the loudest at each time.
        track: the sound track of a film, from 0; None: the one that is flagged default.
        pitch_reference: the speaker's usual pitch in Hz, or "auto" for the median of the turns of
        a recording over 60 s: `voice_pitch` tells what is low and high for this voice. It needs
        measures.

        When the caller is cancelled, the turn ends at its next commit and gives its slots back.
        Raises AudioError, ModelError, TargetLost, and TypeError or ValueError for samples of
        another shape or type.
        """
        is_pair = isinstance(source, tuple) and len(source) == 2
        if not (is_pair or isinstance(source, str | os.PathLike) or hasattr(source, "read")):
            kind = f"source is of type {type(source).__name__}"
            ways = "give a path, an open binary file, or (samples, sample_rate)"
            raise TypeError(f"{kind}; {ways}; live audio: session")
        SessionOptions(measures=measures, pitch_reference=pitch_reference)  # raises ValueError
        parts = self._saying(patient(await self.load()), attributes, language)
        async with self._at_once:
            result = await describe_recording(
                parts, source, on_delta, on_heard, measures, channel, track
            )
        if not result.blocks_unverified:  # else the description's warning says so
            self._warn_if_unverified()
        return for_voice(result, pitch_reference)

    @asynccontextmanager
    async def session(
        self,
        sample_rate: int = SAMPLE_RATE_HZ,
        *,
        vad: bool | TurnDetection = False,
        live_update_s: float | None = None,
        answers_itself: bool = True,
        measures: bool = False,
        attributes: str | None = None,
        language: str | None = None,
        encoding: Encoding = "pcm16",
        coach: bool | CoachOptions = False,
        pitch_reference: PitchReference = None,
    ) -> AsyncIterator[LiveSession]:
        """A live stream of mono audio at `sample_rate` Hz (1..384 kHz): PCM16, or G.711 as
        telephones send it, "pcmu" (mu-law) or "pcma" (A-law), mostly at 8000 Hz.

        vad: voice activity ends turns, by OpenAI's defaults or those of a TurnDetection; else
        `commit` does. live_update_s: seconds of each turn between LiveUpdates, 0.1..3600. A turn
        that is fed faster than it is spoken may end before one is ready.
        answers_itself: False waits with the answer to a committed turn until `answer()`.
        measures: Measures events 5 times a second, and `measures` in each Description.
        attributes: the ones that sentences name, as in Config, among the describer's.
        language: of the sentences, one of `languages`; None: the describer's.
        coach: True, or a Coach with thresholds and a baseline: Nudge events where the speaker
        leaves their usual way, BaselineKnown, and CoachNews 5 times a second.
        pitch_reference: the speaker's usual pitch in Hz, or "auto", of the coach's baseline or else
        of the turns so far: each Description has `voice_pitch`. It needs measures.

        Events: SpeechStarted and SpeechStopped (with vad), TurnCommitted, LiveUpdate, Measures,
        those of the coach, Cleared, TextDelta, TurnFailed, and a Description at the end of each
        answer. Without vad an iteration ends with its turn's Description: feed, commit, iterate,
        and again. With vad it goes on until `end`, so one task feeds and another iterates.

        Raises ModelError, TypeError, and ValueError for options that mean nothing.
        """
        if not isinstance(vad, bool | TurnDetection):
            raise TypeError(f"vad is {vad!r}; give True, False or a TurnDetection")
        if not isinstance(coach, bool) and not isinstance(coach, load("coach")):
            raise TypeError(f"coach is {coach!r}; give True, False or a Coach")
        options = SessionOptions(
            sample_rate,
            TurnDetection() if vad is True else vad or None,
            live_update_s,
            answers_itself,
            measures=measures,
            encoding=encoding,
            coach=load("coach")() if coach is True else coach or None,
            pitch_reference=pitch_reference,
        )
        async with open_stream(self._saying(await self.load(), attributes, language), options) as s:
            yield s
        self._warn_if_unverified()

    @asynccontextmanager
    async def stream(self, options: SessionOptions) -> AsyncIterator[LiveSession]:
        """The bare stream of a session, for servers: every event of every turn."""
        names = None if options.said in ("", ALL) else options.said
        parts = saying(await self.load(), self._models, names, options.language or None)
        async with open_stream(parts, options) as stream:
            yield stream

    def _saying(self, parts: Parts, names: str | None, language: str | None) -> Parts:
        parts = saying(parts, self._models, names, language)
        self._models.check_promise(parts.plan.rules)
        return parts

    def _warn_if_unverified(self) -> None:
        """Mode gated: one line where the verifier was never there; no block may have shown it."""
        link = self.link
        if self.config.mode == "gated" and link is not None and not link.was_linked:
            told = f"{link.name} was not reached ({link.trouble}): nothing was verified"
            warnings.warn(told, PromiseWarning, stacklevel=3)


async def describe_recording(
    parts: Parts,
    source: Source,
    on_delta: Callable[[TextDelta], None] | None = None,
    on_heard: Callable[[float, float], None] | None = None,
    measures: bool = False,
    channel: int | None = None,
    track: int | None = None,
) -> Description:
    """Describe one recording as live audio is: the last 100 ms are fed only when all before is
    prefilled, so a file's TTFT is that of a live turn. One longer than the model's `max_turn_s` is
    described in parts. The arguments are those of `Describer.describe`.

    Raises AudioError, TargetLost where a verdict that is needed does not come, and RuntimeError
    where a model fails.
    """
    found: list[Description] = []
    with await _opened(source, track) as audio:
        options = SessionOptions(SAMPLE_RATE_HZ, is_recording=True, measures=measures)
        is_long = audio.duration_s > parts.max_turn_s
        try:
            async with open_stream(parts, options) as stream, anyio.create_task_group() as group:
                pieces = as_live(chunks_of(audio, channel))
                group.start_soon(quietly, _feed, stream, audio, pieces, on_heard)
                async for event in stream.events():
                    if isinstance(event, TextDelta) and on_delta is not None:
                        from_s = sum(part.audio_s for part in found) if found or is_long else None
                        on_delta(replace(event, from_s=from_s))
                    elif isinstance(event, Description):
                        found.append(event)
                    elif isinstance(event, TurnFailed):
                        kind = TargetLost if event.is_target_lost else RuntimeError
                        raise kind(f"{audio.path}: {event.message}")
                group.cancel_scope.cancel()
        except ExceptionGroup as errors:
            raise cause_of(errors) from None
        if not found:  # the recording has no sample
            nothing = Closed(0, (), 0.0, 0, has_speech=False, last_speech=None)
            found = [parts.describe(nothing, "no_speech", Counts())]
        described = [replace(one, file=audio.path, channel=channel, turn=0) for one in found]
        return join_parts(described, audio.warning, audio.cut is not None)


async def _opened(source: Source, track: int | None) -> Audio:
    """On a daemon thread: a pipe may stay silent, and neither a caller that is cancelled nor the
    program's end waits for it."""
    found, is_done, post = Future[Audio](), anyio.Event(), poster()

    def open_it() -> None:
        try:
            found.set_result(open_audio(source, track))
        except BaseException as error:  # the caller raises it
            found.set_exception(error)
        with suppress(RuntimeError):  # the event loop is gone
            post(is_done.set)

    threading.Thread(target=open_it, daemon=True).start()
    await is_done.wait()
    return found.result()


def as_live(chunks: Iterator[Samples]) -> Iterator[tuple[Samples, bool]]:
    """The same samples in pieces of 2 s, the rest, and a last piece of 100 ms or less, marked by
    True: a microphone would send it last. When it comes, only the last window and the suffix are
    left to do. 100 ms pieces throughout would give the same ids and cost more."""
    held = np.zeros(0, np.float32)
    for chunk in chunks:
        held = np.concatenate([held, chunk])
        while len(held) > WINDOW_SAMPLES:
            yield held[:WINDOW_SAMPLES], False
            held = held[WINDOW_SAMPLES:]
    if last := max(0, len(held) - 1) // LIVE_SAMPLES * LIVE_SAMPLES:
        yield held[:last], False
    if len(held):
        yield held[last:], True


async def _feed(
    stream: LiveSession,
    audio: Audio,
    pieces: Iterator[tuple[Samples, bool]],
    on_heard: Callable[[float, float], None] | None,
) -> None:
    """Feed all, the last piece when everything before it is done."""
    num_heard = 0
    while (found := await anyio.to_thread.run_sync(next, pieces, None)) is not None:
        piece, is_last = found
        num_heard += len(piece)
        heard_s = num_heard / SAMPLE_RATE_HZ
        if is_last:
            await stream.catch_up(len(piece))
        if on_heard is not None:
            on_heard(heard_s, max(audio.duration_s, heard_s))
        await stream.feed(piece.astype("<f4").tobytes())
        if is_last:
            await stream.commit()
    await stream.end()
