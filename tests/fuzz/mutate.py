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
