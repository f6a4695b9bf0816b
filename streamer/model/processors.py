"""The rules in transformers' own `generate()`. In: ids and scores. Out: scores, stop flags.

    prompt_length = input_ids.shape[1]
    rule = RulesLogitsProcessor(vocabulary, Rules(), Sampling(), prompt_length)
    end = SentenceStoppingCriteria(vocabulary, Rules(), prompt_length)
    model.generate(input_ids, logits_processor=LogitsProcessorList([rule]), do_sample=False,
                   stopping_criteria=StoppingCriteriaList([end]), max_new_tokens=96)

`do_sample=False` also for sampling: the processor draws itself, with noise that can be repeated.
This is the oracle that our own loop is tested against (`transformers/generation/logits_process.py`,
`stopping_criteria.py`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from transformers import LogitsProcessor, StoppingCriteria

from streamer.core.rules.constrain import constrain
from streamer.core.rules.settings import NOT_SHOWN, Rules, Sampling, stop
from streamer.core.text.vocabulary import Vocabulary
from streamer.model.sampler import BANNED, pick, ruled


@dataclass
class RulesLogitsProcessor(LogitsProcessor):
    """Scores with every rule applied, so that their argmax is the id our own loop chooses.

    Where that id is not simply the largest score (a draw, the local rule against loops), all others
    are banned. An id that would complete a loop is replaced by EOS, because a loop stops BEFORE it
    is committed. Rows that have ended already may hold anything: `generate()` pads them. Every
    row's prompt is `prompt_length` ids long.
    """

    vocabulary: Vocabulary
    rules: Rules
    sampling: Sampling
    prompt_length: int

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """`input_ids` [B, L] int64, raw `scores` [B, V]. Returns [B, V] float32."""
        vocabulary, rules = self.vocabulary, self.rules
        found = []
        for ids, raw in zip(input_ids.tolist(), scores.float().cpu().numpy(), strict=True):
            answer = ids[self.prompt_length :]
            constraint = constrain(vocabulary, rules, answer)
            row = ruled(raw, constraint, vocabulary, rules)
            chosen = pick(row, constraint, self.sampling, rules)
            ends_unshown = stop(vocabulary, rules, answer, chosen) in NOT_SHOWN
            wanted = vocabulary.fallback if ends_unshown else chosen
            if wanted != row.argmax():
                row[:] = BANNED
                row[wanted] = 0.0
            found.append(row)
        return torch.from_numpy(np.stack(found)).to(scores.device)


@dataclass
class SentenceStoppingCriteria(StoppingCriteria):
    """True for rows whose last id ends the answer: a sentence end, EOS, the last id allowed."""

    vocabulary: Vocabulary
    rules: Rules
    prompt_length: int

    def __call__(self, input_ids: Tensor, scores: Tensor, **kwargs: object) -> Tensor:
        """`input_ids` [B, L]. Returns [B] bool."""
        answers = (ids[self.prompt_length :] for ids in input_ids.tolist())
        ended = [
            bool(answer) and stop(self.vocabulary, self.rules, answer[:-1], answer[-1]) is not None
            for answer in answers
        ]
        return torch.tensor(ended, dtype=torch.bool, device=input_ids.device)
