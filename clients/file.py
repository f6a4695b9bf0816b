# /// script
# requires-python = ">=3.11"
# dependencies = ["websockets>=15,<18", "numpy>=2,<3", "soundfile>=0.13,<1"]
# ///
"""Stream a recording to a streamer server as a microphone would, and print the sentence as it is
committed.

`python clients/file.py clip.wav [--url ws://127.0.0.1:8765/v1/realtime] [--speed 4] [--json]`. Copy
this file anywhere: it needs nothing of streamer. The exit status is 0, 1 when a file or the server
failed, 2 for bad usage, 130 for Ctrl-C.
"""

import argparse
import asyncio
import collections
import contextlib
import json
import os
import ssl
import sys
import time
from urllib.parse import urlencode, urlsplit, urlunsplit

try:
    import numpy as np
    import soundfile
    from websockets import ConnectionClosed, InvalidMessage, InvalidStatus, WebSocketException
    from websockets.asyncio.client import connect
except ImportError as missing:
    package = (missing.name or str(missing)).partition(".")[0]
    way_out = "pip install websockets numpy soundfile, or `uv run file.py`"
    sys.exit(f"file.py: the package {package} is missing or too old; {way_out}")

DIM = "\x1b[2m"
PLAIN = "\x1b[0m"
PIECE_S = 0.02
RATES_HZ = (8_000, 48_000)  # a server takes these
CANNOT_OPEN = {
    FileNotFoundError: "no such file",
    IsADirectoryError: "is a directory; name the files in it, e.g. DIRECTORY/*.wav",
    PermissionError: "no permission to read it",
}

# The link. mic.py and file.py hold the same text, because each is a single file on purpose;
# tests/clients compares the two.
PORT = 8765
PATH = "/v1/realtime"
MAX_KEPT_BYTES = 4 << 20  # of audio that is not acknowledged: 43 s at 48 kHz
PATIENCE_S = 60.0  # so long the link may be broken
CALM = {"compression": None, "close_timeout": 2, "ping_interval": 10, "ping_timeout": 20}


class Failed(Exception):
    """One line for the user."""


class Gone(Exception):
    """The server does not know the session any more: it was restarted, or the link was broken for
    too long."""


def address_of(url):
    """The address with the path of `streamer serve` where it has none, and with its port where it
    has neither. Raises Failed."""
    try:
        parts = urlsplit(url)
        if parts.scheme not in ("ws", "wss") or not parts.hostname:
            scheme = "wss" if parts.scheme == "https" else "ws"
            raise Failed(f"{url}: is no address of a server; start it with {scheme}://")
        if parts.path.strip("/"):
            return url
        place = parts.netloc if parts.port is not None else f"{parts.netloc.rstrip(':')}:{PORT}"
        return urlunsplit(parts._replace(netloc=place, path=PATH))
    except ValueError as error:
        raise Failed(f"{url}: is no address of a server ({error})") from None


class Link:
    """A session whose link may break. It goes on where it stopped: no byte and no event is lost,
    none comes twice.

    The server acknowledges how many messages it took. The link keeps the rest, and sends them again
    after `?resume=ID&event=M`.
    """

    def __init__(self, url, key, session):
        self.url = address_of(url)
        self.headers = {"Authorization": f"Bearer {key}"} if key else {}
        session = {"type": "transcription", **session}
        self.hello = json.dumps({"type": "session.update", "session": session})
        self.kept = collections.deque()  # the messages from number num_taken on
        self.num_kept_bytes = 0
        self.has_more = asyncio.Event()
        self.broken_at = None
        self.is_told = False
        self.was_there = False  # a session was given here
        self.anew()

    def anew(self):
        """Begin a session with what the last one did not take. Call this after Gone."""
        if not self.kept or self.kept[0] is not self.hello:
            self.kept.appendleft(self.hello)
        self.num_taken = self.num_taken_bytes = self.num_sent = self.num_events = 0
        self.session_id = None

    @property
    def is_full(self):
        return self.num_kept_bytes >= MAX_KEPT_BYTES

    def put(self, message):
        """Send this as soon as may be: bytes are audio, a dict is an event. Do not put audio while
        the link is full."""
        self.kept.append(message if isinstance(message, bytes) else json.dumps(message))
        self.num_kept_bytes += len(message) if isinstance(message, bytes) else 0
        self.has_more.set()

    async def run(self, hear):
        """Connect, and again after each break, until `hear(event)` is true. Raises Failed and
        Gone."""
        while True:
            try:
                connecting = connect(self._address(), additional_headers=self.headers, **CALM)
                async with connecting as socket:
                    return await self._converse(socket, hear)
            except ConnectionClosed as closed:
                code, told = (closed.rcvd.code, closed.rcvd.reason) if closed.rcvd else (1006, "")
                if code in (1000, 1008) or code >= 4000:
                    raise Failed(f"the server closed the session ({told or code})") from None
                reason = f"{self.url}: the connection broke ({told or code})"
            except InvalidStatus as refused:
                reason = self._refused(refused.response)
            except (OSError, WebSocketException, ValueError) as error:
                reason = f"{self.url}: cannot be reached {self._why(error)}"
            await self._wait(reason)

    def _address(self):
        query = {"intent": "transcription"}
        if self.session_id:
            query |= {"resume": self.session_id, "event": self.num_events}
            query["bytes"] = self.num_taken_bytes
        return f"{self.url}{'&' if '?' in self.url else '?'}{urlencode(query)}"

    async def _converse(self, socket, hear):
        sending = None
        try:
            while True:
                event = json.loads(await socket.recv())
                self._note(event)
                # the first event has said from where on
                sending = sending or asyncio.create_task(self._send(socket))
                if hear(event):
                    return
        finally:
            if sending is not None:
                sending.cancel()

    def _note(self, event):
        self.num_events += 1
        kind = event["type"]
        if kind in ("streamer.ack", "streamer.resumed"):
            self._forget(event["messages"])
        if kind in ("session.created", "streamer.resumed"):
            self.num_sent = self.num_taken
            self.broken_at = None
            self.is_told = False
        if kind == "session.created":
            self.session_id, self.was_there = event["session"]["id"], True
        elif kind == "streamer.resumed":
            self.num_events = event["event"]
            if lost := event["lost_events"]:
                raise Failed(f"{lost} events are lost; the link was broken for too long")

    def _forget(self, num_taken):
        while self.num_taken < num_taken:
            message = self.kept.popleft()
            self.num_taken += 1
            if isinstance(message, bytes):
                self.num_kept_bytes -= len(message)
                self.num_taken_bytes += len(message)

    async def _send(self, socket):
        with contextlib.suppress(ConnectionClosed):  # the listening task says so
            while True:
                while self.num_sent < self.num_taken + len(self.kept):
                    self.num_sent += 1
                    await socket.send(self.kept[self.num_sent - 1 - self.num_taken])
                self.has_more.clear()
                await self.has_more.wait()

    def _why(self, error):
        if isinstance(error, ssl.SSLCertVerificationError):
            told = f"(its certificate does not verify: {error.verify_message.rstrip('.')})"
            return f"{told}; name the PEM file of its authority in SSL_CERT_FILE"
        is_tls = self.url.startswith("wss:")
        # so a connection ends within the handshake of TLS
        is_cut = isinstance(error, ConnectionResetError) and not error.errno
        if self.session_id is None and is_tls and (is_cut or isinstance(error, ssl.SSLError)):
            return "(it does not speak TLS, it seems); without --cert a server is reached by ws://"
        if self.session_id is None and not is_tls and isinstance(error, InvalidMessage):
            return "(it speaks TLS, it seems); with --cert a server is reached by wss://"
        return f"({error or type(error).__name__}); is `streamer serve` running?"

    def _refused(self, response):
        status = response.status_code
        told = (response.body or b"").decode(errors="replace").strip() or f"status {status}"
        reason = f"{self.url}: refused ({told})"
        if self.session_id is not None and status in (400, 404):
            raise Gone
        if status == 401:
            reason = f"{self.url}: refused ({told.partition(';')[0]})"
            raise Failed(f"{reason}; give --api-key KEY or STREAMER_API_KEY")
        if status == 404 and "connect to /v1/verify" in told:
            ways = "give the address of a `streamer serve`"
            raise Failed(f"{self.url}: this is a `streamer verifier`; {ways}")
        if status != 503:
            raise Failed(reason)
        return reason

    async def _wait(self, reason):
        """Wait before the next attempt. Where no session ever was there is none: a wrong address is
        told at once."""
        now = time.monotonic()
        self.broken_at = self.broken_at or now
        if not self.was_there or now - self.broken_at > PATIENCE_S:
            raise Failed(reason)
        if now - self.broken_at > 1 and not self.is_told:
            self.is_told = True
            print(f"\n{reason}; trying again for {PATIENCE_S:.0f} s", file=sys.stderr, flush=True)
        await asyncio.sleep(min(3.0, 0.1 + (now - self.broken_at) / 2))


# End of the link.


class Recording:
    """A file that soundfile reads, as pieces of PCM16 mono. One that is PCM16 mono already keeps
    its very samples."""

    def __init__(self, path):
        self.path = path
        self.num_samples = 0  # given so far
        try:
            with open(path, "rb") as file:
                if not file.read(1):
                    raise Failed(f"{path}: is empty (0 bytes)")
            self.file = soundfile.SoundFile(path)
        except soundfile.LibsndfileError as error:
            why = f"is no recording that libsndfile can read ({error.error_string.rstrip('.')})"
            raise Failed(f"{path}: {why}; convert it first") from None
        except (OSError, ValueError) as error:
            why = CANNOT_OPEN.get(type(error), f"cannot be opened ({error})")
            raise Failed(f"{path}: {why}") from None
        if self.file.frames == 0:
            raise Failed(f"{path}: holds no samples, only a header")
        # soundfile seeks after every read. An MP3 decoder starts afresh at a seek, gives wrong
        # samples, and complains.
        self.file.seekable = lambda: False
        self.rate = self.file.samplerate
        if not RATES_HZ[0] <= self.rate <= RATES_HZ[1]:
            told = f"its rate of {self.rate} Hz is outside 8000..48000"
            raise Failed(f"{path}: {told}; resample it first")

    def pieces(self):
        """Pieces of 20 ms each. Raises Failed."""
        try:
            n = int(self.rate * PIECE_S)
            while len(samples := self.file.read(50 * n, dtype="float32", always_2d=True)):
                scaled = np.round(samples.mean(axis=1) * 32_768)
                pcm = np.clip(scaled, -32_768, 32_767).astype("<i2")
                for at in range(0, len(pcm), n):
                    self.num_samples += len(pcm[at : at + n])
                    yield pcm[at : at + n].tobytes()
        except (OSError, soundfile.SoundFileError) as error:
            raise Failed(f"{self.path}: cannot be read to its end ({error})") from None


class Screen:
    """What was said of one recording. It is kept, and without --json printed as it comes."""

    def __init__(self, options, recording):
        self.options = options
        self.recording = recording
        self.parts = []
        self.is_all_sent = False
        self.dims = sys.stdout.isatty()

    def hear(self, event):
        """True when the whole recording is described. Raises Failed."""
        shows = not self.options.json
        match event["type"]:
            case "streamer.live_update" if shows:
                print(f"  {event['heard_s']:.0f} s: {event['text']}", file=sys.stderr, flush=True)
            case "streamer.delta" if shows:
                dim = self.dims and not event["verified"]
                print(f"{DIM}{event['text']}{PLAIN}" if dim else event["text"], end="", flush=True)
            case "streamer.description":
                self.parts.append(event["description"])
                if shows:
                    print(flush=True)
            case "error" if event["error"]["code"] != "input_audio_buffer_commit_empty":
                raise Failed(f"{self.recording.path}: {event['error']['message']}")
        return self.is_all_sent and self.is_whole()

    def is_whole(self):
        """A long recording is described in parts; it ends where the last one does."""
        described_s = sum(part["audio_s"] for part in self.parts)
        tolerance_s = 0.002 * (1 + len(self.parts))  # audio_s is rounded to milliseconds
        return described_s >= self.recording.num_samples / self.recording.rate - tolerance_s

    def warning(self):
        """The warning of the first part that has one, else None. Blocks that should have been
        verified and were not give one."""
        told = [part["warning"] for part in self.parts if part.get("warning")]
        more = f" (so in {len(told)} of {len(self.parts)} parts)" if len(self.parts) > 1 else ""
        return told[0] + more if told else None

    def finish(self):
        """The result as JSON, or a line of times."""
        path = self.recording.path
        last = self.parts[-1] if self.parts else {"text": "", "stop_reason": "no_speech"}
        if warning := self.warning():
            print(f"file.py: {path}: {warning}", file=sys.stderr)
        if self.options.json:
            several = self.parts if len(self.parts) > 1 else []
            text = "".join(part["text"] for part in self.parts)
            audio_s = round(sum(part["audio_s"] for part in self.parts), 3)
            whole = {"text": text, "audio_s": audio_s, "warning": warning, "parts": several}
            row = {"file": path, **last, **whole}
            print(json.dumps(row, ensure_ascii=False), flush=True)
        elif not self.options.quiet:
            first_ms = last.get("ttft_ms")
            first = "" if first_ms is None else f"first text after {first_ms:.0f} ms, "
            print(f"  {path}: {first}{last['stop_reason']}", file=sys.stderr)


async def play(link, recording, screen, speed):
    """Play the recording at `speed` times real time, then end it."""
    started = time.monotonic()
    for i, piece in enumerate(recording.pieces()):
        ahead_s = i * PIECE_S / speed - (time.monotonic() - started)
        if ahead_s > 0:
            await asyncio.sleep(ahead_s)
        while link.is_full:
            await asyncio.sleep(PIECE_S)
        link.put(piece)
    screen.is_all_sent = True
    link.put({"type": "input_audio_buffer.commit"})


async def describe(path, options, was_there):
    """Describe one file. was_there: a server answered before. Raises Failed and Gone."""
    recording = Recording(path)
    screen = Screen(options, recording)
    sound = {"type": "audio/pcm", "rate": recording.rate}
    audio = {"input": {"format": sound, "turn_detection": None}}
    every_s = options.live_updates
    extensions = {"binary": True, "events": True, "acks": True, "live_update_s": every_s}
    key = options.api_key or os.environ.get("STREAMER_API_KEY")
    link = Link(options.url, key, {"audio": audio, "streamer": extensions})
    link.was_there = was_there
    work = link.run(screen.hear), play(link, recording, screen, options.speed)
    await asyncio.gather(*work)
    screen.finish()


def run(path, options):
    """Describe one file; begin again where the server forgot the session. Raises Failed."""
    for num in range(3):
        try:
            return asyncio.run(describe(path, options, was_there=num > 0))
        except Gone:
            told = "the server started anew; once more from the beginning"
            print(f"file.py: {path}: {told}", file=sys.stderr)
    raise Failed(f"{path}: the server forgot the session three times")


def main():
    parser = argparse.ArgumentParser(description="Stream recordings to a streamer server.")
    add = parser.add_argument
    add("files", nargs="+", metavar="FILE", help="any format libsndfile reads")
    add(
        "--url",
        default=f"ws://127.0.0.1:{PORT}{PATH}",
        help="of `streamer serve`; ws://HOST:PORT is enough, wss:// where it has --cert",
    )
    add("--api-key", metavar="K", help="or STREAMER_API_KEY in the environment")
    add("--speed", type=float, default=1.0, metavar="N", help="times real time; default 1")
    add(
        "--live-updates",
        type=float,
        metavar="S",
        help="a sentence every so many seconds, on stderr",
    )
    add("--json", action="store_true", help="one JSON object per file on stdout, nothing else")
    add("--quiet", action="store_true", help="the sentence only")
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
