"""One tree's process of bench.first_words: reads file names, answers with times.

It uses the public API alone, so any checkout of streamer can run it.
"""

import json
import sys
from pathlib import Path

import anyio
import soundfile

import streamer
from streamer import Describer, Description, TextDelta

PIECE = 1_600  # samples: 100 ms
SETTLE_S = 0.5  # everything before the last piece is heard and measured by then,
SETTLE_SHARE = 1 / 8  # and this share of its length, since it comes faster than real time
WARM = 3


def phrases() -> list[str]:
    """Every phrase that the shipped edge says of an attribute."""
    place = Path(streamer.__file__).parent / "model" / "embedded" / "edge" / "streamer.json"
    attributes = json.loads(place.read_text("utf-8"))["attributes"]
    return [p for levels in attributes.values() for level in levels for p in level["phrases"]]


async def turn(describer: Describer, wav: str, known: list[str]) -> dict[str, float]:
    """Milliseconds from the last sample to the first attribute word and to the whole sentence."""
    samples, rate = soundfile.read(wav, dtype="int16")
    last = max(0, len(samples) - PIECE)
    text, first = "", None
    async with describer.session(sample_rate=rate) as session:
        for at in range(0, last, 2 * rate):
            await session.feed(samples[at : min(last, at + 2 * rate)].tobytes())
        await anyio.sleep(SETTLE_S + SETTLE_SHARE * len(samples) / rate)
        await session.feed(samples[last:].tobytes())
        await session.commit()
        async for event in session:
            if isinstance(event, TextDelta):
                text += event.text
                if first is None and any(phrase in text for phrase in known):
                    first = event.at_ms
            elif isinstance(event, Description):
                total = event.total_ms
                return {
                    "first_ms": total if first is None else first,
                    "total_ms": total,
                    "num_tokens": event.n_tokens,
                }
    raise RuntimeError(f"{wav}: no description came")


async def main() -> None:
    mode, sample = sys.argv[1:]
    known = phrases()
    async with Describer.open(mode=mode) as describer:
        for _ in range(WARM):
            await turn(describer, sample, known)
        print("{}", flush=True)
        while line := await anyio.to_thread.run_sync(sys.stdin.readline):
            print(json.dumps(await turn(describer, line.strip(), known)), flush=True)


if __name__ == "__main__":
    anyio.run(main)
