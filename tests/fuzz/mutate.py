"""Mutations that keep the form of an input, so that the code after the parser is tested."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import msgspec
from targets import framed, frames

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
    """Framed messages: one changed, doubled, dropped or moved."""
    messages = list(frames(data))
    at = chance.randrange(len(messages))
    match chance.randrange(8):
        case 0:
            messages.insert(at, messages[at])
        case 1:
            del messages[at]
        case 2:
            messages.insert(chance.randrange(len(messages)), messages.pop(at))
        case _:
            value = _changed(msgspec.msgpack.decode(messages[at]), chance)
            messages[at] = msgspec.msgpack.encode(value)[:65_535]
    return framed(*messages)


KINDS: dict[str, Callable[[bytes, random.Random], bytes]] = {"json": _json, "msgpack": _msgpack}


def _changed(value: Any, chance: random.Random) -> Any:
    """The value with one place changed, at any depth."""
    if not isinstance(value, dict | list) or not value or chance.random() < 0.1:
        return _another(value, chance)
    at = chance.choice(list(value)) if isinstance(value, dict) else chance.randrange(len(value))
    rows = list(value.items() if isinstance(value, dict) else enumerate(value))
    match chance.randrange(6):
        case 0:
            rows = [(key, each) for key, each in rows if key != at]
        case 1:
            rows = [*rows, (chance.choice(TEXTS[:-1]), value[at])]
        case _:
            rows = [(key, _changed(each, chance) if key == at else each) for key, each in rows]
    return dict(rows) if isinstance(value, dict) else [each for _, each in rows]


def _another(value: Any, chance: random.Random) -> Any:
    found: list[Any] = [*NUMBERS, *TEXTS, *OTHERS]
    if chance.random() < 0.7:
        match value:
            case bool():
                pass
            case int() | float():
                found = [value + 1, value - 1, -value, value * 2, *NUMBERS]
            case str():
                found = [value + chance.choice(TEXTS[:-1]), value[:-1], *TEXTS]
            case bytes():
                found = [value + bytes([chance.randrange(256)]), value[:-1], value * 2]
    return chance.choice(found)
