"""What a turn's ids are. In: a model's tokenizer and card. Out: the ids around the audio.

prompt | one placeholder for each embedding of audio | suffix | answer. Whoever feeds a model, and
whoever trains one, has it from here.
"""

from __future__ import annotations

from dataclasses import dataclass

from streamer.model.checkpoint.card import ModelCard
from streamer.model.checkpoint.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class Prompt:
    """before, after: ids around the audio; audio_id: what stands for one embedding."""

    before: tuple[int, ...]
    after: tuple[int, ...]
    audio_id: int

    def turn(self, num_embeddings: int) -> list[int]:
        """All ids before the answer."""
        return [*self.before, *[self.audio_id] * num_embeddings, *self.after]


def prompt_of(tokenizer: Tokenizer, card: ModelCard, audio_id: int) -> Prompt:
    """The prompt that the card spells."""
    before, after = (tuple(tokenizer.encode(text)) for text in (card.prefix, card.suffix))
    return Prompt(before, after, audio_id)
