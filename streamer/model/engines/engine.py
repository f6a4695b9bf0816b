"""One model's step. In: rows (a KV slot, new ids or embeddings each). Out: logits where they are
asked for.

Draft, verify and prefill are one operation: feed row i its n_i new positions. schedule -> run ->
hand out grows around `step`; nothing else writes to the KV slots.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence as Seq
from typing import Any, NamedTuple

from torch import Tensor

from streamer.model.engines.kv_slots import KVSlots
from streamer.model.engines.text import Span, Text
from streamer.model.engines.tower import Tower
from streamer.model.kernels.lane import Writer


class Row(NamedTuple):
    """Feed `ids` to `slot` from position `start` on; logits of the last `num_logits` positions come
    back.

    embeds [m, hidden]: stand in for the embeddings of the first m ids (audio placeholders). writer:
    has the next ids chosen and fed in the same step, as many as it wants; for one row of logits.
    """

    slot: int
    start: int
    ids: Seq[int]
    embeds: Tensor | None = None
    num_logits: int = 1
    writer: Writer | None = None


class Engine:
    """Owns the KV slots of one model. A slot starts with the prompt's keys and values, computed
    once.

    Threads may share it: steps run one at a time, slots are opened and closed at any time.
    """

    def __init__(
        self, text: Text, slots: KVSlots, prompt_ids: Seq[int], tower: Tower | None = None
    ) -> None:
        self.text = text
        self.slots = slots
        self.prompt_ids = tuple(prompt_ids)
        self.tower = tower
        n = len(self.prompt_ids)
        self._one_step = threading.Lock()
        self.step([Row(0, 0, self.prompt_ids, num_logits=0)])
        self._prompt = tuple(part.clone() for part in slots.beginning(0, n))

    def open(self) -> int:
        """A slot that holds the prompt already. Raises SlotsFull. The caller must `close` it."""
        slot = self.slots.acquire()
        for part, kept in zip(
            self.slots.beginning(slot, len(self.prompt_ids)), self._prompt, strict=True
        ):
            part.copy_(kept)
        return slot

    def close(self, slot: int) -> None:
        """Give the slot back."""
        self.slots.release(slot)

    @property
    def writes(self) -> bool:
        """Whether rows may bring writers."""
        return getattr(self.text, "writes", False)

    @property
    def windows_at_once(self) -> int:
        """How many windows are worth encoding together."""
        return 1 if self.tower is None else self.tower.windows_at_once

    def encode(self, features: Tensor) -> Tensor:
        """Embeddings [B, n, hidden] of windows [B, mels, T]. Raises RuntimeError for an engine
        without a tower."""
        if self.tower is None:
            raise RuntimeError("this engine has no audio tower; give one to hear with")
        return self.tower.encode(features)

    def step(self, rows: Seq[Row]) -> list[Tensor]:
        """Per row logits [num_logits, vocab] float32.

        Raises ValueError for a slot that stands in two rows, an empty row, or one beyond the slot's
        end.
        """
        if len(rows) == 1:  # one stream's next ids: nothing to gather
            writers = [rows[0].writer]
            ids = rows[0].ids
        else:
            writers = [row.writer for row in rows]
            ids = [token for row in rows for token in row.ids]
        step: Any = self.text.step
        with self._one_step:
            spans = self._spans(rows)
            audio = [
                (s.first, row.embeds)
                for s, row in zip(spans, rows, strict=True)
                if row.embeds is not None
            ]
            logits = step(ids, audio, spans, self.slots, *([writers] if any(writers) else []))
        return [logits] if len(rows) == 1 else list(logits.split([row.num_logits for row in rows]))

    def _spans(self, rows: Seq[Row]) -> list[Span]:
        spans = []
        first = 0
        seen = set()
        for row in rows:
            n = len(row.ids)
            if row.slot in seen:
                raise ValueError(f"slot {row.slot} stands in two rows of one step")
            if not 0 < n >= row.num_logits:
                raise ValueError(f"a row of {n} ids cannot give {row.num_logits} logits")
            if row.start + n > self.slots.max_len:
                raise ValueError(
                    f"position {row.start + n} is beyond the slot's {self.slots.max_len}"
                )
            if row.writer is not None:
                if row.num_logits != 1:
                    raise ValueError(
                        f"a row with a writer gives one row of logits, not {row.num_logits}"
                    )
                row.writer.limit(self.slots.max_len - row.start - n + 1)
            seen.add(row.slot)
            spans.append(Span(row.slot, row.start, first, n, row.num_logits))
            first += n
        return spans
