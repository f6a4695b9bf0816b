"""Turns as rows of prefix, audio, suffix and answer: the loss on the answer, and greedy answers."""

import json
import random
from pathlib import Path

import torch
import torch.nn.functional as F
from tokenizers import Tokenizer
from transformers import DynamicCache

from pipelines.embedded.data import Turn
from pipelines.embedded.export import spoken as spoken_in
from pipelines.embedded.model import hidden_states, tower
from pipelines.embedded.sentences import LANGUAGES, MARKS
from pipelines.embedded.tokenizer import build
from streamer.core.attributes import parse

MAX_IDS = 64
BATCH = 12  # turns


class Prompted:
    """Turns into padded rows of prefix, audio, suffix, answer; and the loss on the answer."""

    def __init__(self, folder: Path | None = None) -> None:
        """folder: a model whose own tokenizer, prompts and phrases are taken; else the recipe's."""
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json")) if folder else build()
        card = json.loads((folder / "streamer.json").read_text("utf-8")) if folder else None
        spoken = card_languages(card) if card else {name: spoken_in(name) for name in LANGUAGES}
        self.prefix = self._ids(spoken["zh"]["prompt"]["prefix"])
        self.suffixes = {name: self._ids(of["prompt"]["suffix"]) for name, of in spoken.items()}
        self.phrases = {name: of["attributes"] for name, of in spoken.items()}
        self.no_speech = spoken["zh"]["no_speech"]
        self.end = self.tokenizer.token_to_id("<|im_end|>")

    def _ids(self, text: str) -> torch.Tensor:
        return torch.tensor(self.tokenizer.encode(text).ids)

    def levels(self, text: str, language: str = "zh") -> dict[str, int | None]:
        """The level of each attribute that a sentence names; None for the others."""
        return parse(text, self.phrases[language])

    def answer(self, turn: Turn) -> torch.Tensor:
        return torch.tensor([*self.tokenizer.encode("".join(turn.words)).ids, self.end])

    def logits(
        self,
        model,
        embeddings: list[torch.Tensor],
        answers: list[torch.Tensor],
        rng: random.Random,
        languages: list[str] | None = None,
    ):
        """Logits before each id of the answers, [total ids, vocabulary]. languages: of each answer;
        Chinese by default."""
        embed = model.model.language_model.embed_tokens
        rows, at, jumps = [], [], []
        for i, (audio, answer) in enumerate(zip(embeddings, answers, strict=True)):
            suffix = self.suffixes[languages[i] if languages else "zh"]
            start = len(self.prefix) + len(audio) + len(suffix) - 1
            parts = [embed(self.prefix), audio, embed(suffix), embed(answer[:-1])]
            rows.append(torch.cat(parts))
            at.append(torch.arange(start, start + len(answer)))
            room = max(0, 1500 - len(audio))
            jumps_here = rng.random() < 0.25
            jumps.append((rng.randrange(2, start), rng.randint(0, room)) if jumps_here else (0, 0))
        hidden = hidden_states(model, rows, jumps)
        return model.lm_head(torch.cat([hidden[i, a] for i, a in enumerate(at)]))

    def row(self, model, mel: torch.Tensor, language: str) -> torch.Tensor:
        """Prefix, audio and suffix as embeddings [n, width] of one turn's mel [n_frames, 128]."""
        embed = model.model.language_model.embed_tokens
        audio, _ = tower(model.model.audio_tower, [mel])
        return torch.cat([embed(self.prefix), audio, embed(self.suffixes[language])])

    def known(self, turn: Turn) -> torch.Tensor:
        """Which ids of the answer count: ids that say an unknown level do not."""
        unknown = {name for name, level in (turn.levels or {}).items() if level is None}
        marks: list[bool] = []
        for clause in clauses(turn.words):
            levels = self.levels("".join(clause), turn.language)
            said = {name for name, level in levels.items() if level is not None}
            number = len(self.tokenizer.encode("".join(clause)).ids)
            marks += [not said & unknown] * number
        return torch.tensor([*marks, True])

    def loss(self, model, embeddings, turns: list[Turn], rng: random.Random):
        """Mean cross-entropy over answer ids that are known, and the share that is predicted
        right."""
        answers = [self.answer(turn) for turn in turns]
        counts = torch.cat([self.known(turn) for turn in turns])
        languages = [turn.language for turn in turns]
        logits = self.logits(model, embeddings, answers, rng, languages)[counts]
        target = torch.cat(answers)[counts]
        right = (logits.argmax(-1) == target).float().mean().item()
        return F.cross_entropy(logits, target), right


def card_languages(card: dict) -> dict[str, dict]:
    """The languages of a streamer.json, as `export.spoken` gives it."""
    return {card.get("language", "zh"): card, **card.get("languages", {})}


def clauses(words: list[str]) -> list[list[str]]:
    """A sentence's words up to each comma or full stop."""
    parts: list[list[str]] = [[]]
    for word in words:
        parts[-1].append(word)
        if word in MARKS:
            parts.append([])
    return parts[:-1]


@torch.inference_mode()
def describe_batch(
    model, prompted: Prompted, mels: list[torch.Tensor], language: str = "zh"
) -> list[list[int]]:
    """Greedy ids of several turns at once, without the end id. mels: [n_frames, 128] each.

    Rows are padded on the left.
    """
    text, cache = model.model.language_model, DynamicCache(config=model.config.text_config)
    rows = [prompted.row(model, mel, language) for mel in mels]
    longest = max(map(len, rows))
    x = torch.stack([torch.nn.functional.pad(row, (0, 0, longest - len(row), 0)) for row in rows])
    mask = torch.stack([torch.arange(longest) >= longest - len(row) for row in rows]).long()
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    ids: list[list[int]] = [[] for _ in rows]
    ended = torch.zeros(len(rows), dtype=torch.bool)
    for _ in range(MAX_IDS):
        hidden = text(
            inputs_embeds=x,
            attention_mask=mask,
            position_ids=positions.expand(3, -1, -1),
            past_key_values=cache,
            use_cache=True,
        ).last_hidden_state[:, -1]
        choice = model.lm_head(hidden).argmax(-1)
        ended |= choice == prompted.end
        if ended.all():
            break
        for i in (~ended).nonzero()[:, 0].tolist():
            ids[i].append(int(choice[i]))
        x, positions = text.embed_tokens(choice)[:, None], positions[:, -1:] + 1
        mask = torch.cat([mask, torch.ones(len(rows), 1, dtype=torch.long)], 1)
    return ids


def describe_all(model, prompted: Prompted, mels: list[torch.Tensor]) -> list[list[int]]:
    """Greedy ids of any number of turns, BATCH at once."""
    batches = [mels[i : i + BATCH] for i in range(0, len(mels), BATCH)]
    return [ids for batch in batches for ids in describe_batch(model, prompted, batch)]
