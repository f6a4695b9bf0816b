"""The models of one describer, loaded when first needed, and warnings about the gate's promise."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from streamer.config import Config, ConfigError
from streamer.core.attributes import FORMS, LevelNames, level_names, names_of
from streamer.core.decoding.plan import Plan, Preset
from streamer.core.rules.settings import ALL, Rules
from streamer.model.checkpoint.card import ModelCard
from streamer.model.checkpoint.weights import fingerprint_of
from streamer.model.decoding import GenerateDrafter, IncrementalDrafter
from streamer.model.offline import warm_up
from streamer.model.thinker import Role, Thinker, check_pair, check_torch, load, resolve
from streamer.progress import Bar
from streamer.stages.answer import CREDITS, DRAFT_AHEAD


class PromiseWarning(UserWarning):
    """The gate's risk was certified for something else, or no verifier was there: one line."""


class Models:
    """Edge and cloud as the config's mode needs them; the one place that loads a model."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self._told: set[str] = set()  # warnings: a line per set of attributes and language at most

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

            def show(done: int, total: int) -> None:
                bar.show(done / total, f"{done} of {total}")

            return load(str(directory), role, c.num_slots, c.device, c.engine, show)

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
        edge, _ = self.pair
        if edge is not None and self.config.draft == "generate":
            _ = self._stock_edge
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
        if self.plan.mode == "gated":
            _ = self._cloud_here  # for `check_promise`; it reads files, on this thread

    @functools.cached_property
    def _cloud_here(self) -> str:
        """The fingerprint of the cloud that is loaded here, "" where it is elsewhere, or none."""
        cloud = self.pair[1]
        return "" if cloud is None else fingerprint_of(cloud.directory)

    def check_promise(self, rules: Rules, cloud: str = "") -> None:
        """Warn once (PromiseWarning) where the gate's promise was made for other sentences than
        those of `rules`, or for something else. cloud: the fingerprint of one that is elsewhere."""
        edge, _ = self.pair
        if edge is None or self.plan.mode != "gated":
            return
        card, said = edge.card.speaking(rules.language), rules.form or self.config.said
        for line in doubts_of(self.config, card, said, cloud or self._cloud_here):
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
        return tuple(self.phrases_in(self.language)) if self._is_one_form(self.language) else ()

    @property
    def language(self) -> str:
        """The language of sentences that ask for no other."""
        return self.config.language or self.first.card.language

    @property
    def languages(self) -> tuple[str, ...]:
        """Those that all of these models speak, the describer's first."""
        cards = [thinker.card for thinker in self.thinkers]
        both = [each for each in cards[0].spoken if all(each in card.spoken for card in cards)]
        return tuple(sorted(both, key=lambda each: each != self.language))

    def speaking(self, language: str | None) -> str:
        """The language of a turn whose caller asks for `language`. Raises ValueError for one that
        these models do not all speak."""
        if language is not None and language not in self.languages:
            told = f"language is {language!r}; these models speak {' and '.join(self.languages)}"
            raise ValueError(told)
        return language or self.language

    def phrases_in(self, language: str) -> Mapping[str, Any]:
        """Attribute phrases of a language, to read a sentence back: of the first model that has
        some."""
        found = (thinker.card.speaking(language).attributes for thinker in self.thinkers)
        return next(filter(None, found), {})

    @functools.cached_property
    def level_names(self) -> LevelNames:
        """attribute -> the names of its levels, lowest first, by language."""
        return level_names({each: self.phrases_in(each) for each in self.languages})

    @property
    def drafting(self) -> Callable[..., GenerateDrafter | IncrementalDrafter]:
        """Makes a turn's drafter on the edge, of a listener, rules, sampling and level weights."""
        if self.config.draft == "generate":
            return lambda listener, *_: GenerateDrafter(listener, self._stock_edge)
        return IncrementalDrafter

    @functools.cached_property
    def _stock_edge(self) -> Any:
        directory = self.first.directory
        check_torch(directory, "transformers")
        from streamer.model.engines.load import load_stock

        return load_stock(directory)


def doubts_of(config: Config, card: ModelCard, said: str, cloud: str) -> list[str]:
    """A line if the preset's promise does not cover these options, and one if it was made for
    another cloud model. said: the attributes, as in Rules.form. cloud: the fingerprint of the one
    that verifies, "" while it is not known."""
    promise = card.promises.get(config.preset)
    if promise is None:
        return []
    own = card.presets[config.preset]
    is_other = {
        f"k {config.k}": config.k not in (None, own.k),
        f"threshold {config.threshold}": (config.threshold or 0.0) > own.threshold,
        f"temperature {config.temperature}": config.temperature > 0,
        f"draft {config.draft}": config.draft != "incremental",
        f"attributes {said}": said not in [FORMS[profile] for profile in promise.profiles],
        f"sentences in {card.language}": card.language not in promise.languages,
    }
    lines = []
    if others := [name for name, is_so in is_other.items() if is_so]:
        told = f"the gate's promise was not made for {' and '.join(others)}"
        lines.append(f"{told}; leave that out, or take mode exact to be sure")
    if cloud and promise.fingerprint not in ("", cloud):
        made_for = f"{promise.cloud} {promise.fingerprint}, not {cloud}"
        told = f"the gate's promise was made for another cloud model ({made_for})"
        lines.append(f"{told}; run streamer calibrate")
    return lines
