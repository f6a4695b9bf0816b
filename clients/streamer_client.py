# /// script
# requires-python = ">=3.11"
# dependencies = ["websockets>=15,<18", "numpy>=2,<3", "soundfile>=0.13,<1", "sounddevice>=0.5,<1"]
# ///
"""Describe a microphone or recordings with a streamer server, and print sentences as they come.

    python streamer_client.py mic [--live-updates 3]        speak, pause, read; Ctrl-C ends it
    python streamer_client.py file clip.wav [--speed 4] [--json]

Copy this file anywhere: it needs nothing of streamer. `uv run streamer_client.py` installs its
packages. The exit status is 0, 1 when a file, the microphone or the server failed, 2 for bad usage,
130 for Ctrl-C (with mic: for the second one; the first waits for the last sentence).
"""

import argparse
import array
import asyncio
import collections
import contextlib
import importlib
import json
import math
import os
import re
import ssl
import sys
import time
from urllib.parse import urlencode, urlsplit, urlunsplit

NAME = os.path.basename(__file__)
PORT = 8765
PATH = "/v1/realtime"
HERE = ("127.0.0.1", "::1", "localhost")
PIECE_S = 0.02
CLEAR, DIM, PLAIN = "\r\x1b[K", "\x1b[2m", "\x1b[0m"
COMMIT = {"type": "input_audio_buffer.commit"}
LAST = COMMIT | {"event_id": "last"}
MAX_LAST_S = 10.0  # for the last sentence of the microphone
MAX_KEPT_BYTES = 4 << 20  # of audio that is not acknowledged: 43 s at 48 kHz
PATIENCE_S = 60.0  # of a broken link
CALM = {"compression": None, "close_timeout": 2, "ping_interval": 10, "ping_timeout": 20}
RATES_HZ = (8_000, 48_000)  # the lowest and the highest that a server takes
BLOCK_S = 0.05  # of a recording
KEPT = 0.8  # of the channels' energies, from block to block
LOUDER = 2  # in energy: a channel that takes over
# libsndfile's log of a header that promises more bytes than there are; a pipe's promises the most
SHORT_DATA = re.compile(r"\b(?:data|SSND) *: *(\d+) \(should be (\d+)\)")
PLACEHOLDER = 0x7FFF_0000


class Failed(Exception):
    """The command cannot go on. Its text is one line for the user."""


class Gone(Exception):
    """The server does not know the session any more: it was restarted, or the link was broken for
    too long."""


def tell(line):
    """A line on stderr."""
    show(f"{NAME}: {line}")


def show(text, end="\n"):
    """Write to stderr. If that fails, the work goes on."""
    with contextlib.suppress(OSError):
        print(text, end=end, file=sys.stderr, flush=True)


def put(text, end="\n"):
    """Write to stdout. Raises Failed: an OSError would be taken for the connection's."""
    try:
        print(text, end=end, flush=True)
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for the rest, at the end
        raise Failed(f"stdout cannot be written ({error.strerror})") from None


def needed(*packages):
    """Import packages. Raises Failed."""
    try:
        return [importlib.import_module(package) for package in packages]
    except ImportError as missing:
        package = (missing.name or str(missing)).partition(".")[0]
        way_out = f"pip install {' '.join(packages)}, or `uv run {NAME}`"
        raise Failed(f"the package {package} is missing or too old; {way_out}") from None


try:
    from websockets import ConnectionClosed, InvalidMessage, InvalidStatus, WebSocketException
    from websockets.asyncio.client import connect
except ImportError:
    sys.exit(f"{NAME}: the package websockets is missing or too old; pip install websockets")


def address_of(url):
    """The URL, with the path and port of `streamer serve` if they are missing. Raises Failed."""
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
    """A session that survives broken connections: no byte and no event is lost or repeated.

    The server acknowledges the messages it took. The link keeps the rest, and sends them again
    after `?resume=ID&event=M`. A subclass defines `hear(event)`: True when all is described.
    """

    def __init__(self, options, rate, detection):
        """rate: of the audio, in Hz. detection: the session's `turn_detection`."""
        self.url = address_of(options.url)
        key = options.api_key or os.environ.get("STREAMER_API_KEY")
        self.connecting = CALM | {
            "additional_headers": {"Authorization": f"Bearer {key}"} if key else {},
            # not the environment's proxy for a server on this machine
            "proxy": None if urlsplit(self.url).hostname in HERE else True,
        }
        every_s = options.live_updates or None
        extensions = {"binary": True, "events": True, "acks": True, "live_update_s": every_s}
        if options.language:
            extensions["language"] = options.language
        heard = {"format": {"type": "audio/pcm", "rate": rate}, "turn_detection": detection}
        session = {"type": "transcription", "audio": {"input": heard}, "streamer": extensions}
        self.hello = json.dumps({"type": "session.update", "session": session})
        self.kept = collections.deque()  # the messages from number num_taken on
        self.has_more = asyncio.Event()
        self.broken_at = None
        self.is_told = False
        self.was_there = False  # a session has existed
        self.anew()

    def anew(self):
        """Begin a new session with the messages that the last one did not take, after Gone."""
        if not self.kept or self.kept[0] is not self.hello:
            self.kept.appendleft(self.hello)
        self.num_taken = self.num_taken_bytes = self.num_sent = self.num_events = 0
        self.session_id = None

    @property
    def is_full(self):
        return sum(map(len, self.kept)) >= MAX_KEPT_BYTES

    def put(self, message):
        """Queue bytes of audio, or an event (a dict). Do not put audio while the link is full."""
        self.kept.append(message if isinstance(message, bytes) else json.dumps(message))
        self.has_more.set()

    async def run(self):
        """Connect, and reconnect after each break, until `hear` is true. Raises Failed and Gone."""
        while True:
            try:
                async with connect(self._address(), **self.connecting) as socket:
                    return await self._converse(socket)
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

    async def _converse(self, socket):
        event = await self._next(socket)  # says where to go on
        sending = asyncio.create_task(self._send(socket))
        try:
            while not self.hear(event):
                event = await self._next(socket)
        finally:
            sending.cancel()

    async def _next(self, socket):
        event = json.loads(await socket.recv())
        self.num_events += 1
        kind = event["type"]
        if kind in ("streamer.ack", "streamer.resumed"):
            while self.num_taken < event["messages"]:
                message = self.kept.popleft()
                self.num_taken += 1
                self.num_taken_bytes += len(message) if isinstance(message, bytes) else 0
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
        return event

    async def _send(self, socket):
        with contextlib.suppress(ConnectionClosed):  # the listening task reports it
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
        # how a connection ends within the TLS handshake
        is_cut = isinstance(error, ConnectionResetError) and not error.errno
        if self.session_id is None and is_tls and (is_cut or isinstance(error, ssl.SSLError)):
            return "(it does not speak TLS, it seems); without --cert a server is reached by ws://"
        if self.session_id is None and not is_tls and isinstance(error, InvalidMessage):
            return "(it speaks TLS, it seems); with --cert a server is reached by wss://"
        return f"({error or type(error).__name__}); is `streamer serve` running?"

    def _refused(self, response):
        """The reason of a refusal that may pass. Raises Failed for others, and Gone if the session
        cannot be resumed."""
        status = response.status_code
        told = (response.body or b"").decode(errors="replace").strip() or f"status {status}"
        if self.session_id is not None and status in (400, 404):
            raise Gone
        if status == 404 and "connect to /v1/verify" in told:
            ways = "give the address of a `streamer serve`"
            raise Failed(f"{self.url}: this is a `streamer verifier`; {ways}")
        if status == 401:
            told, way_out = told.partition(";")[0], "; give --api-key KEY or STREAMER_API_KEY"
            raise Failed(f"{self.url}: refused ({told}){way_out}")
        reason = f"{self.url}: refused ({told})"
        if status != 503:
            raise Failed(reason)
        return reason

    async def _wait(self, reason):
        """Wait before the next attempt. Without any session so far there is none: a wrong address
        fails at once."""
        now = time.monotonic()
        self.broken_at = self.broken_at or now
        if not self.was_there or now - self.broken_at > PATIENCE_S:
            raise Failed(reason)
        if now - self.broken_at > 1 and not self.is_told:
            self.is_told = True
            tell(f"{reason}; trying again for {PATIENCE_S:.0f} s")
        await asyncio.sleep(min(3.0, 0.1 + (now - self.broken_at) / 2))


class Recording:
    """A file that soundfile reads, as pieces of PCM16 mono. PCM16 mono keeps its exact samples."""

    def __init__(self, path):
        self.np, self.soundfile = needed("numpy", "soundfile")
        self.path = path
        self.num_samples = 0  # given so far
        self.cut = None  # a line, where it ends early
        self.energies, self.heard = 0.0, None  # of the channels; the loudest one
        try:
            with open(path, "rb") as file:
                if not file.read(1):
                    raise Failed(f"{path}: is empty (0 bytes)")
            self.file = self.soundfile.SoundFile(path)
        except self.soundfile.LibsndfileError as error:
            why = f"is no recording that libsndfile can read ({error.error_string.rstrip('.')})"
            raise Failed(f"{path}: {why}; convert it first") from None
        except IsADirectoryError:
            way_out = "name the files in it, e.g. DIRECTORY/*.wav"
            raise Failed(f"{path}: is a directory; {way_out}") from None
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or error
            raise Failed(f"{path}: cannot be opened ({why})") from None
        if self.file.frames == 0:
            raise Failed(f"{path}: holds no samples, only a header")
        # soundfile seeks after every read, and an MP3 decoder that seeks gives wrong samples.
        self.file.seekable = lambda: False
        self.rate = self.file.samplerate
        if not RATES_HZ[0] <= self.rate <= RATES_HZ[1]:
            told = f"its rate of {self.rate} Hz is outside 8000..48000"
            raise Failed(f"{path}: {told}; resample it first")

    def pieces(self):
        """Pieces of 50 ms each. Raises Failed."""
        np, size = self.np, int(self.rate * BLOCK_S)
        try:
            while len(block := self.file.read(size, dtype="float32", always_2d=True)):
                good = np.isfinite(block).all(axis=1)
                if not good.all():
                    at = int(np.argmin(good))
                    told = f"bad audio at {(self.num_samples + at) / self.rate:.3f} s"
                    bad = block[at][~np.isfinite(block[at])][0]
                    raise Failed(f"{self.path}: {told}: sample value {bad}; give finite ones")
                self.num_samples += len(block)
                scaled = np.round(self._mixed(block) * 32_768)
                yield np.clip(scaled, -32_768, 32_767).astype("<i2").tobytes()
        except (OSError, self.soundfile.SoundFileError) as error:
            raise Failed(f"{self.path}: cannot be read to its end ({error})") from None
        found = SHORT_DATA.search(self.file.extra_info)
        promised, present = map(int, found.groups()) if found else (1, 1)
        share = promised / present if 0 < present < promised < PLACEHOLDER else 1
        of_s, heard_s = (num / self.rate for num in (self.file.frames * share, self.num_samples))
        # the length of an MP3, in a WAV too, is a guess
        if heard_s < of_s < 1e9 and "MPEG" not in self.file.subtype:
            self.cut = f"is cut short: {heard_s:.2f} s of the {of_s:.2f} s it promises are there"

    def _mixed(self, block):
        """The lately loudest channel [n] of a block [n, channels], as streamer chooses it."""
        if block.shape[1] == 1:
            return block[:, 0]
        exact = block.astype("f8")
        exact -= exact.mean(0)  # a DC offset is no sound
        self.energies = KEPT * self.energies + (exact**2).sum(0)
        before, loudest = self.heard, int(self.energies.argmax())
        if self.energies[loudest] > LOUDER * (0 if before is None else self.energies[before]):
            self.heard = loudest
        if self.heard is None:
            return block[:, 0] * 0
        begin, end = block[:, self.heard if before is None else before], block[:, self.heard]
        return begin + self.np.linspace(0, 1, len(block)) * (end - begin)


class Player(Link):
    """Plays one recording; prints its sentences as they come, or keeps them for --json."""

    def __init__(self, path, options, was_there):
        """was_there: a server has answered before. Raises Failed."""
        self.recording = Recording(path)
        super().__init__(options, self.recording.rate, None)
        self.was_there, self.options = was_there, options
        self.parts = []
        self.is_all_sent = False

    def hear(self, event):
        as_json = self.options.json
        match event["type"]:
            case "streamer.live_update" if not as_json:
                show(f"  {event['heard_s']:.0f} s: {event['text']}")
            case "streamer.delta" if not as_json:
                put(event["text"], end="")
            case "streamer.description":
                self.parts.append(event["description"])
                put("", end="" if as_json else "\n")
            case "error" if event["error"]["code"] != "input_audio_buffer_commit_empty":
                raise Failed(f"{self.recording.path}: {event['error']['message']}")
        # a long recording is described in parts, whose audio_s is rounded to milliseconds
        described_s = sum(part["audio_s"] for part in self.parts) + 0.002 * (1 + len(self.parts))
        return self.is_all_sent and described_s >= self.recording.num_samples / self.recording.rate

    async def describe(self):
        """Play the recording to the session, and print what is described. Raises Failed and
        Gone."""
        await asyncio.gather(self.run(), self._play())
        recording, parts = self.recording, self.parts
        told = [part["warning"] for part in parts if part.get("warning")]
        more = f" (so in {len(told)} of {len(parts)} parts)" if len(parts) > 1 else ""
        told = ([told[0] + more] if told else []) + ([recording.cut] if recording.cut else [])
        warning = "; ".join(told) or None
        if self.options.json:
            last = parts[-1] if parts else {"stop_reason": "no_speech"}
            text = "".join(part["text"] for part in parts)
            audio_s = round(sum(part["audio_s"] for part in parts), 3)
            several = parts if len(parts) > 1 else []
            row = {"file": recording.path, **last, "text": text, "audio_s": audio_s}
            row |= {"warning": warning, "is_cut": bool(recording.cut), "parts": several}
            put(json.dumps(row, ensure_ascii=False))
        elif not any(part["text"] for part in parts):
            tell(f"{recording.path}: no speech was heard, so there is no sentence")
        if recording.cut:
            raise Failed(f"{recording.path}: {warning}")
        if warning:
            tell(f"{recording.path}: {warning}")

    async def _play(self):
        """Send the recording at --speed times real time, then end the turn."""
        started = time.monotonic()
        for i, piece in enumerate(self.recording.pieces()):
            ahead_s = i * BLOCK_S / self.options.speed - (time.monotonic() - started)
            if ahead_s > 0:
                await asyncio.sleep(ahead_s)
            while self.is_full:
                await asyncio.sleep(PIECE_S)
            self.put(piece)
        self.is_all_sent = True
        self.put(COMMIT)


def describe(path, options):
    """Describe one file; begin again if the server has lost the session. Raises Failed."""
    for num in range(3):
        try:
            return asyncio.run(Player(path, options, was_there=num > 0).describe())
        except Gone:
            tell(f"{path}: the server started anew; once more from the beginning")
    raise Failed(f"{path}: the server lost the session three times")


def describe_files(options):
    """The exit status."""
    status = 0
    for path in options.files:
        try:
            describe(path, options)
        except Failed as failed:
            status = 1
            tell(failed)
    return status


class Microphone(Link):
    """Prints sentences on stdout as they come; live updates and a level meter on stderr."""

    def __init__(self, options):
        """Raises Failed."""
        self.loop = asyncio.get_running_loop()
        self.has_meter = sys.stderr.isatty()
        self.is_writing = self.is_last_known = False
        self.num_open = 0  # turns to be answered
        self.num_lost = 0  # pieces
        try:
            (sounddevice,) = needed("sounddevice")
        except OSError as error:  # the package is installed, the library is not
            way_out = "install PortAudio (Debian: apt-get install libportaudio2)"
            raise Failed(f"{error}; {way_out}") from None
        told, way_out = "there is no microphone", "plug one in, or name a --device"
        try:
            own = int(sounddevice.query_devices(options.device, "input")["default_samplerate"])
            rate = own if RATES_HZ[0] <= own <= RATES_HZ[1] else 16_000
            told, way_out = "the microphone cannot be opened", "is another program using it?"
            size = int(rate * PIECE_S)
            self.stream = sounddevice.RawInputStream(
                rate, size, options.device, 1, "int16", callback=self._heard
            )
            self.stream.start()
        except (sounddevice.PortAudioError, ValueError) as error:
            why = str(error).partition("\n")[0]
            raise Failed(f"{told} ({why}); {way_out}") from None
        super().__init__(options, rate, {"type": "server_vad"})

    def _heard(self, data, *_):
        """In PortAudio's thread."""
        self.loop.call_soon_threadsafe(self._take, bytes(data))

    def _take(self, piece):
        if self.has_meter and not self.is_writing:
            samples = array.array("h", piece)
            power = sum(s * s for s in samples) / len(samples) / 32_768**2
            bar = "▮" * round(5 * math.log10(power + 1e-6) + 30)  # one for each 2 dB over -60
            show(f"{CLEAR}{DIM}{bar}{PLAIN}", end="")
        if self.is_full:
            self.num_lost += 1
            return
        self.put(piece)
        if self.num_lost:
            lost = f"{self.num_lost * PIECE_S:.1f} s are lost"
            self.line(f"{NAME}: {lost}; the link was broken for too long")
            self.num_lost = 0

    def line(self, text):
        show(f"{CLEAR if self.has_meter else ''}{text}")

    def hear(self, event):
        """True when the last turn, ended by Ctrl-C, is answered."""
        match event["type"]:
            case "session.created":
                self.line("listening; speak, pause, read. Ctrl-C ends it.")
            case "streamer.live_update":
                self.line(f"  {event['heard_s']:.0f} s: {event['text']}")
            case "input_audio_buffer.committed":
                self.num_open += 1
            case "streamer.delta":
                if not self.is_writing and self.has_meter:
                    show(CLEAR, end="")
                self.is_writing = True
                put(event["text"], end="")
            case "streamer.description":
                self._end(event["description"].get("warning"))
            case "error":
                self._error(**event["error"])
        return self.is_last_known and self.num_open <= 0

    def _end(self, warning):
        """End a sentence on the screen."""
        self.num_open -= 1
        if self.is_writing:
            put("")
        self.is_writing = False
        if warning:
            self.line(f"{NAME}: {warning}")

    def _error(self, code, message, event_id, **_):
        if code == "turn_failed":
            self._end(message)
        elif code != "input_audio_buffer_commit_empty":
            raise Failed(message)
        self.is_last_known |= event_id == LAST["event_id"]

    async def converse(self):
        """Run until the last sentence. After a restart of the server, go on in a new session."""
        while True:
            try:
                return await self.run()
            except Gone:
                self.num_open = 0
                self.line(f"{NAME}: the server started anew; a sentence may miss its beginning")
                self.anew()

    def finish(self):
        """End the last turn. The first commit gets no answer if voice activity has just ended the
        turn; the second one then says that nothing is left."""
        self.put(COMMIT)
        self.put(LAST)


async def listen(options):
    """Describe the microphone until Ctrl-C. Raises Failed."""
    microphone = Microphone(options)
    describing = asyncio.create_task(microphone.converse())
    try:
        await asyncio.shield(describing)
        return
    except asyncio.CancelledError:  # the first Ctrl-C; asyncio.run raises at the second one
        asyncio.current_task().uncancel()
    finally:
        microphone.stream.close()
    # after the pieces that PortAudio's thread has handed over
    microphone.loop.call_soon(microphone.finish)
    await asyncio.wait((describing,), timeout=MAX_LAST_S)
    if not describing.done():
        raise Failed(f"the last sentence did not come within {MAX_LAST_S:.0f} s")
    describing.result()


def build_parser():
    parser = argparse.ArgumentParser(description="Describe speech with a streamer server.")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    file = commands.add_parser("file", help="stream recordings as a microphone would")
    mic = commands.add_parser("mic", help="speak, pause, read")
    for each, every_s in ((file, None), (mic, 3.0)):
        url = f"ws://127.0.0.1:{PORT}{PATH}"
        told = "of `streamer serve`; ws://HOST:PORT is enough, wss:// if it has --cert"
        each.add_argument("--url", default=url, help=told)
        each.add_argument("--api-key", metavar="K", help="or STREAMER_API_KEY in the environment")
        told = f"a sentence every S seconds of speech; default {every_s or 'none'}, 0 for none"
        each.add_argument("--live-updates", type=float, default=every_s, metavar="S", help=told)
        told = "of the sentences, such as zh or en; default the server's"
        each.add_argument("--language", metavar="L", help=told)
    file.add_argument("files", nargs="+", metavar="FILE", help="any format libsndfile reads")
    file.add_argument("--speed", type=float, default=1.0, metavar="N", help="times real time")
    file.add_argument("--json", action="store_true", help="one JSON object per file on stdout")
    mic.add_argument("--device", metavar="D", help="a microphone's number or a part of its name")
    file.set_defaults(run=describe_files)
    mic.set_defaults(run=lambda options: asyncio.run(listen(options)))
    return parser


def main():
    # closed ones (`>&-`) are replaced, or the next socket would take their number
    sys.stdout = sys.stdout or os.fdopen(os.open(os.devnull, os.O_RDONLY), "w")
    sys.stderr = sys.stderr or os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    parser = build_parser()
    options = parser.parse_args()
    if not 0.01 <= getattr(options, "speed", 1.0) <= 1000:
        parser.error(f"--speed is {options.speed}; it may be 0.01 to 1000")
    if (getattr(options, "device", None) or "").isdigit():
        options.device = int(options.device)
    try:
        return options.run(options) or 0
    except Failed as failed:
        tell(failed)
        return 1
    except KeyboardInterrupt:  # the text so far stays on the screen
        show("")
        return 130


if __name__ == "__main__":
    sys.exit(main())
