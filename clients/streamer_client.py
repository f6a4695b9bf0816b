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
import asyncio
import collections
import contextlib
import json
import os
import sys
import time
from urllib.parse import urlencode, urlsplit, urlunsplit

NAME = os.path.basename(__file__)
try:
    import numpy as np
    import soundfile
    from websockets import ConnectionClosed, InvalidStatus, WebSocketException
    from websockets.asyncio.client import connect
except ImportError as missing:
    sys.exit(f"{NAME}: {missing}; pip install websockets numpy soundfile, or `uv run {NAME}`")

PORT = 8765
PATH = "/v1/realtime"
BLOCK_S = 0.05  # of sound at once
COMMIT = {"type": "input_audio_buffer.commit"}
LAST = COMMIT | {"event_id": "last"}
MAX_TRIES = 15  # to mend a broken link, within 36 s
MAX_KEPT_BYTES = 4 << 20  # of audio that is not acknowledged: 43 s at 48 kHz
KEPT = 0.8  # of the channels' energies, from block to block
LOUDER = 2  # in energy: a channel that takes over


class Failed(Exception):
    """The command cannot go on. Its text is one line for the user."""


class Gone(Failed):
    """The server does not know the session any more: it was restarted."""


def warn(text):
    print(f"{NAME}: {text}", file=sys.stderr)


def put(text, end="\n"):
    """Write to stdout. Raises Failed: an OSError would be taken for the connection's."""
    try:
        print(text, end=end, flush=True)
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for the rest, at the end
        raise Failed(f"stdout cannot be written ({error.strerror})") from None


def address_of(url):
    """The URL, with the path and port of `streamer serve` if they are missing. Raises Failed."""
    try:
        parts = urlsplit(url)
        if parts.scheme not in ("ws", "wss") or not parts.hostname:
            raise ValueError("it begins with ws:// or wss://")
        place = parts.netloc if parts.port is not None else f"{parts.netloc}:{PORT}"
    except ValueError as error:
        raise Failed(f"{url}: is no address of a server ({error})") from None
    is_whole = parts.path.strip("/")
    return url if is_whole else urlunsplit(parts._replace(netloc=place, path=PATH))


class Link:
    """A session that survives broken connections: no byte and no event is lost or repeated.

    The server acknowledges the messages it took. The link keeps the rest, and sends them again
    after `?resume=ID&event=M`. Sentences go to stdout as they come, or into `parts` for --json.
    """

    as_json = False

    def __init__(self, options, rate, path=None):
        """rate: of the audio, in Hz. path: of a recording; None for a microphone, whose turns the
        server ends."""
        self.told = f"{path}: " if path else ""  # before each line for the user
        self.is_live = path is None
        self.parts = []  # what is described
        self.url = address_of(options.url)
        key = options.api_key or os.environ.get("STREAMER_API_KEY")
        self.connecting = {
            "compression": None,
            "close_timeout": 2,
            "additional_headers": {"Authorization": f"Bearer {key}"} if key else {},
            # not the environment's proxy for a server on this machine
            "proxy": None if urlsplit(self.url).hostname in ("127.0.0.1", "localhost") else True,
        }
        extensions = {"binary": True, "events": True, "acks": True, "language": options.language}
        extensions["live_update_s"] = options.live_updates or None
        detection = {"type": "server_vad"} if self.is_live else None
        heard = {"format": {"type": "audio/pcm", "rate": rate}, "turn_detection": detection}
        session = {"type": "transcription", "audio": {"input": heard}, "streamer": extensions}
        self.hello = json.dumps({"type": "session.update", "session": session})
        self.kept = collections.deque()  # the messages from number num_taken on
        self.has_more = asyncio.Event()
        self.num_tries = 0  # that are left
        self.is_losing = False  # audio that comes while the link is full
        self.anew()

    def anew(self):
        """Begin a new session with the messages that the last one did not take, after Gone."""
        if not self.kept or self.kept[0] is not self.hello:
            self.kept.appendleft(self.hello)
        self.num_taken = self.num_sent = self.num_events = 0
        self.num_open = 0  # turns to be answered
        self.is_last_known = False
        self.session_id = None

    @property
    def is_full(self):
        return sum(map(len, self.kept)) >= MAX_KEPT_BYTES

    def put(self, message):
        """Queue bytes of audio, or an event (a dict). Audio is left out while the link is full."""
        is_audio = isinstance(message, bytes)
        is_lost = is_audio and self.is_full
        if is_lost and not self.is_losing:
            warn("the server takes no audio, and what is said now is lost")
        self.is_losing = is_lost
        if not is_lost:
            self.kept.append(message if is_audio else json.dumps(message))
            self.has_more.set()

    def finish(self):
        """End the last turn. If voice activity has ended it, the second commit gets a reply."""
        self.put(COMMIT)
        self.put(LAST)

    async def run(self):
        """Until all turns are answered after `finish`. Raises Failed, and Gone for a recording."""
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
                reason = f"{self.url}: cannot be reached ({error or type(error).__name__})"
                reason += "; is `streamer serve` running? With --cert it is reached by wss://, and"
                reason += " SSL_CERT_FILE names the PEM file of its authority"
            await self._wait(reason)

    def _address(self):
        query = {"intent": "transcription"}
        if self.session_id:
            query |= {"resume": self.session_id, "event": self.num_events}
        return f"{self.url}{'&' if '?' in self.url else '?'}{urlencode(query)}"

    async def _converse(self, socket):
        event = await self._next(socket)  # says where to go on
        sending = asyncio.create_task(self._send(socket))
        try:
            while not self._is_end(event):
                event = await self._next(socket)
        finally:
            sending.cancel()

    async def _next(self, socket):
        event = json.loads(await socket.recv())
        self.num_events += 1
        kind = event["type"]
        if kind in ("streamer.ack", "streamer.resumed"):
            while self.num_taken < event["messages"]:
                self.kept.popleft()
                self.num_taken += 1
        if kind in ("session.created", "streamer.resumed"):
            self.num_sent, self.num_tries = self.num_taken, MAX_TRIES
        if kind == "session.created":
            self.session_id = event["session"]["id"]
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

    def _is_end(self, event):
        """Show the event; True when every turn before LAST is answered. Raises Failed."""
        match event["type"]:
            case "session.created" if self.is_live:
                print("listening; speak, pause, read. Ctrl-C ends it.", file=sys.stderr)
            case "input_audio_buffer.committed":
                self.num_open += 1
            case "streamer.live_update" if not self.as_json:
                print(f"  {event['heard_s']:.0f} s: {event['text']}", file=sys.stderr)
            case "streamer.delta" if not self.as_json:
                put(event["text"], end="")
            case "streamer.description":
                self.num_open -= 1
                self.parts.append(event["description"])
                put("", end="" if self.as_json else "\n")
                if warning := event["description"].get("warning"):
                    warn(self.told + warning)
            case "error":
                self._error(**event["error"])
        return self.is_last_known and self.num_open <= 0

    def _error(self, code, message, event_id, **_):
        self.is_last_known |= event_id == LAST["event_id"]
        if code == "turn_failed" and self.is_live:
            self.num_open -= 1
            warn(message)
        elif code != "input_audio_buffer_commit_empty":
            raise Failed(self.told + message)

    def _refused(self, response):
        """The reason of a refusal that may pass. Raises Failed for others, and Gone if the session
        cannot be resumed."""
        status = response.status_code
        if self.session_id is not None and status in (400, 404):
            if not self.is_live:
                raise Gone("the server lost the session")
            warn("the server started anew; a sentence may miss its beginning")
            self.anew()
            return "the server lost the session"
        told = (response.body or b"").decode(errors="replace").strip() or f"status {status}"
        reason = f"{self.url}: refused ({told})"
        if status == 401:
            reason += "; give --api-key KEY or STREAMER_API_KEY"
        if status != 503:
            raise Failed(reason)
        return reason

    async def _wait(self, reason):
        """Wait before the next attempt. Without any session so far there is none: a wrong address
        fails at once."""
        if not self.num_tries:
            raise Failed(reason)
        self.num_tries -= 1
        if self.num_tries == MAX_TRIES - 4:
            warn(f"{reason}; trying again")
        await asyncio.sleep(min(3.0, 0.1 * 2 ** (MAX_TRIES - self.num_tries)))


class Player(Link):
    """Plays one recording."""

    def __init__(self, path, options):
        """Raises Failed, OSError and soundfile's errors."""
        self.path, self.as_json, self.speed = path, options.json, max(options.speed, 0.01)
        self.energies, self.channel = 0.0, 0  # of the channels; the one that is heard
        with open(path, "rb"):  # it says why it cannot be opened
            self.file = soundfile.SoundFile(path)
        # soundfile seeks after every read, and an MP3 decoder that seeks gives wrong samples.
        self.file.seekable = lambda: False
        super().__init__(options, self.file.samplerate, path)

    async def describe(self):
        """Raises Failed, Gone and soundfile's errors."""
        await asyncio.gather(self.run(), self._play())
        text = "".join(part["text"] for part in self.parts)
        if not text:
            warn(f"{self.told}no speech was heard, so there is no sentence")
        if self.as_json:
            last = self.parts[-1] if self.parts else {"stop_reason": "no_speech"}
            row = {"file": self.path, **last, "text": text}
            row["audio_s"] = round(sum(part["audio_s"] for part in self.parts), 3)
            row["parts"] = self.parts if len(self.parts) > 1 else []
            put(json.dumps(row, ensure_ascii=False))

    async def _play(self):
        """Send the recording at --speed times real time, then end the turn."""
        rate, started, at_s = self.file.samplerate, time.monotonic(), 0.0
        while len(block := self.file.read(int(rate * BLOCK_S), "float32", always_2d=True)):
            if not np.isfinite(block).all():
                raise Failed(f"{self.told}bad audio at {at_s:.2f} s; give finite samples")
            await asyncio.sleep(started + at_s / self.speed - time.monotonic())
            while self.is_full:
                await asyncio.sleep(BLOCK_S)
            scaled = np.round(self._loudest(block) * 32_768)
            self.put(np.clip(scaled, -32_768, 32_767).astype("<i2").tobytes())
            at_s += BLOCK_S
        self.finish()

    def _loudest(self, block):
        """The channel [n] of a block [n, channels] that has lately been loudest."""
        self.energies = KEPT * self.energies + (block**2).sum(0)
        loudest = int(self.energies.argmax())
        if self.energies[loudest] > LOUDER * self.energies[self.channel]:
            self.channel = loudest
        return block[:, self.channel]


def describe_files(options):
    """Describe each file, a second time if the server lost the session; return the exit status."""
    status = 0
    for path in options.files:
        try:
            try:
                asyncio.run(Player(path, options).describe())
            except Gone:
                warn(f"{path}: the server started anew; once more from the beginning")
                asyncio.run(Player(path, options).describe())
        except Failed as failed:
            status = 1
            warn(failed)
        except (OSError, soundfile.SoundFileError) as error:
            status = 1
            why = getattr(error, "strerror", None) or str(error).rstrip(".")
            warn(f"{path}: cannot be read ({why}); give a recording that libsndfile reads")
    return status


async def listen(options):
    """Describe the microphone until Ctrl-C. Raises Failed."""
    try:
        import sounddevice
    except (ImportError, OSError) as error:  # it, or the library that it loads, is missing
        way_out = "pip install sounddevice, and PortAudio (Debian: libportaudio2)"
        raise Failed(f"{error}; {way_out}") from None
    loop = asyncio.get_running_loop()

    def heard(data, *_):  # in PortAudio's thread
        loop.call_soon_threadsafe(link.put, bytes(data))

    try:
        own = int(sounddevice.query_devices(options.device, "input")["default_samplerate"])
        rate = min(max(own, 8_000), 48_000)
        link, size, device = Link(options, rate), int(rate * BLOCK_S), options.device
        stream = sounddevice.RawInputStream(rate, size, device, 1, "int16", callback=heard)
        stream.start()
    except (sounddevice.PortAudioError, ValueError) as error:
        why = str(error).partition("\n")[0]
        way_out = "plug one in, name a --device, or end the program that uses it"
        raise Failed(f"the microphone cannot be opened ({why}); {way_out}") from None
    describing = asyncio.create_task(link.run())
    try:
        await asyncio.shield(describing)
    except asyncio.CancelledError:  # the first Ctrl-C; asyncio.run raises at the second one
        asyncio.current_task().uncancel()
        stream.close()
        await asyncio.sleep(0)  # for the pieces that PortAudio's thread has handed over
        link.finish()
        await describing


def build_parser():
    parser = argparse.ArgumentParser(description="Describe speech with a streamer server.")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    file = commands.add_parser("file", help="stream recordings as a microphone would")
    mic = commands.add_parser("mic", help="speak, pause, read")
    for each, every_s in ((file, 0.0), (mic, 3.0)):
        told = "of `streamer serve`; ws://HOST is enough, wss:// if it has --cert"
        each.add_argument("--url", default=f"ws://127.0.0.1:{PORT}{PATH}", help=told)
        each.add_argument("--api-key", metavar="K", help="or STREAMER_API_KEY in the environment")
        told = f"a sentence every S seconds of speech; default {every_s:g}; 0: none"
        each.add_argument("--live-updates", type=float, default=every_s, metavar="S", help=told)
        each.add_argument("--language", metavar="L", help="of the sentences, such as zh or en")
    file.add_argument("files", nargs="+", metavar="FILE", help="any format libsndfile reads")
    file.add_argument("--speed", type=float, default=1.0, metavar="N", help="times real time")
    file.add_argument("--json", action="store_true", help="one JSON object per file on stdout")
    mic.add_argument("--device", metavar="D", help="a part of the microphone's name")
    file.set_defaults(run=describe_files)
    mic.set_defaults(run=lambda options: asyncio.run(listen(options)))
    return parser


def main():
    options = build_parser().parse_args()
    try:
        return options.run(options) or 0
    except Failed as failed:
        warn(failed)
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
