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
import collections
import contextlib
import json
import os
import sys
import time
from urllib.parse import parse_qsl, urlencode, urlsplit

import numpy as np
import soundfile
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus, InvalidURI

DIM, PLAIN = "\x1b[2m", "\x1b[0m"
PIECE_S = 0.02
RATES_HZ = (8_000, 48_000)  # that a server takes

# The link: the same text in mic.py and file.py, which are single files on purpose (tests/clients compares them).
MAX_TAIL_BYTES = 4 << 20  # of audio that was sent and not acknowledged: 43 s at 48 kHz
PATIENCE_S = 60.0  # of a broken link
CALM = {"compression": None, "close_timeout": 2, "ping_interval": 10, "ping_timeout": 20}


class Failed(Exception):
    """One line for the user."""


class Gone(Exception):
    """The server does not know the session any more: it was restarted, or the link was broken for too long."""


class Link:
    """A session whose link may break. It goes on where it stopped: no byte and no event is lost, none comes twice.

    The server acknowledges how many messages it took; the rest are kept and sent again after `?resume=ID&event=M`.
    """

    def __init__(self, url, key, session):
        parts = urlsplit(url)
        self.url, self.query = url.partition("?")[0], [*parse_qsl(parts.query), ("intent", "transcription")]
        self.headers = {"Authorization": f"Bearer {key}"} if key else {}
        self.hello = json.dumps({"type": "session.update", "session": {"type": "transcription", **session}})
        self.tail, self.num_taken = collections.deque([self.hello]), 0  # what is kept; messages that came before
        self.num_tail_bytes = self.num_taken_bytes = 0  # of audio
        self.num_events, self.session_id = 0, None  # heard of this session
        self.socket, self.turn, self.broken_at = None, asyncio.Lock(), None

    async def send(self, message):
        """Bytes are audio, a dict is an event. Waits while too much is unacknowledged, not for a broken link."""
        while self.num_tail_bytes > MAX_TAIL_BYTES:
            await asyncio.sleep(0.02)
        message = message if isinstance(message, bytes) else json.dumps(message)
        async with self.turn:
            self.tail.append(message)
            self.num_tail_bytes += len(message) if isinstance(message, bytes) else 0
            if self.socket is not None:
                with contextlib.suppress(ConnectionClosed):
                    await self.socket.send(message)

    async def run(self, hear):
        """Connect, and again after each break, until `hear(event)` is true. Raises Failed, and Gone."""
        while True:
            try:
                async with connect(self._address(), additional_headers=self.headers, **CALM) as socket:
                    async for message in socket:
                        if await self._note(socket, json.loads(message), hear):
                            return
                raise Failed("the server ended the session")
            except ConnectionClosed as closed:
                code = closed.rcvd.code if closed.rcvd else 1006
                if code == 1008 or code >= 4000:
                    raise Failed(f"the server closed the session ({closed.rcvd.reason or code})") from None
                await self._wait(str(closed))
            except InvalidStatus as refused:
                await self._refused(refused.response)
            except (OSError, InvalidHandshake, InvalidURI, ValueError) as error:
                await self._wait(f"{self.url}: cannot be reached ({error}); is `streamer serve` running?")
            finally:
                self.socket = None

    def anew(self):
        """Another session gets what the last one had not taken."""
        rest = [message for message in self.tail if message is not self.hello]
        self.tail, self.num_taken, self.num_taken_bytes = collections.deque([self.hello, *rest]), 0, 0
        self.session_id, self.num_events = None, 0

    def _address(self):
        resume = [("resume", self.session_id), ("event", self.num_events), ("bytes", self.num_taken_bytes)]
        return f"{self.url}?{urlencode(self.query + (resume if self.session_id else []))}"

    async def _note(self, socket, event, hear):
        if event["type"] == "streamer.resumed":
            self.num_events = event["event"]
            await self._open(socket, event["messages"], event["bytes"])
            return False
        self.num_events += 1
        if event["type"] == "session.created":
            self.session_id = event["session"]["id"]
            await self._open(socket, 0, 0)
        if event["type"] == "session.updated" and not event["session"].get("streamer", {}).get("acks"):
            raise Failed(f"{self.url}: this server acknowledges nothing; it is no streamer of this version")
        if event["type"] == "streamer.ack":
            self._taken(event["messages"])
        return hear(event)

    async def _open(self, socket, num_messages, num_bytes):
        async with self.turn:
            self._taken(num_messages)
            self.num_taken_bytes = num_bytes
            for message in self.tail:
                await socket.send(message)
            self.socket, self.broken_at = socket, None

    def _taken(self, num_messages):
        while self.num_taken < num_messages and self.tail:
            message = self.tail.popleft()
            self.num_taken += 1
            if isinstance(message, bytes):
                self.num_tail_bytes -= len(message)
                self.num_taken_bytes += len(message)

    async def _refused(self, response):
        told = (response.body or b"").decode(errors="replace").strip() or f"status {response.status_code}"
        if self.session_id is not None and response.status_code in (400, 404):
            raise Gone
        if self.session_id is None or response.status_code != 503:
            raise Failed(f"{self.url}: refused ({told})")
        await self._wait(told)

    async def _wait(self, reason):
        """Before the next attempt. The first connection gets one, so that a wrong address is told at once."""
        now = time.monotonic()
        self.broken_at = self.broken_at or now
        if self.session_id is None or now - self.broken_at > PATIENCE_S:
            raise Failed(reason) from None
        await asyncio.sleep(min(3.0, 0.1 + (now - self.broken_at) / 2))


# End of the link.

class Recording:
    """A file that soundfile reads, as pieces of mono PCM16, exactly its samples where it is that already.

    A rate outside 8..48 kHz is averaged down, or interpolated up, by a whole number. Raises Failed.
    """

    def __init__(self, path):
        self.path = path
        try:
            self.file = soundfile.SoundFile(path)
        except (OSError, soundfile.SoundFileError) as error:
            raise Failed(f"{path}: cannot be read ({error})") from None
        self.down = -(-self.file.samplerate // RATES_HZ[1])
        self.up = -(-RATES_HZ[0] // self.file.samplerate)
        self.rate = self.file.samplerate * self.up // self.down
        self.num_bytes = 0  # that were given

    def pieces(self):
        """20 ms each, from the beginning."""
        self.num_bytes = 0
        self.file.seek(0)
        last = np.zeros(1, np.float32)
        while len(samples := self._read(self.down * round(self.rate * PIECE_S / self.up))):
            if self.down > 1:
                samples = samples[: len(samples) // self.down * self.down].reshape(-1, self.down).mean(axis=1)
            if self.up > 1:
                at = np.arange(1, len(samples) * self.up + 1) / self.up
                samples, last = np.interp(at, np.arange(len(samples) + 1), np.r_[last, samples]), samples[-1:]
            pcm = np.clip(np.round(samples * 32768), -32768, 32767).astype("<i2").tobytes()
            self.num_bytes += len(pcm)
            yield pcm

    def _read(self, num_frames):
        try:
            return self.file.read(num_frames, dtype="float32", always_2d=True).mean(axis=1)
        except (OSError, soundfile.SoundFileError) as error:
            raise Failed(f"{self.path}: cannot be read to its end ({error})") from None


class Screen:
    """What was said of one recording: printed as it comes, unless --json, and kept. `hear` is true at the end."""

    def __init__(self, options, recording):
        self.options, self.recording = options, recording
        self.parts, self.ids, self.is_all_sent = [], [], False
        self.dims = sys.stdout.isatty()

    def hear(self, event):
        shows = not self.options.json
        match event["type"]:
            case "streamer.live_update" if shows:
                print(f"  {event['heard_s']:.0f} s: {event['text']}", file=sys.stderr, flush=True)
            case "streamer.delta":
                self.ids += event["ids"]
                dim = self.dims and not event["verified"]
                if shows:
                    print(f"{DIM}{event['text']}{PLAIN}" if dim else event["text"], end="", flush=True)
            case "streamer.description":
                self.parts.append(event["description"] | {"ids": self.ids})
                self.ids = []
                if shows:
                    print(flush=True)
            case "error" if event["error"]["code"] != "input_audio_buffer_commit_empty":
                raise Failed(f"{self.recording.path}: {event['error']['message']}")
        return self.is_whole()

    def is_whole(self):
        """Parts are described one by one; a recording ends where its last one does."""
        described_s = sum(part["audio_s"] for part in self.parts)
        tolerance_s = 0.002 * (1 + len(self.parts))  # audio_s is rounded to milliseconds
        return self.is_all_sent and described_s >= self.recording.num_bytes / 2 / self.recording.rate - tolerance_s

    def finish(self, file):
        last = self.parts[-1] if self.parts else {"ttft_ms": None, "stop_reason": "no_speech"}
        if not self.options.json:
            if not self.options.quiet:
                first = "" if last["ttft_ms"] is None else f"first text after {last['ttft_ms']:.0f} ms, "
                print(f"  {file}: {first}{last['stop_reason']}", file=sys.stderr)
            return
        joined = {"text": "".join(p["text"] for p in self.parts), "ids": [i for p in self.parts for i in p["ids"]],
                  "audio_s": round(sum(p["audio_s"] for p in self.parts), 3)}  # fmt: skip
        row = last | ({"parts": []} if len(self.parts) < 2 else joined | {"parts": self.parts})
        print(json.dumps({"file": file, **row}, ensure_ascii=False), flush=True)


async def play(link, recording, screen, speed):
    """The recording at `speed` times real time, then its end."""
    started = time.monotonic()
    for i, piece in enumerate(recording.pieces()):
        ahead_s = i * PIECE_S / speed - (time.monotonic() - started)
        if ahead_s > 0:
            await asyncio.sleep(ahead_s)
        await link.send(piece)
    screen.is_all_sent = True
    await link.send({"type": "input_audio_buffer.commit"})


async def describe(path, options):
    recording = Recording(path)
    heard = {"input": {"format": {"type": "audio/pcm", "rate": recording.rate}, "turn_detection": None}}
    extensions = {"binary": True, "events": True, "acks": True, "live_update_s": options.live_updates}
    key = options.api_key or os.environ.get("STREAMER_API_KEY")
    screen = Screen(options, recording)
    link = Link(options.url, key, {"audio": heard, "streamer": extensions})
    listening = asyncio.create_task(link.run(screen.hear))
    playing = asyncio.create_task(play(link, recording, screen, options.speed))
    try:
        await asyncio.wait((listening, playing), return_when=asyncio.FIRST_EXCEPTION)
        for task in (playing, listening):  # the first one's reason is the reason
            if task.done():
                task.result()
    finally:
        playing.cancel()
        listening.cancel()
        await asyncio.wait((listening, playing))
    screen.finish(path)


def run(path, options):
    """One file, from its beginning again where the server forgot the session. Raises Failed."""
    for _ in range(3):
        try:
            return asyncio.run(describe(path, options))
        except Gone:
            print(f"\nfile.py: {path}: the server forgot the session; once more from the beginning", file=sys.stderr)
    raise Failed(f"{path}: the server forgot the session three times")


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
            run(path, options)
        except Failed as failed:
            failures += 1
            print(f"file.py: {failed}", file=sys.stderr)
        except KeyboardInterrupt:  # what was committed stays on the screen
            print(flush=True)
            return 130
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
