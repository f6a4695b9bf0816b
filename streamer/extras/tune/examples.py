"""A turn in; what a model is fed, and shall say, out, laid out as in model/prompt.py."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from streamer.core.rules.form import Phrases
from streamer.extras.tune.sentences import target_of
from streamer.extras.tune.turn import LearntTurn
from streamer.model.checkpoint.card import ModelCard
from streamer.model.checkpoint.tokenizer import EOS, Tokenizer
from streamer.model.checkpoint.weights import ModelError
from streamer.model.prompt import Prompt, prompt_of


@dataclass(frozen=True, slots=True, eq=False)
class Example:
    """prompt: ids before the answer, a placeholder for each embedding. answer: ids with the end;
    is_known [len(answer)]: whether its id is learnt."""

    features: Path
    prompt: tuple[int, ...]
    answer: tuple[int, ...]
    is_known: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.prompt) + len(self.answer) - 1

    def mel(self) -> NDArray[np.float32]:
        """[128, n_frames]"""
        found: NDArray[np.float32] = np.load(self.features)
        return found


class Examples:
    """Makes examples for one model. Raises ModelError where it has no end of an answer."""

    def __init__(
        self, directory: Path, card: ModelCard, phrases: Phrases, audio_id: int, folder: Path
    ) -> None:
        self._tokenizer = Tokenizer.load(directory)
        self.prompt: Prompt = prompt_of(self._tokenizer, card, audio_id)
        self._phrases = phrases
        self._folder = folder
        ends = [ids[0] for ids in map(self._tokenizer.encode, EOS) if len(ids) == 1]
        if not ends:
            raise ModelError(directory, f"its tokenizer has neither {' nor '.join(EOS)}")
        self._end = ends[0]

    def of(self, turns: Sequence[LearntTurn]) -> list[Example]:
        return [self.example(turn) for turn in turns]

    def example(self, turn: LearntTurn) -> Example:
        """Its prompt, and the sentence that says its levels."""
        target = target_of(turn.levels, self._phrases, turn.name)
        ids, places = self._tokenizer.encode_with_places(target.text)
        is_known = [
            not any(begin < last and first < end for begin, end in target.unknown)
            for first, last in places
        ]
        return Example(
            self._folder / turn.features,
            tuple(self.prompt.turn(turn.num_embeddings)),
            (*ids, self._end),
            np.array([*is_known, True]),
        )
