"""The public API. In: options and recordings. Out: Descriptions, and text deltas while they commit.

The event loop never waits for torch: models run on a worker thread, one recording at a time.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.from_thread
import anyio.to_thread

from streamer.config import Config, ConfigError
from streamer.core.results import Description, TextDelta
from streamer.logs import log
from streamer.models import Models


class Describer:
    """Describes how people speak. Open it with `Describer.open(...)`; models load at the first use."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self._models = Models(config)
        self._one_at_a_time = anyio.CapacityLimiter(1)

    @classmethod
    @asynccontextmanager
    async def open(cls, config: Config | str | Path | None = None, /, **options: Any) -> AsyncIterator[Describer]:
        """A describer from keywords, a Config, or the path of a TOML pipeline. Raises ConfigError.

        `async with Describer.open(mode="gated", edge="embedded", cloud="embedded") as d: ...`
        """
        if config is not None and options:
            raise ConfigError("give a config or keywords, not both")
        if isinstance(config, str | Path):
            config = Config.from_toml(config)
        yield cls(config or Config.from_mapping(options))

    async def load(self) -> None:
        """Load the models now instead of at the first use. Raises ModelError."""
        await self._in_thread(self._models.load)

    async def describe(
        self, source: str | Path, on_delta: Callable[[TextDelta], None] | None = None
    ) -> Description:
        """Describe a recording (any format libsndfile reads; "-" is a WAV on stdin).

        `on_delta` is called on the event loop for each committed piece. Raises AudioError, ModelError. When the
        caller is cancelled, the turn ends at its next commit and gives its KV slots back.
        """
        from streamer.recording import describe_recording

        stream, check = secrets.token_hex(4), anyio.from_thread.check_cancelled

        def tell(delta: TextDelta) -> None:
            check()
            if on_delta is not None:
                anyio.from_thread.run_sync(on_delta, delta)

        log("describe.start", stream, mode=self.config.mode)
        try:
            result = await self._in_thread(lambda: describe_recording(self._models, source, tell, check))
        except Exception as error:
            log("describe.failed", stream, error=type(error).__name__)
            raise
        except BaseException:
            log("describe.cancelled", stream)
            raise
        log("describe.done", stream, text=result.text, **_numbers(result))
        return result

    async def _in_thread(self, work: Callable[[], Any]) -> Any:
        return await anyio.to_thread.run_sync(work, limiter=self._one_at_a_time)


def _numbers(result: Description) -> dict[str, Any]:
    """What a log line may hold: counts and times, no audio; text only where logs were told so."""
    left_out = ("file", "text", "ids", "parts", "attributes")
    return {name: value for name, value in result.as_json().items() if name not in left_out}
