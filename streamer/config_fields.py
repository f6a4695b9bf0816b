"""The options of a describer, each declared once (core/declare.py): keywords, keys of a pipeline
file, the command line. What they mean is config.py's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from streamer.core.attributes import Profile
from streamer.core.choices import DeviceName, EngineName
from streamer.core.declare import Group, option
from streamer.core.decoding.plan import Mode
from streamer.core.rules.settings import Rules

DECODING = Group("decoding", "--mode exact --k 6")
MODELS = Group("models", "--edge myedge --engine stable")
SENTENCE = Group("the sentence", "--temperature 0.7 --seed 3")
ELSEWHERE = Group("a verifier elsewhere", "--cloud ws://127.0.0.1:8766 --degrade")


@dataclass(frozen=True)
class ConfigFields:
    """Of Config, which checks them. docs/options.md lists every one."""

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
