"""The options of `streamer fleet` and `streamer director`, and the tables of fleet.toml."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from streamer.commands.service_options import ListenOptions, Port
from streamer.config import ConfigError, has_host
from streamer.core.declare import Checked, about

REPLICA_SCHEMES = ("ws://", "wss://", "http://", "https://")
LOCAL = "local"


@dataclass(frozen=True, kw_only=True)
class DirectorOptions(ListenOptions):
    """Options of `streamer director`, and the table [director] of fleet.toml."""

    port: Port = 8764
    replicas: Annotated[
        tuple[str, ...],
        about(
            "ws://HOST:PORT of a replica, may be repeated; or http://HOST:PORT of another "
            "director, whose list is followed",
            "ws://10.0.0.7:8765",
            metavar="URL",
        ),
    ] = ()
    ca: Annotated[
        str | None,
        about(
            "PEM file of the authority that signed the replicas' certificates",
            "chain.pem",
            metavar="FILE",
            unset="the system's",
        ),
    ] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        for url in self.replicas:
            if not url.startswith(REPLICA_SCHEMES) or not has_host(url):
                told = "give ws://HOST:PORT of a replica, or http://HOST:PORT of a director"
                raise ConfigError(f"--replicas is {url!r}; {told}")


@dataclass(frozen=True, kw_only=True)
class FleetOptions(Checked):
    """Options of `streamer fleet`."""

    config: Annotated[
        str, about("what runs, and how many replicas", "pipelines/fleet.toml", metavar="FILE")
    ]
    down: Annotated[bool, about("drain and stop the replicas of a cluster, then exit")] = False


@dataclass(frozen=True, kw_only=True)
class RayOptions(Checked):
    """The table [ray] of fleet.toml."""

    address: Annotated[
        str,
        about(
            "local: a Ray of our own, on this machine; auto, or HOST:PORT: a cluster's", group=None
        ),
    ] = LOCAL
    namespace: Annotated[str, about("namespace of the replicas' names there", group=None)] = (
        "streamer"
    )


@dataclass(frozen=True, kw_only=True)
class PlacingOptions(Checked):
    """How many replicas of one kind, and what each needs: in [server] and in [verifier], beside
    the options of `streamer serve` and `streamer verifier`."""

    least: Annotated[int, about("fewest replicas", group=None, ge=0, le=1000)] = 1
    most: Annotated[int, about("most replicas", group=None, ge=1, le=1000)] = 1
    first_port: Annotated[
        int,
        about(
            "port of the first replica; each further one has the next port",
            group=None,
            ge=1,
            le=65_535,
        ),
    ] = 9100
    cpus: Annotated[float, about("processors that Ray reserves for each", group=None, ge=0)] = 1.0
    gpus: Annotated[float, about("GPUs that Ray reserves for each", group=None, ge=0)] = 0.0

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

    up_at: Annotated[
        float, about("share of sessions taken at which replicas are added", group=None, ge=0, le=1)
    ] = 0.75
    down_at: Annotated[
        float,
        about(
            "a replica is removed only if the rest stay below this share", group=None, ge=0, le=1
        ),
    ] = 0.4
    lag_s: Annotated[
        float,
        about("add a replica if the median one lags by more seconds of speech", group=None, ge=0),
    ] = 1.0
    up_pause_s: Annotated[
        float, about("seconds between two additions of replicas", group=None, ge=0)
    ] = 10.0
    down_pause_s: Annotated[
        float, about("seconds of low load before a replica is removed", group=None, ge=0)
    ] = 60.0

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
