"""One line without async: `streamer.describe("clip.wav")`, also where a loop runs (Jupyter).

In: recordings. Out: Descriptions. One describer stays open: background.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import anyio

from streamer.audio.file import Source
from streamer.background import in_background
from streamer.config import Config, ConfigError
from streamer.core.description import Description
from streamer.describer import Describer


def describe(
    source: Source,
    config: Config | str | Path | None = None,
    *,
    measures: bool = False,
    channel: int | None = None,
    **options: Any,
) -> Description:
    """Describe one recording and wait for it. Takes what `Describer.open` takes; measures and
    channel are those of its `describe`.

    Raises ConfigError, AudioError, ModelError, TargetLost, and TypeError or ValueError for samples
    that are none.
    """
    return Describer.describe_sync(source, config, measures=measures, channel=channel, **options)


def describe_many(
    sources: Iterable[Source],
    config: Config | str | Path | None = None,
    *,
    jobs: int = 1,
    measures: bool = False,
    channel: int | None = None,
    **options: Any,
) -> Sequence[Description | Exception]:
    """Describe recordings, `jobs` (1 to 64) at once; one result for each, in their order.

    A recording that fails has its exception in place of a Description. Raises ConfigError, and
    ModelError where no model can be loaded.
    """
    if not 1 <= jobs <= 64:
        raise ConfigError(f"jobs is {jobs}; it may be 1 to 64")
    chosen = Config.of(config, options).for_jobs(jobs)
    todo = list(sources)
    return in_background(Describer.open, chosen, lambda d: _all(d, todo, jobs, measures, channel))


async def _all(
    describer: Describer, sources: list[Source], jobs: int, measures: bool, channel: int | None
) -> Sequence[Description | Exception]:
    await describer.load()
    found: dict[int, Description | Exception] = {}
    todo = iter(enumerate(sources))

    async def work() -> None:
        for i, source in todo:
            try:
                found[i] = await describer.describe(source, measures=measures, channel=channel)
            except Exception as error:
                found[i] = error

    async with anyio.create_task_group() as group:
        for _ in range(min(jobs, len(sources))):
            group.start_soon(work)
    return [found[i] for i in range(len(sources))]
