"""What a describer's options mean. In: keywords, TOML. Out: a checked Config.

No torch here: the command line builds a Config before any model is loaded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from streamer.config_fields import ConfigFields
from streamer.core.attributes import chosen
from streamer.core.declare import ConfigError as ConfigError
from streamer.core.declare import check, check_known, read_toml
from streamer.core.decoding.gate import Gate, Preset
from streamer.core.decoding.plan import Mode, Plan
from streamer.core.rules.sampling import Sampling
from streamer.core.rules.settings import ALL, Rules

MIN_NEW_TOKENS = 16
GATED_BUDGET_S = 5.0
EXACT_BUDGET_S = 30.0
VERIFIER_SCHEMES = ("ws://", "wss://")  # a cloud that starts so is a verifier elsewhere


@dataclass(frozen=True)
class Config(ConfigFields):
    """What `streamer describe` and `Describer.open` take. docs/options.md lists every field.

    None stands for the preset's, or the model's own, value. Raises ConfigError.
    draft "generate" is transformers' own: greedy, so temperature stays 0, and by none of our rules.
    In mode edge the sentence then follows none; verified ids still follow them.
    """

    def __post_init__(self) -> None:
        check(self, is_typed=False)
        self._check_specs()
        self._check_together()
        try:
            self.sampling()
            said = self.said
        except ValueError as error:
            raise ConfigError(str(error)) from None
        if self.draft == "generate" and said != ALL:
            raise ConfigError(
                "draft generate follows no rule, so it names every attribute; take draft "
                "incremental"
            )

    @property
    def said(self) -> str:
        """The attributes that sentences name, as Rules.form has them. Raises ValueError."""
        return chosen(self.attributes, self.profile)

    @property
    def is_away(self) -> bool:
        """Whether a verifier elsewhere holds the cloud model."""
        return self.cloud.startswith(VERIFIER_SCHEMES)

    @property
    def has_cloud_here(self) -> bool:
        """Whether `cloud` names a model that is loaded here, where the mode needs it."""
        return self.cloud != "none" and not self.is_away

    def _check_specs(self) -> None:
        for name in ("edge", "cloud"):
            if not (spec := getattr(self, name)).strip():  # a path to the current directory
                ways = "give embedded, a model directory or a hub id"
                raise ConfigError(f"{name} is {spec!r}; {ways}")
        for scheme, ours in (("http://", "ws://"), ("https://", "wss://")):
            if self.cloud.startswith(scheme):
                told = f"a verifier elsewhere is {ours}HOST:PORT"
                raise ConfigError(f"cloud is {self.cloud!r}; {told}")
        if self.is_away and not has_host(self.cloud):
            told = "which names no host, or no port from 1 to 65535; give ws://HOST:PORT"
            raise ConfigError(f"cloud is {self.cloud!r}, {told}")

    def _check_together(self) -> None:
        if self.cloud == "none" and self.mode in ("exact", "cloud"):
            raise ConfigError(
                f"mode {self.mode} needs a cloud model; give --cloud, or take mode edge or gated"
            )
        check_engine(self.engine, self.device)
        if self.draft == "generate" and self.device != "cpu":
            raise ConfigError(
                "draft generate runs on the CPU only; take --device cpu, or draft incremental"
            )
        if self.draft == "generate" and self.temperature != 0:
            ways = "leave it at 0, or take draft incremental"
            raise ConfigError(
                f"temperature is {self.temperature}, but draft generate is greedy; {ways}"
            )
        if self.min_new_tokens is not None and self.min_new_tokens > self.max_new_tokens:
            raise ConfigError(
                f"min_new_tokens is {self.min_new_tokens}; it may be 0 to {self.max_new_tokens}, "
                "which is max_new_tokens"
            )

    def sampling(self) -> Sampling:
        """The chance of this run."""
        return Sampling(temperature=self.temperature, top_p=self.top_p, seed=self.seed)

    def plan(self, preset: Preset) -> Plan:
        """How an answer is decoded, `preset` filling what was left open."""
        gate = preset.gate
        if self.threshold is not None:  # in place of whatever signal the preset looks at
            gate = replace(Gate() if gate.entropy is None else gate, entropy=self.threshold)
        most, least = self.max_new_tokens, self.min_new_tokens
        if least is None:
            least = min(MIN_NEW_TOKENS, most)
        rules = replace(self.rules or Rules(), min_new_tokens=least, max_new_tokens=most)
        mode: Mode = "edge" if self.cloud == "none" and self.mode == "gated" else self.mode
        budget_s = self.verify_budget_s or (GATED_BUDGET_S if mode == "gated" else EXACT_BUDGET_S)
        return Plan(
            mode=mode,
            k=self.k or preset.k,
            gate=gate,
            rules=rules.saying(self.said),
            verify_budget_s=budget_s,
            degrade=self.degrade,
        )

    def for_jobs(self, jobs: int) -> Config:
        """With KV slots for `jobs` recordings: of each one part is heard, another answered."""
        return replace(self, num_slots=max(self.num_slots, 2 * jobs))

    @classmethod
    def of(cls, config: Config | str | Path | None, options: Mapping[str, Any]) -> Config:
        """From a Config, the path of a TOML pipeline, or keywords. Raises ConfigError."""
        if config is not None and options:
            raise ConfigError("give a config or keywords, not both")
        if isinstance(config, str | Path):
            return cls.from_toml(config)
        return config or cls.from_mapping(options)

    @classmethod
    def from_mapping(cls, options: Mapping[str, Any]) -> Config:
        """From keywords. Raises ConfigError for an unknown or ill-typed one."""
        check_known(options, cls)
        return cls(**options)

    @classmethod
    def from_toml(cls, path: str | Path) -> Config:
        """From a pipeline file. Raises ConfigError."""

        def of(options: dict[str, Any]) -> Config:
            if "rules" in options:
                ways = "give max_new_tokens, min_new_tokens or attributes, or use the Python API"
                raise ConfigError(f"rules is no key of a file; {ways}")
            return cls.from_mapping(options)

        return read_toml(path, of)


def check_engine(engine: str, device: str) -> None:
    """Raises ConfigError for an engine that `device` does not run."""
    if engine in ("stable", "int8", "int4") and device != "cpu":
        raise ConfigError(f"engine {engine} is for the CPU only; take --device cpu, or engine fast")


def has_host(url: str) -> bool:
    """Whether it names one, and no port that cannot be."""
    try:
        parts = urlsplit(url)
        return bool((parts.hostname or "").encode("idna")) and parts.port != 0
    except ValueError:  # a port that is no number, or none of a computer's; a name that is none
        return False
