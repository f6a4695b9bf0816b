"""A client that keeps what is not acknowledged and comes back, and its History."""

from __future__ import annotations

import asyncio
import contextlib
import json

from history import History
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus
from wire import ANSWER, COMMIT, session_update

AGAIN_S = 0.02
OPTIONS = {"events": True, "binary": True, "acks": True}
GONE = (ConnectionClosed, InvalidHandshake, OSError, TimeoutError, EOFError)


def messages_of(turns, chance):
    """session.update, then each turn in random pieces with a commit and a response.create."""
    messages = [session_update(**OPTIONS)]
    for data in turns:
        at = 0
        while at < len(data):
            n = chance.choice([1, 333, 3_200, 16_001])
            messages.append(data[at : at + n])
            at += n
        messages += [COMMIT, ANSWER]
    return messages


class Returning:
    """`run` to the last turn; it drops its socket after `cut_share` of messages and events."""

    def __init__(self, url, turns, chance, cut_share=0.0, may_begin_anew=False):
        self.url, self.turns, self.chance, self.cut_share = url, turns, chance, cut_share
        self.history = History()
        self.num_answered = 0
        self._may_begin_anew = may_begin_anew
        self._begin()

    def _begin(self):
        """With a session that knows nothing, from the first turn that has no answer."""
        self.history.note("began", self.num_answered)
        self._messages = messages_of(self.turns[self.num_answered :], self.chance)
        self._session_id = None
        self._num_seen = self._num_sent = 0
        self._acked = {"bytes": 0, "messages": 0}

    async def run(self):
        while self.num_answered < len(self.turns):
            try:
                await self._socket()
            except InvalidStatus as refused:
                status = refused.response.status_code
                self.history.note("refused", status)
                if status == 404:
                    assert self._may_begin_anew, "the session is lost"
                    self._begin()
                await asyncio.sleep(AGAIN_S)
            except GONE:
                self.history.note("cut")
                await asyncio.sleep(AGAIN_S)
        return self.history

    async def _socket(self):
        """One, to its end."""
        where = self.url
        if self._session_id is not None:
            where += f"?resume={self._session_id}&bytes={self._acked['bytes']}"
            where += f"&event={self._num_seen}"
        async with contextlib.AsyncExitStack() as stack:
            ws = await connect(where, compression=None, open_timeout=5, ping_interval=None)
            stack.callback(ws.transport.abort)
            if self._session_id is None:
                self._num_sent = 0  # what was sent before its name was known has gone with it
            else:
                self._go_on(json.loads(await ws.recv()))
            sending = asyncio.create_task(self._send(ws))
            stack.callback(sending.cancel)
            await self._receive(ws)

    def _go_on(self, event):
        assert event["type"] == "streamer.resumed"
        assert (event["lost_events"], event["lost_bytes"]) == (0, 0)
        assert event["event"] == self._num_seen
        assert event["messages"] >= self._acked["messages"]
        self._num_sent = event["messages"]
        self.history.note("resumed", event)

    async def _send(self, ws):
        with contextlib.suppress(ConnectionClosed):
            while self._num_sent < len(self._messages):
                await ws.send(self._messages[self._num_sent])
                self.history.note("sent", self._messages[self._num_sent])
                self._num_sent += 1
                self._maybe_cut(ws)

    async def _receive(self, ws):
        while self.num_answered < len(self.turns):
            event = json.loads(await ws.recv())
            self.history.note("seen", event)
            self._num_seen += 1
            self._session_id = self._session_id or event["session"]["id"]
            if event["type"] == "streamer.ack":
                assert event["bytes"] >= self._acked["bytes"]
                self._acked = event
            self.num_answered += event["type"] == "streamer.description"
            self._maybe_cut(ws)

    def _maybe_cut(self, ws):
        if self._session_id is not None and self.chance.random() < self.cut_share:
            self.history.note("cut")
            ws.transport.abort()
