# /// script
# requires-python = ">=3.11"
# dependencies = ["websockets>=15,<18", "sounddevice>=0.5,<1"]
# ///
"""Speak into the microphone, and read how you speak as it is committed. Voice activity ends each
turn.

`python clients/mic.py [--url ws://127.0.0.1:8765/v1/realtime] [--live-updates 3]`. Copy this file
anywhere: it needs nothing of streamer. Ctrl-C ends it after the last sentence, a second one at
once. The exit status is 0, 1 when microphone or server failed, 2 for bad usage, 130 for the second
Ctrl-C.
"""

import argparse
import array
import asyncio
import collections
import contextlib
import json
import math
import os
import signal
import ssl
import sys
import time
from urllib.parse import urlencode, urlsplit, urlunsplit

try:
    from websockets import ConnectionClosed, InvalidMessage, InvalidStatus, WebSocketException
    from websockets.asyncio.client import connect
except ImportError as missing:
    package = (missing.name or str(missing)).partition(".")[0]
    way_out = "pip install websockets sounddevice, or `uv run mic.py`"
    sys.exit(f"mic.py: the package {package} is missing or too old; {way_out}")

DIM = "\x1b[2m"
PLAIN = "\x1b[0m"
CLEAR = "\r\x1b[K"
PIECE_S = 0.02
LAST = "last"
MAX_LAST_S = 10.0  # for the last sentence
# where the device's own is not one that servers take
RATES_HZ = (48_000, 44_100, 32_000, 24_000, 16_000, 8_000)

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


def open_microphone(device, heard):
    """Returns (rate in Hz, open stream). PortAudio's thread calls `heard` with 20 ms of PCM16 mono
    each. Raises Failed."""
    try:
        import sounddevice
    except OSError as error:  # the package is there, the library is not
        way_out = "install PortAudio (Debian: apt-get install libportaudio2)"
        raise Failed(f"{error}; {way_out}") from None
    except ImportError:
        way_out = "pip install websockets sounddevice"
        raise Failed(f"the package sounddevice is missing; {way_out}") from None
    try:
        own = int(sounddevice.query_devices(device, "input")["default_samplerate"])
    except (sounddevice.PortAudioError, ValueError) as error:
        told = str(error).partition("\n")[0]
        raise Failed(f"there is no microphone ({told}); plug one in, or name a --device") from None

    def hear(data, *_):
        heard(bytes(data))

    why = ""
    for rate in [own] if 8_000 <= own <= 48_000 else RATES_HZ:
        n = int(rate * PIECE_S)
        try:
            stream = sounddevice.RawInputStream(rate, n, device, 1, "int16", callback=hear)
            stream.start()
            return rate, stream
        except (sounddevice.PortAudioError, ValueError) as error:
            why = why or str(error).partition("\n")[0]
    raise Failed(f"the microphone cannot be opened ({why}); is another program using it?")


class Screen:
    """Writes sentences to stdout as they commit, with unverified text dimmed. Live updates and a
    level meter go to stderr."""

    def __init__(self):
        self.dims = sys.stdout.isatty()
        self.has_meter = sys.stderr.isatty()
        self.is_writing = self.is_last_known = False
        self.num_open = 0  # turns to be answered

    def meter(self, piece):
        if self.has_meter and not self.is_writing:
            samples = array.array("h", piece)
            power = sum(s * s for s in samples) / len(samples) / 32_768**2
            bar = "▮" * round(5 * math.log10(power + 1e-6) + 30)  # one for each 2 dB over -60
            print(f"{CLEAR}{DIM}{bar}{PLAIN}", end="", file=sys.stderr, flush=True)

    def tell(self, line):
        print(f"{CLEAR if self.has_meter else ''}{line}", file=sys.stderr, flush=True)

    def hear(self, event):
        """True when the last turn, ended by Ctrl-C, is answered. Raises Failed."""
        match event["type"]:
            case "session.created":
                self.tell("listening; speak, pause, read. Ctrl-C ends it.")
            case "streamer.live_update":
                self.tell(f"  {event['heard_s']:.0f} s: {event['text']}")
            case "input_audio_buffer.committed":
                self.num_open += 1
            case "streamer.delta":
                self.write(event["text"], self.dims and not event["verified"])
            case "streamer.description":
                self.end()
                if warning := event["description"].get("warning"):
                    self.tell(f"mic.py: {warning}")
            case "error":
                self.error(event["error"])
        return self.is_last_known and self.num_open <= 0

    def write(self, text, dim):
        if not self.is_writing and self.has_meter:
            print(CLEAR, end="", file=sys.stderr, flush=True)
        self.is_writing = True
        print(f"{DIM}{text}{PLAIN}" if dim else text, end="", flush=True)

    def end(self):
        """End a sentence on the screen."""
        self.num_open -= 1
        if self.is_writing:
            print(flush=True)
        self.is_writing = False

    def error(self, error):
        if error["code"] == "turn_failed":
            self.end()
            self.tell(f"mic.py: {error['message']}")
        elif error["code"] != "input_audio_buffer_commit_empty":
            raise Failed(error["message"])
        elif error["event_id"] == LAST:
            self.is_last_known = True


async def describe(link, screen):
    """Run until the last sentence. A restarted server's next session gets what it had not taken."""
    while True:
        try:
            return await link.run(screen.hear)
        except Gone:
            screen.num_open = 0
            screen.tell("mic.py: the server started anew; a sentence may miss its beginning")
            link.anew()


async def interrupted():
    """Returns at the first Ctrl-C. Python itself handles the second."""
    event = asyncio.Event()
    loop = asyncio.get_running_loop()
    before = signal.signal(signal.SIGINT, lambda *_: loop.call_soon_threadsafe(event.set))
    try:
        await event.wait()
    finally:
        signal.signal(signal.SIGINT, before)


async def listen(options):
    """Bring what the microphone hears to the screen, until Ctrl-C. Raises Failed."""
    loop = asyncio.get_running_loop()
    screen = Screen()
    num_lost = 0

    def take(piece):
        nonlocal num_lost
        screen.meter(piece)
        if link.is_full:
            num_lost += 1
            return
        link.put(piece)
        if num_lost:
            lost = f"{num_lost * PIECE_S:.1f} s are lost"
            screen.tell(f"mic.py: {lost}; the link was broken for too long")
            num_lost = 0

    def finish():
        # silent where voice activity has just ended the turn
        link.put({"type": "input_audio_buffer.commit"})
        # the answer: nothing is left
        link.put({"type": "input_audio_buffer.commit", "event_id": LAST})

    def heard(piece):
        loop.call_soon_threadsafe(take, piece)

    rate, stream = open_microphone(options.device, heard)
    sound = {"type": "audio/pcm", "rate": rate}
    audio = {"input": {"format": sound, "turn_detection": {"type": "server_vad"}}}
    every_s = options.live_updates or None
    extensions = {"binary": True, "events": True, "acks": True, "live_update_s": every_s}
    key = options.api_key or os.environ.get("STREAMER_API_KEY")
    link = Link(options.url, key, {"audio": audio, "streamer": extensions})
    try:
        describing = asyncio.create_task(describe(link, screen))
        ending = asyncio.create_task(interrupted())
        await asyncio.wait((describing, ending), return_when=asyncio.FIRST_COMPLETED)
    finally:
        stream.close()
    loop.call_soon(finish)  # after the pieces that are on their way from the other thread
    await asyncio.wait((describing,), timeout=MAX_LAST_S)
    if not describing.done():
        raise Failed(f"the last sentence did not come within {MAX_LAST_S:.0f} s")
    describing.result()


def main():
    parser = argparse.ArgumentParser(description="Speak; read how you speak.")
    add = parser.add_argument
    add(
        "--url",
        default=f"ws://127.0.0.1:{PORT}{PATH}",
        help="of `streamer serve`; ws://HOST:PORT is enough, wss:// where it has --cert",
    )
    add("--api-key", metavar="K", help="or STREAMER_API_KEY in the environment")
    add("--device", metavar="D", help="a microphone's number or a part of its name")
    add(
        "--live-updates",
        type=float,
        default=3.0,
        metavar="S",
        help="a sentence every so many seconds of speech; default 3, 0 for none",
    )
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
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
