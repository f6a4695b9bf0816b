"""transformers' assisted generation, whose assistant is made to hear; and its clock. In: thinkers
on transformers' modules.

In 5.23 the assistant's `generate()` believes that its first iteration is over. So it drops the
audio with the prompt's other features (generation/utils.py), and drafts deaf. Here it is told the
truth while its cache is empty, and it hears.
"""

from __future__ import annotations

import functools
import time
from typing import Any


def hearing(assistant: Any) -> Any:
    """`assistant`, which hears from now on when it assists."""
    prepare = assistant.prepare_inputs_for_generation

    @functools.wraps(prepare)  # transformers reads the signature
    def prepare_all(input_ids: Any, *args: Any, **kwargs: Any) -> Any:
        cache = kwargs.get("past_key_values")
        if cache is None or cache.get_seq_length() == 0:
            kwargs["is_first_iteration"] = True
        return prepare(input_ids, *args, **kwargs)

    assistant.prepare_inputs_for_generation = prepare_all
    return assistant


class FirstForward:
    """`with FirstForward(*models) as clock:` - `clock.seconds` that the first forward of each took
    together.

    Assisted generation tells no token before all are there. Its prefill is the first forward of
    both models.
    """

    def __init__(self, *models: Any) -> None:
        self.seconds = 0.0
        self._models = models
        self._handles: list[Any] = []

    def __enter__(self) -> FirstForward:
        for model in self._models:
            began: list[float] = []
            self._handles.append(
                model.register_forward_pre_hook(lambda *_, b=began: b.append(time.perf_counter()))
            )
            self._handles.append(model.register_forward_hook(lambda *_, b=began: self._ended(b)))
        return self

    def _ended(self, began: list[float]) -> None:
        if len(began) == 1:
            self.seconds += time.perf_counter() - began[0]

    def __exit__(self, *_: object) -> None:
        for handle in self._handles:
            handle.remove()
