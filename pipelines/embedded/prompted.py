"""Turns as rows of prefix, audio, suffix and answer, and the logits of the answers."""

import random
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch.nn.utils.rnn import pad_sequence

from pipelines.embedded.data import Turn
from pipelines.embedded.sentences import LANGUAGES, MARKS, attributes
from pipelines.embedded.tokenizer import PREFIX, SUFFIXES, build
from streamer.core.attributes import parse


class Rows(NamedTuple):
    """Prefix, audio, suffix and answer of some turns, padded on the right."""

    index: torch.Tensor  # [batch, longest] an id, or the vocabulary's size + an embedding's number
    positions: torch.Tensor  # [batch, longest]
    at: torch.Tensor  # [n_ids] the place before each id of the answers, in batch x longest
    target: torch.Tensor  # [n_ids] the ids of all answers
    known: torch.Tensor  # [n_ids] bool: the level that it says is known


class Prompted:
    """The ids around the audio, in each language, and the ids of answers."""

    def __init__(self) -> None:
        self.tokenizer = build()
        self.prefix = self._ids(PREFIX)
        self.suffixes = {name: self._ids(suffix) for name, suffix in SUFFIXES.items()}
        self.phrases = {name: attributes(name) for name in LANGUAGES}
        self.end = self.tokenizer.token_to_id("<|im_end|>")

    def _ids(self, text: str) -> torch.Tensor:
        return torch.tensor(self.tokenizer.encode(text).ids)

    def levels(self, text: str, language: str = "zh") -> dict[str, int | None]:
        """The level of each attribute that a sentence names; None for the others."""
        return parse(text, self.phrases[language])

    def answer(self, turn: Turn) -> torch.Tensor:
        return torch.tensor([*self.tokenizer.encode("".join(turn.words)).ids, self.end])

    def answers(self, turns: list[Turn], counts: list[int], rng: random.Random) -> Rows:
        """The sentences of turns of `counts` embeddings each, as rows for `logits`.

        A quarter of the rows have a jump in their positions, so that short turns also see long
        distances.
        """
        index, positions, at, target, known = [], [], [], [], []
        first = self.tokenizer.get_vocab_size()
        for turn, count in zip(turns, counts, strict=True):
            answer, suffix = self.answer(turn), self.suffixes[turn.language]
            audio = torch.arange(first, first + count)
            index.append(torch.cat([self.prefix, audio, suffix, answer[:-1]]))
            start = len(index[-1]) - len(answer)
            place = torch.arange(len(index[-1]))
            if rng.random() < 0.25:
                place[rng.randrange(2, start) :] += rng.randint(0, max(0, 1500 - count))
            positions.append(place)
            at.append(torch.arange(start, start + len(answer)))
            target.append(answer)
            known.append(self.known(turn))
            first += count
        padded = pad_sequence(index, batch_first=True)
        at = [places + i * padded.shape[1] for i, places in enumerate(at)]
        places = pad_sequence(positions, batch_first=True)
        return Rows(padded, places, torch.cat(at), torch.cat(target), torch.cat(known))

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


def logits(model, embeddings: torch.Tensor, rows: Rows) -> tuple[torch.Tensor, torch.Tensor]:
    """The hidden state before each answer [n_turns, width], and the logits before each id of the
    answers [n_ids, vocabulary]. embeddings: of all turns, [n_embeddings, width]."""
    text = model.model.language_model
    known = text.embed_tokens.weight
    table = torch.cat([known, embeddings.to(known.dtype)])
    places = rows.positions.expand(3, -1, -1)
    found = text(inputs_embeds=F.embedding(rows.index, table), position_ids=places, use_cache=False)
    hidden = found.last_hidden_state.flatten(0, 1)[rows.at]
    turn = rows.at // rows.index.shape[1]
    is_first = torch.cat([turn.new_ones(1, dtype=torch.bool), turn[1:] != turn[:-1]])
    return hidden[is_first], model.lm_head(hidden)


def clauses(words: list[str]) -> list[list[str]]:
    """A sentence's words up to each comma or full stop."""
    parts: list[list[str]] = [[]]
    for word in words:
        parts[-1].append(word)
        if word in MARKS:
            parts.append([])
    return parts[:-1]
