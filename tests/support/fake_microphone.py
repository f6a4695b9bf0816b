"""A module `sounddevice` that repeats a recording at four times its speed, or fails."""

import asyncio
import os

from patience import PATIENCE_S

SOURCE = """
import os, threading, time, wave

if os.environ.get("NO_PORTAUDIO"):
    raise OSError("PortAudio library not found")

class PortAudioError(Exception):
    pass

def query_devices(device, kind):
    if os.environ.get("NO_MICROPHONE"):
        raise PortAudioError("Error querying device -1")
    return {"default_samplerate": 16_000.0}

class RawInputStream:
    def __init__(self, rate, size, device, channels, kind, callback):
        self.size, self.callback, self.open = size, callback, True
    def start(self):
        self.thread = threading.Thread(target=self.play, daemon=True)
        self.thread.start()
    def close(self):
        self.open = False
        self.thread.join()
    def play(self):
        with wave.open(os.environ["RECORDING"]) as file:
            data = file.readframes(10**9) + bytes(64_000)
        while True:
            for at in range(0, len(data), 2 * self.size):
                if not self.open:
                    return
                self.callback(data[at : at + 2 * self.size], self.size, None, None)
                time.sleep(self.size / 16_000 / 4)
"""


def environment(folder, recording, **more):
    """Of a process that imports it, written to `folder`."""
    (folder / "sounddevice.py").write_text(SOURCE)
    path = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])
    own = {"OMP_NUM_THREADS": "1", "PYTHONPATH": path, "RECORDING": str(recording)}
    return os.environ | own | more


async def line(stream, part=""):
    """The next line of a process's output that holds `part`."""
    while part not in (found := (await asyncio.wait_for(stream.readline(), PATIENCE_S)).decode()):
        assert found, f"no line with {part}"
    return found
