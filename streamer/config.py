"""The options of a describer: their declarations, their meaning, and contradictions among them.

No torch here: the command line builds a Config before it loads any model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypedDict
from urllib.parse import urlsplit

from streamer.core.attributes import chosen
from streamer.core.declare import ConfigError as ConfigError
from streamer.core.declare import DeviceName, EngineName, check, check_known, option, read_toml
from streamer.core.decoding.plan import Mode, Plan, Preset
from streamer.core.rules.settings import ALL, Rules, Sampling

SENTENCE = "the sentence"
DECODING = "decoding"
MODELS = "models"
ELSEWHERE = "a verifier elsewhere"
DETAILS = (DECODING, MODELS, ELSEWHERE)  # shown by --help-all


@dataclass(frozen=True)
class Config:
    """The options of `streamer describe` and `Describer.open`; docs/options.md lists them.

    None stands for the value of the preset or of the model. Raises ConfigError. Draft "generate" is
    transformers' own: it is greedy, so temperature stays 0, and it follows none of our rules. In
    mode edge the sentence then follows none; verified ids still follow them.
    """

    language: str | None = option(None, SENTENCE, metavar="L", unset="the model's first: zh")
    attributes: str | None = option(None, SENTENCE, metavar="NAMES", unset="all")
    words: Literal["measured", "models"] = option("measured", SENTENCE)
    temperature: float = option(0.0, DECODING, metavar="T")
    top_p: float = option(1.0, DECODING, metavar="P")
    seed: int = option(0, DECODING)
    min_new_tokens: int | None = option(None, DECODING, ge=0, le=128, unset="16 at most")
    max_new_tokens: int = option(96, DECODING, ge=1, le=128)
    mode: Mode = option("gated", DECODING)
    preset: Literal["fluent", "quality"] = option("fluent", DECODING)
    k: int | None = option(None, DECODING, ge=1, le=64, unset="the preset's")
    threshold: float | None = option(None, DECODING, ge=0, unset="the preset's gate")
    draft: Literal["incremental", "generate"] = option("incremental", DECODING)
    edge: str = option("embedded", MODELS, metavar="SPEC")
    cloud: str = option("embedded", MODELS, metavar="SPEC")
    engine: EngineName = option("fast", MODELS)
    device: DeviceName = option("cpu", MODELS)
    cloud_key: str | None = option(
        None, ELSEWHERE, repr=False, metavar="K", unset="STREAMER_CLOUD_KEY, if it is set"
    )
    cloud_audio: Literal["eager", "lazy"] = option("eager", ELSEWHERE)
    verify_budget_s: float | None = option(None, ELSEWHERE, ge=0.05, le=600, unset="by the mode")
    num_slots: int = option(4, None, ge=1, le=256)

    def __post_init__(self) -> None:
        check(self)
        check_engine(self.engine, self.device)
        try:
            self.sampling()
            said = self.said
        except ValueError as error:
            raise ConfigError(str(error)) from None
        if self.is_away and not has_host(self.cloud):
            told = "which names no host, or no port from 1 to 65535; give ws://HOST:PORT"
            raise ConfigError(f"cloud is {self.cloud!r}, {told}")
        if self.cloud == "none" and self.mode in ("exact", "cloud"):
            ways = "give --cloud, or take mode edge or gated"
            raise ConfigError(f"mode {self.mode} needs a cloud model; {ways}")
        least, most = self.min_new_tokens, self.max_new_tokens
        if least is not None and least > most:
            may = f"it may be 0 to {most}, which is max_new_tokens"
            raise ConfigError(f"min_new_tokens is {least}; {may}")
        if self.draft == "generate" and (self.temperature != 0 or said != ALL):
            told = "draft generate is greedy, so without temperature, and names every attribute"
            raise ConfigError(f"{told}; leave both out, or take draft incremental")

    @property
    def said(self) -> str:
        """The attributes that sentences name, as in Rules.form. Raises ValueError."""
        return chosen(self.attributes)

    @property
    def is_away(self) -> bool:
        """Whether a verifier elsewhere holds the cloud model."""
        return self.cloud.startswith(("ws://", "wss://"))

    @property
    def loads_edge(self) -> bool:
        """Whether the mode needs an edge here. Beside a verifier it is there for its vocabulary."""
        return self.mode != "cloud" or self.is_away

    @property
    def loads_cloud(self) -> bool:
        """Whether the mode needs a cloud model that is loaded here."""
        return self.mode != "edge" and self.cloud != "none" and not self.is_away

    def sampling(self) -> Sampling:
        return Sampling(temperature=self.temperature, top_p=self.top_p, seed=self.seed)

    def plan(self, preset: Preset) -> Plan:
        """How an answer is decoded; `preset` fills in what is None here."""
        most, least = self.max_new_tokens, self.min_new_tokens
        mode: Mode = "edge" if self.cloud == "none" and self.mode == "gated" else self.mode
        rules = Rules(min_new_tokens=min(16, most) if least is None else least, max_new_tokens=most)
        return Plan(
            mode=mode,
            k=self.k or preset.k,
            threshold=preset.threshold if self.threshold is None else self.threshold,
            rules=rules.saying(self.said),
            verify_budget_s=self.verify_budget_s or (5.0 if mode == "gated" else 30.0),
            grows=mode == "exact" and self.k is None,
        )

    def for_jobs(self, jobs: int) -> Config:
        """With KV slots for `jobs` recordings, each with a part to prefill and one to answer."""
        return replace(self, num_slots=max(self.num_slots, 2 * jobs))

    @classmethod
    def of(cls, config: Config | str | Path | None, options: Mapping[str, Any]) -> Config:
        """From a Config, the path of a TOML pipeline, or keywords. Raises ConfigError."""
        if config is not None and options:
            raise ConfigError("give a config or keywords, not both")
        if isinstance(config, str | Path):
            return cls.from_toml(config)
        check_known(options, cls)
        return config or cls(**options)

    @classmethod
    def from_toml(cls, path: str | Path) -> Config:
        """From a pipeline file. Raises ConfigError."""
        return read_toml(path, lambda options: cls.of(None, options))


def check_engine(engine: str, device: str) -> None:
    """Raises ConfigError for an engine that does not run on `device`."""
    if engine in ("stable", "int8", "int4") and device != "cpu":
        raise ConfigError(f"engine {engine} is for the CPU only; take --device cpu, or engine fast")


def has_host(url: str) -> bool:
    """Whether `url` names a host, and no impossible port."""
    try:
        parts = urlsplit(url)
        (parts.hostname or "").encode("idna")
        return bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is no number or too large, a part of a name that is too long
        return False


class Options(TypedDict, total=False):
    """The fields of Config as keywords, for completion and type checkers. A test compares them."""

    language: str | None
    attributes: str | None
    words: Literal["measured", "models"]
    temperature: float
    top_p: float
    seed: int
    min_new_tokens: int | None
    max_new_tokens: int
    mode: Mode
    preset: Literal["fluent", "quality"]
    k: int | None
    threshold: float | None
    draft: Literal["incremental", "generate"]
    edge: str
    cloud: str
    engine: EngineName
    device: DeviceName
    cloud_key: str | None
    cloud_audio: Literal["eager", "lazy"]
    verify_budget_s: float | None
    num_slots: int
