"""Both ends of the link on real models.

The edge: open the link to a verifier elsewhere, for Models whose cloud is a ws:// address. The
verifier: a turn's samples and requests in, verdicts out.
"""

from __future__ import annotations

import os
import ssl
import time
from functools import partial
from typing import Any

import anyio.to_thread
from anyio import CapacityLimiter
from anyio.abc import TaskGroup

from streamer.assembly.models import Models, PromiseWarning
from streamer.core.audio.turn import Closed, Heard
from streamer.core.rules.settings import LevelWeights
from streamer.model.audio.mel import StreamingLogMel
from streamer.model.checkpoint.weights import ModelError
from streamer.model.decoding import Decoder
from streamer.model.thinker import Thinker
from streamer.net.link.client import RemoteCloud, VerifierAddress
from streamer.net.link.server import ServedTurn
from streamer.net.link.target import DecodingTerms
from streamer.net.service.admission import KEY_CHARACTERS
from streamer.net.service.metrics import notices
from streamer.stages.parts import Batcher, LocalTarget

KEY = "STREAMER_CLOUD_KEY"
SETTLE_S = 2.0  # for the first connection: most take less


async def open_remote(models: Models, group: TaskGroup) -> RemoteCloud:
    """A link to the verifier, kept by tasks of `group`. Raises ModelError where it refuses us."""
    config, card, plan = models.config, models.first.card, models.plan
    key = config.cloud_key or os.environ.get(KEY)
    if key and not KEY_CHARACTERS.fullmatch(key):
        told = f"the key in cloud_key or {KEY} holds characters that no key has; check it"
        raise ModelError(config.cloud, told)
    tls = ssl.create_default_context() if config.cloud.startswith("wss://") else None
    is_eager = config.cloud_audio == "eager"
    verifier = VerifierAddress(config.cloud, key, tls, is_eager, plan.verify_budget_s)
    phrases = {name: card.speaking(name).phrases for name in card.spoken}
    terms = DecodingTerms(models.first.vocabulary, config.sampling(), phrases)

    def doubt(fingerprint: str) -> None:
        """A warning, never an error: that would end the link's task, which all turns need."""
        try:
            models.check_promise(plan.rules, fingerprint)
        except PromiseWarning as warning:
            notices.warning(str(warning))

    link = RemoteCloud(verifier, terms, time.perf_counter, group, doubt)
    await link.settled(SETTLE_S)
    if link.lost is not None:
        raise ModelError(link.name, link.trouble)
    return link


class ModelJudge:
    """One turn of an edge elsewhere, on the model that is loaded here; one call at a time. It makes
    the windows itself: the same samples give those of the edge."""

    def __init__(
        self, thinker: Thinker, model: Batcher, turn: ServedTurn, threads: CapacityLimiter
    ) -> None:
        self._threads = threads
        self._mel = StreamingLogMel()
        self._target = LocalTarget(
            model,
            model.listen(turn.rules.language),
            partial(Decoder.of, rules=turn.rules, sampling=turn.sampling),
        )
        self.verify = self._target.verify
        self.close = self._target.close

    async def hear(self, samples: Any) -> None:
        mel = self._mel
        windows = tuple(await anyio.to_thread.run_sync(mel.push, samples, limiter=self._threads))
        n = mel.num_samples
        await self._target.hear(Heard(0, windows, mel.maximum, num_taken=n))

    async def finish(self, weights: LevelWeights) -> None:
        mel = self._mel
        rest = tuple(await anyio.to_thread.run_sync(mel.finish, limiter=self._threads))
        num = mel.num_samples
        closed = Closed(0, rest, mel.maximum, num, has_speech=True, last_speech=None)
        self._target.finish(closed, weights)
        await self._target.hear_end(prefills=True)
