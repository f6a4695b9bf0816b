"""transformers' own modules and its own loop: the oracle of our engines."""

import torch

from streamer.core.audio.pcm import on_grid
from streamer.model.decoding import RulesLogitsProcessor, SentenceStoppingCriteria
from streamer.model.listener import Listener, hear, items_of


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
