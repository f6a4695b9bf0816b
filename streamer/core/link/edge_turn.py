"""A turn on a verifier elsewhere, the edge's end. In: samples, requests. Out: messages, replies.

Keeps what the verifier may need again: the turn's samples (its slot may be lost) and the requests
without a reply (the link may be cut). `attach` on every new link; `pull` what is to be sent next;
`take` what came.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamer.core.decoding.verdict import Refusal, Verdict, VerifyRequest
from streamer.core.link import packing, wire
from streamer.core.link.decoding_terms import FIRST, DecodingTerms
from streamer.core.link.plausible import Plausible, RemoteFault
from streamer.core.link.send_window import PIECE_SAMPLES
from streamer.core.rules.level_weights import FLAT, LevelWeights


class RemoteTurn:
    """See the module. `num_prefilled` samples are in the verifier's slot; `is_ready`: it waits for
    requests. `epoch`: the latest of the turns that had this channel before, so that what is still
    said to them is not taken for its own.
    """

    def __init__(self, channel: int, session: bytes, terms: DecodingTerms, epoch: int = 0) -> None:
        self.channel = channel
        self.session = session
        self.terms = terms
        self.epoch = epoch
        self.num_samples = self.num_prefilled = self._num_links = 0
        self.is_ready = self.is_opened = False
        self.model = ""  # fingerprint of the first verifier that opened the turn
        self._pieces: list[NDArray[np.float32]] = []
        self._starts: list[int] = []
        self._is_finished = self._finish_sent = self._open_sent = False
        self._weights = FLAT
        # samples sent on this link; None: the verifier has not said what it has
        self._num_sent: int | None = None
        self._requests: dict[int, VerifyRequest] = {}  # without a reply, oldest first
        self._sent: set[int] = set()
        self._run_from: int | None = None  # the number that the verifier decodes alone from
        self._early: dict[int, Verdict] = {}  # before they were asked for: of a run, or FIRST's
        self._is_unasked = False  # FIRST was sent, and nobody waits for it yet
        self._plausible = Plausible(terms.vocabulary if terms.rules.clean else None)

    def hear(self, samples: NDArray[np.float32]) -> None:
        """Samples [n] float32 that follow those before."""
        for start in range(0, len(samples), PIECE_SAMPLES):
            piece = samples[start : start + PIECE_SAMPLES]
            self._pieces.append(piece)
            self._starts.append(self.num_samples)
            self.num_samples += len(piece)

    def finish(self, weights: LevelWeights = FLAT) -> None:
        """The turn is over; its levels have these `weights`."""
        self._is_finished = True
        self._weights = weights
        if self.terms.asks_first and not self._requests:
            self._requests[FIRST.number] = FIRST
            self._is_unasked = True

    def ask(self, request: VerifyRequest) -> Verdict | Refusal | None:
        """Have `request` sent; its verdict, where the verifier has given it already. Refused is
        another one than FIRST under FIRST's number (the edge went on alone first): that number's
        verdict is FIRST's, whenever it comes."""
        if self.terms.asks_first and request.number == FIRST.number and request != FIRST:
            self.forget(FIRST.number)
            self._early.pop(FIRST.number, None)
            self._is_unasked = False
            return Refusal(request.number, "number")
        if request.number in self._early:
            return self._early.pop(request.number)
        if self._is_unasked and request == FIRST:
            self._is_unasked = False
            return None
        self._requests[request.number] = request
        if self._run_from is not None:  # its verdict comes unasked
            self._sent.add(request.number)
        return None

    def forget(self, number: int) -> None:
        """Nobody waits for this reply any more."""
        self._requests.pop(number, None)
        self._sent.discard(number)

    @property
    def is_open_sent(self) -> bool:
        """On this link."""
        return self._open_sent

    def attach(self) -> None:
        """A new link: nothing was sent on it."""
        self.epoch += 1
        self._num_links += 1
        self._open_sent = self._finish_sent = self.is_opened = self.is_ready = False
        self._num_sent = 0 if self._num_links == 1 else None
        self._sent.clear()
        self._run_from = None

    def pull(self, max_samples: int = PIECE_SAMPLES) -> wire.Up | None:
        """The next message for this link, with so much audio at most; None for now."""
        if not self._open_sent:
            self._open_sent = True
            return self._open()
        if self._num_sent is None:
            return None
        if self._num_sent < self.num_samples:
            size = min(max_samples, PIECE_SAMPLES)
            return self._audio(self._num_sent, size) if size > 0 else None
        if not self._is_finished:
            return None
        if not self._finish_sent:
            self._finish_sent = True
            return self._finish()
        request = next((r for n, r in self._requests.items() if n not in self._sent), None)
        return None if request is None else self._ask(request)

    def take(self, message: wire.Down) -> Verdict | Refusal | None:
        """What came on this turn's channel; the reply it brings. Raises RemoteFault, WireError."""
        if isinstance(message, wire.Pong | wire.Rejected) or message.epoch != self.epoch:
            return None
        match message:
            case wire.OpenedMessage(num_samples=num_samples, model=model):
                self._opened(num_samples, model)
            case wire.HeardMessage(num_samples=num_samples, is_finished=is_finished):
                if num_samples > self.num_samples:
                    raise RemoteFault("the verifier heard more than there is")
                self.num_prefilled = num_samples
                self.is_ready = is_finished
            case wire.Judged():
                return self._judged(packing.verdict_of(message))
            case wire.Refused(number=number, reason=reason) if number in self._requests:
                self.forget(number)
                self._run_from = None
                self._is_unasked = False
                return Refusal(number, reason)
        return None

    def _open(self) -> wire.Open:
        t = self.terms
        chance = (t.sampling.temperature, t.sampling.top_p, t.sampling.seed)
        rules: dict[str, Any] = vars(t.rules) | {"phrases": t.phrases}
        return wire.Open(
            self.channel,
            self.session,
            self.epoch,
            wire.VERSION,
            self.model,
            t.tokenizer,
            t.language,
            rules,
            chance,
        )

    def _opened(self, num_samples: int, model: str) -> None:
        if num_samples > self.num_samples or (self.model and model != self.model):
            raise RemoteFault("the verifier took the turn for another one")
        self.model = model
        self.is_opened = True
        if self._num_sent is None:
            self._num_sent = self.num_prefilled = num_samples

    def _audio(self, start: int, size: int) -> wire.AudioMessage:
        """At most `size` samples from `start` on: a link that is behind sends longer pieces."""
        i = bisect_right(self._starts, start) - 1
        pieces = [self._pieces[i][start - self._starts[i] :]]
        while sum(map(len, pieces)) < size and (i := i + 1) < len(self._pieces):
            pieces.append(self._pieces[i])
        samples = np.concatenate(pieces)[:size]
        self._num_sent = start + len(samples)
        return wire.AudioMessage(self.channel, start, *packing.pack_audio(samples))

    def _finish(self) -> wire.Up:
        if not self._weights:
            return wire.Finish(self.channel, self.num_samples)
        return wire.FinishWithin(self.channel, self.num_samples, dict(self._weights))

    def _ask(self, request: VerifyRequest) -> wire.Up:
        self._sent.add(request.number)
        m = packing.verify_message(self.channel, self.epoch, request)
        if not self.terms.runs_on:
            return m
        self._run_from = request.number
        self._sent.update(self._requests)
        return wire.Decode(m.channel, m.epoch, m.number, m.base, m.prefix, m.unverified)

    def _judged(self, verdict: Verdict) -> Verdict | None:
        if verdict.next_id >= self.terms.num_ids:
            raise RemoteFault(f"the verifier chose id {verdict.next_id} of {self.terms.num_ids}")
        request = self._requests.get(verdict.number)
        is_run = self._run_from is not None and verdict.number >= self._run_from
        is_early = request is None and is_run
        if request is None and not is_early:  # given up
            return None
        n_drafted = len(request.draft) if request is not None else 0
        if verdict.n_accepted > n_drafted:
            raise RemoteFault(f"the verifier accepted {verdict.n_accepted} ids of {n_drafted}")
        self._plausible.check(verdict, request)
        if is_early:
            if len(self._early) < wire.MAX_IDS:
                self._early[verdict.number] = verdict
            return None
        self.forget(verdict.number)
        if self._is_unasked and verdict.number == FIRST.number:
            self._early[verdict.number] = verdict
            self._is_unasked = False
            return None
        return verdict
