"""`streamer describe`: recordings in; sentences or JSON on stdout; all else on stderr.

On a terminal a sentence grows as its tokens commit. Verified text has full colour, other text is
dim.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import anyio

from streamer.audio.directory import recordings_in
from streamer.audio.file import AudioError
from streamer.commands.options import DescribeOptions
from streamer.commands.process import StdoutLost, fail, has_colour, loading, models_of, put
from streamer.commands.progress import Bar, clock
from streamer.config import Config, ConfigError
from streamer.contradictions import combined
from streamer.core.description import Description, TextDelta
from streamer.core.plain import one_line
from streamer.core.text.characters import SENTENCE_ENDS
from streamer.describer import Describer
from streamer.logs import logging_to
from streamer.stages.plumbing.ports import TargetLost

DIM = "\x1b[2m"
RESET = "\x1b[0m"


def run(options: DescribeOptions, given: Mapping[str, Any]) -> int:
    """The exit status: 1 when any recording, or a model, failed. Raises ConfigError."""
    config = combined(options.pipeline, given).for_jobs(options.jobs)
    files = [file for path in options.files for file in recordings_in(path)]
    with ExitStack() as stack:
        if options.log:
            try:
                stack.enter_context(logging_to(options.log, text=options.log_text))
            except OSError as error:
                told = f"--log {options.log}: cannot be written ({error.strerror})"
                raise ConfigError(told) from None
        return anyio.run(_describe_all, files, config, options)


async def _describe_all(files: Sequence[str], config: Config, options: DescribeOptions) -> int:
    async with Describer.open(config) as describer:
        try:
            with loading(models_of(config)):
                await describer.load()
        except Exception as error:
            if not _is_model_error(error):
                raise
            fail(str(error))
            return 1
        with Bar("describing", len(files)) as bar:
            return await _Batch(describer, files, options, bar).run()


class _Batch:
    """`options.jobs` recordings at once; one's failure never ends the run."""

    def __init__(
        self, describer: Describer, files: Sequence[str], options: DescribeOptions, bar: Bar
    ) -> None:
        self._describer = describer
        self._files = files
        self._options = options
        self._bar = bar
        self._num_done = 0
        self._num_failed = 0
        self._shares: dict[int, float] = {}  # heard, of recordings in hand
        self._lost: Exception | None = None  # why stdout cannot be written

    async def run(self) -> int:
        todo = iter(enumerate(self._files))
        if len(self._files) > 1:
            self.show_progress()
        async with anyio.create_task_group() as group:
            for _ in range(min(self._options.jobs, len(self._files))):
                group.start_soon(self._work, todo, group.cancel_scope)
        if self._lost is not None:
            raise self._lost
        return 1 if self._num_failed else 0

    async def _work(self, todo: Iterator[tuple[int, str]], scope: anyio.CancelScope) -> None:
        for i, file in todo:
            screen = _Screen(file, self._options, len(self._files), self._bar)
            try:
                is_whole = await self._describe(i, file, screen)
            except (StdoutLost, BrokenPipeError) as error:  # nothing more can be shown
                self._lost = error
                scope.cancel()
                return
            self._shares.pop(i, None)
            self._num_done += 1
            self._num_failed += not is_whole
            if len(self._files) > 1:
                self.show_progress()

    async def _describe(self, i: int, file: str, screen: _Screen) -> bool:
        def heard(heard_s: float, of_s: float) -> None:
            screen.where = f"{clock(heard_s)} of {clock(of_s)}"
            self._shares[i] = heard_s / of_s
            if not screen.blocks_bar:
                self.show_progress(screen.where)

        try:
            result = await self._describer.describe(file, screen.delta, heard, screen.wait)
        except anyio.get_cancelled_exc_class():
            if self._lost is None:
                where = f" after {screen.where}" if screen.where else ""
                screen.end()
                fail(f"{file}: interrupted{where}; what is said so far stands")
            raise
        except (StdoutLost, BrokenPipeError):
            raise
        except Exception as error:
            screen.failed(*_told(file, error))
            return False
        screen.done(result, self._describer.config.is_away)
        return not result.is_cut

    def show_progress(self, where: str = "") -> None:
        """Over all recordings; of a single one, how far it is heard."""
        done = self._num_done + sum(self._shares.values())
        is_many = len(self._files) > 1
        self._bar.show(done, f"{self._num_done} of {len(self._files)}" if is_many else where)


def _told(file: str, error: Exception) -> tuple[str, str]:
    """(the line for stderr, the reason for JSON)."""
    if isinstance(error, AudioError):
        return str(error), error.reason
    if isinstance(error, TargetLost) or _is_model_error(error):
        return str(error), str(error)
    told = f"{type(error).__name__}: {error}; this is a defect of streamer, please report it"
    return f"{file}: {told}", told


class _Screen:
    """One recording's output. Text goes out as it commits, unless recordings are described at
    once."""

    def __init__(self, file: str, options: DescribeOptions, num_files: int, bar: Bar) -> None:
        has_name = options.names or (num_files > 1 and not options.quiet)
        self._file = file
        self._options = options
        self._bar = bar
        self._name = f"{one_line(file)}: " if has_name else ""
        self._grows = options.jobs == 1 or num_files == 1
        self._held: list[str] = []  # text, where it does not grow
        self._from_s: float | None = None
        self._is_begun = False
        self._is_open = False  # a line of text has begun
        self.where = ""  # how far the recording is heard, where that is known

    @property
    def blocks_bar(self) -> bool:
        """A bar would tear the line that grows on this terminal."""
        return self._is_open and self._grows and sys.stdout.isatty()

    def delta(self, delta: TextDelta) -> None:
        """A piece of the sentence. Each part of a long recording is a line that begins with its
        time."""
        if self._options.json:
            return
        text = one_line(delta.text)  # another's model may say anything
        is_dim = not delta.verified and has_colour(sys.stdout)
        piece = f"{DIM}{text}{RESET}" if is_dim else text
        if delta.from_s is not None and delta.from_s != self._from_s:
            self._from_s = delta.from_s
            self.end()
            piece = piece if self._options.quiet else f"[{clock(delta.from_s)}] {piece}"
        self._write(piece if self._is_open else self._name + piece)
        self._is_open = True
        # the line of a part is closed at once, so that the bar may come back
        if delta.from_s is not None and text.endswith(tuple(SENTENCE_ENDS)):
            self.end()

    def wait(self, why: str) -> None:
        """Why nothing happens, where a person would ask. Never inside a line that grows."""
        if not (self._options.json or self._options.quiet or self._is_begun):
            fail(f"{self._file}: {why}")

    def end(self) -> None:
        """Closes a line that was begun."""
        if self._is_open:
            self._write("\n")
        self._is_open = False

    def failed(self, told: str, reason: str) -> None:
        """What was shown stays; the reason goes to stderr, and into the recording's object."""
        self._flush()
        if self._options.json:
            self._say(_as_json({"file": self._file, "error": reason}))
        fail(told)

    def done(self, result: Description, is_away: bool) -> None:
        """The rest of the output."""
        if self._options.json:
            self._say(_as_json(result.as_json()))
        elif not self._is_begun:  # nobody speaks
            self._say(self._name.rstrip() + "\n")
        self._flush()
        if result.warning is not None:
            fail(f"{self._file}: {result.warning}")
        if self._options.verbose:
            print(summary(result, is_away), file=sys.stderr, flush=True)

    def _write(self, text: str) -> None:
        self._is_begun = True
        if self._grows:
            self._say(text)
        else:
            self._held.append(text)

    def _flush(self) -> None:
        self.end()
        if self._held:
            self._say("".join(self._held))
            self._held.clear()

    def _say(self, text: str) -> None:
        if sys.stdout.isatty():
            self._bar.hide()
        put(text, end="")


def _as_json(row: Mapping[str, Any]) -> str:
    return json.dumps(row, ensure_ascii=False) + "\n"


def summary(result: Description, is_away: bool) -> str:
    """One line of numbers. is_away: tokens were uploaded to a verifier elsewhere."""
    head = f"  {one_line(result.file)}: {result.audio_s:.1f} s"
    if result.stop_reason == "no_speech":
        return f"{head}, no speech"
    if result.parts:  # times are those of one part
        said = f"{len(result.parts)} parts, {result.n_tokens} tokens"
    else:
        first = "no text" if result.ttft_ms is None else f"first text after {result.ttft_ms:.0f} ms"
        speed = "" if result.tokens_per_s is None else f" at {result.tokens_per_s:.0f}/s"
        said = f"{first}, {result.n_tokens} tokens{speed}"
    checked = _checked(result, is_away)
    return f"{head}, {said}, {checked}{result.verified_share:.0%} verified [{result.mode}]"


def _checked(result: Description, is_away: bool) -> str:
    if not result.n_uploaded:
        return ""
    calls = f"{result.cloud_calls} call{'s' * (result.cloud_calls != 1)}"
    if is_away:
        return f"{result.n_uploaded} uploaded in {calls} ({result.n_accepted} accepted), "
    checked = f"{result.n_uploaded} checked by the larger model in {calls}"
    return f"{checked} ({result.n_accepted} kept), "


def _is_model_error(error: Exception) -> bool:
    from streamer.model.checkpoint.weights import ModelError

    return isinstance(error, ModelError)
