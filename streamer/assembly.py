"""Joins model, stages and net: Parts of loaded models, and both ends of the link.

The models of a describer are loaded when first needed. Where its cloud is a ws:// address, its link
goes to a verifier elsewhere. ModelJudge, there: a turn's samples and requests in, verdicts out.
"""

from __future__ import annotations

import functools
import math
import os
import ssl
import time
import warnings
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread
from anyio import CapacityLimiter
from anyio.abc import TaskGroup

from streamer.config import Config, ConfigError
from streamer.core.attributes import ATTRIBUTES, FORMS, chosen, level_names, names_of
from streamer.core.audio.turn import Closed, Heard
from streamer.core.decoding.plan import Plan, Preset
from streamer.core.rules.settings import ALL, LevelWeights, Rules
from streamer.extras import load as load_extra
from streamer.model.audio.mel import StreamingLogMel
from streamer.model.audio.turns import TurnCutter
from streamer.model.checkpoint.card import ModelCard
from streamer.model.checkpoint.weights import ModelError, fingerprint_of
from streamer.model.decoding import Decoder, GenerateDrafter, describe_so_far, warm_up
from streamer.model.listener import Listener
from streamer.model.scheduler import StepScheduler
from streamer.model.thinker import Role, Thinker, check_pair, check_torch, load, resolve
from streamer.progress import Bar
from streamer.stages.events import SessionOptions
from streamer.stages.parts import NUM_PIECES, Batcher, Cloud, LocalCloud, LocalTarget, Parts

if TYPE_CHECKING:
    from streamer.net.link.client import RemoteCloud
    from streamer.net.link.server import ServedTurn

CREDITS = 4  # blocks of a turn whose verdict may be on its way
DRAFT_AHEAD = 48  # tokens that the edge drafts while it awaits a verdict
KEY = "STREAMER_CLOUD_KEY"
SETTLE_S = 2.0  # for the first connection: most take less


class PromiseWarning(UserWarning):
    """The gate's risk was certified for something else, or no verifier was there: one line."""


class Models:
    """Edge and cloud as the config's mode needs them; the one place that loads a model."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self._told: set[str] = set()  # warnings: a line per set of attributes and language at most
        self._cloud_here = ""  # the fingerprint of a cloud that is loaded here
        self._stock_edge: Any = None  # transformers' own, for draft generate

    @functools.cached_property
    def pair(self) -> tuple[Thinker | None, Thinker | None]:
        """(edge, cloud), None where the mode needs none or it is away. Raises ModelError."""
        c = self.config
        edge_at = resolve(c.edge, "edge") if c.loads_edge else None
        cloud_at = resolve(c.cloud, "cloud") if c.loads_cloud else None
        edge = None if edge_at is None else self._load(edge_at, "edge")
        cloud = None if cloud_at is None else self._load(cloud_at, "cloud")
        if edge is not None and cloud is not None:
            check_pair(edge, cloud)
        for thinker in filter(None, (edge, cloud)):
            warm_up(thinker)
        return edge, cloud

    def _load(self, directory: Path, role: Role) -> Thinker:
        c = self.config
        with Bar(f"loading {role}", 1) as bar:
            return load(
                str(directory),
                role,
                c.num_slots,
                c.device,
                c.engine,
                lambda done, total: bar.show(done / total, f"{done} of {total}"),
            )

    @property
    def thinkers(self) -> list[Thinker]:
        """Those that are loaded here, the edge first."""
        return [thinker for thinker in self.pair if thinker is not None]

    @property
    def first(self) -> Thinker:
        """The model whose card counts: the edge, or the cloud where there is no edge."""
        return self.thinkers[0]

    @property
    def verifier_url(self) -> str | None:
        """Address of the verifier, where it holds the cloud model and the mode asks it."""
        is_asked = self.config.is_away and self.config.mode != "edge"
        return self.config.cloud if is_asked else None

    def load(self) -> None:
        """Load everything the config's mode and drafter need. Raises ModelError, and ConfigError
        where a model does not speak the wanted language, or cannot say the wanted attributes."""
        edge, cloud = self.pair
        if edge is not None and self.config.draft == "generate":
            check_torch(self.first.directory, "transformers")
            from streamer.model.engines.load import load_stock

            self._stock_edge = load_stock(self.first.directory)
        for thinker in self.thinkers:
            try:
                thinker.card.speaking(self.language)
            except ValueError as error:
                raise ConfigError(f"{thinker.directory}: {error}") from None
        for name in () if self.config.said == ALL else names_of(self.config.said):
            if name not in self.can_say:
                why = f"has no phrases of {name} that the cloud says, too"
                way = "leave attributes out, or take models whose cards have them"
                raise ConfigError(f"{self.first.directory}: {why}; {way}")
        if self.plan.mode == "gated" and cloud is not None:
            self._cloud_here = fingerprint_of(cloud.directory)

    def check_promise(self, rules: Rules, cloud: str = "") -> None:
        """Warn once (PromiseWarning) where the gate's promise was made for other sentences than
        those of `rules`, or for something else. cloud: the fingerprint of one that is elsewhere."""
        edge, _ = self.pair
        if edge is None or self.plan.mode != "gated":
            return
        for line in doubts_of(self.config, edge.card, rules, cloud or self._cloud_here):
            if line not in self._told:
                self._told.add(line)
                warnings.warn(line, PromiseWarning, stacklevel=3)

    @property
    def plan(self) -> Plan:
        """How answers in the describer's language are decoded."""
        return self.plan_in(self.language)

    def plan_in(self, language: str, preset: Preset | None = None) -> Plan:
        """The same in `language`, under another preset than the config's.

        Without phrases these models have no form, and a verifier elsewhere is asked for none. The
        edge drafts ahead where blocks wait for a verdict: of a verifier elsewhere, which takes
        several requests at once, or each block in mode exact.
        """
        card = self.first.card.speaking(language)
        plan = self.config.plan(preset or card.presets[self.config.preset])
        form = plan.rules.form if card.phrases and self._is_one_form(language) else ""
        plan = replace(plan, rules=replace(plan.rules, form=form, language=language))
        if self.verifier_url is not None:
            return replace(plan, ahead=DRAFT_AHEAD, credits=CREDITS)
        return replace(plan, ahead=DRAFT_AHEAD) if plan.mode == "exact" else plan

    def _is_one_form(self, language: str) -> bool:
        """Whether all of these models say the same phrases in `language`."""
        return len({each.card.speaking(language).phrases for each in self.thinkers}) <= 1

    @property
    def can_say(self) -> tuple[str, ...]:
        """The attributes that may be asked for alone: none where models say different phrases."""
        known = self.phrases[self.language] if self._is_one_form(self.language) else ()
        return tuple(name for name in ATTRIBUTES if name in known)

    @property
    def language(self) -> str:
        """The language of sentences that ask for no other."""
        return self.config.language or self.first.card.language

    @functools.cached_property
    def phrases(self) -> dict[str, Mapping[str, Any]]:
        """Each language that all of these models speak, the describer's first -> the attribute
        phrases of the first model that has some, to read a sentence back."""
        cards = [thinker.card for thinker in self.thinkers]
        both = [each for each in cards[0].spoken if all(each in card.spoken for card in cards)]
        found: dict[str, Mapping[str, Any]] = {}
        for language in sorted(both, key=lambda each: each != self.language):
            own = (card.speaking(language).attributes for card in cards)
            found[language] = next(filter(None, own), {})
        return found

    def speaking(self, language: str | None) -> str:
        """The language of a turn whose caller asks for `language`. Raises ValueError for one that
        these models do not all speak."""
        if language is not None and language not in self.phrases:
            told = f"language is {language!r}; these models speak {' and '.join(self.phrases)}"
            raise ValueError(told)
        return language or self.language

    @property
    def drafting(self) -> Callable[..., GenerateDrafter | Decoder]:
        """Makes a turn's drafter on the edge, of a listener, rules, sampling and level weights."""
        if self.config.draft == "generate":
            return lambda listener, *_: GenerateDrafter(listener, self._stock_edge)
        return Decoder.of


def doubts_of(config: Config, first: ModelCard, rules: Rules, cloud: str) -> Iterator[str]:
    """A line if the promise of the edge's card does not cover these options, and one if it was made
    for another cloud model. cloud: the fingerprint of the one that verifies, "" while it is not
    known."""
    card, said = first.speaking(rules.language), rules.form or config.said
    own, promise = card.presets[config.preset], card.promises.get(config.preset)
    if promise is None:
        return
    is_other = {
        f"k {config.k}": config.k not in (None, own.k),
        f"threshold {config.threshold}": (config.threshold or 0.0) > own.threshold,
        f"temperature {config.temperature}": config.temperature > 0,
        f"draft {config.draft}": config.draft != "incremental",
        f"attributes {said}": said not in [FORMS[profile] for profile in promise.profiles],
        f"sentences in {card.language}": card is not first and card.gate == first.gate,
    }
    if others := [name for name, is_so in is_other.items() if is_so]:
        told = f"the gate's promise was not made for {' and '.join(others)}"
        yield f"{told}; leave that out, or take mode exact to be sure"
    if cloud and promise.fingerprint not in ("", cloud):
        made_for = f"{promise.cloud} {promise.fingerprint}, not {cloud}"
        told = f"the gate's promise was made for another cloud model ({made_for})"
        yield f"{told}; run streamer calibrate"


@asynccontextmanager
async def background() -> AsyncIterator[TaskGroup]:
    """A task group beside a describer, cancelled at its end; errors come out as they are."""
    failure: BaseException | None = None
    async with anyio.create_task_group() as group:
        try:
            yield group
        except BaseException as error:
            failure = error
        group.cancel_scope.cancel()
    if failure is not None:
        raise failure


@asynccontextmanager
async def open_parts(models: Models, group: TaskGroup | None = None) -> AsyncIterator[Parts]:
    """Load the models, start a thread for each, connect to the verifier where it is elsewhere.
    Raises ModelError.

    group: the link to a verifier elsewhere runs in it.
    """
    await anyio.to_thread.run_sync(models.load)
    async with AsyncExitStack() as stack:
        threads: dict[str, Batcher | None] = {"edge": None, "cloud": None}
        for name, thinker in zip(threads, models.pair, strict=True):
            if thinker is not None:
                threads[name] = await stack.enter_async_context(thread_of(thinker, name))
        plan, pieces = models.plan, CapacityLimiter(NUM_PIECES)
        cloud: Cloud | None = None
        if models.verifier_url is not None:
            assert group is not None, "a link runs in a group"
            cloud = await open_remote(models, group)
        elif (thread := threads["cloud"]) is not None:
            verifier_of = partial(Decoder.of, sampling=models.config.sampling())
            # most turns need no verdict: on a busy machine none is heard for nothing
            cloud = LocalCloud(thread, verifier_of, pieces=pieces if plan.mode == "gated" else None)
        max_turn_s = min(thinker.card.max_turn_s for thinker in models.thinkers)
        yield Parts(
            plan=plan,
            sampling=models.config.sampling(),
            vocabulary=models.first.vocabulary,
            suffix=models.first.suffixes[plan.rules.language],
            # with a verifier elsewhere it is there in mode cloud for its vocabulary
            edge=None if plan.mode == "cloud" else threads["edge"],
            cloud=cloud,
            cut=partial(_cutter, max_turn_s),
            drafts=models.drafting,
            updates=describe_so_far,
            phrases=models.phrases[plan.rules.language],
            level_names=level_names(models.phrases),
            is_measured=models.config.words == "measured",
            max_turn_s=max_turn_s,
            slots=anyio.Semaphore(models.config.num_slots),
            pieces=pieces,
        )


def thread_of(thinker: Thinker, name: str) -> Batcher:
    """A thread for one model, to be entered."""
    rounds = StepScheduler(thinker.engine)
    return Batcher(rounds, f"streamer-{name}", partial(Listener, thinker))


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
        phrases=models.phrases[rules.language],
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
        coach=load_extra("coach.live")(options.coach) if options.coach is not None else None,
    )


async def open_remote(models: Models, group: TaskGroup) -> RemoteCloud:
    """A link to the verifier, kept by tasks of `group`. Raises ModelError where it refuses us."""
    # only here, since they need websockets
    from streamer.net.link.client import RemoteCloud, VerifierAddress
    from streamer.net.link.target import DecodingTerms
    from streamer.net.service.admission import KEY_CHARACTERS
    from streamer.net.service.metrics import notices

    config, card, plan = models.config, models.first.card, models.plan
    key = config.cloud_key or os.environ.get(KEY)
    if key and not KEY_CHARACTERS.fullmatch(key):
        told = f"the key in cloud_key or {KEY} holds characters that no key has; check it"
        raise ModelError(config.cloud, told)
    tls = ssl.create_default_context() if config.cloud.startswith("wss://") else None
    is_eager = config.cloud_audio == "eager"
    verifier = VerifierAddress(config.cloud, key, tls, is_eager, plan.verify_budget_s)
    phrases = {name: card.speaking(name).phrases for name in card.spoken}
    terms = DecodingTerms(models.first.vocabulary, config.sampling(), phrases)

    def doubt(fingerprint: str) -> None:
        """A warning, never an error: that would end the link's task, which all turns need."""
        try:
            models.check_promise(plan.rules, fingerprint)
        except PromiseWarning as warning:
            notices.warning(str(warning))

    link = RemoteCloud(verifier, terms, time.perf_counter, group, doubt)
    await link.settled(SETTLE_S)
    if link.lost is not None:
        raise ModelError(link.name, link.trouble)
    return link


class ModelJudge:
    """One turn of an edge elsewhere, on the model that is loaded here; one call at a time. It makes
    the windows itself: the same samples give those of the edge."""

    def __init__(
        self, thinker: Thinker, model: Batcher, turn: ServedTurn, threads: CapacityLimiter
    ) -> None:
        self._threads = threads
        self._mel = StreamingLogMel()
        self._target = LocalTarget(
            model,
            model.listen(turn.rules.language),
            partial(Decoder.of, rules=turn.rules, sampling=turn.sampling),
        )
        self.verify = self._target.verify
        self.close = self._target.close

    async def hear(self, samples: Any) -> None:
        mel = self._mel
        windows = tuple(await anyio.to_thread.run_sync(mel.push, samples, limiter=self._threads))
        await self._target.hear(Heard(0, windows, mel.maximum, num_taken=mel.num_samples))
        await self._target.prefilled()

    async def finish(self, weights: LevelWeights) -> None:
        mel = self._mel
        rest = tuple(await anyio.to_thread.run_sync(mel.finish, limiter=self._threads))
        num = mel.num_samples
        closed = Closed(0, rest, mel.maximum, num, has_speech=True, last_speech=None)
        await self._target.finish(closed, weights)
        await self._target.hear_end(prefills=True)
