"""The oracle: transformers' `generate()` with our processors says what our own loop says."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest
import torch
from transformers import (
    DynamicCache,
    LogitsProcessorList,
    Qwen2Config,
    Qwen2ForCausalLM,
    StoppingCriteriaList,
)

from streamer.core.rules.constrain import constrain, stop
from streamer.core.rules.settings import Rules, Sampling
from streamer.core.text.vocabulary import Vocabulary
from streamer.model.processors import RulesLogitsProcessor, SentenceStoppingCriteria
from streamer.model.sampler import choose

HAN = "说话人的语速较慢音调平稳停顿少声低沉色偏暗情绪静微缓"
WORDS = ("音调", "语速", "慢慢", "，请", "。”", "色。", "Human", "Hum", "an", " ", "\n", "a", "b")
TOKENS = [*HAN, *"，、：。！？“”.,", *WORDS]
SPLIT, ENDS = (b"\xe9\xbe", b"\x98", b"\x99"), (b"<im_start>", b"<im_end>", b"<endoftext>")
DATA = [*(t.encode() for t in TOKENS), *SPLIT, *ENDS]
SPECIAL = list(range(len(DATA) - 3, len(DATA)))
SIZE = len(DATA) + 3
VOCABULARY = Vocabulary.build(DATA, SPECIAL, SPECIAL[1:], SIZE)
NEVER = VOCABULARY.never
SETTINGS = [
    Rules(max_new_tokens=40),
    Rules(max_new_tokens=40, repetition_penalty=1.0, ngram=0, adjacency=False),
    Rules(min_new_tokens=3, comma_gap=2, end_since="punctuation", max_new_tokens=40),
    Rules(loop_local=False, ngram=2, max_new_tokens=40),
    Rules.off(max_new_tokens=40),
    Rules.off(max_new_tokens=40, loop_global=True),
    Rules.off(max_new_tokens=40, clean=True, loop_local=True),
    Rules(clean=False, loop_global=False, max_new_tokens=40),
]


@cache
def random_model(seed: int) -> Qwen2ForCausalLM:
    """A tiny random Qwen2 with large logits; at odd seeds it dislikes to end, and at seed 3 it
    forgets, so that it loops."""
    torch.manual_seed(seed)
    config = Qwen2Config(
        vocab_size=SIZE,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=256,
        initializer_range=0.5,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=SPECIAL[1:],
        pad_token_id=SPECIAL[2],
    )
    model = Qwen2ForCausalLM(config).eval()
    if seed % 2:
        ends = [i for i in range(SIZE) if VOCABULARY.ends[i] or i in VOCABULARY.eos]
        model.lm_head.weight.data[ends] *= 0.05
    if seed == 3:
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight.data.zero_()
    return model


@dataclass
class Answer:
    ids: list[int]
    reason: str


@torch.inference_mode()
def ours(model: Any, prompt: list[int], rules: Rules, sampling: Sampling) -> Answer:
    """The decoding loop in its plainest form: one id per step, one cache."""
    answer: list[int] = []
    cache, feed = DynamicCache(config=model.config), prompt
    while True:
        logits = (
            model(torch.tensor([feed]), past_key_values=cache, use_cache=True).logits[:, -1].float()
        )
        candidate = choose(
            logits, [constrain(VOCABULARY, rules, answer)], NEVER, sampling, rules
        ).ids[0]
        end = stop(VOCABULARY, rules, answer, candidate)
        if end is None or end.keep:
            answer.append(candidate)
        if end is not None:
            return Answer(answer, end.reason)
        feed = [candidate]


def generated(
    model: Any, prompts: list[list[int]], rules: Rules, sampling: Sampling
) -> list[list[int]]:
    """What `generate()` adds to each prompt, up to the first EOS."""
    length = len(prompts[0])
    ids = torch.tensor(prompts)
    out = model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        logits_processor=LogitsProcessorList(
            [RulesLogitsProcessor(VOCABULARY, rules, sampling, length)]
        ),
        stopping_criteria=StoppingCriteriaList(
            [SentenceStoppingCriteria(VOCABULARY, rules, length)]
        ),
        max_new_tokens=rules.max_new_tokens,
        do_sample=False,
    )
    answers = []
    for row in out[:, length:].tolist():
        ends = [i for i, token in enumerate(row) if token in VOCABULARY.eos]
        answers.append(row[: ends[0]] if ends else row)
    return answers


@pytest.mark.parametrize("seeds", [(0, 1, 3), pytest.param((2, 4, 5), marks=pytest.mark.long)])
@pytest.mark.parametrize("rules", SETTINGS, ids=range(len(SETTINGS)))
def test_our_loop_equals_generate(rules: Rules, seeds: tuple[int, ...]) -> None:
    """One that ends, one that dislikes to, and one that loops."""
    reasons = set()
    for seed in seeds:
        model = random_model(seed)
        prompt = [seed % 20, 3, (seed * 7) % 30]
        sampling = Sampling(seed=seed)
        mine = ours(model, prompt, rules, sampling)
        assert generated(model, [prompt], rules, sampling) == [mine.ids], (seed, mine)
        reasons.add(mine.reason)
    assert reasons <= {"sentence", "eos", "loop", "max_tokens"}


@pytest.mark.parametrize("sampling", [Sampling(0.8, 0.9, 1), Sampling(1.5, 1.0, 2)])
def test_sampling_repeats_itself_in_generate(sampling: Sampling) -> None:
    for seed in range(4):
        model, prompt = random_model(seed), [seed, 3, 4]
        mine = ours(model, prompt, SETTINGS[0], sampling)
        assert generated(model, [prompt], SETTINGS[0], sampling) == [mine.ids]


def test_every_stop_reason_is_met_on_the_way() -> None:
    """The oracle above would prove little if all its answers ended alike."""
    settings = [SETTINGS[0], Rules.off(max_new_tokens=30, loop_global=True)]
    reasons = {
        ours(random_model(s), [s, 3, 4], rules, Sampling()).reason
        for s in range(6)
        for rules in settings
    }
    assert reasons == {"sentence", "eos", "loop", "max_tokens"}
