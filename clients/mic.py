# /// script
# requires-python = ">=3.11"
# dependencies = ["websockets>=15,<18", "numpy>=2,<3", "sounddevice>=0.5,<1"]
# ///
"""Speak into the microphone; read, as it is committed, how you speak. Voice activity ends each turn.

`python clients/mic.py [--url ws://127.0.0.1:8765/v1/realtime] [--live-updates 3]`. Copy this file anywhere: it needs
nothing of streamer. Ctrl-C ends it, after the last sentence; twice, at once. Exit status 0, 1 when microphone or server
failed, 2 for bad usage.
"""

import argparse
import asyncio
import collections
import contextlib
import json
import os
import signal
import sys
import time
from urllib.parse import parse_qsl, urlencode, urlsplit

import numpy as np
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus, InvalidURI

DIM, PLAIN, CLEAR = "\x1b[2m", "\x1b[0m", "\r\x1b[K"
PIECE_S = 0.02
MAX_PIECES = 500  # 10 s that wait to be sent; beyond that the oldest go
MAX_LAST_S = 10.0  # for the last sentence
RATES_HZ = (16_000, 48_000, 44_100, 24_000, 32_000, 8_000)  # where the device's own is not between 8 and 48 kHz

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

class Microphone:
    """PCM16 mono pieces of 20 ms from the device, in order; bounded. Raises Failed."""

    def __init__(self, device):
        try:
            import sounddevice
        except OSError as error:  # the package is there, the library is not
            raise Failed(f"{error}; install PortAudio (Debian: apt-get install libportaudio2)") from None
        except ImportError:
            raise Failed("the package sounddevice is missing; pip install sounddevice") from None
        self.waiting, self.num_lost = collections.deque(), 0
        self.has_more, self.loop, self.is_closed = asyncio.Event(), asyncio.get_running_loop(), False
        self.rate, self.stream = self._open(sounddevice, device)

    def _open(self, sounddevice, device):
        try:
            own = int(sounddevice.query_devices(device, "input")["default_samplerate"])
        except (sounddevice.PortAudioError, ValueError) as error:
            raise Failed(f"there is no microphone ({_first_line(error)}); plug one in, or name a --device") from None
        reason = ""
        for rate in dict.fromkeys([own, *RATES_HZ] if 8_000 <= own <= 48_000 else RATES_HZ):
            try:
                stream = sounddevice.RawInputStream(rate, int(rate * PIECE_S), device, 1, "int16", callback=self._heard)
                stream.start()
                return rate, stream
            except (sounddevice.PortAudioError, ValueError) as error:
                reason = reason or _first_line(error)
        raise Failed(f"the microphone cannot be opened ({reason}); is another program using it?")

    def _heard(self, data, num_frames, times, status):
        """In PortAudio's thread."""
        with contextlib.suppress(RuntimeError):  # the loop is closed: we are leaving
            self.loop.call_soon_threadsafe(self._keep, bytes(data))

    def _keep(self, piece):
        self.waiting.append(piece)
        if len(self.waiting) > MAX_PIECES:
            self.waiting.popleft()
            self.num_lost += 1
        self.has_more.set()

    async def piece(self):
        """The next one; None after `close`."""
        while not self.waiting and not self.is_closed:
            self.has_more.clear()
            await self.has_more.wait()
        return self.waiting.popleft() if self.waiting else None

    def close(self):
        """Hear no more; what waits can still be taken."""
        self.stream.close()
        self.loop.call_soon(self._end)  # after the pieces that are on their way from the other thread

    def _end(self):
        self.is_closed = True
        self.has_more.set()


def _first_line(error):
    return str(error).splitlines()[0]


class Screen:
    """Sentences as they commit on stdout, unverified text dimmed; live updates and a level meter on stderr."""

    def __init__(self):
        self.dims, self.has_meter = sys.stdout.isatty(), sys.stderr.isatty()
        self.is_writing = self.is_ending = self.is_last_known = False
        self.num_open, self.stopped = 0, None

    def meter(self, piece):
        if not self.has_meter or self.is_writing:
            return
        level = np.sqrt(np.mean(np.frombuffer(piece, "<i2").astype(np.float32) ** 2)) / 32768
        bars = int(np.clip((20 * np.log10(level + 1e-6) + 60) / 2, 0, 30))
        print(f"{CLEAR}{DIM}{'▮' * bars}{PLAIN}", end="", file=sys.stderr, flush=True)

    def tell(self, line):
        print(f"{CLEAR if self.has_meter else ''}{line}", file=sys.stderr, flush=True)

    def hear(self, event):
        """True when the last turn, ended by Ctrl-C, is answered. Raises Failed."""
        match event["type"]:
            case "streamer.live_update":
                self.tell(f"  {event['heard_s']:.0f} s: {event['text']}")
            case "input_audio_buffer.speech_stopped":
                self.stopped = event["item_id"]
            case "input_audio_buffer.committed":
                self.num_open += 1
                self.is_last_known |= self.is_ending and event["item_id"] != self.stopped
            case "streamer.delta":
                self._write(event["text"], self.dims and not event["verified"])
            case "streamer.description":
                self.num_open -= 1
                self._end_line()
            case "error":
                self._error(event["error"])
        return self.is_ending and self.is_last_known and self.num_open <= 0

    def _write(self, text, dim):
        if not self.is_writing and self.has_meter:
            print(CLEAR, end="", file=sys.stderr, flush=True)
        self.is_writing = True
        print(f"{DIM}{text}{PLAIN}" if dim else text, end="", flush=True)

    def _end_line(self):
        if self.is_writing:
            print(flush=True)
        self.is_writing = False

    def _error(self, error):
        if error["code"] == "turn_failed":
            self.num_open -= 1
            self._end_line()
            self.tell(f"mic.py: {error['message']}")
        elif error["code"] == "input_audio_buffer_commit_empty":
            self.is_last_known = True
        else:
            raise Failed(error["message"])


async def play(link, microphone, screen):
    """What the microphone hears, as it comes, until it is closed; then the end of the turn."""
    num_lost = 0
    while (piece := await microphone.piece()) is not None:
        screen.meter(piece)
        await link.send(piece)
        if microphone.num_lost > num_lost and not link.num_tail_bytes > MAX_TAIL_BYTES:
            lost_s = (microphone.num_lost - num_lost) * PIECE_S
            screen.tell(f"mic.py: {lost_s:.1f} s were lost: nobody took them in time")
            num_lost = microphone.num_lost
    screen.is_ending = True
    await link.send({"type": "input_audio_buffer.commit"})


async def run_link(link, screen):
    """Until the last sentence; what a restarted server had not taken goes to its next session."""
    while True:
        try:
            return await link.run(screen.hear)
        except Gone:
            screen.num_open = 0
            screen.tell("mic.py: the server started anew; a sentence may miss its beginning")
            link.anew()


async def listen(options):
    screen, microphone = Screen(), Microphone(options.device)
    heard = {"format": {"type": "audio/pcm", "rate": microphone.rate}, "turn_detection": {"type": "server_vad"}}
    extensions = {"binary": True, "events": True, "acks": True, "live_update_s": options.live_updates or None}
    key = options.api_key or os.environ.get("STREAMER_API_KEY")
    link = Link(options.url, key, {"audio": {"input": heard}, "streamer": extensions})
    playing = asyncio.create_task(play(link, microphone, screen))
    listening = asyncio.create_task(run_link(link, screen))
    ending = asyncio.create_task(_end_on_interrupt(microphone))
    try:
        screen.tell(f"listening at {microphone.rate} Hz; speak, pause, read. Ctrl-C ends it.")
        await asyncio.wait((listening, ending), return_when=asyncio.FIRST_COMPLETED)
        await asyncio.wait((listening,), timeout=MAX_LAST_S)
        if listening.done():
            listening.result()
    finally:
        microphone.stream.close()
        for task in (playing, listening, ending):
            task.cancel()
        await asyncio.wait((playing, listening, ending))
        screen.tell("")


async def _end_on_interrupt(microphone):
    """The first Ctrl-C ends the turn; the second is Python's own."""
    interrupted, loop = asyncio.Event(), asyncio.get_running_loop()
    before = signal.signal(signal.SIGINT, lambda *_: loop.call_soon_threadsafe(interrupted.set))
    try:
        await interrupted.wait()
    finally:
        signal.signal(signal.SIGINT, before)
    microphone.close()


def main():
    parser = argparse.ArgumentParser(description="Speak; read how you speak.")
    parser.add_argument("--url", default="ws://127.0.0.1:8765/v1/realtime")
    parser.add_argument("--api-key", metavar="K", help="or STREAMER_API_KEY in the environment")
    parser.add_argument("--device", metavar="D", help="a microphone's number or a part of its name")
    parser.add_argument("--live-updates", type=float, default=3.0, metavar="S", help="every 3 s of speech; 0 for none")
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
