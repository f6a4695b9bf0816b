"""The models as the stages need them: Parts, shared by all streams of a describer."""

from __future__ import annotations

import copy
import math
from collections.abc import AsyncIterator
from collections.abc import Sequence as Ids
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread
from anyio import Semaphore
from anyio.abc import TaskGroup

from streamer.assembly.models import Models
from streamer.core.attributes import ATTRIBUTES, Phrases, fused_confidence, parse
from streamer.core.audio.pcm import SAMPLE_RATE_HZ
from streamer.core.audio.turn_items import Closed, Heard
from streamer.core.decoding.machine import Pace, Speculator
from streamer.core.decoding.sequence import Sequence
from streamer.core.description import Description, turn_warning
from streamer.core.measures.levels import learnt, level_chances, level_weights
from streamer.core.rules.settings import FLAT, LevelWeights
from streamer.core.text.vocabulary import Emitter
from streamer.extras import load
from streamer.stages.batcher import Batcher, LocalCloud
from streamer.stages.events import SessionOptions
from streamer.stages.ports import Cloud, HearingThreads, Side, Target, Written

if TYPE_CHECKING:
    from streamer.model.audio.turns import TurnCutter
    from streamer.model.thinker import Thinker


@asynccontextmanager
async def open_parts(models: Models, group: TaskGroup | None = None) -> AsyncIterator[LiveParts]:
    """Load the models, start a thread for each, connect to the verifier where it is elsewhere.
    Raises ModelError.

    group: the link to a verifier elsewhere runs in it.
    """
    await anyio.to_thread.run_sync(models.load)
    edge, cloud = models.pair
    async with AsyncExitStack() as stack:
        sides: dict[str, Side | None] = {"edge": None, "cloud": None}
        for name, thinker in zip(sides, (edge, cloud), strict=True):
            if thinker is not None:
                sides[name] = await stack.enter_async_context(open_side(thinker, name))
        verifying = await _cloud(models, sides["cloud"], group)
        yield LiveParts(models, sides["edge"], verifying)


@asynccontextmanager
async def open_side(thinker: Thinker, name: str) -> AsyncIterator[Side]:
    """A thread for one model."""
    from streamer.model.listener import Listener
    from streamer.model.scheduler import StepScheduler

    async with Batcher(StepScheduler(thinker.engine), f"streamer-{name}") as batcher:
        yield Side(batcher, partial(Listener, thinker))


async def _cloud(models: Models, side: Side | None, group: TaskGroup | None) -> Cloud | None:
    if models.verifier_url is not None:
        from streamer.assembly.link import open_remote

        assert group is not None, "a link runs in a group"
        return await open_remote(models, group)
    if side is None:
        return None
    from streamer.model.decoding import LocalVerifier

    sampling = models.config.sampling()
    follows_edge = models.plan.mode != "cloud"
    return LocalCloud(
        side,
        lambda listener, rules, weights: LocalVerifier(listener, rules, sampling, weights),
        follows_edge,
    )


class LiveParts:
    """See stages/ports.py's Parts."""

    def __init__(self, models: Models, edge: Side | None, cloud: Cloud | None) -> None:
        self._models = models
        self.cloud = cloud
        self._plan = models.plan
        self.mode = self._plan.mode
        self._side = edge
        self.max_turn_s = models.max_turn_s
        self.threads = HearingThreads()
        self._pace = Pace()  # shared by all turns
        self.slots = Semaphore(models.config.num_slots)

    @property
    def language(self) -> str:
        """The language of the sentences."""
        return self._plan.rules.language or self._models.language

    @property
    def edge(self) -> Side | None:
        """None in mode cloud: with a verifier elsewhere it is there for its vocabulary."""
        if self._side is None or self.mode == "cloud":
            return None
        return replace(self._side, listen=partial(self._side.listen, self.language))

    @property
    def _weighs(self) -> bool:
        return self._models.config.words == "measured" and self._plan.rules.form != ""

    def patient(self, hears_late: bool = True) -> LiveParts:
        """The same for recordings: a slow cloud in this process is waited for.

        hears_late: in mode gated it hears only the turns that it is asked about, since to hear is
        half of all work and most turns need no verdict.
        """
        if not isinstance(self.cloud, LocalCloud):
            return self
        found = copy.copy(self)
        found.cloud = copy.copy(self.cloud)
        found.cloud.hears_late = hears_late and self.mode == "gated"
        found._plan = replace(self._plan, verify_budget_s=math.inf)
        return found

    def saying(self, said: str, language: str = "") -> LiveParts:
        """The same for sentences in `language` that name the attributes `said`; "" stands for the
        describer's."""
        if not said and not language:
            return self
        found = copy.copy(self)
        budget_s = self._plan.verify_budget_s
        plan = self._models.plan_in(language) if language else self._plan
        rules = plan.rules.saying(said) if said else plan.rules
        found._plan = replace(plan, rules=rules, verify_budget_s=budget_s)
        return found

    def target(self) -> Target | None:
        return None if self.cloud is None else self.cloud.listen(self._plan.rules)

    def hearing(self, options: SessionOptions) -> TurnCutter:
        from streamer.model.audio.turns import TurnCutter
        from streamer.model.audio.vad import TurnRule

        rule = None
        if (found := options.turn_detection) is not None:
            rule = TurnRule(found.threshold, found.prefix_padding_ms, found.silence_ms)
        return TurnCutter(
            options.sample_rate_hz,
            self._models.max_turn_s,
            rule,
            options.live_update_s,
            options.is_recording,
            options.measures or self._weighs,
            options.measures,
            options.encoding,
            load("coach.live")(options.coach) if options.coach is not None else None,
        )

    def weights(self, heard: Closed | Heard) -> LevelWeights:
        if heard.measures is None or not self._weighs:
            return FLAT
        return level_weights(heard.measures(), self._phrases)

    def drafter(self, edge: Any, weights: LevelWeights) -> Any:
        return self._models.drafter(edge, self._plan.rules, weights)

    def speculator(self, edge: Any) -> Speculator:
        first = self._models.first
        if edge is not None:
            return Speculator(self._plan, first.vocabulary, edge.sequence, self._pace)
        sequence = Sequence(first.suffix_in(self.language))  # ids alone: nothing is drafted on it
        sequence.start_answer()
        return Speculator(self._plan, first.vocabulary, sequence, self._pace)

    def update(self, edge: Any, window: Any, weights: LevelWeights) -> Any:
        from streamer.model.decoding import describe_so_far

        sampling = self._models.config.sampling()
        return describe_so_far(edge, window, self._plan.rules, sampling, weights)

    @property
    def _phrases(self) -> Phrases:
        return self._models.phrases_in(self.language)

    def text_of(self, ids: Ids[int]) -> str:
        return self._models.first.vocabulary.text_of(list(ids))

    def emitter(self) -> Emitter:
        return Emitter(self._models.first.vocabulary)

    def describe(self, written: Written) -> Description:
        w, closed = written, written.closed
        audio_s = closed.num_samples / SAMPLE_RATE_HZ
        from_speech_ms = None
        if w.ttft_ms is not None and (last := closed.last_speech) is not None:
            from_speech_ms = w.ttft_ms + 1000 * (audio_s - last / SAMPLE_RATE_HZ)
        warning = None
        if w.stop_reason != "no_speech":
            name, trouble = (self.cloud.name, self.cloud.trouble) if self.cloud else ("", "")
            hidden = closed.measures() if closed.measures and not closed.shows_measures else None
            faults = hidden.faults if hidden else ()
            warning = turn_warning(w.counts, w.mode, audio_s, name, trouble, faults)
        return Description(
            file=f"turn {closed.turn}",
            text=w.text,
            stop_reason=w.stop_reason,
            mode=w.mode,
            counts=w.counts,
            audio_s=audio_s,
            attributes=parse(w.text, self._phrases),
            ttft_ms=w.ttft_ms,
            total_ms=w.total_ms,
            prefill_ms=w.prefill_ms,
            ttft_from_speech_ms=from_speech_ms,
            ids=w.ids,
            warning=warning,
            turn=closed.turn,
            measures=closed.measures() if closed.measures and closed.shows_measures else None,
            confidence=self._confidence(w),
            language=self.language,
            level_names=self._models.level_names,
            curves=closed.curves() if closed.curves is not None else None,
        )

    def _confidence(self, written: Written) -> dict[str, float | None] | None:
        """None where nothing is said, or the measures have no say."""
        if not written.pieces or written.closed.measures is None or not self._weighs:
            return None
        chances = level_chances(written.closed.measures())
        opinion = learnt().opinion
        found = fused_confidence(written.pieces, self._phrases, chances, opinion)
        return {name: found.get(name) for name in ATTRIBUTES}
