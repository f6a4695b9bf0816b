"""One websocket to a verifier, to its end. In: what turns have to say. Out: each reply to its turn.

One message is written at a time, and chosen when the one before it is written: goodbyes first, then
a ping, what turns ask, and audio last. A verifier says no more than it was asked: who does, floods.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping

import anyio
from websockets.asyncio.client import ClientConnection

from streamer.core.link import wire
from streamer.core.link.plausible import RemoteFault
from streamer.core.link.send_window import SendWindow
from streamer.net.link.dial import keep_short
from streamer.net.link.dial_errors import VerifierSilent, first_of
from streamer.net.link.presence import Presence
from streamer.net.link.remote_target import RemoteTarget

PING_S = 1.0
MAX_PINGS = 16  # without an answer; the oldest is forgotten then
PATIENCE_S = 5.0  # without a word from the verifier
SPARE_MESSAGES = 64  # down, beyond those that were asked for
OPEN_REPLIES = 3  # Opened, Heard, Rejected


class OpenLink:
    """`run` it once. turns: channel -> the turn there, as the link's owner keeps them."""

    def __init__(
        self,
        socket: ClientConnection,
        turns: Mapping[int, RemoteTarget],
        presence: Presence,
        clock: Callable[[], float],
    ) -> None:
        self.window = SendWindow()
        self.socket = socket
        self._turns = turns
        self._presence = presence
        self._clock = clock
        self._wake = anyio.Event()
        self._goodbyes: deque[wire.Close] = deque()  # one for each channel at most
        self._pings: dict[int, float] = {}  # token -> when it was sent
        self._last_token = 0
        self._wants_ping = True
        self._last_audio = 0  # the channel that sent audio last
        self._heard_at = clock()
        self._num_due = SPARE_MESSAGES  # messages that the verifier may still send

    async def run(self) -> None:
        """Until it is cut. Raises what ended it."""
        keep_short(self.socket)
        for turn in self._turns.values():
            turn.attach(self.window)
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(self._write)
                group.start_soon(self._watch)
                await self._read()
        except ExceptionGroup as ended:
            raise first_of(ended) from None
        finally:
            # No goodbye to who is gone, or wrong: it would be waited for.
            self.socket.transport.abort()
            for turn in self._turns.values():
                turn.unlinked()

    def wake(self) -> None:
        """There is something to send."""
        self._wake.set()

    def ping(self) -> None:
        """Ask whether the verifier is there. One ping that waits to be sent is as good as two."""
        self._wants_ping = True
        self.wake()

    def say_goodbye(self, channel: int) -> None:
        """The turn on this channel is over; the channel's next Open comes after it."""
        self._goodbyes.append(wire.Close(channel))
        self.wake()

    async def _read(self) -> None:
        while True:
            data = await self.socket.recv()
            self._heard_at = self._clock()
            self._num_due -= 1
            if self._num_due < 0:
                raise RemoteFault("the verifier says more than it was asked")
            self._take(wire.decode_down(data), len(data))

    def _take(self, message: wire.Down, num_bytes: int) -> None:
        if isinstance(message, wire.Pong):
            sent_at = self._pings.pop(message.token, None)
            if sent_at is not None:
                self._presence.answered(sent_at)
            return
        turn = self._turns.get(message.channel)
        if turn is None:
            return
        turn.take(message, num_bytes)
        if isinstance(message, wire.OpenedMessage):
            self._presence.told_model(turn.turn.model)

    async def _write(self) -> None:
        while True:
            self._wake = anyio.Event()
            message, turn = self._next()
            if message is None:
                with anyio.move_on_after(self._until_reopen_s()):
                    await self._wake.wait()
                continue
            data = wire.encode(message)
            self._num_due += replies_to(message)
            await self.socket.send(data)
            if turn is not None:
                turn.sent(message, len(data))

    def _next(self) -> tuple[wire.Up | None, RemoteTarget | None]:
        if self._goodbyes:
            return self._goodbyes.popleft(), None
        if self._wants_ping:
            return self._next_ping(), None
        for turn in self._turns.values():
            if (message := turn.pull()) is not None:
                return message, turn
        # Audio goes round: the channels behind the one that had its turn last come first.
        for channel in sorted(self._turns, key=lambda one: (one <= self._last_audio, one)):
            if (message := self._turns[channel].pull_audio()) is not None:
                self._last_audio = channel
                return message, self._turns[channel]
        return None, None

    def _next_ping(self) -> wire.Ping:
        self._wants_ping = False
        self._last_token = (self._last_token + 1) % (1 << 30)
        if len(self._pings) >= MAX_PINGS:
            del self._pings[next(iter(self._pings))]
        self._pings[self._last_token] = self._clock()
        return wire.Ping(self._last_token)

    def _until_reopen_s(self) -> float:
        """Until a turn that found no place asks again."""
        now = self._clock()
        waits = [turn.reopen_at - now for turn in self._turns.values()]
        return min((wait for wait in waits if wait > 0), default=math.inf)

    async def _watch(self) -> None:
        """Ping now and then; give the link up when the verifier has not said a word for long."""
        while self._clock() - self._heard_at < PATIENCE_S:
            await anyio.sleep(PING_S)
            self.ping()
        raise VerifierSilent(f"no answer for {PATIENCE_S:g} s")


def replies_to(message: wire.Up) -> int:
    """How many messages a verifier may answer with, at most."""
    match message:
        case wire.Open():
            return OPEN_REPLIES
        case wire.Decode():
            return wire.MAX_IDS
        case wire.Close():
            return 0
    return 1
