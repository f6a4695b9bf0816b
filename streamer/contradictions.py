"""Options that cannot both be meant. In: what the command line gave, a pipeline. Out: a Config.

Refused is only what would quietly not happen: audio that does not go where it was sent, a key that
nobody is shown. An option that has nothing to do in one mode (--k in cloud, --cloud in edge) is
allowed, since scripts try the modes in turn.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from streamer.config import Config, ConfigError
from streamer.core.declare import flag_of

OF_A_VERIFIER = ("cloud_key", "cloud_ca", "cloud_audio", "draft_ahead")


def combined(pipeline: str | None, given: Mapping[str, Any]) -> Config:
    """A pipeline file, or the defaults, with the options `given` over it. Raises ConfigError."""
    config = Config.from_toml(pipeline) if pipeline else Config()
    config = replace(config, **given)
    check_given(given, config)
    return config


def check_given(given: Mapping[str, Any], config: Config) -> None:
    """Raises ConfigError where an option of `given` has no effect under `config`."""
    for name in OF_A_VERIFIER:
        if name in given and not config.is_away:
            told = "is for a verifier elsewhere, and none is named; give --cloud ws://HOST:PORT"
            raise ConfigError(f"{flag_of(name)} {told}")
    if "cloud_ca" in given and not config.cloud.startswith("wss://"):
        raise ConfigError(
            f"--cloud-ca is for wss://, but --cloud is {config.cloud}; one of the two is wrong"
        )
