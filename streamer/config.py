"""All options of a describer, frozen. In: keywords or a TOML file. Out: a checked Config.

No torch here: the command line builds one before any model is loaded.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal

from streamer.core.choice import Sampling
from streamer.core.gate import Preset
from streamer.core.rules import Rules
from streamer.core.speculate import MODES, Mode, Plan

PRESET_NAMES = ("fluent", "quality")
DRAFTERS = ("incremental", "generate")


class ConfigError(ValueError):
    """An option cannot be used; one line that names it and the way out."""


@dataclass(frozen=True)
class Config:
    """What `streamer describe` and `Describer.open` take. None: the preset's, or the model's own, value."""

    mode: Mode = "gated"
    preset: str = "fluent"
    k: int | None = None  # draft length
    threshold: float | None = None  # the gate's entropy, nats
    edge: str = "embedded"  # SPEC: embedded, a local directory, a hub id
    cloud: str = "embedded"  # SPEC or "none"
    draft: Literal["incremental", "generate"] = "incremental"
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int = 0
    min_new_tokens: int = 16
    max_new_tokens: int = 96
    num_slots: int = 4  # KV slots per model: turns that may be in hand at once
    rules: Rules | None = None  # replaces the default rules; the two token bounds above are put into it

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise ConfigError(f"mode is {self.mode!r}; choose one of {', '.join(MODES)}")
        if self.preset not in PRESET_NAMES:
            raise ConfigError(f"preset is {self.preset!r}; choose one of {', '.join(PRESET_NAMES)}")
        if self.draft not in DRAFTERS:
            raise ConfigError(f"draft is {self.draft!r}; choose one of {', '.join(DRAFTERS)}")
        if self.k is not None and not 1 <= self.k <= 64:
            raise ConfigError(f"k is {self.k}; the draft length is 1 to 64 ids")
        if self.threshold is not None and not self.threshold >= 0:
            raise ConfigError(f"threshold is {self.threshold}; the gate's entropy is in nats, 0 or more")
        if not 1 <= self.max_new_tokens <= 128:
            raise ConfigError(f"max_new_tokens is {self.max_new_tokens}; it may be 1 to 128")
        if not 0 <= self.min_new_tokens <= self.max_new_tokens:
            raise ConfigError(f"min_new_tokens is {self.min_new_tokens}; it may be 0 to {self.max_new_tokens}")
        if not 1 <= self.num_slots <= 256:
            raise ConfigError(f"num_slots is {self.num_slots}; it may be 1 to 256")
        if self.cloud.startswith(("ws://", "wss://")):
            raise ConfigError(f"cloud is {self.cloud!r}; this version verifies in process only: give a model or none")
        if self.cloud == "none" and self.mode in ("exact", "cloud"):
            raise ConfigError(f"mode {self.mode} needs a cloud model; give --cloud, or take mode edge or gated")
        try:
            self.sampling()
        except ValueError as error:
            raise ConfigError(str(error)) from None

    def sampling(self) -> Sampling:
        """The chance of this run."""
        return Sampling(temperature=self.temperature, top_p=self.top_p, seed=self.seed)

    def plan(self, preset: Preset) -> Plan:
        """How an answer is decoded, `preset` filling what was left open."""
        gate = preset.gate if self.threshold is None else replace(preset.gate, entropy=self.threshold)
        rules = replace(
            self.rules or Rules(), min_new_tokens=self.min_new_tokens, max_new_tokens=self.max_new_tokens
        )
        mode: Mode = "edge" if self.cloud == "none" and self.mode == "gated" else self.mode
        return Plan(mode=mode, k=self.k or preset.k, gate=gate, rules=rules)

    @classmethod
    def from_mapping(cls, options: Mapping[str, Any]) -> Config:
        """From keywords. Raises ConfigError for an unknown or ill-typed one."""
        known = {field.name for field in fields(cls)}
        for name in options:
            if name not in known:
                raise ConfigError(f"unknown option {name!r}; known are {', '.join(sorted(known))}")
        try:
            return cls(**options)
        except (TypeError, AttributeError) as error:
            raise ConfigError(f"an option has the wrong type: {error}") from None

    @classmethod
    def from_toml(cls, path: str | Path) -> Config:
        """From a pipeline file. Raises ConfigError."""
        try:
            with open(path, "rb") as file:
                return cls.from_mapping(tomllib.load(file))
        except OSError as error:
            raise ConfigError(f"{path}: cannot be read ({error.strerror})") from None
        except tomllib.TOMLDecodeError as error:
            raise ConfigError(f"{path}: is not TOML ({error})") from None
