# /// script
# requires-python = ">=3.11"
# dependencies = ["websockets>=15,<18", "numpy>=2,<3", "sounddevice>=0.5,<1"]
# ///
"""Speak into the microphone; read, as it is committed, how you speak. Voice activity ends each turn.

`python clients/mic.py [--url ws://127.0.0.1:8765/v1/realtime] [--live-updates 3]`. Copy this file anywhere: it needs
nothing of streamer. Ctrl-C ends it. Exit status 0, 1 when microphone or server failed, 2 for bad usage.
"""

import argparse
import asyncio
import contextlib
import json
import os
import sys

import numpy as np
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidHandshake, InvalidURI

DIM, PLAIN, CLEAR = "\x1b[2m", "\x1b[0m", "\r\x1b[K"
PIECE_S = 0.02
MAX_PIECES = 500  # 10 s: a server that takes nothing for so long is no server
RATES_HZ = (16_000, 24_000, 48_000, 44_100, 32_000, 8_000)


class Failed(Exception):
    """One line for the user."""


def open_microphone(device, pieces, loop):
    """(rate in Hz, started stream) whose pieces of PCM16 go into the queue `pieces`. Raises Failed."""
    try:
        import sounddevice
    except OSError as error:  # the package is there, the library is not
        raise Failed(f"{error}; install PortAudio (Debian: apt-get install libportaudio2)") from None
    except ImportError:
        raise Failed("the package sounddevice is missing; pip install sounddevice") from None

    def heard(data, frames, time, status):
        with contextlib.suppress(asyncio.QueueFull):
            loop.call_soon_threadsafe(pieces.put_nowait, bytes(data))

    reason = "no rate of 8 to 48 kHz"
    for rate in RATES_HZ:
        try:
            stream = sounddevice.RawInputStream(rate, int(rate * PIECE_S), device, 1, "int16", callback=heard)
            stream.start()
            return rate, stream
        except (sounddevice.PortAudioError, ValueError) as error:
            reason = str(error).splitlines()[0]
    raise Failed(f"no microphone can be opened ({reason}); plug one in, or choose one with --device")


async def send(socket, pieces, is_terminal):
    """What the microphone hears, as it comes; a level meter on a terminal's stderr."""
    while True:
        piece = await pieces.get()
        await socket.send(piece)
        if is_terminal:
            level = np.sqrt(np.mean(np.frombuffer(piece, "<i2").astype(np.float32) ** 2)) / 32768
            bars = int(np.clip((20 * np.log10(level + 1e-6) + 60) / 2, 0, 30))
            print(f"{CLEAR}{DIM}{'▮' * bars}{PLAIN}", end="", file=sys.stderr, flush=True)


async def show(socket, is_terminal):
    """Sentences as they commit, unverified text dimmed; live updates on stderr. Raises Failed."""
    clear = CLEAR if is_terminal else ""
    async for message in socket:
        event = json.loads(message)
        match event["type"]:
            case "streamer.live_update":
                print(f"{clear}  {event['heard_s']:.0f} s: {event['text']}", file=sys.stderr, flush=True)
            case "response.created":
                print(clear, end="", file=sys.stderr, flush=True)
            case "streamer.delta":
                dim = is_terminal and not event["verified"]
                print(f"{DIM}{event['text']}{PLAIN}" if dim else event["text"], end="", flush=True)
            case "response.done":
                print(flush=True)
            case "error":
                raise Failed(event["error"]["message"])
    raise Failed("the server closed the connection")


async def listen(options):
    pieces = asyncio.Queue(MAX_PIECES)
    rate, stream = open_microphone(options.device, pieces, asyncio.get_running_loop())
    key = options.api_key or os.environ.get("STREAMER_API_KEY")
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    audio = {"input": {"format": {"type": "audio/pcm", "rate": rate}, "turn_detection": {"type": "server_vad"}}}
    extensions = {"binary": True, "events": True, "live_update_s": options.live_updates}
    session = {"type": "realtime", "audio": audio, "streamer": extensions}
    try:
        connecting = connect(options.url, additional_headers=headers, compression=None)
        async with connecting as socket, asyncio.TaskGroup() as both:
            await socket.send(json.dumps({"type": "session.update", "session": session}))
            print(f"listening at {rate} Hz; speak, pause, read. Ctrl-C ends it.", file=sys.stderr, flush=True)
            both.create_task(send(socket, pieces, sys.stderr.isatty()))
            both.create_task(show(socket, sys.stdout.isatty()))
    except InvalidHandshake as error:
        raise Failed(f"{options.url}: refused ({error})") from None
    except (OSError, InvalidURI) as error:
        raise Failed(f"{options.url}: cannot be reached ({error}); is `streamer serve` running?") from None
    except BaseExceptionGroup as errors:  # of the two tasks; the first one's reason is the reason
        error = errors.exceptions[0]
        raise error if isinstance(error, Failed) else Failed(f"{options.url}: {error}") from None
    finally:
        stream.close()


def main():
    parser = argparse.ArgumentParser(description="Speak; read how you speak.")
    parser.add_argument("--url", default="ws://127.0.0.1:8765/v1/realtime")
    parser.add_argument("--api-key", metavar="K", help="or STREAMER_API_KEY in the environment")
    parser.add_argument("--device", metavar="D", help="a microphone's number or a part of its name")
    parser.add_argument("--live-updates", type=float, default=3.0, metavar="S", help="default: every 3 s of speech")
    options = parser.parse_args()
    if options.device is not None and options.device.isdigit():
        options.device = int(options.device)
    try:
        asyncio.run(listen(options))
    except Failed as failed:
        print(f"mic.py: {failed}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:  # what was committed stays on the screen
        print(flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
