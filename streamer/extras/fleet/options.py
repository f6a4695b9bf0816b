"""The options of `streamer fleet` and `streamer director`, and the tables of fleet.toml."""

from __future__ import annotations

from dataclasses import dataclass

from streamer.commands.options import Checked
from streamer.commands.service_options import ListenOptions
from streamer.config import ConfigError, has_host
from streamer.core.declare import REQUIRED, Group, option, same

REPLICAS = Group("whom it sends clients to", "--replicas ws://127.0.0.1:8765")
FLEET = Group("the fleet", "--config pipelines/fleet.toml")
REPLICA_SCHEMES = ("ws://", "wss://", "http://", "https://")
LOCAL = "local"


@dataclass(frozen=True, kw_only=True)
class DirectorOptions(ListenOptions):
    """Of `streamer director`, and the table [director] of fleet.toml."""

    port: int = same(ListenOptions, "port", 8764)
    replicas: tuple[str, ...] = option(
        (),
        REPLICAS,
        "ws://HOST:PORT of a replica, again for each; or http://HOST:PORT of another director, "
        "whose list is followed",
        "ws://10.0.0.7:8765",
        metavar="URL",
    )
    ca: str | None = option(
        None,
        REPLICAS,
        "PEM file of the authority that signed the replicas' certificates",
        "chain.pem",
        metavar="FILE",
        unset="the system's",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        for url in self.replicas:
            if not url.startswith(REPLICA_SCHEMES) or not has_host(url):
                told = "give ws://HOST:PORT of a replica, or http://HOST:PORT of a director"
                raise ConfigError(f"--replicas is {url!r}; {told}")


@dataclass(frozen=True, kw_only=True)
class FleetOptions(Checked):
    """Of `streamer fleet`."""

    config: str = option(
        REQUIRED, FLEET, "what runs, and how many of it", "pipelines/fleet.toml", metavar="FILE"
    )
    down: bool = option(False, FLEET, "drain and end the replicas of a cluster, then exit")


@dataclass(frozen=True, kw_only=True)
class RayOptions(Checked):
    """The table [ray] of fleet.toml."""

    address: str = option(
        LOCAL, None, "local: a Ray of our own, on this machine; auto, or HOST:PORT: a cluster's"
    )
    namespace: str = option("streamer", None, "of the replicas' names there")


@dataclass(frozen=True, kw_only=True)
class PlacingOptions(Checked):
    """How many replicas of one kind, and what each needs: in [server] and in [verifier], beside
    the options of `streamer serve` and `streamer verifier`."""

    least: int = option(1, None, "replicas at least", low=0, high=1000)
    most: int = option(1, None, "replicas at most", low=1, high=1000)
    first_port: int = option(
        9100, None, "port of the first; the next one's is one higher", low=1, high=65_535
    )
    cpus: float = option(1.0, None, "processors that Ray keeps for each", low=0)
    gpus: float = option(0.0, None, "GPUs that Ray keeps for each", low=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.least > self.most:
            raise ConfigError(f"least is {self.least}; it may be at most {self.most}, as most says")
        if self.gpus > 1 and self.gpus % 1:
            told = "Ray shares one GPU, and keeps more of them whole"
            raise ConfigError(f"gpus is {self.gpus:g}; {told}: give up to 1, or a whole number")


@dataclass(frozen=True, kw_only=True)
class ScalingOptions(Checked):
    """The table [scaling] of fleet.toml."""

    up_at: float = option(
        0.75, None, "share of the places taken from which more replicas are wanted", low=0, high=1
    )
    down_at: float = option(
        0.4, None, "share that may be taken of those that would stay, else none goes", low=0, high=1
    )
    lag_s: float = option(
        1.0, None, "seconds of speech unheard, of the median replica; above it one more", low=0
    )
    up_pause_s: float = option(10.0, None, "between two times that replicas are added", low=0)
    down_pause_s: float = option(
        60.0, None, "so long fewer must have been wanted, each time", low=0
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.down_at < self.up_at:
            told = "else replicas would come and go at one load"
            raise ConfigError(f"down_at is {self.down_at:g}; it must be below up_at, {told}")


TABLES = {
    "[ray]": RayOptions,
    "[server] and [verifier]": PlacingOptions,
    "[scaling]": ScalingOptions,
}
