"""For other programs: without async, or beside their own audio.

Without async: `streamer.describe("clip.wav")`, also where a loop runs (Jupyter). One describer
stays open, in a thread with a loop of its own, for the next call with the same options. Other
options take its place.

Beside another program's audio, BackgroundSession takes frames without waiting, and the program says
where turns begin and end: voice agents detect turns themselves and must not be held up.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field, fields, replace
from inspect import Parameter, signature
from pathlib import Path
from typing import Any, TypedDict, TypeVar, Unpack

import anyio
import numpy as np
import soxr
from anyio.from_thread import BlockingPortal

from streamer.audio.file import Source
from streamer.config import Config, ConfigError, Options
from streamer.core.audio.pcm import QUALITY
from streamer.core.description import Description
from streamer.core.measures.speech_measures import PitchReference
from streamer.describer import Describer
from streamer.stages.events import NothingToCommit, SessionOptions, TurnFailed, cause_of
from streamer.stages.parts import CLOSED
from streamer.stages.stream import LiveSession

Result = TypeVar("Result")
Called = TypeVar("Called", bound=Callable[..., Any])
END_S = 5.0  # for a describer to close at the end of the program
MAX_FRAMES = 1_000  # that wait, while models load or a turn ends: 10 s of frames of 10 ms
BEFORE_S = 1.5  # detectors report speech late
_lock = threading.Lock()  # one call at a time of the describer that stays open
_usual: BlockingDescriber | None = None  # it stays open


class How(TypedDict, total=False):
    """Keywords for recordings, as in `Describer.describe`; measures is True unless it is given."""

    measures: bool
    channel: int | None
    track: int | None
    pitch_reference: PitchReference


class Keywords(Options, How, total=False):
    """Those of a describer and of its recordings."""


def _spelled_out(keywords: Any) -> Callable[[Called], Called]:
    """The keywords stand in the function's signature, for `help` and completion in notebooks."""
    defaults = {each.name: each.default for each in fields(Config)} | {"measures": True}
    only = Parameter.KEYWORD_ONLY
    options = [
        Parameter(name, only, default=defaults.get(name), annotation=kind.__forward_arg__)
        for name, kind in keywords.__annotations__.items()
    ]

    def spell(function: Called) -> Called:
        own = signature(function)
        *known, _ = own.parameters.values()
        function.__signature__ = own.replace(parameters=[*known, *options])  # type: ignore[attr-defined]
        return function

    return spell


@_spelled_out(Keywords)
def describe(
    source: Source, config: Config | str | Path | None = None, **options: Unpack[Keywords]
) -> Description:
    """Describe one recording and wait for it. Takes what `Describer.open` takes; measures (the
    numbers, True unless it is given), channel, track and pitch_reference are those of its
    `describe`.

    Raises ConfigError, AudioError, ModelError, TargetLost, and TypeError or ValueError for samples
    of another shape or type.
    """
    with _usual_of(config, options, 1) as (describer, how):
        return describer.describe(source, **how)


@_spelled_out(Keywords)
def describe_many(
    sources: Iterable[Source],
    config: Config | str | Path | None = None,
    *,
    jobs: int = 1,
    **options: Unpack[Keywords],
) -> Sequence[Description | Exception]:
    """Describe recordings, `jobs` (1 to 64) at once; one result for each, in their order.

    A recording that fails has its exception in place of a Description. Raises ConfigError,
    ModelError where no model can be loaded, and TypeError for one path that is not in a list.
    """
    if not 1 <= jobs <= 64:
        raise ConfigError(f"jobs is {jobs}; it may be 1 to 64")
    waiting = _listed(sources)  # before the lock: it may describe others
    with _usual_of(config, options, jobs) as (describer, how):
        return describer.describe_many(waiting, jobs=jobs, **how)


def _listed(sources: Iterable[Source]) -> list[Source]:
    """Raises TypeError for one path in place of some: each letter would be a path."""
    if isinstance(sources, str | bytes | os.PathLike):
        raise TypeError(f"describe_many takes a list of recordings; write [{str(sources)!r:.80}]")
    return list(sources)


@contextmanager
def _usual_of(
    config: Config | str | Path | None, options: Mapping[str, Any], jobs: int
) -> Iterator[tuple[BlockingDescriber, dict[str, Any]]]:
    """The describer that stays open, for `jobs` recordings at once; one with other options is
    closed. And those of the options that are each recording's."""
    global _usual
    how = {name: value for name, value in options.items() if name in How.__annotations__}
    rest = {name: value for name, value in options.items() if name not in how}
    chosen = Config.of(config, rest).for_jobs(jobs)
    with _lock:
        if _usual is not None and _usual.config != chosen:
            _usual.close()
            _usual = None
        _usual = _usual or BlockingDescriber(chosen)
        yield _usual, how


@_spelled_out(Options)
def open(
    config: Config | str | Path | None = None, /, **options: Unpack[Options]
) -> BlockingDescriber:
    """A describer of your own without async; models load once: `with streamer.open() as d: ...`.

    Takes what `Describer.open` takes. Raises ConfigError, ModelError.
    """
    return BlockingDescriber(Config.of(config, options))


class BlockingDescriber(AbstractContextManager["BlockingDescriber", None]):
    """The result of `streamer.open`, which `close` or the end of `with` closes. Several threads may
    use it; each call waits for its result."""

    def __init__(self, config: Config) -> None:
        self.config = config
        opened: Future[tuple[BlockingPortal, Describer]] = Future()
        self._thread = threading.Thread(target=anyio.run, args=(_serve, config, opened))
        self._thread.daemon = True
        self._thread.start()
        self._portal, self._describer = opened.result()
        # A daemon thread that is killed inside a model's native code aborts the process.
        atexit.register(self.close, END_S)

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self, timeout_s: float | None = None) -> None:
        """Give the models back. Later calls raise RuntimeError."""
        atexit.unregister(self.close)
        if self._thread.is_alive():
            self._portal.start_task_soon(self._portal.stop, True)
            self._thread.join(timeout_s)

    def _call(self, work: Callable[[Describer], Awaitable[Result]]) -> Result:
        """The result of `work`, which is cancelled when the caller is interrupted. A daemon thread
        ends here at the end of the program."""
        call: Future[Result] | None = None
        try:
            if not self._thread.is_alive():  # a fork has no such thread either
                raise RuntimeError(f"{CLOSED}; a fork needs one of its own")
            call = self._portal.start_task_soon(work, self._describer)
            return call.result()
        except BaseException:  # such as Ctrl-C: the turn in hand ends at its next commit
            if call is not None:
                call.cancel()
            if not threading.main_thread().is_alive() and threading.current_thread().daemon:
                raise SystemExit from None
            raise

    def describe(self, source: Source, **how: Unpack[How]) -> Description:
        """As `streamer.describe`."""
        given: dict[str, Any] = {"measures": True, **how}
        return self._call(lambda d: d.describe(source, **given))

    def describe_many(
        self, sources: Iterable[Source], *, jobs: int = 1, **how: Unpack[How]
    ) -> Sequence[Description | Exception]:
        """As `streamer.describe_many`; at most half of the option `num_slots` are at work."""
        waiting, given = _listed(sources), {"measures": True, **how}
        return self._call(lambda d: _all(d, waiting, jobs, given))


async def _all(
    describer: Describer, sources: list[Source], jobs: int, how: dict[str, Any]
) -> Sequence[Description | Exception]:
    found: dict[int, Description | Exception] = {}
    waiting = iter(enumerate(sources))

    async def work() -> None:
        for i, source in waiting:
            try:
                found[i] = await describer.describe(source, **how)
            except Exception as error:
                found[i] = error

    async with anyio.create_task_group() as group:
        for _ in range(min(jobs, len(sources))):
            group.start_soon(work)
    return [found[i] for i in range(len(sources))]


async def _serve(config: Config, opened: Future[tuple[BlockingPortal, Describer]]) -> None:
    """Serves a describer's calls in a thread of its own, until the portal is stopped."""
    try:
        async with Describer.open(config) as describer:
            await describer.load()
            async with BlockingPortal() as portal:
                opened.set_result((portal, describer))
                await portal.sleep_until_stopped()
    except BaseException as error:
        if opened.done():
            raise
        opened.set_exception(cause_of(error))


def _forget() -> None:
    """Forget all in a fork, which has none of these threads."""
    global _usual, _lock
    _usual, _lock = None, threading.Lock()


os.register_at_fork(after_in_child=_forget)


@dataclass(eq=False)
class _Turn:
    """frames: those waiting. lost_s: of audio left out. found: once `is_done`, unless it failed."""

    frames: list[bytes]
    is_ended: bool = False
    lost_s: float = 0.0
    found: Description | None = None
    is_done: anyio.Event = field(default_factory=anyio.Event)

    async def described(self) -> Description | None:
        """The description, with a warning where audio was left out."""
        await self.is_done.wait()
        if self.found is None or not self.lost_s:
            return self.found
        told = f"{self.lost_s:.1f} s of audio were left out"
        lines = f"{told}: feed frames no faster than they are spoken", self.found.warning
        return replace(self.found, warning="; ".join(filter(None, lines)))


class BackgroundSession:
    """`feed` and `begin` never wait; `end` gives the turn's description. `run` must be running in a
    task of its own.

    config: options of the describer. before_s: seconds of audio from before `begin` that still
    belong to the turn.
    """

    def __init__(self, config: Config | None = None, *, before_s: float = BEFORE_S) -> None:
        self._config = config or Config()
        self._before_s = before_s
        self._before = b""
        self._rate = 0  # of the first frame, and of the session
        self._last_rate = 0  # of the last frame
        self._resampler: soxr.ResampleStream | None = None  # where these two differ
        self._turns: deque[_Turn] = deque()  # those that are not described
        self._turn: _Turn | None = None  # the one that is spoken
        self._came = anyio.Event()
        self._is_over = False

    async def run(self) -> None:
        """Load the models and serve the calls until cancelled. Raises ModelError."""
        try:
            async with Describer.open(self._config) as describer:
                await describer.load()
                while not self._rate:
                    await self._more()
                async with describer.session(self._rate, measures=True) as session:
                    while True:
                        while not self._turns:
                            await self._more()
                        await self._hear(self._turns[0], session)
                        self._turns.popleft().is_done.set()
        finally:  # later calls return at once
            self._is_over = True
            for turn in self._turns:
                turn.is_done.set()

    async def _hear(self, turn: _Turn, session: LiveSession) -> None:
        """Feed a turn's frames as they come, and describe it."""
        events: Any = session.events()
        while turn.frames or not turn.is_ended:
            frames, turn.frames = turn.frames, []
            await session.feed(b"".join(frames))
            with suppress(anyio.WouldBlock):  # left unread, they would end the session
                while True:
                    events.receive_nowait()
            if not (turn.frames or turn.is_ended):
                await self._more()
        with suppress(NothingToCommit):  # no frame came between `begin` and `end`
            number = await session.commit()
            async for event in events:
                if isinstance(event, Description | TurnFailed) and event.turn == number:
                    turn.found = event if isinstance(event, Description) else None
                    break

    async def _more(self) -> None:
        self._came = anyio.Event()
        await self._came.wait()

    def feed(self, pcm: bytes, sample_rate: int) -> bool:
        """Take a frame of PCM16 mono; another rate than the first frame's is converted. False: it
        was left out, since 1,000 frames wait or `run` has ended. Raises TypeError and ValueError
        for other data."""
        pcm = memoryview(pcm).tobytes()  # it may be an array, too
        if len(pcm) % 2:
            raise ValueError(f"{len(pcm)} bytes are no PCM16: each sample has two")
        if not sample_rate or sample_rate != self._last_rate:
            SessionOptions(sample_rate)  # raises ValueError
            self._rate = self._rate or sample_rate
            self._last_rate = sample_rate
            self._resampler = None
            if sample_rate != self._rate:
                self._resampler = soxr.ResampleStream(sample_rate, self._rate, 1, "int16", QUALITY)
        if self._resampler is not None:
            pcm = self._resampler.resample_chunk(np.frombuffer(pcm, np.int16)).tobytes()
        self._came.set()
        if self._turn is None:  # nothing hears it unless speech begins
            before = self._before + pcm
            self._before = before[max(0, len(before) - 2 * int(self._before_s * self._rate)) :]
        elif sum(len(turn.frames) for turn in self._turns) < MAX_FRAMES and not self._is_over:
            self._turn.frames.append(pcm)
        else:
            self._turn.lost_s += len(pcm) / 2 / self._rate
            return False
        return not self._is_over

    def begin(self) -> bool:
        """Speech begins; the turn has the last `before_s` of earlier audio too. Calls within a turn
        do nothing. False: `run` has ended, or 1,000 turns wait."""
        if self._turn is None:
            if self._is_over or len(self._turns) >= MAX_FRAMES:
                return False
            self._turn = _Turn([self._before])
            self._before = b""
            self._turns.append(self._turn)
            self._came.set()
        return not self._is_over

    def end(self) -> Coroutine[Any, Any, Description | None]:
        """End the turn, by the call itself; await its description. None: `begin` was not called
        since the last one, or the turn failed. Its `warning` tells audio that was left out."""
        turn, self._turn = self._turn or _Turn([]), None
        turn.is_ended = True
        if turn not in self._turns or not self._rate:
            turn.is_done.set()
        self._came.set()
        return turn.described()
