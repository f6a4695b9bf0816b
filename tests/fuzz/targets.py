"""Readers of foreign bytes for a fuzzer: a promised error is one line, any other a finding."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from itertools import islice
from pathlib import Path

import msgspec
import numpy as np

from streamer.audio.file import open_audio
from streamer.audio.source import AudioError
from streamer.config import Config
from streamer.core.declare import ConfigError
from streamer.core.decoding.plan import Refusal, Verdict, VerifyRequest, prefix_hash
from streamer.core.link import wire
from streamer.core.link.edge_turn import DecodingTerms, EdgeTurn, RemoteFault
from streamer.core.link.verifier_turn import Broken, VerifierModel, VerifierTurn
from streamer.core.rules.settings import Rules, Sampling
from streamer.core.text.vocabulary import Vocabulary
from streamer.model.checkpoint.card import read_card
from streamer.model.checkpoint.layout import entries
from streamer.model.checkpoint.weights import ModelError
from streamer.net.realtime.client_events import Refused, decode
from streamer.net.realtime.conversation import Conversation
from streamer.net.realtime.server_events import error
from streamer.net.realtime.session import Resume
from streamer.net.service.admission import HttpRefusal

CORPUS = Path(__file__).parent / "corpus"
MAX_BLOCKS = 16  # of a recording
Seeds = Iterator[bytes]


@dataclass(frozen=True)
class Target:
    """Reads one input; its first inputs; json, msgpack (see `frames`) or any, for mutations."""

    read: Callable[[bytes], None]
    seeds: Callable[[], Seeds]
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


def told(error: Exception) -> None:
    """Its text is one line."""
    text = str(error)
    assert text
    assert "\n" not in text, f"more than one line: {text!r}"
    text.encode()


@cache
def vocabulary() -> Vocabulary:
    table = [*(bytes([i]) for i in range(32, 127)), "说".encode(), b"\xe9\xbe", b"\x98", b"\x1b"]
    n = len(table)
    return Vocabulary([*table, b"<end>"], [n], [n], n + 1)


@cache
def edge_terms() -> DecodingTerms:
    return DecodingTerms(vocabulary(), Rules(), Sampling())


MODEL = VerifierModel("model", vocabulary().fingerprint, 101, 60.0, {"zh": ""})
SOUND = np.linspace(-0.5, 0.5, 400, dtype=np.float32)


def read_up(data: bytes) -> None:
    """An edge's messages, to one turn."""
    turn = None
    for message in frames(data):
        try:
            found = wire.decode_up(message)
            assert wire.decode_up(wire.encode(found)) == found or "nan" in repr(found)
            match found:
                case wire.Open() if turn is None:
                    turn = VerifierTurn(MODEL, found)
                case _ if turn is None:
                    continue
                case wire.Audio():
                    turn.audio(found)
                case wire.Finish():
                    turn.finish(found)
                case VerifyRequest():
                    turn.check(found)
        except (wire.WireError, Broken) as error:
            told(error)


def up_seeds() -> Seeds:
    edge = EdgeTurn(bytes(16), edge_terms())
    opened = edge.connect()
    edge.hear(SOUND)
    edge.hear(SOUND * 0.3333)
    edge.finish()
    edge.ask(VerifyRequest(2, 1, prefix_hash((5,)), (6,), (7, 8, 9)))
    yield framed(*map(wire.encode, (opened, *iter(edge.next_message, None))))
    runs_on = EdgeTurn(bytes(16), edge_terms())
    opened = runs_on.connect()
    runs_on.hear(SOUND)
    runs_on.finish()
    runs_on.ask(VerifyRequest(1, 0, prefix_hash(()), (), (), True))
    sent = (opened, *iter(runs_on.next_message, None))
    yield framed(*map(wire.encode, (*sent, runs_on.connect())))


def read_down(data: bytes) -> None:
    """A verifier's messages, to an edge's turn that asks."""
    edge = EdgeTurn(bytes(16), edge_terms())
    edge.connect()
    edge.hear(SOUND)
    edge.finish()
    for number in range(2, 5):
        edge.ask(VerifyRequest(number, number, prefix_hash((5,)), (6,), (7, 8, 9)))
    for message in frames(data):
        try:
            found = wire.decode_down(message)
            assert wire.decode_down(wire.encode(found)) == found
            edge.receive(found)
        except (wire.WireError, RemoteFault) as error:
            told(error)
            edge.connect()
        while edge.next_message() is not None:
            pass
        assert 0 <= edge.num_heard <= edge.num_samples


def down_seeds() -> Seeds:
    said = [wire.Opened(0, "model"), wire.Heard(400, True), Verdict(1, 0, 9)]
    said += [Verdict(2, 3, 9), Verdict(3, 0, 9, b"\x00\xc0"), Refusal(3, "prefix")]
    said += [wire.Rejected(False, "all sessions are taken")]
    yield framed(*map(wire.encode, said))
    yield framed(*map(wire.encode, said[:3]))


def read_client_events(data: bytes) -> None:
    """A client's events, a line each, to one conversation; what it answers is JSON."""
    conversation = Conversation("sess_" + 32 * "0")
    for line in data.split(b"\n")[:32]:
        out = conversation.opened()
        try:
            found, _ = conversation.client(decode(line))
            out += found
            conversation.binary(line)
        except Refused as why:
            event = error(str(why), why.code, why.event_id, why.kind)
            told(ValueError(event["error"]["message"]))
        msgspec.json.encode(out)


def client_event_seeds() -> Seeds:
    heard = {"format": {"type": "audio/pcm", "rate": 16_000}, "turn_detection": None}
    vad = {"type": "server_vad", "threshold": 0.5, "silence_duration_ms": 300}
    ours = {"events": True, "binary": True, "acks": True, "live_update_s": 3}
    session = {"type": "realtime", "audio": {"input": heard}, "streamer": ours}
    events = [
        {"type": "session.update", "event_id": "e1", "session": session},
        {"type": "session.update", "session": {"audio": {"input": {"turn_detection": vad}}}},
        {"type": "input_audio_buffer.append", "audio": "AAAA"},
        {"type": "input_audio_buffer.commit"},
        {"type": "input_audio_buffer.clear"},
        {"type": "response.create"},
        {"type": "response.cancel", "response_id": "resp_1"},
        {"type": "conversation.item.create", "item": {}},
        {"type": "conversation.item.delete", "item_id": "x"},
    ]
    yield "\n".join(map(json.dumps, events)).encode()
    yield from (json.dumps(event).encode() for event in events)


def read_resume(data: bytes) -> None:
    """A query's fields, a line each: name=value."""
    query: dict[str, list[str]] = {}
    for line in data.decode("utf-8", "surrogateescape").split("\n")[:8]:
        name, _, value = line.partition("=")
        query.setdefault(name, []).append(value)
    with suppress(HttpRefusal):
        Resume.parse(query)


def resume_seeds() -> Seeds:
    yield b"resume=sess_0\nevent=3\nbytes=99"


@cache
def folder() -> Path:
    """For readers of files; in memory where there is such a place."""
    where = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    return Path(tempfile.mkdtemp(prefix="fuzz", dir=where))


def written(name: str, data: bytes) -> Path:
    file = folder() / name
    file.write_bytes(data)
    return file


def read_wav(data: bytes) -> None:
    """A recording: what Python makes of its head and of what is cut."""
    file = written("sound.wav", data)
    try:
        with open_audio(file) as audio:
            for block in islice(audio, MAX_BLOCKS):
                assert block.ndim == 2
                assert block.shape[1] == audio.channels
            assert audio.cut is None or "\n" not in audio.cut
    except AudioError as error:
        told(error)


def wav_seeds() -> Seeds:
    import io

    import soundfile

    for kind, subtype in (
        ("WAV", "PCM_16"),
        ("WAV", "FLOAT"),
        ("AIFF", "PCM_16"),
        ("FLAC", "PCM_16"),
    ):
        file = io.BytesIO()
        soundfile.write(file, SOUND[:64], 16_000, format=kind, subtype=subtype)
        yield file.getvalue()
        yield file.getvalue()[:-40]


def read_toml(data: bytes) -> None:
    """A pipeline file."""
    try:
        Config.from_toml(written("pipeline.toml", data))
    except ConfigError as error:
        told(error)


def toml_seeds() -> Seeds:
    yield b'mode = "gated"\ncloud = "ws://127.0.0.1:8766"\ncloud_audio = "lazy"\nthreshold = 2.5\n'
    yield b'mode = "exact"\nk = 4\ntemperature = 0.7\ntop_p = 0.9\nseed = 3\n'
    yield b'[tool]\nx = 1979-05-27T07:32:00Z\ny = [1, 2.0, "a"]\n'


def read_model_card(data: bytes) -> None:
    written("streamer.json", data)
    try:
        read_card(folder())
    except ModelError as error:
        told(error)


def card_seeds() -> Seeds:
    promise = {"risk": 0.05, "confidence": 0.9, "num_clips": 9}
    promise |= {"date": "2026-11-22", "cloud": "cloud"}
    fluent = {"entropy": 2.0, "k": 4, "promise": promise}
    card = {"name": "toy", "language": "zh", "max_turn_s": 60.0}
    card |= {"prompt": {"prefix": "a", "suffix": "b"}}
    card |= {"gate": {"fluent": fluent, "quality": {"entropy": 0.5}}}
    card |= {"attributes": {"rate": [{"name": "slow", "phrases": ["语速慢"]}]}}
    yield json.dumps(card).encode()
    yield b"{}"


def read_directory(files: dict[str, bytes]) -> None:
    """A directory with these files."""
    with tempfile.TemporaryDirectory(dir=folder()) as name:
        for file, data in files.items():
            (Path(name) / file).write_bytes(data)
        try:
            list(entries(Path(name)))
        except ModelError as error:
            told(error)


def read_index(data: bytes) -> None:
    """It names one healthy shard, or others."""
    index = "model.safetensors.index.json"
    read_directory({index: data, "a.safetensors": next(header_seeds())})


def read_header(data: bytes) -> None:
    read_directory({"model.safetensors": data})


def index_seeds() -> Seeds:
    yield b'{"metadata": {}, "weight_map": {"model.norm.weight": "a.safetensors"}}'
    yield b'{"weight_map": {"lm_head.weight": "b.safetensors"}}'
    yield b'{"weight_map": {"lm_head.weight": "' + b"x" * 300 + b'"}}'  # found 2026-11


def header_seeds() -> Seeds:
    tensor = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
    one = {"thinker.model.norm.weight": tensor}
    for header in (one, {"__metadata__": {"a": "b"}}, 5, []):  # 5 was found 2026-11
        text = json.dumps(header).encode()
        yield len(text).to_bytes(8, "little") + text + bytes(8)


TARGETS = {
    "link_up": Target(read_up, up_seeds, "msgpack"),
    "link_down": Target(read_down, down_seeds, "msgpack"),
    "client_events": Target(read_client_events, client_event_seeds, "json"),
    "resume": Target(read_resume, resume_seeds),
    "wav": Target(read_wav, wav_seeds),
    "toml": Target(read_toml, toml_seeds),
    "card": Target(read_model_card, card_seeds, "json"),
    "safetensors_index": Target(read_index, index_seeds, "json"),
    "safetensors_header": Target(read_header, header_seeds, "json"),
}
