"""The models as the stages need them: Parts, shared by all streams of a describer."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup

from streamer.assembly.link import open_remote
from streamer.assembly.models import Models
from streamer.core.attributes import chosen, names_of
from streamer.extras import load
from streamer.model.audio.turns import TurnCutter
from streamer.model.decoding import LocalVerifier, describe_so_far
from streamer.model.listener import Listener
from streamer.model.scheduler import StepScheduler
from streamer.model.thinker import Thinker
from streamer.stages.batcher import Batcher, LocalCloud
from streamer.stages.events import SessionOptions
from streamer.stages.ports import Cloud, Parts, Side


@asynccontextmanager
async def open_parts(models: Models, group: TaskGroup | None = None) -> AsyncIterator[Parts]:
    """Load the models, start a thread for each, connect to the verifier where it is elsewhere.
    Raises ModelError.

    group: the link to a verifier elsewhere runs in it.
    """
    await anyio.to_thread.run_sync(models.load)
    async with AsyncExitStack() as stack:
        sides: dict[str, Side | None] = {"edge": None, "cloud": None}
        for name, thinker in zip(sides, models.pair, strict=True):
            if thinker is not None:
                sides[name] = await stack.enter_async_context(open_side(thinker, name))
        plan = models.plan
        cloud: Cloud | None = None
        if models.verifier_url is not None:
            assert group is not None, "a link runs in a group"
            cloud = await open_remote(models, group)
        elif (side := sides["cloud"]) is not None:
            verifier_of = partial(LocalVerifier, sampling=models.config.sampling())
            cloud = LocalCloud(side, verifier_of, plan.mode)
        max_turn_s = min(thinker.card.max_turn_s for thinker in models.thinkers)
        yield Parts(
            plan=plan,
            sampling=models.config.sampling(),
            vocabulary=models.first.vocabulary,
            suffix=models.first.suffixes[plan.rules.language],
            # with a verifier elsewhere it is there in mode cloud for its vocabulary
            edge=None if plan.mode == "cloud" else sides["edge"],
            cloud=cloud,
            cut=partial(_cutter, max_turn_s),
            drafts=models.drafting,
            updates=describe_so_far,
            phrases=models.phrases_in(plan.rules.language),
            level_names=models.level_names,
            is_measured=models.config.words == "measured",
            max_turn_s=max_turn_s,
            slots=anyio.Semaphore(models.config.num_slots),
        )


@asynccontextmanager
async def open_side(thinker: Thinker, name: str) -> AsyncIterator[Side]:
    """A thread for one model."""
    async with Batcher(StepScheduler(thinker.engine), f"streamer-{name}") as batcher:
        yield Side(batcher, partial(Listener, thinker))


def saying(parts: Parts, models: Models, names: str | None, language: str | None) -> Parts:
    """The same for sentences in `language` that name the attributes `names`, as in Config, among
    the describer's; None stands for the describer's. Raises ValueError."""
    plan = models.plan_in(models.speaking(language))
    rules = plan.rules
    if names is not None:
        if models.config.draft == "generate":
            raise ValueError("draft generate follows no rule, so it names every attribute")
        rules = rules.saying(chosen(names, names_of(models.config.said, models.can_say)))
    return replace(
        parts,
        plan=replace(plan, rules=rules, verify_budget_s=parts.plan.verify_budget_s),
        suffix=models.first.suffixes[rules.language],
        phrases=models.phrases_in(rules.language),
    )


def patient(parts: Parts, hears_late: bool = True) -> Parts:
    """The same for recordings: a slow cloud in this process is waited for.

    hears_late: in mode gated it hears only the turns that it is asked about, since to hear is half
    of all work and most turns need no verdict.
    """
    if not isinstance(parts.cloud, LocalCloud):
        return parts
    cloud = replace(parts.cloud, hears_late=hears_late and parts.plan.mode == "gated")
    return replace(parts, cloud=cloud, plan=replace(parts.plan, verify_budget_s=math.inf))


def _cutter(max_turn_s: float, options: SessionOptions, weighs: bool) -> TurnCutter:
    return TurnCutter(
        options.sample_rate_hz,
        max_turn_s,
        rule=options.turn_detection,
        live_update_s=options.live_update_s,
        is_recording=options.is_recording,
        measures=options.measures or weighs,
        shows_measures=options.measures,
        encoding=options.encoding,
        coach=load("coach.live")(options.coach) if options.coach is not None else None,
    )
