"""The edge's link to a verifier elsewhere. In: turns, their samples and requests. Out: verdicts.

One websocket for all turns of a process. It is connected from the start, again whenever it is lost (with growing
pauses), and what each turn still needs is said again on it (core/remote.py). Bounds: turns by their KV slots on the
edge, of each turn its samples (at most max_turn_s) and C requests; what is received is handed on at once.
"""

from __future__ import annotations

import secrets
import socket as sockets
import ssl
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import urlsplit

import anyio
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus, WebSocketException

from streamer.core import wire
from streamer.core.breaker import Breaker
from streamer.core.remote import RemoteFault, Terms
from streamer.net.far import FarTarget
from streamer.stages.parts import TargetLost

CONNECT_S = 5.0
PING_S = 1.0
LASTING_S = 1.0  # a link that ends sooner is no success: the pause before the next one grows
PATIENCE_S = 5.0  # without a word from the verifier
PAUSES_S = (0.02, 0.1, 0.25, 0.5, 1.0, 2.0)  # before connecting again; the last one from then on
WRITE_BYTES = 4_096  # in our buffer before a send waits: so a request does not queue behind another turn's audio
UNSENT_BYTES = 16_384  # the same in the kernel's
_NOTSENT_LOWAT = getattr(sockets, "TCP_NOTSENT_LOWAT", None)


@dataclass(frozen=True)
class Verifier:
    """Where it is and how to ask. eager: send audio while someone speaks, else only when a verdict is wanted.
    limit_s: how long a turn that cannot do without waits for a verifier that is away."""

    url: str
    key: str | None = None
    tls: ssl.SSLContext | None = None
    eager: bool = True


class Link:
    """See stages/parts.py's Cloud. `run` it; `close` ends the run."""

    is_remote, is_busy = True, False

    def __init__(self, verifier: Verifier, terms: Terms, clock: Callable[[], float]) -> None:
        self.verifier, self.terms, self.clock = verifier, terms, clock
        self.breaker = Breaker()
        self.num_bytes_up = self.num_bytes_down = self.num_links = self.num_pongs = 0
        self.rtt_s: float | None = None  # of the latest ping
        self.lost: str | None = None  # why it makes no sense to go on, until a link is up again
        self.trouble = "not connected yet"  # why there is no link, or no verdict
        self._silence: str | None = None
        self._targets: dict[int, FarTarget] = {}
        self._goodbyes: deque[wire.Up] = deque()
        self._wake = anyio.Event()
        self._settled = anyio.Event()  # linked for the first time, or refused for good
        self._pings: dict[int, float] = {}
        self._num_pings = 0
        self._heard_at = 0.0
        self.is_linked = False

    @property
    def is_up(self) -> bool:
        return self.breaker.is_closed(self.clock())

    @property
    def name(self) -> str:
        parts = urlsplit(self.verifier.url)
        return f"the verifier at {parts.scheme}://{parts.netloc.rpartition('@')[2]}"

    def listen(self) -> FarTarget:
        """A turn begins: it takes the lowest free channel. Raises TargetLost where all are taken."""
        channel = next((i for i in range(wire.MAX_CHANNELS) if i not in self._targets), None)
        if channel is None:
            raise TargetLost(f"{self.name} has {wire.MAX_CHANNELS} turns of this process already; end one")
        target = FarTarget(self, channel, secrets.token_bytes(16), self.terms)
        self._targets[channel] = target
        if self.is_linked:
            target.turn.attach()
        return target

    def leave(self, target: FarTarget) -> None:
        """The turn is over."""
        if self._targets.get(target.turn.channel) is target:
            del self._targets[target.turn.channel]
            if self.is_linked and target.turn.epoch:
                self._goodbyes.append(wire.Close(target.turn.channel))
                self.wake()

    def failed(self) -> None:
        """A verdict did not come in time: ask the verifier whether it is there, and again after a pause."""
        self.breaker.failed(self.clock())
        self._ping()

    def wake(self) -> None:
        """There is something to send."""
        self._wake.set()

    async def settled(self, within_s: float) -> None:
        """Wait for the first link, or for a refusal, or as long as said."""
        with anyio.move_on_after(within_s):
            await self._settled.wait()

    async def run(self) -> None:
        """Connect, serve, connect again; until cancelled."""
        num_failed = 0
        while True:
            try:
                async with self._connect() as socket:
                    num_pongs, since = self.num_pongs, self.clock()
                    try:
                        await self._serve(socket)
                    finally:
                        if self.num_pongs > num_pongs and self.clock() - since > LASTING_S:  # it was one
                            num_failed = 0
            except (OSError, WebSocketException, TimeoutError, RemoteFault, wire.WireError) as error:
                self._note(error)
            self.breaker.unlinked()
            await anyio.sleep(PAUSES_S[min(num_failed, len(PAUSES_S) - 1)])
            num_failed += 1

    def _connect(self) -> connect:
        url = self.verifier.url.rstrip("/")
        url += "" if urlsplit(url).path else wire.PATH
        headers = {"Authorization": f"Bearer {self.verifier.key}"} if self.verifier.key else None
        return connect(
            url, additional_headers=headers, ssl=self.verifier.tls, compression=None, open_timeout=CONNECT_S,
            ping_interval=None, close_timeout=0.5, max_size=wire.MAX_MESSAGE_BYTES, write_limit=WRITE_BYTES,
            proxy=None,
        )  # fmt: skip

    def _note(self, error: Exception) -> None:
        """Remember why there is no link; where it will not get better, whoever waits is told."""
        self.trouble = self._silence or _why(error)
        self._silence = None
        if isinstance(error, RemoteFault | wire.WireError):
            self.breaker.failed(self.clock())
        if isinstance(error, InvalidStatus) and error.response.status_code in (400, 401, 403, 404):
            self._lose(f"{self.name} refuses: {self.trouble}")

    def _lose(self, why: str) -> None:
        self.lost = why
        self._settled.set()
        for target in self._targets.values():
            target.lose(why)

    async def _serve(self, socket: ClientConnection) -> None:
        """One link to its end."""
        raw = socket.transport.get_extra_info("socket")
        if _NOTSENT_LOWAT is not None and raw is not None:
            with suppress(OSError):
                raw.setsockopt(sockets.IPPROTO_TCP, _NOTSENT_LOWAT, UNSENT_BYTES)
        self.num_links += 1
        self._goodbyes.clear()
        self._pings.clear()
        for target in self._targets.values():
            target.turn.attach()
        self.is_linked, self.lost = True, None
        self._heard_at = self.clock()
        self._ping()
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(self._write, socket)
                group.start_soon(self._watch, socket)
                await self._read(socket)
        except ExceptionGroup as ended:
            socket.transport.abort()
            raise _first(ended) from None
        finally:
            self.is_linked = False
            for target in self._targets.values():
                target.unlinked()

    async def _read(self, socket: ClientConnection) -> None:
        while True:
            data = await socket.recv()
            self._heard_at = self.clock()
            self.num_bytes_down += len(data)
            self._take(wire.decode_down(data), len(data))

    def _take(self, message: wire.Down, size: int) -> None:
        if isinstance(message, wire.Pong):
            sent_at = self._pings.pop(message.token, None)
            if sent_at is not None:
                self.rtt_s = self.clock() - sent_at
                self.num_pongs += 1
                self.breaker.linked()
                self._settled.set()
            return
        target = self._targets.get(message.channel)
        if target is not None:
            target.num_bytes_down += size
            target.take(message)

    async def _write(self, socket: ClientConnection) -> None:
        """One message of each turn at a time."""
        while True:
            self._wake = anyio.Event()
            sent = []
            while self._goodbyes:  # also those that come meanwhile: a channel's Close goes before its next Open
                sent.append(await self._send(socket, self._goodbyes.popleft()))
            for target in list(self._targets.values()):
                message = target.pull()
                if message is not None:
                    size = await self._send(socket, message)
                    target.num_bytes_up += size
                    sent.append(size)
            if not sent:
                await self._wake.wait()

    async def _send(self, socket: ClientConnection, message: wire.Up) -> int:
        data = wire.encode(message)
        self.num_bytes_up += len(data)
        await socket.send(data)
        return len(data)

    async def _watch(self, socket: ClientConnection) -> None:
        """Ask now and then whether the verifier is there; give the link up when it has not said a word for long."""
        while self.clock() - self._heard_at < PATIENCE_S:
            await anyio.sleep(PING_S)
            self._ping()
        self._silence = f"no answer for {PATIENCE_S:g} s"
        socket.transport.abort()

    def _ping(self) -> None:
        if self.is_linked and len(self._pings) < 16:
            self._num_pings = (self._num_pings + 1) % (1 << 30)
            self._pings[self._num_pings] = self.clock()
            self._goodbyes.append(wire.Ping(self._num_pings))
            self.wake()


def _first(group: ExceptionGroup) -> Exception:
    """What ended a link: a fault of the verifier's, if there was one, else that the link was cut."""
    flat = [e for part in group.exceptions for e in (part.exceptions if isinstance(part, ExceptionGroup) else [part])]
    faults = [error for error in flat if not isinstance(error, ConnectionClosed)]
    found = (faults or flat)[0]
    assert isinstance(found, Exception)
    return found


def _why(error: BaseException) -> str:
    """One line for a person."""
    if isinstance(error, InvalidStatus):
        body = error.response.body.decode("utf-8", "replace").strip()
        return f"HTTP {error.response.status_code}" + (f" ({body[:200]})" if body else "")
    if isinstance(error, ConnectionClosed):
        return f"the link was closed ({error.rcvd.reason or error.rcvd.code})" if error.rcvd else "the link was cut"
    if isinstance(error, TimeoutError):
        return f"no answer within {CONNECT_S:g} s"
    if isinstance(error, InvalidHandshake):
        return f"it does not speak our protocol ({error})"
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
