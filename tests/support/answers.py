"""One turn through a stream on models that are loaded, under any plan."""

from dataclasses import replace

import anyio

from streamer.assembly.models import Models, open_parts, patient
from streamer.config import Config
from streamer.core.description import Description
from streamer.stages.events import SessionOptions, TurnFailed
from streamer.stages.stream import open_stream


class LoadedModels(Models):
    """As a config would give them, but for the plan; `before` may change each drafter."""

    def __init__(self, edge, cloud, plan, sampling, before=None):
        chance = {name: getattr(sampling, name) for name in ("temperature", "top_p", "seed")}
        super().__init__(Config(mode=plan.mode, **chance))
        self.pair = (None if plan.mode == "cloud" else edge, None if plan.mode == "edge" else cloud)
        self._given, self._before = plan, before

    @property
    def plan(self):
        rules = self._given.rules
        return replace(self._given, rules=replace(rules, language=rules.language or self.language))

    @property
    def drafting(self):
        made = super().drafting
        return (lambda *given: self._before(made(*given))) if self._before else made


def answer(edge, cloud, plan, sampling, samples, pieces=(slice(None),), before=None) -> Description:
    """The Description of `samples` [n] at 16 kHz, fed in `pieces`."""
    models = LoadedModels(edge, cloud, plan, sampling, before)

    async def run():
        options = SessionOptions(16_000, is_recording=True)
        async with open_parts(models) as parts, open_stream(patient(parts), options) as stream:
            for piece in pieces:
                await stream.feed(samples[piece].astype("<f4").tobytes())
            await stream.commit()
            async for event in stream.events():
                assert not isinstance(event, TurnFailed), event
                if isinstance(event, Description):
                    return event
        raise AssertionError("the stream ended without a Description")

    return anyio.run(run)
