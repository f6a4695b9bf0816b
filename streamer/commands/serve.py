"""`streamer serve` and `streamer verifier`: load the models and run their server."""

from __future__ import annotations

import os
import re
import socket
import ssl
import sys
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import anyio
import anyio.to_thread

from streamer import __version__
from streamer.assembly import ModelJudge, thread_of
from streamer.commands.options import AddressOptions, DoorOptions, ServeOptions, VerifierOptions
from streamer.commands.process import Failed, drop_stdout, loading, opened, put
from streamer.config import Config, ConfigError
from streamer.core.link import wire
from streamer.extras import load as load_extra
from streamer.extras import missing
from streamer.model.checkpoint.weights import fingerprint_of
from streamer.model.decoding import warm_up
from streamer.model.thinker import load
from streamer.net.link.client import watch_link
from streamer.net.link.server import VerifierModel, VerifierServer
from streamer.net.realtime.server import PATH, RealtimeServer, ServerTerms
from streamer.net.service.admission import KEY_CHARACTERS, Admission, is_loopback
from streamer.net.service.metrics import log_to
from streamer.net.service.service import Service

FOR_TRACES = ("opentelemetry.sdk.trace", "opentelemetry.exporter.otlp.proto.http")
COLLECTORS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
ORIGIN = re.compile(r"https?://([a-z0-9._-]+|\[[0-9a-f:.]+\])(:[0-9]{1,5})?")
ANYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}  # a host -> one to click on
MAX_SLOTS = 256  # of a model: further turns wait


async def run(options: ServeOptions, config: Config) -> int:
    """Serve until SIGTERM. Raises ConfigError, ModelError, and Failed without a free port."""
    # A session has up to two turns: one that is heard and one that is answered. Most of many
    # sessions are idle, and have none.
    config = replace(config, num_slots=min(2 * options.max_sessions, MAX_SLOTS))
    told = f"listening on ws{{s}}://{{at}}{PATH} (page: http{{s}}://{{at}}/)"
    tls, key = door_of(options)
    return await run_opened(options, tls, open_server(options, config, key), told)


async def run_verifier(options: VerifierOptions) -> int:
    """Serve until SIGTERM. Raises ConfigError, ModelError, and Failed without a free port."""
    told = "listening on ws{s}://{at} ({server.model_name}, fingerprint {server.fingerprint})"
    tls, key = door_of(options)
    return await run_opened(options, tls, open_verifier(options, key), told)


async def run_opened(
    options: AddressOptions,
    tls: ssl.SSLContext | None,
    opening: AbstractAsyncContextManager[Service],
    told: str,
) -> int:
    """Run the server of `opening`; 0. told: its first line, in which {server} stands for it, {s}
    for "s" with TLS and {at} for its address. Raises Failed if it cannot listen."""
    check_free(options)  # models may take minutes to load
    try:
        async with opening as server:

            def tell_address(port: int) -> None:
                host, s = ANYWHERE.get(options.host), "s" if tls else ""
                at = f"{shown_host(host or options.host)}:{port}"
                line = told.format(server=server, s=s, at=at)
                try:
                    put(f"{line}, on all interfaces" if host else line)
                except BrokenPipeError:  # a service goes on without a reader
                    drop_stdout()

            await server.run(tell_address, options.host, options.port, tls)
    except OSError as error:
        raise cannot_listen(options, error) from None
    return 0


@asynccontextmanager
async def open_server(
    options: ServeOptions, config: Config, key: str | None
) -> AsyncIterator[RealtimeServer]:
    """Load the models and make their server, which does not run yet. Raises ModelError."""
    admission = admission_of(options, PATH, key, origins_of(options.allow_origin))
    coach = None if options.coach is None else load_extra("coach").parse(options.coach)
    tracing = tracing_of_turns()
    async with opened(config, is_service=True) as describer:
        terms = ServerTerms(
            hold_s=options.resume_s,
            live_update_s=options.live_updates,
            spoken={each: describer.attributes_in(each) for each in describer.languages},
            may_say=describer.said,
            coach=coach,
        )
        server = RealtimeServer(tracing(describer.stream), admission, terms)
        server.metrics.build(__version__)
        if describer.link is not None:
            watch_link(describer.link, server.metrics)
        yield server


def tracing_of_turns() -> Callable[[Any], Any]:
    """Makes `Describer.stream` send turns as spans, if a collector is set. Raises ConfigError."""
    if not any(os.environ.get(name) for name in COLLECTORS):
        return lambda stream: stream
    if (why := missing(COLLECTORS[0], *FOR_TRACES)) is not None:
        raise ConfigError(why)
    return load_extra("otel")


@asynccontextmanager
async def open_verifier(options: VerifierOptions, key: str | None) -> AsyncIterator[VerifierServer]:
    """Load the model and make its server, which does not run yet. Raises ModelError."""
    cloud, num_slots = options.cloud, options.max_sessions + 1
    with loading(f"cloud {cloud}", is_service=True):
        work = partial(load, cloud, "cloud", num_slots, options.device, options.engine)
        thinker = await anyio.to_thread.run_sync(work)
        await anyio.to_thread.run_sync(warm_up, thinker)
    threads = anyio.CapacityLimiter(2)  # that hear
    card = thinker.card
    phrases = {name: card.speaking(name).phrases for name in card.spoken}
    mark = fingerprint_of(thinker.directory)
    facts = VerifierModel(mark, thinker.vocabulary, card.max_turn_s, phrases)
    async with thread_of(thinker, "verifier") as model:
        server = VerifierServer(
            partial(ModelJudge, thinker, model, threads=threads),
            facts,
            admission_of(options, wire.PATH, key),
            options.resume_s,
        )
        server.metrics.build(__version__)
        server.model_name = card.name
        yield server


def admission_of(
    options: DoorOptions, path: str, key: str | None, origins: tuple[str, ...] = ()
) -> Admission:
    """The rules of admission at `path`."""
    name = options.name or ""
    return Admission((path,), options.max_sessions, key, origins, options.max_per_key, name)


def origins_of(given: Iterable[str]) -> tuple[str, ...]:
    """The Origins of pages that may connect, as browsers send them: scheme and host in lower case,
    no default port, no path. Raises ConfigError for a text that cannot be one."""
    found = []
    for text in given:
        origin = text.strip().lower().removesuffix("/")
        port = origin.rpartition(":")[2]
        if not ORIGIN.fullmatch(origin) or (port.isdigit() and int(port) > 65_535):
            way = "give scheme and host, such as https://example.org"
            raise ConfigError(f"--allow-origin {text} is no Origin ({way})")
        found.append(origin.removesuffix(":443" if origin.startswith("https") else ":80"))
    return tuple(found)


def shown_host(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def check_free(options: AddressOptions) -> None:
    """Raises Failed if the address is taken or unknown: models may take minutes to load."""
    host, kind = options.host or None, socket.SOCK_STREAM
    try:
        found = socket.getaddrinfo(host, options.port, type=kind, flags=socket.AI_PASSIVE)
        for family, *_, address in found:
            socket.create_server(address, family=family).close()
    except OSError as error:
        raise cannot_listen(options, error) from None


def cannot_listen(options: AddressOptions, error: OSError) -> Failed:
    """Why listening failed, and the way out."""
    place = f"{shown_host(options.host)}:{options.port}"
    number = error.errno or 0  # the text of Python's would name the address again
    why = os.strerror(number) if number > 0 else error.strerror or error
    return Failed(f"cannot listen on {place} ({why}); choose another --port or --host")


def door_of(options: AddressOptions) -> tuple[ssl.SSLContext | None, str | None]:
    """TLS and key of a service; its errors go to stderr from now on. Raises ConfigError."""
    cert, private, tls = options.cert, options.key, None
    if (cert is None) != (private is None):
        raise ConfigError("TLS needs both --cert and --key")
    if cert is not None:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            # never ask a terminal
            tls.load_cert_chain(cert, private, password=lambda: b"")
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or error
            told = f"--cert {cert}, --key {private}: cannot be used ({why})"
            raise ConfigError(f"{told}; give PEM without a password") from None
    key = key_of(options.api_key)
    if not is_loopback(options.host) and not key:  # anyone could use it
        ways = "set --api-key or STREAMER_API_KEY, or listen on 127.0.0.1"
        raise ConfigError(f"{options.host} is reachable by others; {ways}")
    log_to(sys.stderr)
    return tls, key


def key_of(given: str | None) -> str | None:
    """The keys, one of which clients must send. An empty one would let everybody in."""
    key = os.environ.get("STREAMER_API_KEY") or None if given is None else given
    if key is not None and not all(map(KEY_CHARACTERS.fullmatch, key.split(","))):
        told = "one or more letters, digits or any of !#$%&'*+-.^_`|~, as browsers send"
        raise ConfigError(f"the API key must be {told}")
    return key
