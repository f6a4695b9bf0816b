"""All options of a describer, frozen. In: keywords or a TOML file. Out: a checked Config.

No torch here: the command line builds one before any model is loaded.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from streamer.core.decoding.gate import Gate, Preset
from streamer.core.decoding.plan import MODES, Mode, Plan
from streamer.core.rules.sampling import Sampling
from streamer.core.rules.settings import Rules

PRESET_NAMES = ("fluent", "quality")
CLOUD_AUDIO = ("eager", "lazy")
DRAFTERS = ("incremental", "generate")
ENGINES = ("fast", "stable", "int8", "stock")
DEVICES = ("cpu", "cuda")
MIN_NEW_TOKENS = 16
GATED_BUDGET_S = 5.0
EXACT_BUDGET_S = 30.0
NAMED = {
    "mode": MODES,
    "preset": PRESET_NAMES,
    "draft": DRAFTERS,
    "engine": ENGINES,
    "device": DEVICES,
    "cloud_audio": CLOUD_AUDIO,
}
VERIFIER_SCHEMES = ("ws://", "wss://")  # a cloud that starts so is a verifier elsewhere
# of each option; None beside them where None is its default
TYPES: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("mode", "preset", "edge", "cloud", "draft", "engine", "device"), (str,)),
    **dict.fromkeys(("cloud_key", "cloud_ca", "cloud_audio"), (str,)),
    **dict.fromkeys(
        ("k", "seed", "min_new_tokens", "max_new_tokens", "num_slots", "draft_ahead"), (int,)
    ),
    **dict.fromkeys(("threshold", "temperature", "top_p", "verify_budget_s"), (int, float)),
    "degrade": (bool,),
    "rules": (Rules,),
}


class ConfigError(ValueError):
    """An option cannot be used; one line that names it and the way out."""


@dataclass(frozen=True)
class Config:
    """What `streamer describe` and `Describer.open` take. None: the preset's, or the model's own,
    value.

    draft "generate" is transformers' own: greedy, so temperature stays 0, and by none of our rules.
    In mode edge the sentence then follows none; verified ids still follow them.
    """

    mode: Mode = "gated"
    preset: str = "fluent"
    k: int | None = None  # draft length
    threshold: float | None = None  # the gate's entropy, nats
    edge: str = "embedded"  # SPEC: embedded, a local directory, a hub id
    cloud: str = "embedded"  # SPEC, ws://HOST:PORT of a verifier elsewhere, or "none"
    cloud_key: str | None = field(default=None, repr=False)  # its API key
    # PEM file of the authority that signed a wss:// verifier's certificate
    cloud_ca: str | None = None
    # sent while someone speaks, or when a verdict is first wanted
    cloud_audio: Literal["eager", "lazy"] = "eager"
    # for a verdict: gated 5 s, then it goes on unverified; exact, cloud 30 s
    verify_budget_s: float | None = None
    # ids drafted while a verdict of a verifier elsewhere is on its way; 0: wait for each
    draft_ahead: int = 48
    degrade: bool = False  # exact goes on unverified, too, instead of ending with an error
    draft: Literal["incremental", "generate"] = "incremental"
    # stable: the same bits whatever a step holds, for models too large for the compiled
    # kernels, which always are so; int8: 8-bit weights; stock: transformers' own modules, for
    # comparison
    engine: Literal["fast", "stable", "int8", "stock"] = "fast"
    # of both models; cuda: bf16, the first GPU of CUDA_VISIBLE_DEVICES
    device: Literal["cpu", "cuda"] = "cpu"
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int = 0
    # ids of the sentence at least: 16, or max_new_tokens where that is less
    min_new_tokens: int | None = None
    max_new_tokens: int = 96  # 1 to 128, what the repetition penalty looks back on
    num_slots: int = 4  # KV slots per model: turns that may be in hand at once
    # replaces the default rules; the two token bounds above are put into it
    rules: Rules | None = None

    def __post_init__(self) -> None:
        self._check_types()
        self._check_names()
        self._check_numbers()
        if self.cloud == "none" and self.mode in ("exact", "cloud"):
            raise ConfigError(
                f"mode {self.mode} needs a cloud model; give --cloud, or take mode edge or gated"
            )
        if self.engine in ("stable", "int8") and self.device != "cpu":
            raise ConfigError(
                f"engine {self.engine} is for the CPU only; take --device cpu, or engine fast"
            )
        if self.draft == "generate" and self.device != "cpu":
            raise ConfigError(
                "draft generate runs on the CPU only; take --device cpu, or draft incremental"
            )
        if self.draft == "generate" and self.temperature != 0:
            ways = "leave it at 0, or take draft incremental"
            raise ConfigError(
                f"temperature is {self.temperature}, but draft generate is greedy; {ways}"
            )
        try:
            self.sampling()
        except ValueError as error:
            raise ConfigError(str(error)) from None

    def _check_names(self) -> None:
        for name, known in NAMED.items():
            if (value := getattr(self, name)) not in known:
                raise ConfigError(f"{name} is {value!r}; choose one of {', '.join(known)}")
        for name in ("edge", "cloud"):
            # as a path it would be the current directory
            if not (spec := getattr(self, name)).strip():
                raise ConfigError(
                    f"{name} is {spec!r}; give embedded, a model directory or a hub id"
                )

        for scheme, ours in (("http://", "ws://"), ("https://", "wss://")):
            if self.cloud.startswith(scheme):
                raise ConfigError(
                    f"cloud is {self.cloud!r}; a verifier elsewhere is {ours}HOST:PORT"
                )
        if self.cloud.startswith(VERIFIER_SCHEMES) and not _has_host(self.cloud):
            raise ConfigError(
                f"cloud is {self.cloud!r}, which names no host, or no port from 1 to 65535; give ws://HOST:PORT"
            )

    def _check_numbers(self) -> None:
        if self.k is not None and not 1 <= self.k <= 64:
            raise ConfigError(f"k is {self.k}; the draft length is 1 to 64 ids")
        if self.threshold is not None and not self.threshold >= 0:
            raise ConfigError(
                f"threshold is {self.threshold}; the gate's entropy is in nats, 0 or more"
            )
        if not 1 <= self.max_new_tokens <= 128:
            raise ConfigError(f"max_new_tokens is {self.max_new_tokens}; it may be 1 to 128")
        if self.min_new_tokens is not None and not 0 <= self.min_new_tokens <= self.max_new_tokens:
            raise ConfigError(
                f"min_new_tokens is {self.min_new_tokens}; it may be 0 to {self.max_new_tokens}"
            )
        if self.verify_budget_s is not None and not 0.05 <= self.verify_budget_s <= 600:
            raise ConfigError(f"verify_budget_s is {self.verify_budget_s:g}; it may be 0.05 to 600")
        if not 0 <= self.draft_ahead <= 128:
            raise ConfigError(f"draft_ahead is {self.draft_ahead}; it may be 0 to 128 ids")
        if not 1 <= self.num_slots <= 256:
            raise ConfigError(f"num_slots is {self.num_slots}; it may be 1 to 256")

    def _check_types(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            kinds = TYPES[each.name]
            if value is None and each.default is None:
                continue
            if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
                wanted = " or ".join(kind.__name__ for kind in kinds)
                raise ConfigError(
                    f"{each.name} is {value!r}, the wrong type; give a value of type {wanted}"
                )

    def sampling(self) -> Sampling:
        """The chance of this run."""
        return Sampling(temperature=self.temperature, top_p=self.top_p, seed=self.seed)

    def plan(self, preset: Preset) -> Plan:
        """How an answer is decoded, `preset` filling what was left open."""
        gate = preset.gate
        # in place of the preset's entropy, or of whatever signal it has instead
        if self.threshold is not None:
            gate = (
                Gate(entropy=self.threshold)
                if gate.entropy is None
                else replace(gate, entropy=self.threshold)
            )
        least = (
            min(MIN_NEW_TOKENS, self.max_new_tokens)
            if self.min_new_tokens is None
            else self.min_new_tokens
        )
        rules = replace(
            self.rules or Rules(), min_new_tokens=least, max_new_tokens=self.max_new_tokens
        )
        mode: Mode = "edge" if self.cloud == "none" and self.mode == "gated" else self.mode
        budget_s = self.verify_budget_s or (GATED_BUDGET_S if mode == "gated" else EXACT_BUDGET_S)
        k = self.k or preset.k
        return Plan(
            mode=mode, k=k, gate=gate, rules=rules, verify_budget_s=budget_s, degrade=self.degrade
        )

    @classmethod
    def from_mapping(cls, options: Mapping[str, Any]) -> Config:
        """From keywords. Raises ConfigError for an unknown or ill-typed one."""
        known = {each.name for each in fields(cls)}
        for name in options:
            if name not in known:
                raise ConfigError(f"unknown option {name!r}; known are {', '.join(sorted(known))}")
        return cls(**options)

    @classmethod
    def from_toml(cls, path: str | Path) -> Config:
        """From a pipeline file. Raises ConfigError."""
        try:
            with open(path, "rb") as file:
                options = tomllib.load(file)
        except OSError as error:
            raise ConfigError(f"{path}: cannot be read ({error.strerror})") from None
        # TOML's own errors, UTF-8's, Python's limits
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"{path}: is not TOML ({error})") from None
        try:
            return cls.from_mapping(options)
        except ConfigError as error:
            raise ConfigError(f"{path}: {error}") from None


def _has_host(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return bool((parts.hostname or "").encode("idna")) and parts.port != 0
    except ValueError:  # a port that is no number, or none of a computer's; a name that is none
        return False
