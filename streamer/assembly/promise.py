"""Warnings where the gate's promise was made for other options or another cloud model.

A promise is checked against the cloud model only if it names that model's fingerprint.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from streamer.config import Config
from streamer.core.attributes import chosen

if TYPE_CHECKING:
    from streamer.model.checkpoint.card import ModelCard


class PromiseWarning(UserWarning):
    """The gate's risk was certified for something else: one line with the way out."""


def warn_of_options(config: Config, card: ModelCard) -> None:
    """Warn where options differ from those that the preset's promise was made for."""
    if config.mode != "gated" or config.preset not in card.promises:
        return
    own = card.presets[config.preset]
    if config.k not in (None, own.k):
        _warn(f"k {own.k}, not {config.k}; leave k out")
    if config.temperature > 0:
        _warn("greedy decoding; leave temperature out")
    if config.draft != "incremental":
        _warn("our own drafter; leave draft out")
    if config.threshold not in (None, own.gate.entropy):
        _warn(
            f"another threshold than {config.threshold:g}; leave threshold out, or run streamer "
            "calibrate"
        )


def warn_of_attributes(config: Config, card: ModelCard, said: str) -> None:
    """Warn where the promise was proven with other attributes. said: as Rules.form has them."""
    promise = card.promises.get(config.preset)
    if config.mode != "gated" or promise is None:
        return
    proven = {profile: chosen(None, profile) for profile in promise.profiles}
    if said not in proven.values():
        profiles = " and ".join(proven)
        _warn(f"sentences of profile {profiles}, not for {said} alone; take mode exact to be sure")


def warn_of_cloud(config: Config, card: ModelCard, fingerprint: str) -> None:
    """Warn where another cloud model verifies. fingerprint: of the one that does."""
    promise = card.promises.get(config.preset)
    if config.mode != "gated" or promise is None or promise.fingerprint in ("", fingerprint):
        return
    _warn(
        f"another cloud model ({promise.cloud} {promise.fingerprint}, not {fingerprint}); run "
        "streamer calibrate"
    )


def _warn(made_for: str) -> None:
    warnings.warn(f"the gate's promise was made for {made_for}", PromiseWarning, stacklevel=4)
