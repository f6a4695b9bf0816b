"""Files of streamer/ that one turn executes: `python tests/support/traced_files.py [MODE] [link]`.

Two parts: feeding 3 s until its windows are prefilled, and the commit until the Description. `link`:
with a verifier elsewhere, in this process too, so the files of both ends are counted.
"""

import sys
import threading
from contextlib import AsyncExitStack

import anyio
import numpy as np
from places import ROOT
from speech import pcm, recording
from wire import in_process

from streamer import Describer, Description
from streamer.commands.options import VerifierOptions
from streamer.commands.serve import open_verifier

PACKAGE = str(ROOT / "streamer")
called = [set()]  # (file, function), of the part that runs


def trace(frame, event, argument):
    if event == "call" and frame.f_code.co_filename.startswith(PACKAGE):
        called[0].add((frame.f_code.co_filename, frame.f_code.co_qualname))


def show(name):
    files = sorted({file for file, _ in called[0]})
    print(f"{name}: {len(files)} files, {len(called[0])} functions")
    print(*(f"  {file[len(PACKAGE) + 1 :]}" for file in files), sep="\n")
    called[0] = set()


async def main(mode="gated", where="here"):
    threading.setprofile(trace)  # before any thread starts
    asks = {"threshold": 0.0} if where == "link" and mode == "gated" else {}
    data = pcm(np.tile(recording(0), 4)[:48_000])
    async with AsyncExitStack() as stack:
        if where == "link":
            verifier = open_verifier(VerifierOptions(port=0), None)
            port = await stack.enter_async_context(
                in_process(await stack.enter_async_context(verifier))
            )
            asks["cloud"] = f"ws://127.0.0.1:{port}"
        describer = await stack.enter_async_context(Describer.open(mode=mode, **asks))
        await describer.load()
        session = await stack.enter_async_context(describer.session())
        called[0] = set()
        sys.setprofile(trace)
        for at in range(0, len(data) - 3_200, 3_200):
            await session.feed(data[at : at + 3_200])
        await session.catch_up(0)
        await anyio.sleep(0.5)
        show("feed of 3 s to prefilled windows")
        await session.feed(data[-3_200:])
        await session.commit()
        async for event in session:
            if isinstance(event, Description):
                print(event.text)
        show("commit to sentence")


if __name__ == "__main__":
    anyio.run(main, *sys.argv[1:])
