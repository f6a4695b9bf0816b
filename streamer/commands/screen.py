"""What a person sees of one recording. In: deltas, a Description, a failure. Out: stdout, stderr.

On a terminal a sentence grows as its tokens commit. Verified text has full colour, other text is
dim.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from streamer.commands.measures_table import table_of
from streamer.commands.options import DescribeOptions
from streamer.commands.process import fail, has_colour, put, tell
from streamer.core.description import Description, TextDelta, one_line
from streamer.core.text.characters import SENTENCE_ENDS
from streamer.progress import Bar, clock

DIM = "\x1b[2m"
RESET = "\x1b[0m"


@dataclass(frozen=True)
class Take:
    """What is described: a recording, or one channel of it."""

    file: str
    channel: int | None = None

    def __str__(self) -> str:
        return self.file if self.channel is None else f"{self.file}, channel {self.channel}"


class Screen:
    """One take's output. Text goes out as it commits, unless several are described at once."""

    def __init__(self, take: Take, options: DescribeOptions, num_takes: int, bar: Bar) -> None:
        has_name = num_takes > 1 and not options.quiet
        self._take = take
        self._options = options
        self._bar = bar
        self._name = f"{one_line(str(take))}: " if has_name else ""
        self._grows = options.jobs == 1 or num_takes == 1
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
        """A piece of the sentence. A part of a long recording begins a line with its time."""
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
            fail(f"{self._take}: {why}")

    def end(self) -> None:
        """Closes a line that was begun."""
        if self._is_open:
            self._write("\n")
        self._is_open = False

    def failed(self, told: str, reason: str) -> None:
        """What was shown stays; the reason goes to stderr, and into the recording's object."""
        self._flush()
        if self._options.json:
            channel = {} if self._take.channel is None else {"channel": self._take.channel}
            self._say(_as_json({"file": self._take.file, **channel, "error": reason}))
        fail(told)

    def done(self, result: Description, is_away: bool) -> None:
        """The rest of the output."""
        if self._options.json:
            self._say(_as_json(result.as_json()))
        elif not self._is_begun:  # nobody speaks
            self._say(self._name.rstrip() + "\n")
        self._flush()
        if result.measures is not None and self._options.measures and not self._options.json:
            self._say(table_of(result.measures, result.confidence))
        if result.stop_reason == "no_speech" and not (self._options.json or self._options.quiet):
            fail(f"{self._take}: no speech was heard, so there is no sentence")
        if result.warning is not None:
            fail(f"{self._take}: {result.warning}")
        if self._options.verbose:
            tell(summary(result, is_away))

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
