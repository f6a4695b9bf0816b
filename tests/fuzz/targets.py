"""Readers of foreign bytes for a fuzzer: a promised error is one line, any other a finding; and
mutations that keep the form of an input, so that the code after the parser is tested.
"""

from __future__ import annotations

import asyncio
import io
import json
import os
import random
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import soundfile
from toy_parts import ask, said_by, turn_without_socket

from streamer.audio.file import open_audio
from streamer.audio.source import AudioError
from streamer.config import Config
from streamer.core.declare import ConfigError
from streamer.core.decoding.plan import Refusal, Verdict, VerifyRequest, prefix_hash
from streamer.core.link import wire
from streamer.core.text.vocabulary import Vocabulary
from streamer.model.checkpoint.card import read_card
from streamer.model.checkpoint.weights import ModelError, entries
from streamer.net.link.server import Broken, ServedTurn, VerifierModel
from streamer.net.link.target import RemoteFault, RemoteTarget
from streamer.net.realtime import client_events as c
from streamer.net.realtime.client_events import Refused, decode, error
from streamer.net.realtime.conversation import Conversation
from streamer.net.realtime.session import Resume
from streamer.net.service.admission import HttpRefusal

CORPUS = Path(__file__).parent / "corpus"
MAX_BLOCKS = 16  # of a recording


@dataclass(frozen=True)
class Target:
    """Reads one input; its first inputs; json, msgpack (see `frames`) or any, for mutations."""

    read: Callable[[bytes], object]
    seeds: list[bytes]
    kind: str = "any"


def frames(data: bytes) -> Iterator[bytes]:
    """Messages of an input; each follows its length in 2 bytes, big-endian."""
    at = 0
    while at + 2 <= len(data):
        size = int.from_bytes(data[at : at + 2], "big")
        yield data[at + 2 : at + 2 + size]
        at += 2 + size


def framed(*messages: bytes) -> bytes:
    return b"".join(len(message).to_bytes(2, "big") + message for message in messages)


NUMBERS = (0, 1, -1, 2, 255, 256, 65_536, 2**31 - 1, 2**31, 2**53, 2**63, 2**64 - 1, 1e-9, 1e308)
TEXTS = ("", "a", "说", "\x1b[2J", "\u2028", "x" * 300, "../a", "NaN", "AAAA", "\ud800")
OTHERS: tuple[Any, ...] = (None, True, False, [], {}, [[]], {"": 0})


def mutate(kind: str, data: bytes, chance: random.Random) -> bytes | None:
    """`data` with one value changed; None where it is not of that kind."""
    try:
        return KINDS[kind](data, chance) if kind in KINDS else None
    except (ValueError, TypeError, RecursionError, OverflowError, msgspec.MsgspecError):
        return None


def _json(data: bytes, chance: random.Random) -> bytes:
    """JSON, alone, by the line, or after the 8 bytes of its length as in safetensors."""
    if data[2:8] == bytes(6):
        length = int.from_bytes(data[:8], "little")
        text = json.dumps(_changed(json.loads(data[8 : 8 + length]), chance)).encode()
        return len(text).to_bytes(8, "little") + text + data[8 + length :]
    lines = data.split(b"\n")
    at = chance.randrange(len(lines))
    lines[at] = json.dumps(_changed(json.loads(lines[at]), chance)).encode()
    return b"\n".join(lines)


def _msgpack(data: bytes, chance: random.Random) -> bytes:
    """Framed messages: one changed, and put where chance has it."""
    messages = list(frames(data))
    value = _changed(msgspec.msgpack.decode(messages.pop(chance.randrange(len(messages)))), chance)
    messages.insert(chance.randint(0, len(messages)), msgspec.msgpack.encode(value)[:65_535])
    return framed(*messages)


KINDS: dict[str, Callable[[bytes, random.Random], bytes]] = {"json": _json, "msgpack": _msgpack}


def _changed(value: Any, chance: random.Random) -> Any:
    """The value with one place changed or left out, at any depth."""
    if not isinstance(value, dict | list) or not value or chance.random() < 0.1:
        return chance.choice([*NUMBERS, *TEXTS, *OTHERS])
    rows = list(value.items() if isinstance(value, dict) else enumerate(value))
    key, each = rows.pop(at := chance.randrange(len(rows)))
    if chance.random() < 0.85:
        rows.insert(at, (key, _changed(each, chance)))
    return dict(rows) if isinstance(value, dict) else [each for _, each in rows]


@contextmanager
def told(*promised: type[Exception]) -> Iterator[None]:
    """An error of these kinds is one line."""
    try:
        yield
    except promised as error:
        text = str(error)
        assert text
        assert "\n" not in text, f"more than one line: {text!r}"
        text.encode()


TABLE = [*(bytes([i]) for i in range(32, 127)), "说".encode(), b"\xe9\xbe", b"\x98", b"\x1b"]
END = len(TABLE)
VOCABULARY = Vocabulary([*TABLE, b"<end>"], [END], [END], END + 1)
MODEL = VerifierModel("model", VOCABULARY, 60.0, {"zh": ""})
SOUND = np.linspace(-0.5, 0.5, 400, dtype=np.float32)


def read_up(data: bytes) -> None:
    """An edge's messages, to one turn."""
    turn = None
    for message in frames(data):
        with told(wire.WireError, Broken):
            found = wire.decode_up(message)
            assert wire.decode_up(wire.encode(found)) == found or "nan" in repr(found)
            match found:
                case wire.Open() if turn is None:
                    turn = ServedTurn(MODEL, found)
                case _ if turn is None:
                    continue
                case wire.Audio():
                    turn.audio(found)
                case wire.Finish():
                    turn.finish(found)
                case VerifyRequest():
                    turn.check(found)


async def asking(*requests: VerifyRequest) -> tuple[RemoteTarget, Iterator[Any]]:
    """A turn that is over and asks, and its messages."""
    edge = await turn_without_socket(SOUND, SOUND * 0.3333, weights={}, vocabulary=VOCABULARY)
    await ask(edge, *requests)
    return edge, edge.messages()


async def up_seeds() -> list[bytes]:
    _, asked = await asking(VerifyRequest(2, 1, prefix_hash((5,)), (6,), (7, 8, 9)))
    edge, alone = await asking(VerifyRequest(1, 0, prefix_hash(()), (), (), True))
    both = said_by(asked), [*said_by(alone), next(edge.messages())]
    return [framed(*map(wire.encode, said)) for said in both]


async def read_down(data: bytes) -> None:
    """A verifier's messages, to an edge's turn that asks."""
    asked = [VerifyRequest(n, n, prefix_hash((5,)), (6,), (7, 8, 9)) for n in range(2, 5)]
    edge, messages = await asking(*asked)
    said_by(messages)
    for message in frames(data):
        is_taken = False
        with told(wire.WireError, RemoteFault):
            found = wire.decode_down(message)
            assert wire.decode_down(wire.encode(found)) == found
            if not isinstance(found, wire.Rejected):
                edge.receive(found)
            is_taken = True
        if not is_taken:
            messages = edge.messages()
        said_by(messages)
        assert 0 <= edge.num_heard <= edge.num_samples


DOWN = [wire.Heard(0, False, "model"), wire.Heard(400, True), Verdict(1, 0, 9), Verdict(2, 3, 9)]
DOWN += [Verdict(3, 0, 9, b"\x00\xc0"), Refusal(3, "prefix")]
DOWN += [wire.Rejected(False, "all sessions are taken")]
DOWN_SEED = framed(*map(wire.encode, DOWN))


def read_client_events(data: bytes) -> None:
    """A client's events, a line each, to one conversation; what it answers is JSON."""
    conversation = Conversation("sess_" + 32 * "0")
    for line in data.split(b"\n")[:32]:
        out = conversation.opened()
        try:
            match decode(line):
                case c.SessionUpdate() as event:
                    out += conversation.update(event)
                case c.ResponseCreate() as event:
                    out += conversation.respond(event) or []
                case c.ResponseCancel() as event:
                    conversation.cancelled(event)
                case c.ItemCreate() as event:
                    out += conversation.created(event)
            conversation.appended(line)
        except Refused as why:
            refusal = error(str(why), why.code, why.event_id, why.kind)
            assert "\n" not in refusal["error"]["message"]
        msgspec.json.encode(out)


HEARD = {"format": {"type": "audio/pcm", "rate": 16_000}, "turn_detection": None}
VAD = {"type": "server_vad", "threshold": 0.5, "silence_duration_ms": 300}
OURS = {"events": True, "binary": True, "acks": True, "live_update_s": 3}
SESSION = {"type": "realtime", "audio": {"input": HEARD}, "streamer": OURS}
EVENTS = [
    {"type": "session.update", "event_id": "e1", "session": SESSION},
    {"type": "session.update", "session": {"audio": {"input": {"turn_detection": VAD}}}},
    {"type": "input_audio_buffer.append", "audio": "AAAA"},
    {"type": "input_audio_buffer.commit"},
    {"type": "input_audio_buffer.clear"},
    {"type": "response.create"},
    {"type": "response.cancel", "response_id": "resp_1"},
    {"type": "conversation.item.create", "item": {}},
    {"type": "conversation.item.delete", "item_id": "x"},
]
LINES = [json.dumps(event).encode() for event in EVENTS]


def read_resume(data: bytes) -> None:
    """A query's fields, a line each: name=value."""
    query: dict[str, list[str]] = {}
    for line in data.decode("utf-8", "surrogateescape").split("\n")[:8]:
        name, _, value = line.partition("=")
        query.setdefault(name, []).append(value)
    with suppress(HttpRefusal):
        Resume.parse(query)


# for readers of files; in memory where there is such a place
SHM = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
FOLDER = Path(tempfile.mkdtemp(prefix="fuzz", dir=SHM))


def written(name: str, data: bytes) -> Path:
    (FOLDER / name).write_bytes(data)
    return FOLDER / name


def read_wav(data: bytes) -> None:
    """A recording: its head, and where it is cut."""
    with told(AudioError), open_audio(written("sound.wav", data)) as audio:
        for block in islice(audio, MAX_BLOCKS):
            assert block.ndim == 2
            assert block.shape[1] == audio.channels
        assert audio.cut is None or "\n" not in audio.cut


def wav_seeds() -> Iterator[bytes]:
    kinds = (("WAV", "PCM_16"), ("WAV", "FLOAT"), ("AIFF", "PCM_16"), ("FLAC", "PCM_16"))
    for kind, subtype in kinds:
        file = io.BytesIO()
        soundfile.write(file, SOUND[:64], 16_000, format=kind, subtype=subtype)
        yield from (file.getvalue(), file.getvalue()[:-40])


def read_toml(data: bytes) -> None:
    """A pipeline file."""
    with told(ConfigError):
        Config.from_toml(written("pipeline.toml", data))


TOML = [
    b'mode = "gated"\ncloud = "ws://127.0.0.1:8766"\ncloud_audio = "lazy"\nthreshold = 2.5\n',
    b'mode = "exact"\nk = 4\ntemperature = 0.7\ntop_p = 0.9\nseed = 3\n',
    b'[tool]\nx = 1979-05-27T07:32:00Z\ny = [1, 2.0, "a"]\n',
]


def read_model_card(data: bytes) -> None:
    written("streamer.json", data)
    with told(ModelError):
        read_card(FOLDER)


PROMISE = {"risk": 0.05, "confidence": 0.9, "num_clips": 9, "date": "2026-11-22", "cloud": "cloud"}
CARD = {"name": "toy", "language": "zh", "max_turn_s": 60.0}
CARD |= {"prompt": {"prefix": "a", "suffix": "b"}}
CARD |= {"gate": {"fluent": {"entropy": 2.0, "k": 4, "promise": PROMISE}}}
CARD |= {"attributes": {"rate": [{"name": "slow", "phrases": ["语速慢"]}]}}


def read_directory(files: dict[str, bytes]) -> None:
    """A directory with these files."""
    with tempfile.TemporaryDirectory(dir=FOLDER) as name:
        for file, data in files.items():
            (Path(name) / file).write_bytes(data)
        with told(ModelError):
            list(entries(Path(name)))


def read_index(data: bytes) -> None:
    """It names one healthy shard, or others."""
    read_directory({"model.safetensors.index.json": data, "a.safetensors": HEADERS[0]})


INDICES = [
    b'{"metadata": {}, "weight_map": {"model.norm.weight": "a.safetensors"}}',
    b'{"weight_map": {"lm_head.weight": "b.safetensors"}}',
    b'{"weight_map": {"lm_head.weight": "' + b"x" * 300 + b'"}}',  # found 2026-11
]
TENSOR = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
TEXTS = [
    json.dumps(header).encode()
    for header in ({"thinker.model.norm.weight": TENSOR}, {"__metadata__": {"a": "b"}}, 5, [])
]
HEADERS = [len(text).to_bytes(8, "little") + text + bytes(8) for text in TEXTS]


TARGETS = {
    "link_up": Target(read_up, asyncio.run(up_seeds()), "msgpack"),
    "link_down": Target(lambda data: asyncio.run(read_down(data)), [DOWN_SEED], "msgpack"),
    "client_events": Target(read_client_events, [b"\n".join(LINES), *LINES], "json"),
    "resume": Target(read_resume, [b"resume=sess_0\nevent=3\nbytes=99"]),
    "wav": Target(read_wav, [*wav_seeds()]),
    "toml": Target(read_toml, TOML),
    "card": Target(read_model_card, [json.dumps(CARD).encode(), b"{}"], "json"),
    "safetensors_index": Target(read_index, INDICES, "json"),
    "safetensors_header": Target(
        lambda data: read_directory({"model.safetensors": data}), HEADERS, "json"
    ),
}
