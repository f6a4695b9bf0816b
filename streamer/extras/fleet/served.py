"""The server of a replica, as `streamer serve` runs it. In: a plan. Out: a port that is served."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from streamer.commands.service_options import ServeOptions, VerifierOptions
    from streamer.config import Config


@dataclass(frozen=True)
class ReplicaPlan:
    """What a replica runs. given: the options of `streamer serve` or `streamer verifier`, as in
    fleet.toml, with host, port and name."""

    kind: str
    given: dict[str, Any]
    shown_host: str  # in its address; nothing: the node's own

    def options(self) -> ServeOptions | VerifierOptions:
        """Of the command that it runs. Raises ConfigError."""
        from streamer.commands.service_options import ServeOptions, VerifierOptions
        from streamer.core.declare import taken

        owner: Any = ServeOptions if self.kind == "server" else VerifierOptions
        options: ServeOptions | VerifierOptions = owner(**taken(owner, self.given))
        return options

    def config(self) -> Config:
        """A server's."""
        from streamer.commands.serve import config_of
        from streamer.config import Config
        from streamer.core.declare import taken

        options: Any = self.options()
        return config_of(options, taken(Config, self.given))

    def preheat(self) -> None:
        """Load what each server of this plan would load again."""
        from streamer.commands.preheat import preheat

        if self.kind == "verifier":
            options: Any = self.options()
            preheat({"cloud": options.cloud}, options.device, options.engine)
            return
        c = self.config()
        here = {"edge": c.edge} | ({"cloud": c.cloud} if c.has_cloud_here else {})
        preheat(here, c.device, c.engine)


async def serve(plan: ReplicaPlan, ready: Callable[[int], None]) -> None:
    """Until SIGTERM, and all is answered. ready: told the port. Raises why it cannot start."""
    from streamer.commands.serve import cannot_listen, door_of, open_server
    from streamer.commands.verifier import open_verifier
    from streamer.config import ConfigError
    from streamer.net.service.service import Address

    options: Any = plan.options()
    tls, key = door_of(options)
    is_server = plan.kind == "server"
    opened: Any = (
        open_server(options, plan.config(), key) if is_server else open_verifier(options, key)
    )
    try:
        async with opened as server:
            await server.run(Address(options.host, options.port, tls), ready)
    except OSError as error:
        raise ConfigError(cannot_listen(options, error, plan.kind)) from None
