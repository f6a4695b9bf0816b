"""The edge's end of a turn that a verifier elsewhere serves, without a socket.

The turn keeps its samples, since the verifier may lose its slot, and the requests without a reply,
since the websocket may be cut. For each websocket call `connect` and send the Open; then send
`next_message` until it is None, and give `receive` the messages that arrive.

`Backoff` paces connections and requests. Its times are seconds of any monotonic clock.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamer.core.audio.pcm import SAMPLE_RATE_HZ
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
_BYTES = 4  # of a sample as it is kept


@dataclass(frozen=True)
class DecodingTerms:
    """How the edge decodes, and what the verifier must agree to.

    phrases: language -> a digest of the phrases of its form, "" for none.
    """

    vocabulary: Vocabulary
    rules: Rules
    sampling: Sampling
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
        # fingerprint of the first verifier that opened the turn
        self.model = ""
        self._samples = bytearray()  # float32
        self._weights = FLAT
        self._is_finished = self._is_finish_sent = False
        # samples sent on this websocket; None until the verifier says how many it has
        self._num_sent: int | None = None
        self._was_connected = False
        self._requests: dict[int, VerifyRequest] = {}  # without a reply, oldest first
        self._sent: set[int] = set()  # their numbers, on this websocket
        self._run_from: int | None = None  # the verifier decodes alone from this number on
        self._early: dict[int, Verdict] = {}  # of a run, before they were asked for

    @property
    def num_unheard(self) -> int:
        """Samples that the verifier has not heard."""
        return self.num_samples - self.num_heard

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
        self._is_finish_sent = self.is_ready = False
        self._sent.clear()
        self._run_from = None
        t = self.terms
        language = t.rules.language
        rules: dict[str, Any] = vars(t.rules) | {"phrases": t.phrases.get(language, "")}
        del rules["language"]  # a field of the message
        chance = (t.sampling.temperature, t.sampling.top_p, t.sampling.seed)
        tokenizer = t.vocabulary.fingerprint
        return wire.Open(self.session, self.model, tokenizer, language, rules, chance)

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
        if request is not None:
            self._sent.add(request.number)
            if request.runs_on:
                self._run_from = request.number
        return request

    def receive(self, message: wire.Down) -> Verdict | Refusal | None:
        """Take a message from the verifier; return the reply that it holds.

        Raises RemoteFault for a message that cannot be, and WireError. The caller handles
        Rejected.
        """
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
        if self._num_sent is None:
            self._num_sent = self.num_heard = num_samples

    def _audio(self, start: int) -> wire.Audio | None:
        room = self.num_heard + MAX_UNHEARD_SAMPLES - start
        size = min(PIECE_SAMPLES, self.num_samples - start, room)
        if size <= 0:
            return None
        self._num_sent = start + size
        data = self._samples[_BYTES * start : _BYTES * self._num_sent]
        return wire.Audio.of(start, np.frombuffer(data, np.float32))

    def _judged(self, verdict: Verdict) -> Verdict | None:
        request = self._requests.get(verdict.number)
        is_of_run = self._run_from is not None and verdict.number >= self._run_from
        if request is None and not is_of_run:  # given up
            return None
        n, chosen, known = verdict.n_accepted, verdict.next_id, self.terms.vocabulary
        n_drafted = len(request.draft) if request is not None else 0
        is_possible = n <= n_drafted and chosen < known.num_ids
        # terminals and pages show it: no escape code, line break or special id
        if not is_possible or (self.terms.rules.clean and known.never[chosen]):
            told = f"{n} of {n_drafted} ids accepted, then id {chosen}"
            raise RemoteFault(f"a verdict of the verifier cannot be: {told}")
        if request is None:
            if len(self._early) < MAX_IDS:
                self._early[verdict.number] = verdict
            return None
        self.forget(verdict.number)
        return verdict


# After a connection that failed, and a verdict that was late.
DIAL_PAUSES_S = (0.02, 0.1, 0.25, 0.5, 1.0, 2.0)
VERDICT_PAUSES_S = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0)
# of a pause, up or down: edges that lost one verifier do not come back to it all at once
JITTER = 0.25


class Backoff:
    """Failures in a row, and the pause after them.

    Attempts that began before the latest failure count with it, so turns that miss the same outage
    count once. A success forgets all failures, and so does `forgets_s` without one.
    """

    def __init__(self, pauses_s: Sequence[float], forgets_s: float = math.inf) -> None:
        """pauses_s: after one failure, two, ...; the last one from then on."""
        self.pauses_s = pauses_s
        self.failed_at = -math.inf
        self._forgets_s = forgets_s
        self._num = 0

    def failed(self, now: float, began_at: float = math.inf) -> None:
        """An attempt that began at `began_at` failed."""
        if began_at >= self.failed_at:
            self._num = self.num_failures(now) + 1
            self.failed_at = now

    def succeeded(self) -> None:
        """An attempt succeeded."""
        self._num = 0
        self.failed_at = -math.inf

    def num_failures(self, now: float) -> int:
        """How many there were in a row."""
        return self._num if now - self.failed_at < self._forgets_s else 0

    def pause_s(self, now: float, chance: float = 0.5) -> float:
        """The pause after the latest failure, 0 for none. chance: the caller's, 0 to 1."""
        num = self.num_failures(now)
        if not num:
            return 0.0
        usual_s = self.pauses_s[min(num, len(self.pauses_s)) - 1]
        return usual_s * (1.0 + JITTER * (2.0 * chance - 1.0))
