"""One way of decoding, run over clips and timed as for live audio; and edges that go wrong."""

from __future__ import annotations

import atexit
import functools
import json
import shutil
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import anyio
import numpy as np
from anyio.from_thread import BlockingPortal, start_blocking_portal

from streamer.assembly import Models, background, open_parts, patient
from streamer.config import Config
from streamer.core.audio.pcm import SAMPLE_RATE_HZ
from streamer.core.decoding.plan import Plan, Preset
from streamer.core.description import Description, TextDelta
from streamer.core.rules.settings import Rules
from streamer.describer import describe_recording
from streamer.model.checkpoint.card import FILE as CARD
from streamer.model.checkpoint.weights import wanted_name
from streamer.model.thinker import resolve
from streamer.stages.events import SessionOptions
from streamer.stages.parts import Parts
from streamer.stages.stream import open_stream

LIVE_SAMPLES = SAMPLE_RATE_HZ // 10
PACED_SAMPLES = 2 * SAMPLE_RATE_HZ
BLUR = 0.8  # noise on the stressed edge's language model, in standard deviations of each matrix


class Arm(Models):
    """Models with an event loop of their own in a thread: for benches that are not async.

    rules: in place of the default ones; lengths, form and language stay the config's.
    """

    rules: Rules | None = None

    def plan_in(self, language: str, preset: Preset | None = None) -> Plan:
        plan = super().plan_in(language, preset)
        if self.rules is None:
            return plan
        own = ("min_new_tokens", "max_new_tokens", "form", "language")
        kept = {name: getattr(plan.rules, name) for name in own}
        return replace(plan, rules=replace(self.rules, **kept))

    @functools.cached_property
    def live(self) -> tuple[BlockingPortal, Parts]:
        """The loop, and what a stream on it needs; both until the process ends."""
        stack = ExitStack()
        portal = stack.enter_context(start_blocking_portal())
        parts = stack.enter_context(portal.wrap_async_context_manager(open_parts(self)))
        atexit.register(stack.close)
        return portal, patient(parts, hears_late=False)


@dataclass(frozen=True)
class Timing:
    """Seconds since the end of the audio; tokens after the first text per second of the time after
    it."""

    first_s: float
    total_s: float
    tokens_per_s: float
    num_ids: int


def run(arm: Arm, samples: np.ndarray) -> Description:
    """One turn: all before its last 100 ms is prefilled when they arrive."""
    portal, parts = arm.live
    return portal.call(describe_recording, parts, (samples, SAMPLE_RATE_HZ))


def run_paced(arm: Arm, samples: np.ndarray) -> Timing:
    """The same, its last 2 s at real time: a machine that listens is not as warm as one that is
    busy."""
    portal, parts = arm.live
    return portal.call(_paced, parts, samples.astype("<f4"))


async def _paced(parts: Parts, samples: np.ndarray) -> Timing:
    deltas: list[TextDelta] = []
    first = max(0, len(samples) - PACED_SAMPLES)
    async with open_stream(parts, SessionOptions(SAMPLE_RATE_HZ, is_recording=True)) as stream:
        for at in range(0, first, PACED_SAMPLES):
            await stream.feed(samples[at : min(first, at + PACED_SAMPLES)].tobytes())
        for at in range(first, len(samples), LIVE_SAMPLES):
            await anyio.sleep(LIVE_SAMPLES / SAMPLE_RATE_HZ)
            await stream.feed(samples[at : at + LIVE_SAMPLES].tobytes())
        await stream.commit()
        async for event in stream.events():
            if isinstance(event, TextDelta):
                deltas.append(event)
            elif isinstance(event, Description):
                return _timed(event, deltas)
    raise RuntimeError("the turn failed")


def _timed(found: Description, deltas: list[TextDelta]) -> Timing:
    total_s = found.total_ms / 1000
    first_s = total_s if found.ttft_ms is None else found.ttft_ms / 1000
    first = next((i for i, delta in enumerate(deltas) if delta.text), -1)
    after = sum(len(delta.ids) for delta in deltas[first + 1 :])
    speed = after / (total_s - first_s) if after and total_s > first_s else float("nan")
    return Timing(first_s, total_s, speed, len(found.ids))


def models_of(rules: Rules | None = None, **options: object) -> Arm:
    """Models of a config by keywords."""
    arm = Arm(Config.of(None, options))
    arm.rules = rules
    return arm


@asynccontextmanager
async def opened(models: Models) -> AsyncIterator[Parts]:
    """The parts of a stream, with models loaded and linked to a verifier elsewhere, if one is
    named."""
    async with AsyncExitStack() as stack:
        group = None
        if models.verifier_url is not None:
            group = await stack.enter_async_context(background())
        yield await stack.enter_async_context(open_parts(models, group))


def _copied(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    return shutil.copytree(resolve("embedded", "edge"), folder, copy_function=shutil.copyfile)


def blurred(folder: Path) -> Path:
    """A copy of the shipped edge in `folder`, with noise on its language model's matrices."""
    import torch
    from safetensors.torch import load_file, save_file

    generator = torch.Generator().manual_seed(3)
    file = _copied(folder) / "model.safetensors"
    weights = load_file(file)
    for name in sorted(weights):
        weight = weights[name]
        if (wanted_name(name) or "").startswith("model.layers.") and weight.ndim == 2:
            noise = torch.randn(weight.shape, generator=generator)
            weights[name] = (weight.float() + BLUR * weight.float().std() * noise).to(weight.dtype)
    save_file(weights, file, metadata={"format": "pt"})
    return folder


def longer(folder: Path, max_turn_s: float = 95.0) -> Path:
    """A copy of the shipped edge in `folder` whose slots hold longer turns than it was trained
    for."""
    file = _copied(folder) / CARD
    file.write_text(
        json.dumps(json.loads(file.read_text("utf-8")) | {"max_turn_s": max_turn_s}), "utf-8"
    )
    return folder
