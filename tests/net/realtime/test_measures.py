"""Measures and the coach over the socket: told where they are asked for."""

from __future__ import annotations

import asyncio
import itertools
import json
from dataclasses import fields

import numpy as np
import pytest
from speech import recording, speech
from websockets.asyncio.client import connect
from wire import ANSWER, COMMIT, until, validate

from streamer.extras.coach.network import FORM
from streamer.extras.coach.options import Baseline, Coach

KINDS = ("nudge", "baseline", "coach")


async def test_measures_come_where_they_are_asked_for(server):
    """Of the turn in hand, and in its description; not from a session that did not ask."""
    data = (speech(6, 2) * 32767).astype("<i2").tobytes()
    audio = {"input": {"format": {"type": "audio/pcm", "rate": 16_000}, "turn_detection": None}}
    for asked in (True, False):
        async with connect(server) as ws:
            extensions = {"events": True, "binary": True, "measures": asked}
            await ws.send(
                json.dumps(
                    {
                        "type": "session.update",
                        "session": {"type": "realtime", "audio": audio, "streamer": extensions},
                    }
                )
            )
            await until(ws, "session.updated")
            events = []
            await ws.send(data[:160_000])
            if asked:  # while the turn goes on
                events += await until(ws, "streamer.measures")
                assert events[-1]["last_s"].keys() == {"2", "7", "20"}
            await ws.send(data[160_000:])
            await ws.send(COMMIT)
            await ws.send(ANSWER)
            events += await until(ws, "streamer.description")
            kinds = [event["type"] for event in events]
            assert ("streamer.measures" in kinds) is asked
            found = events[-1]["description"]
            assert ("measures" in found) is ("confidence" in found) is asked
            if asked:
                assert 80 < found["measures"]["pitch_median_hz"] < 300
                assert found["measures"]["audio_s"] == pytest.approx(6, abs=0.02)


async def test_a_coach_speaks_where_it_is_asked_for(server):
    """Nudges, the baseline and what it hears, at most 5 times a second; nothing of it unasked, and
    then every event is valid under the official client's types."""
    quiet = np.zeros(24_000, np.float32)
    data = (np.concatenate([recording(2) * 0.05, quiet]) * 32767).astype("<i2").tobytes()
    audio = {"input": {"format": {"type": "audio/pcm", "rate": 16_000}, "turn_detection": None}}
    usual = Baseline(5, 120, 2.0, -20, 0.1, 30, -25, 2.0, 0.0, 0.2, 0.0, 0.2).as_json()
    for asked in ({"coach": {"baseline": usual, "silence_s": 1, "gap_s": 0}}, {}):
        async with connect(server) as ws:
            extensions = {"binary": True, **asked}
            update = {"type": "realtime", "audio": audio, "streamer": extensions}
            await ws.send(json.dumps({"type": "session.update", "session": update}))
            told = (await until(ws, "session.updated"))[-1]["session"]["streamer"]["coach"]
            if asked:
                assert told["baseline"] == usual
                assert (told["silence_s"], told["gap_s"], told["fast_ratio"]) == (1, 0, 1.8)
                assert told.keys() == {field.name for field in fields(Coach)}
            else:
                assert told is False
            await ws.send(data)
            await ws.send(COMMIT)
            await ws.send(ANSWER)
            events = await until(ws, "response.done")
            wanted = {"too_soft", "long_silence"} if asked else set()
            while not wanted <= {event.get("kind") for event in events}:
                events.append(json.loads(await asyncio.wait_for(ws.recv(), 60)))
        ours = [event for event in events if event["type"].startswith("streamer.")]
        for event in events:
            if event not in ours:
                validate(event)
        if not asked:
            assert ours == []
            continue
        by_kind = {name: [e for e in ours if e["type"] == f"streamer.{name}"] for name in KINDS}
        assert [e["baseline"] for e in by_kind["baseline"]] == [usual]
        assert {"too_soft", "long_silence"} <= {e["kind"] for e in by_kind["nudge"]}
        times = [e["t_s"] for e in by_kind["coach"]]
        assert all(b - a >= 0.199 for a, b in itertools.pairwise(times))
        assert by_kind["coach"][-1]["last"]["level_dbfs"] < -40


@pytest.mark.parametrize(
    ("coach", "told"),
    [
        ({"fast_ration": 1.2}, "did you mean fast_ratio?"),
        ({"silence_s": -1}, "silence_s is -1; it may be 0 to 600"),
        ({"sureness": 10**400}, "sureness is too large; it may be 1 to 100"),
        (
            {"baseline": {"speech_s": 30, "form": FORM - 1}},
            "another version of streamer saved this",
        ),
        ({"baseline": {}}, "no rate_syllables_per_s in the baseline"),
        ({"baseline": 3}, "baseline is 3; give an object"),
    ],
)
async def test_a_coach_that_cannot_be_is_refused(server, coach, told):
    async with connect(server) as ws:
        update = {"type": "realtime", "streamer": {"coach": coach}}
        await ws.send(json.dumps({"type": "session.update", "session": update}))
        (event,) = [e for e in await until(ws, "error") if e["type"] == "error"]
        assert event["error"]["code"] == "invalid_value"
        assert told in event["error"]["message"]
