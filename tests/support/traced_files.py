"""Files of streamer/ that one turn executes: `python tests/support/traced_files.py [MODE] [link]`.

Two parts: feeding 3 s until its windows are prefilled, and the commit until the Description. `link`:
with a verifier elsewhere, in this process too, so the files of both ends are counted.
"""

import sys
import threading
from collections import Counter
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import numpy as np
from in_process import in_process

from streamer import Describer, Description
from streamer.commands.service_options import VerifierOptions
from streamer.commands.verifier import open_verifier

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = str(ROOT / "streamer")


class Tracer:
    """Counts the functions called in each file of the package, in every thread."""

    def __init__(self):
        self.functions = set()

    def __call__(self, frame, event, argument):
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(PACKAGE):
            self.functions.add((code.co_filename, code.co_qualname))

    def show(self, name):
        files = Counter(file for file, _ in self.functions)
        print(f"{name}: {len(files)} files, {len(self.functions)} functions")
        for file in sorted(files):
            print(f"  {files[file]:3} {Path(file).relative_to(ROOT)}")


def speech():
    import soundfile

    samples, rate = soundfile.read(ROOT / "samples" / "plain.wav", dtype="float32")
    assert rate == 16_000
    samples = np.tile(samples, 4)[: 3 * rate]
    return (samples * 32767).astype("<i2").tobytes()


async def turn(describer, feeding, answering):
    pcm = speech()
    async with describer.session() as session:
        with feeding:
            for at in range(0, len(pcm) - 3_200, 3_200):
                await session.feed(pcm[at : at + 3_200])
            while session.backlog["pieces"]:
                await anyio.sleep(0.05)
            await anyio.sleep(0.5)
        with answering:
            await session.feed(pcm[-3_200:])
            await session.commit()
            async for event in session:
                if isinstance(event, Description):
                    print(event.text)


@asynccontextmanager
async def cloud(is_far):
    """Where the cloud is."""
    if not is_far:
        yield "embedded"
        return
    async with open_verifier(VerifierOptions(port=0), None) as server, in_process(server) as port:
        yield f"ws://127.0.0.1:{port}"


async def main(mode="gated", where="here"):
    # profiles are per thread: those of engines and workers start inside the first block
    feeding, answering = Tracer(), Tracer()
    threading.setprofile(lambda *given: (feeding if STATE[0] else answering)(*given))
    STATE[0] = True
    asks = {"threshold": 0.0} if where == "link" and mode == "gated" else {}
    async with (
        cloud(where == "link") as at,
        Describer.open(mode=mode, cloud=at, **asks) as describer,
    ):
        await describer.load()
        feeding.functions.clear()
        await turn(describer, Part(feeding, True), Part(answering, False))
    feeding.show("feed of 3 s to prefilled windows")
    answering.show("commit to sentence")


STATE = [True]


class Part:
    """Calls of this thread, and of all others, count for `tracer`."""

    def __init__(self, tracer, is_feeding):
        self._tracer, self._is_feeding = tracer, is_feeding

    def __enter__(self):
        STATE[0] = self._is_feeding
        sys.setprofile(self._tracer)

    def __exit__(self, *_):
        sys.setprofile(None)


if __name__ == "__main__":
    anyio.run(main, *sys.argv[1:])
