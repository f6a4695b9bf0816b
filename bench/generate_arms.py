"""transformers' own generation, timed as ours is. In: thinkers on its modules, samples. Out: times
from the audio's end on."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from bench.assisted import FirstForward
from streamer.core.audio.trim import trimmed
from streamer.model.audio.mel import StreamingLogMel, num_embeddings
from streamer.model.thinker import Thinker

BASES = ("generate(), edge", "generate(), cloud")
STATIC = "generate(), static cache"
COMPILED = "generate(), compiled"
ASSISTED = ("assisted generation", "assisted, hearing")


@dataclass(frozen=True)
class Timing:
    """Seconds since the audio's end; ids per second of decoding."""

    first_s: float
    total_s: float
    tokens_per_s: float
    num_ids: int


class Clock:
    """A transformers streamer that notes when each id comes, and tells it; `put` is first called
    with the prompt."""

    def __init__(self, tell: Callable[[int], None] | None = None) -> None:
        self.at: list[float] = []
        self._tell = tell

    def put(self, value: torch.Tensor) -> None:
        self.at.append(time.perf_counter())
        if self._tell is not None and len(self.at) > 1:
            self._tell(int(value))

    def end(self) -> None:
        pass


def has_compiler() -> bool:
    """Whether torch.compile can build C++ here."""
    return any(shutil.which(name) for name in (os.environ.get("CXX", "g++"), "g++", "clang++"))


def compiled() -> Any:
    """transformers compiles the decoding step by itself, but on a CPU only when told to."""
    from transformers import CompileConfig

    config = CompileConfig(mode="default")
    config._compile_all_devices = True
    return config


@torch.inference_mode()
def one_shot(
    thinker: Thinker,
    stock: Any,
    samples: np.ndarray,
    tell: Callable[[int], None] | None = None,
    **more: Any,
) -> Timing:
    """What a person would write: collect the audio, then extract, encode, prefill and decode in one
    call."""
    started = time.perf_counter()
    clock = Clock(tell)
    mel = StreamingLogMel()
    windows = [*mel.push(trimmed(samples)), *mel.finish()]
    features = torch.from_numpy(np.concatenate([w.features(mel.maximum) for w in windows], 1))
    num_audio = sum(num_embeddings(window.n_frames) for window in windows)
    prompt = [
        *thinker.engine.prompt_ids,
        *[thinker.shapes.audio_id] * num_audio,
        *thinker.suffix_ids,
    ]
    ids = torch.tensor([prompt])
    assistant = more.get("assistant_model")
    # assisted generation refuses a streamer
    streaming = {} if assistant else {"streamer": clock}
    heard = time.perf_counter()
    with FirstForward(*([stock, assistant] if assistant else [])) as prefill:
        out = stock.generate(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            input_features=features[None],
            feature_attention_mask=torch.ones((1, features.shape[1]), dtype=torch.long),
            max_new_tokens=96,
            do_sample=False,
            **streaming,
            **more,
        )
    done = time.perf_counter()
    num_ids = out.shape[1] - len(prompt)
    first = clock.at[1] if len(clock.at) > 1 else done
    rest = done - first if len(clock.at) > 1 else done - heard - prefill.seconds
    return Timing(first - started, done - started, max(1, num_ids - 1) / rest, num_ids)
