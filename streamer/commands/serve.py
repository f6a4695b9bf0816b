"""`streamer serve`: assembles models and server. In: options. Out: a running service, an exit
status."""

from __future__ import annotations

import argparse
import os
import ssl
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from streamer import __version__
from streamer.commands.describe import fail
from streamer.commands.process import loading, tell_loading
from streamer.config import VERIFIER_SCHEMES, Config, ConfigError
from streamer.contradictions import check_given
from streamer.logs import log_errors_to

# the engine's thread and the event loop take turns: at 5 ms the loop lags
SWITCH_INTERVAL_S = 0.001


def run(options: argparse.Namespace, model_options: dict[str, Any]) -> int:
    """Serve until SIGTERM; 0 after a clean drain, 1 when a model or the port cannot be had, 2 for
    bad usage."""
    import anyio

    try:
        config = _config(options, model_options)
        tls, key = door_of(options)
    except ConfigError as error:
        fail(str(error))
        return 2
    return anyio.run(_serve, options, config, tls, key)


async def _serve(
    options: argparse.Namespace, config: Config, tls: ssl.SSLContext | None, key: str | None
) -> int:
    from streamer.describer import Describer
    from streamer.model.checkpoint.weights import ModelError
    from streamer.net.realtime.server import PATH, RealtimeServer, ServerTerms
    from streamer.net.service.admission import Admission
    from streamer.net.service.service import Address

    s = "s" if tls else ""
    shown = f"[{options.host}]" if ":" in options.host else options.host

    def ready(port: int) -> None:
        print(
            f"listening on ws{s}://{shown}:{port}{PATH} (page: http{s}://{shown}:{port}/)",
            flush=True,
        )

    tell_loading(told_models(config))
    try:
        async with Describer.open(config) as describer:
            with loading():
                await describer.load()
            origins = tuple(options.allow_origin or ())
            admission = Admission((PATH,), options.max_sessions, key, origins)
            terms = ServerTerms(options.resume_s, options.live_updates, describer.attributes)
            server = RealtimeServer(describer.stream, admission, terms)
            server.metrics.build(__version__)
            if describer.link is not None:
                server.metrics.watch_link(describer.link)
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


def told_models(config: Config) -> str:
    """What a server loads, for its first line."""
    is_away = config.cloud.startswith(VERIFIER_SCHEMES)
    edge = [] if config.mode == "cloud" and not is_away else [f"edge {config.edge}"]
    has_cloud = config.mode != "edge" and config.cloud != "none" and not is_away
    cloud = [f"cloud {config.cloud}"] if has_cloud else []
    return " and ".join(edge + cloud)


def _config(options: argparse.Namespace, model_options: dict[str, Any]) -> Config:
    """A pipeline file, what the command line says over it, and slots for every session's two
    turns."""
    config = Config.from_toml(options.pipeline) if options.pipeline else Config()
    config = replace(config, **model_options)
    check_given(model_options, config)
    if not 1 <= options.max_sessions <= 100:
        raise ConfigError(f"max-sessions is {options.max_sessions}; it may be 1 to 100")
    if not 0 <= options.resume_s <= 300:
        raise ConfigError(f"resume-s is {options.resume_s:g}; it may be 0 to 300")
    if options.live_updates is not None and not 0.5 <= options.live_updates <= 3_600:
        raise ConfigError(f"live-updates is {options.live_updates:g}; it may be 0.5 to 3600")
    return replace(config, num_slots=2 * options.max_sessions + 1)


def door_of(options: argparse.Namespace) -> tuple[ssl.SSLContext | None, str | None]:
    """TLS and key of any service of ours, whose errors go to stderr from now on. Raises
    ConfigError."""
    from streamer.net.service.notices import notices_to

    tls = tls_of(options.cert, options.key)
    key = key_of(options.api_key)
    check_public(options.host, key)
    check_port(options.port)
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    log_errors_to(sys.stderr)
    notices_to(sys.stderr)
    return tls, key


def key_of(given: str | None) -> str | None:
    """The key that clients must show. An empty one would let everybody in."""
    from streamer.net.service.admission import KEY_CHARACTERS

    key = os.environ.get("STREAMER_API_KEY") or None if given is None else given
    if key is not None and not KEY_CHARACTERS.fullmatch(key):
        raise ConfigError(
            "the API key must be one or more letters, digits or any of !#$%&'*+-.^_`|~, as "
            "browsers send"
        )
    return key


def tls_of(cert: str | None, key: str | None) -> ssl.SSLContext | None:
    if (cert is None) != (key is None):
        raise ConfigError("TLS needs both --cert and --key")
    if cert is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        # never ask a terminal
        context.load_cert_chain(Path(cert), Path(key) if key else None, password=lambda: b"")
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise ConfigError(
            f"--cert {cert}, --key {key}: cannot be used ({why}); give PEM without a password"
        ) from None
    return context


def check_port(port: int) -> None:
    if not 0 <= port <= 65_535:
        raise ConfigError(f"port is {port}; it may be 1 to 65535, or 0 for a free one")


def check_public(host: str, key: str | None) -> None:
    """Anyone could use a public address without a key."""
    from streamer.net.service.admission import is_loopback

    if not is_loopback(host) and not key:
        raise ConfigError(
            f"{host} is reachable by others; set --api-key or STREAMER_API_KEY, or listen on "
            "127.0.0.1"
        )
