"""The options of a describer, each declared once. In: keywords, TOML. Out: a checked Config.

No torch here: the command line builds a Config before any model is loaded.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from streamer.core.attributes import Profile, chosen
from streamer.core.choices import DeviceName, EngineName
from streamer.core.decoding.gate import Gate, Preset
from streamer.core.decoding.plan import Mode, Plan
from streamer.core.rules.sampling import Sampling
from streamer.core.rules.settings import ALL, Rules
from streamer.options import ConfigError as ConfigError
from streamer.options import Group, check, check_known, option

MIN_NEW_TOKENS = 16
GATED_BUDGET_S = 5.0
EXACT_BUDGET_S = 30.0
VERIFIER_SCHEMES = ("ws://", "wss://")  # a cloud that starts so is a verifier elsewhere

DECODING = Group("decoding", "--mode exact --k 6")
MODELS = Group("models", "--edge myedge --engine stable")
SENTENCE = Group("the sentence", "--temperature 0.7 --seed 3")
ELSEWHERE = Group("a verifier elsewhere", "--cloud ws://127.0.0.1:8766 --degrade")


@dataclass(frozen=True)
class Config:
    """What `streamer describe` and `Describer.open` take. docs/options.md lists every field.

    None stands for the preset's, or the model's own, value. Raises ConfigError.
    draft "generate" is transformers' own: greedy, so temperature stays 0, and by none of our rules.
    In mode edge the sentence then follows none; verified ids still follow them.
    """

    mode: Mode = option(
        "gated",
        DECODING,
        "gated: the cloud verifies where the edge is unsure; exact: it verifies every block; "
        "edge, cloud: that model works alone",
        "exact",
    )
    preset: Literal["fluent", "quality"] = option(
        "fluent",
        DECODING,
        "fluent: short drafts, few of them verified; quality: longer drafts, more verified",
        "quality",
    )
    k: int | None = option(
        None, DECODING, "tokens of a draft", "6", low=1, high=64, unset="the preset's"
    )
    threshold: float | None = option(
        None,
        DECODING,
        "verify drafts with more entropy than this, in nats",
        "0.5",
        low=0,
        unset="the preset's gate",
    )
    draft: Literal["incremental", "generate"] = option(
        "incremental",
        DECODING,
        "how the edge drafts. generate is transformers' own, for comparison: slow, greedy "
        "(temperature 0 only) and by none of our rules, so in mode edge the sentence follows "
        "none; verified ids still follow them",
        "generate",
    )
    edge: str = option(
        "embedded", MODELS, "embedded, a model directory, or a hub id", "myedge", metavar="SPEC"
    )
    cloud: str = option(
        "embedded",
        MODELS,
        "embedded, a model directory, a hub id, ws://HOST:PORT or wss://HOST:PORT of a "
        "`streamer verifier`, or none",
        "ws://127.0.0.1:8766",
        metavar="SPEC",
    )
    engine: EngineName = option(
        "fast",
        MODELS,
        "fast: compiled kernels or torch, whichever was measured to be faster here. For large "
        "models, stable: exact equals cloud to the last bit, slower; int8, int4: the same with 8 "
        "or 4 bits per weight, faster and smaller; stock: transformers' modules, for comparison, "
        "slow",
        "stable",
    )
    device: DeviceName = option(
        "cpu", MODELS, "cpu, or cuda: both models in bf16 on the first GPU", "cuda"
    )
    temperature: float = option(
        0.0,
        SENTENCE,
        "chance in the choice of words, to 1000000; 0 is none (greedy)",
        "0.7",
        metavar="T",
    )
    top_p: float = option(
        1.0,
        SENTENCE,
        "sample within this share of the probability; 1 is all of it",
        "0.9",
        metavar="P",
    )
    seed: int = option(0, SENTENCE, "the same seed gives the same sentence", "3")
    min_new_tokens: int | None = option(
        None,
        SENTENCE,
        "tokens of a sentence at least",
        "8",
        low=0,
        high=128,
        unset="16, or the maximum where that is less",
    )
    max_new_tokens: int = option(
        96, SENTENCE, "tokens of a sentence at most", "48", low=1, high=128
    )
    attributes: str | None = option(
        None,
        SENTENCE,
        "attributes that the sentence names, and no other, with commas between them",
        "rate,pitch",
        metavar="NAMES",
        unset="all of the profile",
    )
    profile: Profile = option(
        "full", SENTENCE, "acoustic: no word on arousal, which is nearest to a feeling", "acoustic"
    )
    cloud_key: str | None = option(
        None,
        ELSEWHERE,
        "API key of the verifier",
        "secret",
        metavar="K",
        unset="STREAMER_CLOUD_KEY, if it is set",
        repr=False,
    )
    cloud_ca: str | None = option(
        None,
        ELSEWHERE,
        "PEM file of the authority that signed a wss:// verifier's certificate",
        "chain.pem",
        metavar="FILE",
        unset="the system's",
    )
    cloud_audio: Literal["eager", "lazy"] = option(
        "eager",
        ELSEWHERE,
        "eager: audio goes to the verifier while someone speaks; lazy: when a verdict is first "
        "wanted",
        "lazy",
    )
    verify_budget_s: float | None = option(
        None,
        ELSEWHERE,
        "seconds for a verdict; then gated goes on unverified, and exact and cloud end with an "
        "error",
        "2",
        low=0.05,
        high=600,
        unset="5 in gated, 30 in exact and cloud",
    )
    draft_ahead: int = option(
        48,
        ELSEWHERE,
        "tokens drafted while a verdict is on its way; 0 waits for each",
        "0",
        low=0,
        high=128,
    )
    degrade: bool = option(
        False, ELSEWHERE, "exact goes on unverified instead of ending with an error"
    )
    num_slots: int = option(
        4, None, "KV slots per model: how many turns may be in hand at once", "8", low=1, high=256
    )
    rules: Rules | None = option(
        None,
        None,
        "rules of the sentence in place of the default ones (Python only)",
        metavar="Rules",
    )

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

    def _check_specs(self) -> None:
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
            mode=mode,
            k=k,
            gate=gate,
            rules=rules.saying(self.said),
            verify_budget_s=budget_s,
            degrade=self.degrade,
        )

    def for_jobs(self, jobs: int) -> Config:
        """The same with KV slots for `jobs` recordings at once: of each, one part is heard while
        another is answered."""
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
        try:
            with open(path, "rb") as file:
                options = tomllib.load(file)
        except OSError as error:
            raise ConfigError(f"{path}: cannot be read ({error.strerror})") from None
        # TOML's own errors, UTF-8's, Python's limits
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"{path}: is not TOML ({error})") from None
        try:
            if "rules" in options:
                ways = "give max_new_tokens, min_new_tokens or attributes, or use the Python API"
                raise ConfigError(f"rules is no key of a file; {ways}")
            return cls.from_mapping(options)
        except ConfigError as error:
            raise ConfigError(f"{path}: {error}") from None


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
