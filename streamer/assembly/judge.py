"""A verifier's model as its server needs it: a turn's samples and requests in, verdicts out."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Any

import anyio.to_thread
from anyio import CapacityLimiter

from streamer.core.audio.turn_items import Closed, Heard
from streamer.core.decoding.verdict import Refusal, Verdict, VerifyRequest, prefix_hash
from streamer.core.link.verifier_turn import VerifierModel, VerifierTurn
from streamer.core.rules.stop import stop
from streamer.stages.local_target import LocalTarget
from streamer.stages.ports import Side

if TYPE_CHECKING:
    from streamer.model.thinker import Thinker


def verifier_model_of(thinker: Thinker) -> VerifierModel:
    """The facts that a verifier with this model states about itself."""
    from streamer.model.checkpoint.weights import fingerprint_of

    vocabulary = thinker.vocabulary
    card = thinker.card
    return VerifierModel(
        fingerprint_of(thinker.directory),
        vocabulary.fingerprint,
        card.language,
        vocabulary.num_ids,
        card.max_turn_s,
        card.phrases,
    )


class ModelJudge:
    """See ports.py's Judge. Makes windows itself: the same samples give those of the edge."""

    def __init__(
        self, thinker: Thinker, side: Side, turn: VerifierTurn, threads: CapacityLimiter
    ) -> None:
        from streamer.model.audio.mel import StreamingLogMel
        from streamer.model.decoding import LocalVerifier

        self._vocabulary = thinker.vocabulary
        self._turn = turn
        self._threads = threads
        self._mel = StreamingLogMel()
        self._listener: Any = side.listen()
        self._target = LocalTarget(
            side.batcher,
            self._listener,
            lambda listener, weights: LocalVerifier(listener, turn.rules, turn.sampling, weights),
            lambda: True,
        )

    async def hear(self, samples: Any) -> None:
        mel = self._mel
        windows = tuple(await anyio.to_thread.run_sync(mel.push, samples, limiter=self._threads))
        n = mel.num_samples
        await self._target.hear(Heard(0, windows, mel.maximum, n, num_taken=n))

    async def finish(self) -> None:
        mel = self._mel
        rest = tuple(await anyio.to_thread.run_sync(mel.finish, limiter=self._threads))
        closed = Closed(0, rest, mel.maximum, mel.num_samples, True, lambda: None)
        await self._target.finish(closed, self._turn.weights)

    async def judge(
        self, request: VerifyRequest, runs_on: bool
    ) -> AsyncGenerator[Verdict | Refusal, None]:
        """Each further reply is to the request that an edge without a draft would make."""
        while True:
            reply = await self._target.verify(request)
            yield reply
            if not runs_on or isinstance(reply, Refusal):
                return
            # When a reply is repeated after a cut link, the sequence is further on: the next
            # one is repeated too.
            at = request.base + len(request.unverified) + reply.n_accepted + 1
            answer = self._listener.sequence.answer[:at]
            if self._is_over(answer):
                return
            request = VerifyRequest(request.number + 1, at, prefix_hash(answer), (), ())

    def close(self) -> None:
        self._target.close()

    def _is_over(self, answer: list[int]) -> bool:
        return stop(self._vocabulary, self._turn.rules, answer[:-1], answer[-1]) is not None
