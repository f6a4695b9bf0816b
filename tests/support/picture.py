"""The README's picture of the page: `PYTHONPATH=. python tests/support/picture.py
clients/page.png`. Real server, real Chromium."""

import asyncio
import sys
import tempfile
from pathlib import Path

import numpy as np
from browser import save_speech, visiting
from speech import recording
from wire import serving


async def take(path):
    """Someone has spoken slowly and softly, and now speaks fast and loud: the page after 3 s of
    that."""
    with serving() as (url, _), tempfile.TemporaryDirectory() as folder:
        quiet = np.zeros(32_000, np.float32)
        fast_loud, slow_soft = recording(0), recording(3)
        spoken = np.concatenate([slow_soft, quiet, fast_loud, fast_loud])
        save_speech(Path(folder) / "speech.wav", spoken, 16_000)
        async with visiting(url, Path(folder) / "speech.wav", size=(1000, 620)) as guest:
            await guest.page.click("#mic")
            await guest.until_described()
            await guest.page.locator("#so-far").wait_for()
            await guest.page.screenshot(path=path)


if __name__ == "__main__":
    asyncio.run(take(sys.argv[1]))
