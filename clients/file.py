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
    from websockets.asyncio.client import connect
    from websockets.exceptions import (
        ConnectionClosed,
        InvalidHandshake,
        InvalidMessage,
        InvalidStatus,
        InvalidURI,
    )
except ImportError as missing:
    package = (missing.name or str(missing)).partition(".")[0]
    way_out = "pip install websockets numpy soundfile, or `uv run file.py`"
    sys.exit(f"file.py: the package {package} is missing or too old; {way_out}")

DIM = "\x1b[2m"
PLAIN = "\x1b[0m"
PIECE_S = 0.02
RATES_HZ = (8_000, 48_000)  # a server takes these

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
        self.kept = collections.deque()  # the messages from number num_taken on
        self.num_taken = self.num_taken_bytes = self.num_kept_bytes = self.num_sent = 0
        self.session_id = None
        self.num_events = 0
        self.broken_at = None
        self.is_told = False
        self.has_more = asyncio.Event()
        self.put({"type": "session.update", "session": {"type": "transcription", **session}})
        self.hello = self.kept[0]

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
                async with connect(
                    self._address(), additional_headers=self.headers, **CALM
                ) as socket:
                    return await self._converse(socket, hear)
            except ConnectionClosed as closed:
                code, told = (closed.rcvd.code, closed.rcvd.reason) if closed.rcvd else (1006, "")
                if code in (1000, 1008) or code >= 4000:
                    raise Failed(f"the server closed the session ({told or code})") from None
                reason = f"{self.url}: the connection broke ({told or code})"
            except InvalidStatus as refused:
                reason = self._refused(refused.response)
            except (OSError, InvalidHandshake, InvalidURI, ValueError) as error:
                reason = f"{self.url}: cannot be reached {self._why(error)}"
            await self._wait(reason)

    def anew(self):
        """Another session gets what the last one did not take. Call this after Gone."""
        if self.num_taken:
            self.kept.appendleft(self.hello)
        self.num_taken = self.num_taken_bytes = self.num_sent = self.num_events = 0
        self.session_id = None

    def _address(self):
        resume = {
            "resume": self.session_id,
            "event": self.num_events,
            "bytes": self.num_taken_bytes,
        }
        query = {"intent": "transcription"} | (resume if self.session_id else {})
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
        match event["type"]:
            case "session.created":
                self.session_id = event["session"]["id"]
                self.num_sent = 0
                self.broken_at = None
                self.is_told = False
            case "streamer.resumed":
                self._forget(event["messages"])
                self.num_events = event["event"]
                self.num_sent = self.num_taken
                self.broken_at = None
                self.is_told = False
                if event["lost_events"]:
                    raise Failed(
                        f"{event['lost_events']} events are lost; the link was broken for too long"
                    )
            case "streamer.ack":
                self._forget(event["messages"])

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
        is_tls = self.url.startswith("wss:")
        is_first = self.session_id is None
        if isinstance(error, ssl.SSLCertVerificationError):
            told = error.verify_message.rstrip(".")
            return (
                f"(its certificate does not verify: {told}); name the PEM file of its authority in "
                "SSL_CERT_FILE"
            )
        # so a connection ends within the handshake of TLS
        is_cut = isinstance(error, ConnectionResetError) and not error.errno
        if is_first and is_tls and (is_cut or isinstance(error, ssl.SSLError)):
            return "(it does not speak TLS, it seems); without --cert a server is reached by ws://"
        if is_first and not is_tls and isinstance(error, InvalidMessage):
            return "(it speaks TLS, it seems); with --cert a server is reached by wss://"
        return f"({error or type(error).__name__}); is `streamer serve` running?"

    def _refused(self, response):
        told = (response.body or b"").decode(
            errors="replace"
        ).strip() or f"status {response.status_code}"
        if self.session_id is not None and response.status_code in (400, 404):
            raise Gone
        if response.status_code == 401:
            raise Failed(
                f"{self.url}: refused ({told.partition(';')[0]}); give --api-key KEY or "
                "STREAMER_API_KEY"
            )
        if response.status_code == 404 and "connect to /v1/verify" in told:
            raise Failed(
                f"{self.url}: this is a `streamer verifier`; give the address of a `streamer serve`"
            )
        if response.status_code != 503:
            raise Failed(f"{self.url}: refused ({told})")
        return f"{self.url}: refused ({told})"

    async def _wait(self, reason):
        """Wait before the next attempt. Without a session there is none: a wrong address is told at
        once."""
        now = time.monotonic()
        self.broken_at = self.broken_at or now
        if self.session_id is None or now - self.broken_at > PATIENCE_S:
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
        # num_samples: given so far
        self.path = path
        self.num_samples = 0
        try:
            with open(path, "rb") as file:
                if not file.read(1):
                    raise Failed(f"{path}: is empty (0 bytes)")
            self.file = soundfile.SoundFile(path)
        except FileNotFoundError:
            raise Failed(f"{path}: no such file") from None
        except IsADirectoryError:
            raise Failed(
                f"{path}: is a directory; name the files in it, e.g. DIRECTORY/*.wav"
            ) from None
        except PermissionError:
            raise Failed(f"{path}: no permission to read it") from None
        except (OSError, ValueError) as error:
            raise Failed(f"{path}: cannot be opened ({error})") from None
        except soundfile.LibsndfileError as error:
            why = error.error_string.rstrip(".")
            raise Failed(
                f"{path}: is no recording that libsndfile can read ({why}); convert it first"
            ) from None
        if self.file.frames == 0:
            raise Failed(f"{path}: holds no samples, only a header")
        # soundfile seeks after every read. An MP3 decoder starts afresh at a seek, gives wrong
        # samples, and complains.
        self.file.seekable = lambda: False
        self.rate = self.file.samplerate
        if not RATES_HZ[0] <= self.rate <= RATES_HZ[1]:
            raise Failed(
                f"{path}: its rate of {self.rate} Hz is outside 8000..48000; resample it first"
            )

    def pieces(self):
        """Pieces of 20 ms each. Raises Failed."""
        try:
            n = int(self.rate * PIECE_S)
            while len(samples := self.file.read(50 * n, dtype="float32", always_2d=True)):
                pcm = np.clip(np.round(samples.mean(axis=1) * 32_768), -32_768, 32_767).astype(
                    "<i2"
                )
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
            row = {
                "file": path,
                **last,
                "text": text,
                "audio_s": audio_s,
                "warning": warning,
                "parts": several,
            }
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


async def describe(path, options):
    """Describe one file. Raises Failed and Gone."""
    recording = Recording(path)
    screen = Screen(options, recording)
    heard = {
        "input": {"format": {"type": "audio/pcm", "rate": recording.rate}, "turn_detection": None}
    }
    extensions = {
        "binary": True,
        "events": True,
        "acks": True,
        "live_update_s": options.live_updates,
    }
    key = options.api_key or os.environ.get("STREAMER_API_KEY")
    link = Link(options.url, key, {"audio": heard, "streamer": extensions})
    work = link.run(screen.hear), play(link, recording, screen, options.speed)
    tasks = [asyncio.create_task(each) for each in work]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
    for task in tasks:
        if task.done():
            task.result()
    screen.finish()


def run(path, options):
    """Describe one file; begin again where the server forgot the session. Raises Failed."""
    for _ in range(3):
        try:
            return asyncio.run(describe(path, options))
        except Gone:
            print(
                f"file.py: {path}: the server started anew; once more from the beginning",
                file=sys.stderr,
            )
    raise Failed(f"{path}: the server forgot the session three times")


def main():
    parser = argparse.ArgumentParser(description="Stream recordings to a streamer server.")
    parser.add_argument("files", nargs="+", metavar="FILE", help="any format libsndfile reads")
    parser.add_argument(
        "--url",
        default=f"ws://127.0.0.1:{PORT}{PATH}",
        help="of `streamer serve`; ws://HOST:PORT is enough, wss:// where it has --cert",
    )
    parser.add_argument("--api-key", metavar="K", help="or STREAMER_API_KEY in the environment")
    parser.add_argument(
        "--speed", type=float, default=1.0, metavar="N", help="times real time; default 1"
    )
    parser.add_argument(
        "--live-updates",
        type=float,
        metavar="S",
        help="a sentence every so many seconds, on stderr",
    )
    parser.add_argument(
        "--json", action="store_true", help="one JSON object per file on stdout, nothing else"
    )
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
