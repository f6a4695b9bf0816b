"""`streamer serve`: assembles models and server. In: options. Out: a running service, an exit status."""

from __future__ import annotations

import argparse
import ipaddress
import os
import ssl
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from streamer.config import Config, ConfigError
from streamer.console import fail

SWITCH_INTERVAL_S = 0.001  # the engine's thread and the event loop take turns: at 5 ms the loop lags


def run(options: argparse.Namespace, model_options: dict[str, Any]) -> int:
    """Serve until SIGTERM; 0 after a clean drain, 1 when a model or the port cannot be had, 2 for bad usage."""
    import anyio

    try:
        config = _config(options, model_options)
        tls = _tls(options.cert, options.key)
        key = options.api_key or os.environ.get("STREAMER_API_KEY")
        _check_public(options.host, key)
    except ConfigError as error:
        fail(str(error))
        return 2
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    return anyio.run(_serve, options, config, tls, key)


async def _serve(options: argparse.Namespace, config: Config, tls: ssl.SSLContext | None, key: str | None) -> int:
    from streamer.describer import Describer
    from streamer.model.weights import ModelError
    from streamer.net.admission import Admission
    from streamer.net.server import PATH, Address, RealtimeServer

    scheme, shown = ("wss" if tls else "ws"), f"[{options.host}]" if ":" in options.host else options.host

    def ready(port: int) -> None:
        print(f"listening on {scheme}://{shown}:{port}{PATH}", flush=True)

    try:
        async with Describer.open(config) as describer:
            await describer.load()
            origins = tuple(options.allow_origin or ())
            admission = Admission((PATH,), options.max_sessions, key, origins)
            server = RealtimeServer(describer.stream, admission, "streamer")
            await server.run(Address(options.host, options.port, tls), ready)
    except ModelError as error:
        fail(str(error))
        return 1
    except OSError as error:
        fail(f"cannot listen on {shown}:{options.port} ({error.strerror or error}); choose another --port")
        return 1
    return 0


def _config(options: argparse.Namespace, model_options: dict[str, Any]) -> Config:
    """A pipeline file, what the command line says over it, and slots for every session's two turns."""
    config = Config.from_toml(options.pipeline) if options.pipeline else Config()
    config = replace(config, **model_options)
    if not 1 <= options.max_sessions <= 100:
        raise ConfigError(f"max-sessions is {options.max_sessions}; it may be 1 to 100")
    return replace(config, num_slots=2 * options.max_sessions + 1)


def _tls(cert: str | None, key: str | None) -> ssl.SSLContext | None:
    if (cert is None) != (key is None):
        raise ConfigError("TLS needs both --cert and --key")
    if cert is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(Path(cert), Path(key) if key else None)
    except OSError as error:
        raise ConfigError(f"--cert {cert}, --key {key}: cannot be used ({error.strerror or error})") from None
    return context


def _check_public(host: str, key: str | None) -> None:
    """Anyone could use a public address without a key."""
    try:
        is_local = ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_local = host == "localhost"
    if not is_local and not key:
        raise ConfigError(f"{host} is reachable by others; set --api-key or STREAMER_API_KEY, or listen on 127.0.0.1")
