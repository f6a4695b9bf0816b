"""The options of a describer as keywords, for completion and for type checkers."""

from __future__ import annotations

from typing import Literal, TypedDict

from streamer.core.attributes import Profile
from streamer.core.declare import DeviceName, EngineName
from streamer.core.decoding.plan import Mode
from streamer.core.rules.settings import Rules


class Options(TypedDict, total=False):
    """The fields of Config, which explains them. A test holds the two to each other."""

    language: str | None
    attributes: str | None
    words: Literal["measured", "models"]
    profile: Profile
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
    cloud_ca: str | None
    cloud_audio: Literal["eager", "lazy"]
    verify_budget_s: float | None
    degrade: bool
    num_slots: int
    draft_ahead: int
    rules: Rules | None
