"""`streamer verifier`: assembles a model and its server. In: options. Out: a running service, an
exit status."""

from __future__ import annotations

import argparse
import ssl

from streamer import __version__
from streamer.commands.describe import fail
from streamer.commands.process import loading, tell_loading
from streamer.commands.serve import door_of
from streamer.config import VERIFIER_SCHEMES, ConfigError

HEARING_THREADS = 2


def run(options: argparse.Namespace) -> int:
    """Serve until SIGTERM; 0 after a clean drain, 1 when the model or the port cannot be had, 2 for
    bad usage."""
    import anyio

    try:
        _check(options)
        tls, key = door_of(options)
    except ConfigError as error:
        fail(str(error))
        return 2
    return anyio.run(_serve, options, tls, key)


async def _serve(options: argparse.Namespace, tls: ssl.SSLContext | None, key: str | None) -> int:
    tell_loading(f"cloud {options.cloud}")
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
    shown = f"[{options.host}]" if ":" in options.host else options.host

    def ready(port: int) -> None:
        print(
            f"listening on ws{s}://{shown}:{port} "
            f"({thinker.card.name}, fingerprint {verifier.fingerprint})",
            flush=True,
        )

    def load_cloud() -> Thinker:
        directory = resolve(options.cloud, "cloud")
        set_threads([directory], options.device, options.engine)
        thinker = load(
            str(directory), "cloud", options.max_sessions + 1, options.device, options.engine
        )
        warm_up(thinker)
        return thinker

    try:
        with loading():
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
        fail(
            f"cannot listen on {shown}:{options.port} ({error.strerror or error}); choose another "
            "--port"
        )
        return 1
    return 0


def _check(options: argparse.Namespace) -> None:
    if options.cloud.startswith(VERIFIER_SCHEMES) or options.cloud == "none":
        raise ConfigError(
            f"cloud is {options.cloud!r}; a verifier holds the model itself: give a model"
        )
    if options.engine in ("stable", "int8") and options.device != "cpu":
        raise ConfigError(
            f"engine {options.engine} is for the CPU only; take --device cpu, or engine fast"
        )
    if not 1 <= options.max_sessions <= 255:
        raise ConfigError(f"max-sessions is {options.max_sessions}; it may be 1 to 255")
    if not 0 <= options.resume_s <= 300:
        raise ConfigError(f"resume-s is {options.resume_s:g}; it may be 0 to 300")
