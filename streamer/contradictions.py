"""Options that cannot both be meant. In: what the command line gave, the config it led to. Out:
nothing, or one line.

Only what would quietly not happen is refused: audio that does not go where it was sent, a key that
nobody is shown. That an option has nothing to do in one mode (--k in cloud, --cloud in edge) is no
contradiction: scripts try the modes in turn.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streamer.config import VERIFIER_SCHEMES, Config, ConfigError

OF_A_VERIFIER = ("cloud_key", "cloud_ca", "cloud_audio", "draft_ahead")


def check_given(given: Mapping[str, Any], config: Config) -> None:
    """Raises ConfigError where an option of `given` has no effect under `config`, a pipeline's
    options included."""
    is_away = config.cloud.startswith(VERIFIER_SCHEMES)
    for name in OF_A_VERIFIER:
        if name in given and not is_away:
            option = "--" + name.replace("_", "-")
            raise ConfigError(
                f"{option} is for a verifier elsewhere, and none is named; give --cloud ws://HOST:PORT"
            )
    if "cloud_ca" in given and not config.cloud.startswith("wss://"):
        raise ConfigError(
            f"--cloud-ca is for wss://, but --cloud is {config.cloud}; one of the two is wrong"
        )
