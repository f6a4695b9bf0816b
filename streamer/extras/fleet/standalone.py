"""`streamer director`: over replicas that others start. In: options. Out: a service, a status."""

from __future__ import annotations

import signal
import ssl
from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any

from streamer.commands.process import fail, put
from streamer.commands.serve import cannot_listen, door_of, shown_host
from streamer.config import ConfigError
from streamer.extras.fleet.options import DirectorOptions

if TYPE_CHECKING:
    from streamer.extras.fleet.roster import Roster


def run(options: DirectorOptions) -> int:
    """Until SIGTERM; 0 then, 1 where the port cannot be had. Raises ConfigError."""
    import anyio

    if not options.replicas:
        raise ConfigError("no --replicas; give ws://HOST:PORT of each, or another director's list")
    tls, key = door_of(options)
    return anyio.run(_run, options, tls, key)


async def _run(options: DirectorOptions, tls: ssl.SSLContext | None, key: str | None) -> int:
    from streamer.extras.fleet.lists import follow
    from streamer.extras.fleet.roster import Roster

    trust = trust_of(options)
    roster = Roster(trust)
    return await run_director(
        options, tls, key, roster, partial(follow, roster, options.replicas, trust)
    )


async def run_director(
    options: DirectorOptions,
    tls: ssl.SSLContext | None,
    key: str | None,
    roster: Roster,
    beside: Callable[[], Coroutine[Any, Any, None]],
) -> int:
    """A director, and what keeps its addresses, until SIGTERM: 0, or 1 without the port."""
    import anyio

    from streamer.extras.fleet.director import Director
    from streamer.net.service.service import Address

    s = "s" if tls else ""

    def ready(port: int) -> None:
        put(f"listening on ws{s}://{shown_host(options.host)}:{port} (a director)")

    trouble: Any = None
    address = Address(options.host, options.port, tls)
    try:
        # a second signal, while all ends, changes nothing
        with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            async with anyio.create_task_group() as group:
                group.start_soon(beside)
                group.start_soon(roster.run)
                group.start_soon(Director(roster, key).run, address, ready)
                async for _ in signals:
                    break
                group.cancel_scope.cancel()
    except* OSError as errors:
        trouble = errors.exceptions[0]
    if trouble is not None:
        fail(cannot_listen(options, trouble))
    return 0 if trouble is None else 1


def trust_of(options: DirectorOptions) -> ssl.SSLContext | None:
    """For https:// replicas with an authority of their own. Raises ConfigError."""
    if options.ca is None:
        return None
    try:
        return ssl.create_default_context(cafile=options.ca)
    except (OSError, ssl.SSLError) as error:
        why = getattr(error, "strerror", None) or error
        raise ConfigError(f"--ca {options.ca}: cannot be read ({why}); give a PEM file") from None
