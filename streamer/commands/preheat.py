"""Load the modules and kernels of services in the process that forks them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from streamer.core.choices import DeviceName, EngineName


def preheat(specs: Mapping[str, str], device: DeviceName, engine: EngineName) -> None:
    """specs: role (edge, cloud) -> model. Models that torch runs are left to the services: a GPU in
    use does not survive a fork."""
    import streamer.describer
    import streamer.net.link.server
    import streamer.net.realtime.server  # noqa: F401
    from streamer.model.checkpoint.weights import ModelError
    from streamer.model.thinker import Role, load, num_params_of, resolve, runs_compiled
    from streamer.model.warm import warm_up

    roles: tuple[Role, ...] = ("edge", "cloud")
    with suppress(ModelError):  # the service tells of it
        for role in roles:
            if role in specs:
                directory = resolve(specs[role], role)
                if runs_compiled(num_params_of(directory), device, engine):
                    warm_up(load(str(directory), role))
