"""`streamer verifier`: assembles a model and its server. In: options. Out: a running service, an
exit status."""

from __future__ import annotations

import ssl

from streamer import __version__
from streamer.commands.options import VerifierOptions
from streamer.commands.process import fail, loading, put
from streamer.commands.serve import cannot_listen, door_of, shown_host

HEARING_THREADS = 2


def run(options: VerifierOptions) -> int:
    """Serve until SIGTERM; 0 after a clean drain, 1 when the model or the port cannot be had.
    Raises ConfigError."""
    import anyio

    tls, key = door_of(options)
    return anyio.run(_serve, options, tls, key)


async def _serve(options: VerifierOptions, tls: ssl.SSLContext | None, key: str | None) -> int:
    import anyio
    import anyio.to_thread

    from streamer.assembly.judge import ModelJudge, verifier_model_of
    from streamer.assembly.parts import open_side
    from streamer.core.link.wire import PATH
    from streamer.model.checkpoint.weights import ModelError
    from streamer.model.thinker import Thinker, load, resolve, set_threads
    from streamer.model.warm import warm_up
    from streamer.net.link.server import VerifierServer, VerifierTerms
    from streamer.net.service.admission import Admission
    from streamer.net.service.service import Address

    s = "s" if tls else ""

    def ready(port: int) -> None:
        where = f"ws{s}://{shown_host(options.host)}:{port}"
        put(f"listening on {where} ({thinker.card.name}, fingerprint {verifier.fingerprint})")

    def load_cloud() -> Thinker:
        directory = resolve(options.cloud, "cloud")
        set_threads([directory], options.device, options.engine)
        thinker = load(
            str(directory), "cloud", options.max_sessions + 1, options.device, options.engine
        )
        warm_up(thinker)
        return thinker

    try:
        with loading(f"cloud {options.cloud}", is_service=True):
            thinker = await anyio.to_thread.run_sync(load_cloud)
        verifier = verifier_model_of(thinker)
        threads = anyio.CapacityLimiter(HEARING_THREADS)
        admission = Admission((PATH,), options.max_sessions, key)
        async with open_side(thinker, "verifier") as side:
            server = VerifierServer(
                lambda turn: ModelJudge(thinker, side, turn, threads),
                verifier,
                admission,
                VerifierTerms(options.resume_s),
            )
            server.metrics.build(__version__)
            await server.run(Address(options.host, options.port, tls), ready)
    except ModelError as error:
        fail(str(error))
        return 1
    except OSError as error:
        fail(cannot_listen(options, error))
        return 1
    return 0
