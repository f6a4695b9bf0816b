"""The edge's end of a turn that a verifier elsewhere serves, without a socket.

The turn keeps its samples, since the verifier may lose its slot, and the requests without a reply,
since the websocket may be cut. For each websocket call `connect` and send the Open; then send
`next_message` until it is None, and give `receive` the messages that arrive.

`Redial` paces connections, and `Breaker` decides whether asking is worth it. Their times are
seconds of any monotonic clock.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamer.core.audio.pcm import LIVE_SAMPLES, SAMPLE_RATE_HZ
from streamer.core.decoding.plan import MAX_IDS, Refusal, Verdict, VerifyRequest
from streamer.core.link import wire
from streamer.core.rules.settings import FLAT, LevelWeights, Rules, Sampling
from streamer.core.text.vocabulary import Vocabulary

# One Audio has at most these. In float32 they take under 2 s at 10 kB/s, so a thin link shows
# progress.
PIECE_SAMPLES = SAMPLE_RATE_HZ // 4
# Sent and not yet heard. A request waits after at most 2 s of audio, on a slow verifier or a thin
# link; a recording is sent at 2 s per round trip.
MAX_UNHEARD_SAMPLES = 2 * SAMPLE_RATE_HZ
MAX_MESSAGES = 4_096  # of one websocket, down: a turn of 75 s in pieces of 100 ms has 1,000
_BYTES = 4  # of a sample as it is kept


@dataclass(frozen=True)
class DecodingTerms:
    """How the edge decodes, and what the verifier must agree to.

    num_ids: of the tokenizer's vocabulary. vocabulary: to check the ids that the verifier chooses.
    phrases: language -> a digest of the phrases of its form, "" for none.
    """

    tokenizer: str
    num_ids: int
    rules: Rules
    sampling: Sampling
    vocabulary: Vocabulary | None = None
    phrases: Mapping[str, str] = field(default_factory=dict)


class RemoteFault(RuntimeError):
    """A message of the verifier cannot be: another model, a verdict that does not fit."""


class EdgeTurn:
    """One turn, through all of its websockets."""

    def __init__(self, session: bytes, terms: DecodingTerms) -> None:
        self.session = session
        self.terms = terms
        self.num_samples = 0
        # samples in the verifier's slot
        self.num_heard = 0
        # the verifier has heard the end, and waits for requests
        self.is_ready = False
        # the verifier has opened the turn on this websocket
        self.is_opened = False
        # fingerprint of the first verifier that opened the turn
        self.model = ""
        self._samples = bytearray()  # float32
        self._weights = FLAT
        self._is_finished = self._is_finish_sent = False
        # samples sent on this websocket; None until the verifier says how many it has
        self._num_sent: int | None = None
        self._num_received = 0  # messages on this websocket
        self._was_connected = False
        self._requests: dict[int, VerifyRequest] = {}  # without a reply, oldest first
        self._sent: set[int] = set()  # their numbers, on this websocket
        self._run_from: int | None = None  # the verifier decodes alone from this number on
        self._early: dict[int, Verdict] = {}  # of a run, before they were asked for

    @property
    def num_unheard(self) -> int:
        """Samples that the verifier should have heard by now, and has not. A last piece under
        100 ms waits for more."""
        n = self.num_samples - self.num_heard
        return n if self._is_finished or n >= LIVE_SAMPLES else 0

    def hear(self, samples: NDArray[np.float32]) -> None:
        """Append samples [n] float32."""
        self._samples += samples.astype(np.float32, copy=False).tobytes()
        self.num_samples += len(samples)

    def finish(self, weights: LevelWeights = FLAT) -> None:
        """End the turn; its sentence says levels by `weights`."""
        self._is_finished = True
        self._weights = weights

    def ask(self, request: VerifyRequest) -> Verdict | None:
        """Queue `request`; return its verdict where the verifier has already given it."""
        if request.number in self._early:
            return self._early.pop(request.number)
        self._requests[request.number] = request
        return None

    def forget(self, number: int) -> None:
        """Wait no longer for this reply."""
        self._requests.pop(number, None)
        self._sent.discard(number)

    def connect(self) -> wire.Open:
        """Start over on a new websocket; send the returned message first."""
        self._num_sent = None if self._was_connected else 0
        self._was_connected = True
        self._num_received = 0
        self._is_finish_sent = self.is_opened = self.is_ready = False
        self._sent.clear()
        self._run_from = None
        t = self.terms
        language = t.rules.language
        rules: dict[str, Any] = vars(t.rules) | {"phrases": t.phrases.get(language, "")}
        del rules["language"]  # a field of the message
        chance = (t.sampling.temperature, t.sampling.top_p, t.sampling.seed)
        return wire.Open(self.session, self.model, t.tokenizer, language, rules, chance)

    def next_message(self) -> wire.Up | None:
        """The next message for this websocket; None until something happens."""
        if self._num_sent is None:
            return None
        if self._num_sent < self.num_samples:
            return self._audio(self._num_sent)
        if not self._is_finished:
            return None
        if not self._is_finish_sent:
            self._is_finish_sent = True
            return wire.Finish(self.num_samples, dict(self._weights))
        if self._run_from is not None:  # further verdicts come without asking
            return None
        request = next((r for n, r in self._requests.items() if n not in self._sent), None)
        return None if request is None else self._ask(request)

    def receive(self, message: wire.Down) -> Verdict | Refusal | None:
        """Take a message from the verifier; return the reply that it holds.

        Raises RemoteFault for a message that cannot be, and WireError. The caller handles
        Rejected.
        """
        self._num_received += 1
        if self._num_received > MAX_MESSAGES:
            raise RemoteFault("the verifier sends more messages than a turn needs")
        match message:
            case wire.Opened(num_samples=num_samples, model=model):
                self._opened(num_samples, model)
            case wire.Heard(num_samples=num_samples, is_finished=is_finished):
                if num_samples > self.num_samples:
                    raise RemoteFault("the verifier heard more than there is")
                self.num_heard = num_samples
                self.is_ready = is_finished
            case Verdict():
                return self._judged(message)
            case Refusal(number=number) if number in self._requests:
                self.forget(number)
                self._run_from = None
                return message
        return None

    def _opened(self, num_samples: int, model: str) -> None:
        if num_samples > self.num_samples or (self.model and model != self.model):
            raise RemoteFault("the verifier took the turn for another one")
        self.model = model
        self.is_opened = True
        if self._num_sent is None:
            self._num_sent = self.num_heard = num_samples

    def _audio(self, start: int) -> wire.Audio | None:
        room = self.num_heard + MAX_UNHEARD_SAMPLES - start
        left = self.num_samples - start
        size = min(PIECE_SAMPLES, left, room)
        if size <= 0 or (left < LIVE_SAMPLES and not self._is_finished):
            return None  # the verifier takes each piece to a thread
        self._num_sent = start + size
        data = self._samples[_BYTES * start : _BYTES * self._num_sent]
        return wire.Audio.of(start, np.frombuffer(data, np.float32))

    def _ask(self, request: VerifyRequest) -> VerifyRequest:
        self._sent.add(request.number)
        if request.runs_on:
            self._run_from = request.number
        return request

    def _judged(self, verdict: Verdict) -> Verdict | None:
        if verdict.next_id >= self.terms.num_ids:
            raise RemoteFault(f"the verifier chose id {verdict.next_id} of {self.terms.num_ids}")
        request = self._requests.get(verdict.number)
        is_early = request is None and self._is_of_run(verdict.number)
        if request is None and not is_early:  # given up
            return None
        n_drafted = len(request.draft) if request is not None else 0
        if verdict.n_accepted > n_drafted:
            raise RemoteFault(f"the verifier accepted {verdict.n_accepted} ids of {n_drafted}")
        # terminals and pages show it: no escape code, line break or special id
        known = self.terms.vocabulary if self.terms.rules.clean else None
        if known is not None and known.never[verdict.next_id]:
            told = f"the verifier chose id {verdict.next_id}, which the rules never allow"
            raise RemoteFault(told)
        if is_early:
            if len(self._early) < MAX_IDS:
                self._early[verdict.number] = verdict
            return None
        self.forget(verdict.number)
        return verdict

    def _is_of_run(self, number: int) -> bool:
        return self._run_from is not None and number >= self._run_from


PAUSES_S = (0.02, 0.1, 0.25, 0.5, 1.0, 2.0)  # after a failure; the last one from then on
WINDOW_S = 30.0
# of a pause, up or down: edges that lost one verifier do not come back to it all at once
JITTER = 0.25
FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 30.0


def pause_s(num: int, chance: float) -> float:
    """The pause after the `num`-th failure, 0 for none. chance: the caller's, 0 to 1."""
    if num <= 0:
        return 0.0
    return PAUSES_S[min(num, len(PAUSES_S)) - 1] * (1.0 + JITTER * (2.0 * chance - 1.0))


class Redial:
    """Pauses before new connections: they grow with the failures of the last WINDOW_S.

    A connection that is accepted and dropped counts like one that is refused; a verdict forgets all
    failures. With the least jitter a verifier that drops everything is asked at most 8 times in the
    first 5 s, and 5 times in any later ones.
    """

    def __init__(self) -> None:
        self._failures: deque[float] = deque(maxlen=len(PAUSES_S))

    def failed(self, now: float, dialled_at: float) -> None:
        """A connection failed. Those that were dialled before the latest failure count with it."""
        if not self._failures or dialled_at >= self._failures[-1]:
            self._failures.append(now)

    def succeeded(self) -> None:
        """A connection brought a verdict."""
        self._failures.clear()

    def num_failures(self, now: float) -> int:
        """How many there were lately."""
        return sum(now - at < WINDOW_S for at in self._failures)


class Breaker:
    """Whether asking the verifier is worth it now.

    It opens when the connection is lost or a verdict is late. It closes when the verifier has
    answered a later ping and the pause is over. The pause doubles with every failure in a row, so a
    verifier that answers pings and never verifies costs one verify budget per pause, not one per
    block.
    """

    def __init__(self) -> None:
        self.num_failures = 0  # in a row
        self._is_linked = self._is_answering = False
        self._failed_at = self._retry_at = -math.inf

    def is_closed(self, now: float) -> bool:
        """Whether to ask."""
        return self._is_linked and self._is_answering and now >= self._retry_at

    @property
    def pause_s(self) -> float:
        """How long to wait after the latest failure."""
        if not self.num_failures:
            return 0.0
        return min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** (self.num_failures - 1))

    def answered(self, asked_at: float) -> None:
        """A ping that was sent at `asked_at` was answered; one from before a failure proves
        nothing about now."""
        self._is_linked = True
        if asked_at >= self._failed_at:
            self._is_answering = True

    def unlinked(self) -> None:
        """The connection is gone. This is no failure: a new one may be there at once."""
        self._is_linked = False

    def failed(self, now: float, asked_at: float = math.inf) -> None:
        """A verdict was late, or wrong. Requests from before the latest failure count with it, so
        turns that miss the same outage count once."""
        if asked_at < self._failed_at:
            return
        self.num_failures += 1
        self._is_answering = False
        self._failed_at = now
        self._retry_at = now + self.pause_s

    def succeeded(self) -> None:
        """A verdict came."""
        self.num_failures = 0
        self._is_answering = True
        self._failed_at = self._retry_at = -math.inf
