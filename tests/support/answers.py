"""One turn through a stream on models that are loaded, under any plan; and by the oracle of our
engines: transformers' own modules and its own loop.
"""

from dataclasses import replace

import anyio
import torch

from streamer.assembly import Models, open_parts, patient
from streamer.config import Config
from streamer.core.audio.pcm import on_grid
from streamer.core.description import Description
from streamer.model.decoding import RulesLogitsProcessor, SentenceStoppingCriteria
from streamer.model.listener import Listener, hear, items_of
from streamer.stages.events import SessionOptions, TurnFailed
from streamer.stages.stream import open_stream


class LoadedModels(Models):
    """As a config would give them, but for the plan; `before` may change each drafter."""

    def __init__(self, edge, cloud, plan, sampling, before=None):
        chance = {name: getattr(sampling, name) for name in ("temperature", "top_p", "seed")}
        super().__init__(Config(mode=plan.mode, **chance))
        self.pair = (None if plan.mode == "cloud" else edge, None if plan.mode == "edge" else cloud)
        self._given, self._before = plan, before

    @property
    def plan(self):
        rules = self._given.rules
        return replace(self._given, rules=replace(rules, language=rules.language or self.language))

    @property
    def drafting(self):
        made = super().drafting
        return (lambda *given: self._before(made(*given))) if self._before else made


def answer(edge, cloud, plan, sampling, samples, pieces=(slice(None),), before=None) -> Description:
    """The Description of `samples` [n] at 16 kHz, fed in `pieces`."""
    models = LoadedModels(edge, cloud, plan, sampling, before)

    async def run():
        options = SessionOptions(16_000, is_recording=True)
        async with open_parts(models) as parts, open_stream(patient(parts), options) as stream:
            for piece in pieces:
                await stream.feed(samples[piece].astype("<f4").tobytes())
            await stream.commit()
            async for event in stream.events():
                assert not isinstance(event, TurnFailed), event
                if isinstance(event, Description):
                    return event
        raise AssertionError("the stream ended without a Description")

    return anyio.run(run)


def hear_turn(thinker, samples, language=""):
    """A listener whose turn was `samples`; the caller closes it."""
    listener = Listener(thinker, language)
    for item in items_of([samples], thinker.card.max_turn_s):
        hear(listener, item)
    return listener


def inputs_of(listener):
    """A turn's prompt and log-mel as transformers takes them."""
    ids, features = torch.tensor([listener.sequence.ids]), torch.from_numpy(listener.features())
    frames = torch.ones((1, features.shape[1]), dtype=torch.long)
    told = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    return told | {"input_features": features[None], "feature_attention_mask": frames}


@torch.inference_mode()
def generated(stock, thinker, samples, rules, sampling):
    """The ids of `generate()` with the rules as processors; it keeps the id that stopped it."""
    listener = hear_turn(thinker, on_grid(samples))
    told, n = inputs_of(listener), len(listener.sequence.ids)
    listener.close()
    chooses = RulesLogitsProcessor(thinker.vocabulary, rules, sampling, n)
    ends = SentenceStoppingCriteria(thinker.vocabulary, rules, n)
    by_rules = {"logits_processor": [chooses], "stopping_criteria": [ends], "do_sample": False}
    found = stock.generate(**told, **by_rules, max_new_tokens=rules.max_new_tokens)
    return found[0, n:].tolist()
