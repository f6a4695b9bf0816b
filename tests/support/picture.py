"""The README's picture of the page: `PYTHONPATH=. python tests/support/picture.py
clients/page.png`. Real server, real Chromium."""

import asyncio
import json
import sys
import tempfile
from pathlib import Path

import numpy as np
from browser import save_speech, visiting
from speech import recording
from wire import serving

from streamer.extras.coach.options import Coach
from streamer.extras.coach.session import SessionCoach


async def take(path):
    """Someone with a coach has spoken slowly and softly, as they usually do, and now speaks fast and
    loud: the page after 3 s of that."""
    with serving() as (url, _), tempfile.TemporaryDirectory() as folder:
        quiet = np.zeros(24_000, np.float32)
        fast_loud, slow_soft = recording(0), recording(3)
        ear = SessionCoach(Coach())
        ear.push(np.tile(slow_soft, 4))
        ear.work()
        spoken = np.concatenate([slow_soft, quiet, fast_loud, fast_loud])
        save_speech(Path(folder) / "speech.wav", spoken, 16_000)
        async with visiting(url, Path(folder) / "speech.wav", size=(1040, 940)) as guest:
            keep = "([name, value]) => localStorage.setItem(name, value)"
            usual = json.dumps(ear.baseline.as_json())
            await guest.page.evaluate(keep, ["streamer.usual", usual])
            await guest.speaks("en")
            await guest.coached()
            await guest.page.click("#mic")
            await guest.until_described()
            await guest.until_said("#list-title", "The last seconds")
            await guest.page.locator("#attributes small:not(:empty)").first.wait_for()
            await guest.until_said("#now-title", "So far, after 3 s")
            await guest.page.wait_for_timeout(1_000)  # gauges move for a moment
            await guest.page.screenshot(path=path)


if __name__ == "__main__":
    asyncio.run(take(sys.argv[1]))
