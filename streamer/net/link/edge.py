"""The edge's link to a verifier elsewhere. In: turns, their samples and requests. Out: verdicts.

One websocket for all turns of a process. It is connected from the start, again whenever it is lost
(core/link/backoff.py), and what each turn still needs is said again on it (core/link/edge_turn.py).
Bounds: turns by their KV slots on the edge, of each turn its samples (at most max_turn_s) and C
requests; audio on its way by core/link/send_window.py, and what is written before a send waits by
net/link/dial.py. So requests and pings wait behind one piece of audio here, never behind a turn's.
"""

from __future__ import annotations

import math
import random
import secrets
from collections import deque
from collections.abc import Callable

import anyio
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import WebSocketException

from streamer.core.description import one_line
from streamer.core.link import wire
from streamer.core.link.backoff import Breaker, Redial
from streamer.core.link.edge_turn import DecodingTerms, RemoteFault
from streamer.core.link.send_window import SendWindow
from streamer.net.link.dial import (
    VerifierAddress,
    dial,
    explained,
    first_of,
    is_final,
    keep_short,
    why,
)
from streamer.net.link.remote_target import FarTarget
from streamer.net.service.notices import Notices
from streamer.stages.plumbing.ports import TargetLost

PING_S = 1.0
RATE_HZ = 16_000
MAX_PINGS = 16  # without an answer; the oldest is forgotten then
PATIENCE_S = 5.0  # without a word from the verifier
MODEL_CHARACTERS = 16  # of a fingerprint, in a notice
NOT_YET = "not connected yet"
SLOW = "it is slow"


class EdgeLink:
    """See stages/plumbing/ports.py's Cloud. `run` it until it is cancelled."""

    is_remote = True
    is_busy = False

    def __init__(
        self,
        verifier: VerifierAddress,
        terms: DecodingTerms,
        clock: Callable[[], float],
        chance: Callable[[], float] = random.random,
        on_model: Callable[[str], None] = lambda model: None,
    ) -> None:
        self.verifier = verifier
        self.terms = terms
        self.clock = clock
        self.chance = chance
        self.breaker = Breaker()
        self.redial = Redial()
        self.window = SendWindow()
        self.num_bytes_up = self.num_bytes_down = self.num_links = 0
        self.rtt_s: float | None = None  # of the latest ping
        self.lost: str | None = None  # why it makes no sense to go on, until a link is up again
        self.trouble = NOT_YET  # why there is no link, or no verdict
        self.name = verifier.name
        # fingerprint of who verifies, as the latest turn was told; `on_model` is told the first
        self.model = ""
        self._on_model = on_model
        self.is_linked = False
        self._silence: str | None = None
        self._notices = Notices()
        self._swaps = Notices()
        self._targets: dict[int, FarTarget] = {}
        self._epochs: dict[int, int] = {}  # of each channel, the last turn's
        self._goodbyes: deque[wire.Close] = deque()  # one for each channel at most
        self._wake = anyio.Event()
        self._settled = anyio.Event()  # linked for the first time, or refused for good
        self._pings: dict[int, float] = {}  # token -> when it was sent
        self._num_pings = 0
        self._wants_ping = False
        self._last_audio = 0  # the channel that sent audio last
        self._heard_at = 0.0

    @property
    def is_up(self) -> bool:
        return self.breaker.is_closed(self.clock())

    @property
    def num_in_flight(self) -> int:
        """Blocks of all turns that wait for their verdicts."""
        return sum(target.num_waiting for target in self._targets.values())

    @property
    def unheard_s(self) -> float:
        """Seconds of audio of all turns that are on their way to the verifier; 0 while there is no
        link."""
        return (
            sum(target.num_unheard for target in self._targets.values()) / RATE_HZ
            if self.is_linked
            else 0.0
        )

    def listen(self) -> FarTarget:
        """A turn begins: it takes the lowest free channel. Raises TargetLost where all are
        taken."""
        channel = next((i for i in range(wire.MAX_CHANNELS) if i not in self._targets), None)
        if channel is None:
            raise TargetLost(
                f"{self.name} has {wire.MAX_CHANNELS} turns of this process already; end one"
            )
        epoch = self._epochs.get(channel, 0)
        target = FarTarget(
            self,
            channel,
            secrets.token_bytes(16),
            self.terms,
            epoch if epoch < wire.MAX_EPOCH else 0,
        )
        self._targets[channel] = target
        if self.is_linked:
            target.attach()
        return target

    def leave(self, target: FarTarget) -> None:
        """The turn is over."""
        if self._targets.get(target.turn.channel) is target:
            del self._targets[target.turn.channel]
            self._epochs[target.turn.channel] = target.turn.epoch
            if self.is_linked and target.turn.is_open_sent:
                self._goodbyes.append(wire.Close(target.turn.channel))
                self.wake()

    def failed(self, asked_at: float) -> None:
        """A verdict asked for then did not come in time: ask the verifier whether it is there, and
        again after a pause."""
        self.breaker.failed(self.clock(), asked_at)
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
        while True:
            self.redial.dialled(self.clock())
            try:
                await self._connect_and_serve()
            except (
                OSError,
                WebSocketException,
                TimeoutError,
                RemoteFault,
                wire.WireError,
            ) as error:
                self._note(error if self.num_links else await explained(self.verifier, error))
            self.breaker.unlinked()
            await anyio.sleep(self.redial.pause_s(self.clock(), self.chance()))

    async def _connect_and_serve(self) -> None:
        socket: ClientConnection | None = None
        try:
            async with dial(self.verifier) as socket:
                await self._serve(socket)
        finally:
            # a goodbye that is cancelled waits for no answer, and leaves the connection open
            if socket is not None:
                socket.transport.abort()

    def _note(self, error: Exception) -> None:
        """Remember why there is no link; where it will not get better, whoever waits is told."""
        self.trouble = self._silence or why(error)
        self._silence = None
        self._notices.state(False, f"{self.name} is not there ({self.trouble}); it is tried again")
        if isinstance(error, RemoteFault | wire.WireError):
            self.breaker.failed(self.clock())
        if is_final(error, was_linked=self.num_links > 0):
            self._lose(f"{self.name} refuses: {self.trouble}")

    def _lose(self, told: str) -> None:
        self.lost = told
        self._settled.set()
        for target in self._targets.values():
            target.lose(told)

    async def _serve(self, socket: ClientConnection) -> None:
        """One link to its end."""
        keep_short(socket)
        self.num_links += 1
        self._goodbyes.clear()
        self._pings.clear()
        self.window = SendWindow()
        self.is_linked = True
        self.lost = None
        for target in self._targets.values():
            target.attach()
        self._heard_at = self.clock()
        self._ping()
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(self._write, socket)
                group.start_soon(self._watch, socket)
                await self._read(socket)
        except ExceptionGroup as ended:
            socket.transport.abort()  # no goodbye to who is gone, or wrong
            raise first_of(ended) from None
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
                self.breaker.answered(sent_at)
                self._settled.set()
                self.trouble = SLOW if self.trouble == NOT_YET else self.trouble
                self._notices.state(True, f"{self.name} is there again")
            return
        target = self._targets.get(message.channel)
        if target is not None:
            target.num_bytes_down += size
            target.take(message)
            if isinstance(message, wire.Judged):
                self.trouble = SLOW  # earlier trouble is over
            elif isinstance(message, wire.OpenedMessage):
                self._note_model(target.turn.model)

    def _note_model(self, model: str) -> None:
        """Within a turn it cannot change (core/link/edge_turn.py); between turns it may, and
        whoever runs this edge is told."""
        model = one_line(model)[:MODEL_CHARACTERS]
        if model in ("", self.model):
            return
        was = self.model
        self.model = model
        if was:
            self._swaps.event(
                f"{self.name} has another model than before: {model}, it was {was}; sentences may "
                "differ"
            )
        else:
            self._on_model(model)

    async def _write(self, socket: ClientConnection) -> None:
        """One message at a time, each chosen when the one before it is written."""
        while True:
            self._wake = anyio.Event()
            message, target = self._next()
            if message is None:
                with anyio.move_on_after(self._until_reopen_s()):
                    await self._wake.wait()
                continue
            data = wire.encode(message)
            self.num_bytes_up += len(data)
            await socket.send(data)
            if target is not None:
                target.sent(message, len(data))

    def _next(self) -> tuple[wire.Up | None, FarTarget | None]:
        """Goodbyes first, for a channel's next Open comes after them; then a ping, what turns ask,
        and audio last."""
        if self._goodbyes:
            return self._goodbyes.popleft(), None
        if self._wants_ping:
            return self._next_ping(), None
        for target in self._targets.values():
            if (message := target.pull()) is not None:
                return message, target
        for channel in sorted(
            self._targets, key=lambda channel: (channel <= self._last_audio, channel)
        ):
            if (message := self._targets[channel].pull_audio()) is not None:
                self._last_audio = channel
                return message, self._targets[channel]
        return None, None

    def _next_ping(self) -> wire.Ping:
        self._wants_ping = False
        self._num_pings = (self._num_pings + 1) % (1 << 30)
        if len(self._pings) >= MAX_PINGS:
            del self._pings[min(self._pings, key=self._pings.__getitem__)]
        self._pings[self._num_pings] = self.clock()
        return wire.Ping(self._num_pings)

    def _until_reopen_s(self) -> float:
        """Until a turn that found no place asks again."""
        now = self.clock()
        return min(
            (t.reopen_at - now for t in self._targets.values() if t.reopen_at > now),
            default=math.inf,
        )

    async def _watch(self, socket: ClientConnection) -> None:
        """Ask now and then whether the verifier is there; give the link up when it has not said a
        word for long."""
        while self.clock() - self._heard_at < PATIENCE_S:
            await anyio.sleep(PING_S)
            self._ping()
        self._silence = f"no answer for {PATIENCE_S:g} s"
        socket.transport.abort()

    def _ping(self) -> None:
        """One that waits to be sent is as good as another."""
        self._wants_ping = self.is_linked
        self.wake()
