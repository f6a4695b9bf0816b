# /// script
# requires-python = ">=3.11"
# dependencies = ["websockets>=15,<18", "numpy>=2,<3", "soundfile>=0.13,<1"]
# ///
"""Stream a recording to a streamer server as a microphone would; print the sentence as it is committed.

`python clients/file.py clip.wav [--url ws://127.0.0.1:8765/v1/realtime] [--speed 4] [--json]`. Copy this file anywhere:
it needs nothing of streamer. Exit status 0, 1 when a file or the server failed, 2 for bad usage.
"""

import argparse
import asyncio
import json
import os
import sys
import time

import numpy as np
import soundfile
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidURI

DIM, PLAIN = "\x1b[2m", "\x1b[0m"
PIECE_S = 0.02
RATES_HZ = (8_000, 48_000)


class Failed(Exception):
    """One line for the user."""


def read(path):
    """(rate in Hz, mono PCM16 bytes) of any file that soundfile reads. Raises Failed."""
    try:
        samples, rate = soundfile.read(path, dtype="float32", always_2d=True)
    except (OSError, soundfile.SoundFileError) as error:
        raise Failed(f"{path}: cannot be read ({error})") from None
    if not RATES_HZ[0] <= rate <= RATES_HZ[1]:
        raise Failed(f"{path}: its rate of {rate} Hz is outside 8000..48000; resample it first")
    return rate, (np.clip(samples.mean(axis=1), -1, 1) * 32767).astype("<i2").tobytes()


async def send(socket, rate, pcm, options):
    """The recording in pieces of 20 ms, at `speed` times real time; then commit and ask."""
    extensions = {"binary": True, "events": True, "live_update_s": options.live_updates}
    heard = {"format": {"type": "audio/pcm", "rate": rate}, "turn_detection": None}
    session = {"type": "realtime", "audio": {"input": heard}, "streamer": extensions}
    await socket.send(json.dumps({"type": "session.update", "session": session}))
    size, started = 2 * int(rate * PIECE_S), time.monotonic()
    for i, at in enumerate(range(0, len(pcm), size)):
        await socket.send(pcm[at : at + size])
        ahead = (i + 1) * PIECE_S / options.speed - (time.monotonic() - started)
        if ahead > 0:
            await asyncio.sleep(ahead)
    await socket.send('{"type": "input_audio_buffer.commit"}')
    await socket.send('{"type": "response.create"}')


async def show(socket, options):
    """Print what is committed as it comes; the turn's description at its end. Raises Failed."""
    is_terminal = sys.stdout.isatty()
    async for message in socket:
        event = json.loads(message)
        match event["type"]:
            case "streamer.live_update" if not options.json:
                print(f"  {event['heard_s']:.0f} s: {event['text']}", file=sys.stderr, flush=True)
            case "streamer.delta" if not options.json:
                dim = is_terminal and not event["verified"]
                print(f"{DIM}{event['text']}{PLAIN}" if dim else event["text"], end="", flush=True)
            case "streamer.description":
                if not options.json:
                    print(flush=True)
                return event["description"]
            case "error":
                raise Failed(event["error"]["message"])
    raise Failed("the server closed the connection before the sentence was whole")


async def describe(path, options):
    rate, pcm = read(path)
    key = options.api_key or os.environ.get("STREAMER_API_KEY")
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    try:
        async with connect(options.url, additional_headers=headers, compression=None) as socket:
            sending = asyncio.create_task(send(socket, rate, pcm, options))
            try:
                found = await show(socket, options)
            finally:
                sending.cancel()
    except InvalidHandshake as error:
        response = getattr(error, "response", None)
        told = response.body.decode().strip() if response is not None and response.body else str(error)
        raise Failed(f"{options.url}: refused ({told})") from None
    except (OSError, InvalidURI, ConnectionClosed) as error:
        raise Failed(f"{options.url}: cannot be reached ({error}); is `streamer serve` running?") from None
    if options.json:
        print(json.dumps({"file": str(path), **found}, ensure_ascii=False), flush=True)
    elif not options.quiet:
        print(f"  {path}: first text after {found['ttft_ms'] or 0:.0f} ms, {found['stop_reason']}", file=sys.stderr)


def main():
    parser = argparse.ArgumentParser(description="Stream recordings to a streamer server.")
    parser.add_argument("files", nargs="+", metavar="FILE")
    parser.add_argument("--url", default="ws://127.0.0.1:8765/v1/realtime")
    parser.add_argument("--api-key", metavar="K", help="or STREAMER_API_KEY in the environment")
    parser.add_argument("--speed", type=float, default=1.0, metavar="N", help="times real time; default 1")
    parser.add_argument("--live-updates", type=float, metavar="S", help="a sentence every so many seconds, on stderr")
    parser.add_argument("--json", action="store_true", help="one JSON object per file on stdout, nothing else")
    parser.add_argument("--quiet", action="store_true", help="the sentence only")
    options = parser.parse_args()
    if not 0.01 <= options.speed <= 1000:
        parser.error(f"--speed is {options.speed}; it may be 0.01 to 1000")
    failures = 0
    for path in options.files:
        try:
            asyncio.run(describe(path, options))
        except Failed as failed:
            failures += 1
            print(f"file.py: {failed}", file=sys.stderr)
        except KeyboardInterrupt:  # what was committed stays on the screen
            print(flush=True)
            return 130
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
