"""`streamer verifier`: loads the cloud model and runs its server."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from streamer import __version__
from streamer.commands.process import loading
from streamer.commands.serve import door_of, run_opened
from streamer.commands.service_options import VerifierOptions

if TYPE_CHECKING:
    from streamer.net.link.server import VerifierServer

HEARING_THREADS = 2


def run(options: VerifierOptions) -> int:
    """Until SIGTERM: 0, or 1 if the model cannot be loaded or the port is taken."""
    import anyio

    tls, key = door_of(options)
    return anyio.run(_serve, options, tls, key)


async def _serve(options: VerifierOptions, tls: ssl.SSLContext | None, key: str | None) -> int:
    s = "s" if tls else ""

    def told(server: VerifierServer, at: str) -> str:
        model = f"{server.model_name}, fingerprint {server.fingerprint}"
        return f"listening on ws{s}://{at} ({model})"

    return await run_opened(options, tls, open_verifier(options, key), told)


@asynccontextmanager
async def open_verifier(options: VerifierOptions, key: str | None) -> AsyncIterator[VerifierServer]:
    """Load the model and make its server, which does not run yet. Raises ModelError."""
    import anyio
    import anyio.to_thread

    from streamer.assembly.link import ModelJudge, verifier_model_of
    from streamer.assembly.parts import open_side
    from streamer.core.link.wire import PATH
    from streamer.model.offline import warm_up
    from streamer.model.thinker import Thinker, load, resolve, set_threads
    from streamer.net.link.server import VerifierServer
    from streamer.net.service.admission import Admission, incarnation_of

    def load_cloud() -> Thinker:
        directory = resolve(options.cloud, "cloud")
        set_threads([directory], options.device, options.engine)
        thinker = load(
            str(directory), "cloud", options.max_sessions + 1, options.device, options.engine
        )
        warm_up(thinker)
        return thinker

    with loading(f"cloud {options.cloud}", is_service=True):
        thinker = await anyio.to_thread.run_sync(load_cloud)
    threads = anyio.CapacityLimiter(HEARING_THREADS)
    admission = Admission(
        (PATH,),
        options.max_sessions,
        key,
        max_per_key=options.max_per_key,
        name=incarnation_of(options.name or ""),
    )
    async with open_side(thinker, "verifier") as side:
        server = VerifierServer(
            lambda turn: ModelJudge(thinker, side, turn, threads),
            verifier_model_of(thinker),
            admission,
            options.resume_s,
        )
        server.metrics.build(__version__)
        server.model_name = thinker.card.name
        yield server
