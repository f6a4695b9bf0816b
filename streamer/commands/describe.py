"""What a person sees of `streamer describe`. In: descriptions and deltas. Out: terminal, plain text
or JSON lines.

On a terminal the sentence grows as ids commit, verified text in full colour, unverified text
dimmed. stdout holds sentences (or JSON) only; progress, summary and errors go to stderr.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from anyio import get_cancelled_exc_class

from streamer.audio.file import AudioError
from streamer.commands.process import loading
from streamer.config import Config
from streamer.core.description import Description, TextDelta, one_line
from streamer.describer import Describer
from streamer.stages.plumbing.ports import TargetLost

if TYPE_CHECKING:
    from rich.progress import Progress

DIM = "\x1b[2m"
RESET = "\x1b[0m"


def fail(message: str) -> None:
    """One line on stderr."""
    print(f"streamer: {one_line(message)}", file=sys.stderr, flush=True)


@dataclass(frozen=True)
class Style:
    """What goes to stdout and stderr: JSON objects; the sentence only; the file's name before
    it."""

    as_json: bool = False
    quiet: bool = False
    names: bool = False


async def describe_files(files: Sequence[str], config: Config, style: Style) -> int:
    """Describe each file; the exit status is 1 when any of them, or the model, failed."""
    async with Describer.open(config) as describer:
        try:
            with loading():
                await describer.load()
        except Exception as error:
            if not _is_model_error(error):
                raise
            fail(str(error))
            return 1
        with ExitStack() as stack:
            # A bar where it says something: on a terminal, and one file's sentences are not
            # seen there anyway.
            shown = sys.stderr.isatty() and (len(files) > 1 or not sys.stdout.isatty())
            shown = shown and not (style.as_json or style.quiet)
            progress = progress_bar(stack, len(files), "describing") if shown else None
            failures = 0
            for i, file in enumerate(files):
                failures += not await _describe_file(
                    describer, file, _Screen(file, style, progress, i)
                )
                if progress is not None:
                    progress.update(progress.task_ids[0], completed=i + 1)
    return 1 if failures else 0


async def _describe_file(describer: Describer, file: str, screen: _Screen) -> bool:
    try:
        result = await describer.describe(file, screen.delta, screen.heard, screen.wait)
    except get_cancelled_exc_class():
        screen.end()
        fail(f"{file}: interrupted{screen.where}; what is said so far stands")
        raise
    except BrokenPipeError:  # the reader of stdout went away: nothing more can be shown
        raise
    except Exception as error:  # one file's failure never ends the run
        screen.end()
        told = (
            str(error)
            if isinstance(error, AudioError | TargetLost) or _is_model_error(error)
            else None
        )
        fail(
            told
            or (
                f"{file}: {type(error).__name__}: {error}; this is a defect of streamer, please "
                "report it"
            )
        )
        return False
    screen.done(result)
    if result.warning is not None:
        fail(f"{file}: {result.warning}")
    return not result.is_cut


class _Screen:
    """One file's output. Text goes out as it commits, whatever stdout is; colour only where it is a
    terminal."""

    def __init__(
        self, file: str, style: Style, progress: Progress | None, num_before: int = 0
    ) -> None:
        self._file = file
        self._json = style.as_json
        self._quiet = style.quiet
        self._progress = progress
        self._num_before = num_before  # files
        self._name = f"{one_line(file)}: " if style.names else ""
        self._colour = sys.stdout.isatty()
        # Under a live progress bar the sentence is written when it is whole: a bar would tear a
        # growing line.
        self._grows = not style.as_json and (progress is None or not self._colour)
        self._pieces: list[str] = []
        self._from_s: float | None = None
        self.where = ""  # how far the recording is heard, where that is known

    def delta(self, delta: TextDelta) -> None:
        """A piece of the sentence; each part of a long recording begins a line, with the time at
        which it begins."""
        text = one_line(delta.text)  # another's model may say anything
        piece = text if delta.verified or not self._colour else f"{DIM}{text}{RESET}"
        if delta.from_s is not None and delta.from_s != self._from_s:
            self._from_s = delta.from_s
            stamp = "" if self._quiet else f"[{clock(delta.from_s)}] "
            piece = (
                ("\n" if self._pieces else "")
                + (self._name if self._pieces else "")
                + stamp
                + piece
            )
        piece = piece if self._pieces else self._name + piece
        if self._grows:
            sys.stdout.write(piece)
            sys.stdout.flush()
        self._pieces.append(piece)

    def heard(self, heard_s: float, of_s: float) -> None:
        self.where = f" after {clock(heard_s)} of {clock(of_s)}"
        if self._progress is not None:
            self._progress.update(
                self._progress.task_ids[0], completed=self._num_before + heard_s / of_s
            )

    def wait(self, why: str) -> None:
        """Said where times are: else a wait that no time counts looks like a hang. Not into a line
        that grows."""
        if not (self._json or self._quiet or self._pieces):
            fail(f"{self._file}: {why}")

    def end(self) -> None:
        """Close a line that an error cut short; what was shown stays."""
        if self._grows and self._pieces:
            print(flush=True)

    def done(self, result: Description) -> None:
        if self._json:
            print(json.dumps(result.as_json(), ensure_ascii=False), flush=True)
            return
        if self._grows:
            print("" if self._pieces else self._name.rstrip(), flush=True)
        else:
            assert self._progress is not None
            self._progress.console.file.flush()
            self._progress.stop()
            print("".join(self._pieces) if self._pieces else self._name.rstrip(), flush=True)
            self._progress.start()
        if not self._quiet:
            print(summary(result), file=sys.stderr, flush=True)


def summary(result: Description) -> str:
    """One line of numbers: TTFT, speed, accepted / uploaded, cloud calls."""
    head = f"  {one_line(result.file)}: {result.audio_s:.1f} s"
    if result.stop_reason == "no_speech":
        return f"{head}, no speech"
    numbers = [
        f"first text after {result.ttft_ms:.0f} ms" if result.ttft_ms is not None else "no text"
    ]
    if result.tokens_per_s is not None:
        numbers.append(f"{result.n_tokens} tokens at {result.tokens_per_s:.0f}/s")
    if result.parts:  # times are of one part
        numbers = [f"{len(result.parts)} parts", f"{result.n_tokens} tokens"]
    if result.n_uploaded:
        numbers.append(f"accepted {result.n_accepted} of {result.n_uploaded} uploaded")
    calls = f"{result.cloud_calls} cloud call{'s' * (result.cloud_calls != 1)}"
    numbers.append(f"{calls}, {result.verified_share:.0%} verified")
    return f"{head}, {', '.join(numbers)} [{result.mode}]"


def clock(seconds: float) -> str:
    """3725.4 -> 1:02:05, 65 -> 1:05."""
    minutes, rest = divmod(int(seconds), 60)
    return (
        f"{minutes // 60}:{minutes % 60:02}:{rest:02}" if minutes >= 60 else f"{minutes}:{rest:02}"
    )


def progress_bar(stack: ExitStack, total: int, what: str) -> Progress:
    """On stderr, gone when it ends, and only where that is a terminal; advance its one task."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    console = Console(stderr=True)
    progress = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
    progress.add_task(what, total=total)
    return stack.enter_context(progress)


def _is_model_error(error: Exception) -> bool:
    from streamer.model.checkpoint.weights import ModelError

    return isinstance(error, ModelError)


def table_row(values: Sequence[Any], widths: Sequence[int]) -> str:
    """Values in columns, for `streamer models`."""
    return "  ".join(str(v).ljust(w) for v, w in zip(values, widths, strict=True)).rstrip()
