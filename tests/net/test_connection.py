"""A connection whose socket takes nothing: cut off in time, whatever it was doing."""

import json
from contextlib import asynccontextmanager

import anyio
import pytest

from streamer.net import connection as module
from streamer.net.connection import Connection
from streamer.net.metrics import Metrics
from streamer.stages.events import SpeechStarted


class DeafSocket:
    """Takes `num_taken` messages, then blocks; its client goes on sending."""

    def __init__(self, messages, num_taken):
        self.messages, self.left, self.is_aborted = messages, num_taken, False
        self.transport = self

    def abort(self):
        self.is_aborted = True

    async def send(self, text):
        if self.left == 0:
            await anyio.sleep_forever()
        self.left -= 1

    async def __aiter__(self):
        for message in self.messages:
            yield message
        await anyio.sleep_forever()


class ChattySession:
    """Says more than a socket takes; ends when it is told to."""

    num_bytes_fed = 0

    def __init__(self):
        self.ended = anyio.Event()

    async def feed(self, pcm):
        pass

    async def clear(self):
        pass

    async def end(self):
        self.ended.set()

    async def events(self):
        for turn in range(2_000):
            yield SpeechStarted(turn, 0)


@pytest.mark.parametrize("messages", [[], [json.dumps({"type": "session.update", "session": {"streamer": {"live_update_s": 1}}})]])
async def test_a_socket_that_takes_nothing_is_cut_off(monkeypatch, messages):
    """Also while a session.update waits for the old session's events to be told."""
    monkeypatch.setattr(module, "MAX_SEND_S", 0.05)

    @asynccontextmanager
    async def open_session(options):
        yield ChattySession()

    socket, metrics = DeafSocket(messages, 3), Metrics()
    with anyio.fail_after(5):
        await Connection(socket, open_session, metrics, "streamer", False).run()
    assert socket.is_aborted
    assert "streamer_slow_readers_total 1.0" in metrics.text().decode()
