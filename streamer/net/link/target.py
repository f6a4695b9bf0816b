"""One turn that a verifier elsewhere serves, on one websocket after another.

The turn keeps its samples, since the verifier may lose its slot, and the requests without a reply,
since the websocket may be cut. Bounds: turns by their KV slots on the edge; of each turn its
samples (at most max_turn_s), its requests, and the unheard audio.
"""

from __future__ import annotations

import asyncio
import random
import secrets
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import anyio
import numpy as np
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from streamer.core.audio.pcm import SAMPLE_RATE_HZ
from streamer.core.audio.turn import Closed, Heard
from streamer.core.decoding.plan import MAX_IDS, Refusal, Verdict, VerifyRequest
from streamer.core.description import one_line
from streamer.core.link import wire
from streamer.core.rules.settings import LevelWeights, Rules, Sampling
from streamer.core.text.vocabulary import Vocabulary
from streamer.stages.events import TargetLost, quietly

if TYPE_CHECKING:
    from streamer.net.link.client import RemoteCloud

# One Audio has at most these. In float32 they take under 2 s at 10 kB/s, so a thin link shows
# progress.
PIECE_SAMPLES = SAMPLE_RATE_HZ // 4
# Sent and not yet heard. A request waits after at most 2 s of audio, on a slow verifier or a thin
# link; a recording is sent at 2 s per round trip.
MAX_UNHEARD_SAMPLES = 2 * SAMPLE_RATE_HZ
MAX_MESSAGES = 4_096  # of one connection, down: a turn of 75 s in pieces of 100 ms has 1,000
STUCK_S = 2.0  # without progress; the verifier reports each piece of audio that it has heard
Reply = asyncio.Future[Verdict | Refusal]
MODEL_CHARACTERS = 16  # of a fingerprint, in a warning
REOPEN_S = 1.0  # before a rejected turn is opened again
_BYTES = 4  # of a sample as it is kept


@dataclass(frozen=True)
class DecodingTerms:
    """How the edge decodes, beside the rules, and what the verifier must agree to.

    phrases: language -> a digest of the phrases of its form, "" for none.
    """

    vocabulary: Vocabulary
    sampling: Sampling
    phrases: Mapping[str, str] = field(default_factory=dict)


class RemoteFault(RuntimeError):
    """A message of the verifier cannot be: another model, a verdict that does not fit."""


class RemoteTarget:
    """A target elsewhere, with the methods of LocalTarget (stages/parts.py).

    `run` holds the turn's connections, one after another, until the turn is over. On each websocket
    it sends `messages`, and gives `receive` those that arrive. Other calls return at once, except
    `verify` and `prefilled`.
    """

    def __init__(self, cloud: RemoteCloud, rules: Rules) -> None:
        self.num_samples = 0
        self.num_heard = 0  # samples in the verifier's slot
        self.is_ready = False  # the verifier has heard the end, and waits for requests
        self._cloud = cloud
        self._rules = rules
        self._session = secrets.token_bytes(16)
        self._model = ""  # fingerprint of the first verifier that opened the turn
        self._samples = bytearray()  # float32
        self._finish: wire.Finish | None = None  # once the turn is over
        # samples that the verifier had as this websocket was opened; None until it says so
        self._num_kept: int | None = None
        # number -> a request without a reply, oldest first
        self._asked: dict[int, VerifyRequest] = {}
        # number -> its reply; in a run of the verifier, replies come before they are asked for
        self._replies: defaultdict[int, Reply] = defaultdict(asyncio.Future)
        self._run_from: int | None = None  # the verifier decodes alone from this number on
        self._num_bytes_up = self._num_bytes_down = 0
        # set when a connection is wanted: at once, or with the first request (lazy)
        self._wanted = anyio.Event()
        self._wake = anyio.Event()  # set when there may be something to send
        self._moved = anyio.Event()  # set when the verifier has heard more, or will not
        self._moved_at = self._asked_at = cloud.clock()  # the latest progress, and request
        self._scope = anyio.CancelScope()
        # rejected, or late with its audio: it has to catch up before it is asked again
        self._is_behind = False
        self._lost: str | None = None

    # The stages' side.

    @property
    def is_up(self) -> bool:
        return self._lost is None and (self.is_ready or not self._is_behind)

    @property
    def traffic(self) -> tuple[int, int]:
        return self._num_bytes_up, self._num_bytes_down

    async def hear(self, heard: Heard) -> None:
        if heard.samples is not None and len(heard.samples):
            self._samples += heard.samples.astype(np.float32, copy=False).tobytes()
            self.num_samples += len(heard.samples)
            self._send_soon(is_wanted=self._cloud.verifier.eager)

    async def finish(self, closed: Closed, weights: LevelWeights) -> None:
        self._finish = wire.Finish(self.num_samples, dict(weights))
        self._send_soon(is_wanted=self._cloud.verifier.eager)

    async def verify(self, request: VerifyRequest) -> Verdict | Refusal:
        """Raises TargetLost where the verifier has refused the turn, or is not there."""
        why_not = self._lost or self._cloud.why_not
        if why_not is not None:
            raise TargetLost(why_not)
        self._asked[request.number] = request
        self._asked_at = self._cloud.clock()
        self._send_soon(is_wanted=True)
        try:
            return await self._replies[request.number]
        finally:
            self._asked.pop(request.number, None)
            self._replies.pop(request.number, None)

    def failed(self) -> None:
        """A verdict did not come in time. Blame the verifier, unless it is still hearing the turn:
        a long turn, or a thin link, must not keep other turns from being verified."""
        is_moving = self._cloud.is_linked and self._cloud.clock() - self._moved_at < STUCK_S
        if not self.is_ready and (self._is_behind or is_moving):
            self._is_behind = True
        else:
            self._cloud.failed(self._asked_at)

    async def prefilled(self) -> None:
        """Wait until the verifier has heard all, while it makes progress. A recording's times are
        then those of a live turn."""
        while self._cloud.is_linked and self.num_heard < self.num_samples:
            if self._lost is not None or not self._wanted.is_set():
                break
            self._moved = anyio.Event()
            with anyio.move_on_after(self._cloud.verifier.budget_s) as waiting:
                await self._moved.wait()
            if waiting.cancelled_caught:
                self.failed()
                break

    is_hearing = False  # nothing in this process

    async def stop(self) -> None:
        """As LocalTarget's."""

    def close(self) -> None:
        """End the turn; a second call does nothing."""
        self._scope.cancel()
        self._cloud.turns.discard(self)

    # The cloud's side.

    def miss(self, why_not: str | None) -> None:
        """The verifier is not there: `prefilled` need not wait. why_not: nor need `verify`."""
        self._moved.set()
        if why_not is not None:
            for reply in self._replies.values():
                if not reply.done():
                    reply.set_exception(TargetLost(why_not))

    async def run(self) -> None:
        """Hold a connection, and another one after each cut, until the turn is over."""
        with self._scope:
            await self._wanted.wait()
            while True:
                async with self._cloud.connection() as socket:
                    since = self._cloud.clock()
                    error = await self._use(socket)
                if error is not None:
                    self._cloud.cut(error, since)
                else:
                    await anyio.sleep(REOPEN_S * random.uniform(0.75, 1.25))

    # The wire.

    async def _use(self, socket: ClientConnection) -> Exception | None:
        """One connection, to its end: the error that ended it, None where it was rejected."""
        async with anyio.create_task_group() as group:
            group.start_soon(quietly, self._write, socket)
            error = await self._read(socket)
            group.cancel_scope.cancel()
        return error

    async def _read(self, socket: ClientConnection) -> Exception | None:
        try:
            for _ in range(MAX_MESSAGES):
                data = await socket.recv()
                self._num_bytes_down += len(data)
                message = wire.decode_down(data)
                if isinstance(message, wire.Rejected):
                    self._rejected(message)
                    return None
                self.receive(message)
        except (ConnectionClosed, RemoteFault, wire.WireError) as error:
            return error
        return RemoteFault("the verifier sends more messages than a turn needs")

    async def _write(self, socket: ClientConnection) -> None:
        with suppress(ConnectionClosed):  # the reader says so
            for message in self.messages():
                if message is None:
                    self._wake = anyio.Event()
                    await self._wake.wait()
                    continue
                data = wire.encode(message)
                await socket.send(data)
                self._num_bytes_up += len(data)
                if isinstance(message, VerifyRequest):
                    self._asked_at = self._cloud.clock()

    def messages(self) -> Iterator[wire.Up | None]:
        """All messages for a new websocket, in order; None where something has to happen first."""
        self.is_ready, self._run_from = False, None
        self._num_kept = None if self._model else 0  # nothing, where none has opened the turn
        yield self._open()
        while (begin := self._num_kept) is None:
            yield None
        while self._finish is None or begin < self.num_samples:
            end = min(begin + PIECE_SAMPLES, self.num_samples, self.num_heard + MAX_UNHEARD_SAMPLES)
            if end <= begin:
                yield None
                continue
            data = self._samples[_BYTES * begin : _BYTES * end]
            yield wire.Audio.of(begin, np.frombuffer(data, np.float32))
            begin = end
        yield self._finish
        latest = 0
        while True:
            request = next((each for each in self._asked.values() if each.number > latest), None)
            if request is None or self._run_from is not None:
                yield None  # in a run further verdicts come without asking
                continue
            latest = request.number
            if request.runs_on:
                self._run_from = latest
            yield request

    def _open(self) -> wire.Open:
        terms, rules = self._cloud.terms, self._rules
        tokenizer, phrases = terms.vocabulary.fingerprint, terms.phrases.get(rules.language, "")
        chance = (terms.sampling.temperature, terms.sampling.top_p, terms.sampling.seed)
        return wire.Open(self._session, self._model, tokenizer, phrases, vars(rules), chance)

    def receive(self, message: wire.Down) -> None:
        """Take a message of the verifier, but for Rejected. Raises RemoteFault for one that cannot
        be."""
        match message:
            case wire.Heard(num_samples, is_finished, model):
                if num_samples > self.num_samples or model not in ("", self._model or model):
                    raise RemoteFault("the verifier took the turn for another one")
                if model and not self._model:
                    self._model = model
                    self._cloud.on_model(one_line(model)[:MODEL_CHARACTERS])
                if model and self._num_kept is None:
                    self._num_kept = num_samples
                if model or num_samples > self.num_heard:  # repeated news is no progress
                    self._has_moved()
                self.num_heard = num_samples
                self.is_ready = is_finished
            case Verdict():
                self._judged(message)
            case Refusal(number) if number in self._asked:
                self._run_from = None
                self._replied(message)
        self._wake.set()

    def _judged(self, verdict: Verdict) -> None:
        number, asked = verdict.number, self._asked.get(verdict.number)
        is_of_run = self._run_from is not None and number >= self._run_from
        if asked is None and not (is_of_run and len(self._replies) < MAX_IDS):  # given up
            return
        n, chosen, known = verdict.n_accepted, verdict.next_id, self._cloud.terms.vocabulary
        n_drafted = len(asked.draft) if asked is not None else 0
        is_possible = n <= n_drafted and chosen < known.num_ids
        # terminals and pages show it: no escape code, line break or special id
        if not is_possible or (self._rules.clean and known.never[chosen]):
            told = f"{n} of {n_drafted} ids accepted, then id {chosen}"
            raise RemoteFault(f"a verdict of the verifier cannot be: {told}")
        self._cloud.verdict_came()
        self._replied(verdict)

    def _replied(self, message: Verdict | Refusal) -> None:
        self._asked.pop(message.number, None)
        if not (reply := self._replies[message.number]).done():  # given up at this moment
            reply.set_result(message)

    def _rejected(self, message: wire.Rejected) -> None:
        reason = one_line(message.reason)
        if message.is_final:
            self._lost = f"{self._cloud.name} refuses: {reason}"
            self._scope.cancel()
            self.miss(self._lost)
        else:
            self._is_behind = True
            self._cloud.trouble = reason

    def _has_moved(self) -> None:
        self._moved_at = self._cloud.clock()
        self._moved.set()

    def _send_soon(self, is_wanted: bool) -> None:
        if is_wanted:
            self._wanted.set()
        self._wake.set()
