"""The protocol in memory, in both of its generations: every event is valid for strict clients."""

import base64
import json

import pytest
from wire import ANSWER, COMMIT, session_update, talking, text_of, validate

from streamer.extras.coach.options import FORM
from streamer.net.realtime import session
from streamer.net.realtime.session import Resume

MINE = {"client_event_id": "mine"}
CREATE = {"type": "response.create", "response": {"metadata": MINE}}
CANCEL = {"type": "response.cancel"}
CLEAR = {"type": "input_audio_buffer.clear"}
BINARY = session_update(binary=True)
SOUND = bytes(320)


def update(**session):
    return {"type": "session.update", "session": session}


def ours(**extensions):
    return update(streamer=extensions)


def append(audio):
    return {"type": "input_audio_buffer.append", "audio": audio}


def item(kind="input_text", **more):
    content = [{"type": kind} | ({"text": "hello"} if kind == "input_text" else {})]
    made = {"type": "message", "role": "user", "content": content, **more}
    return {"type": "conversation.item.create", "item": made, "event_id": "made"}


def kinds_of(events):
    return [event["type"] for event in events]


def responses_of(events):
    return [event["response"] for event in events if "response" in event]


async def errors_of(talk, *messages):
    """Every error that these messages cause; it is one printable line of bounded length."""
    events = await talk.say(*messages)
    found = [event["error"] for event in events if event["type"] == "error"]
    for event in events:
        validate(event)
        assert len(json.dumps(event)) < 1_000
    assert all(e["message"].isprintable() and len(e["message"]) <= 220 for e in found)
    return found


async def test_a_turn():
    """Its events in order, its items in a chain, its metadata copied, its text whole."""
    async with talking(waits=True) as talk:
        events = await talk.say(BINARY, SOUND, COMMIT, CREATE, item(id="text"), SOUND, COMMIT)
        events += await talk.say(ANSWER)
        for event in events:
            validate(event)
        assert kinds_of(events)[:16] == [
            *("session.updated", "input_audio_buffer.committed"),
            *("conversation.item.added", "conversation.item.done"),
            *("response.created", "response.output_item.added"),
            *("conversation.item.added", "response.content_part.added"),
            *["response.output_text.delta"] * 3,
            *("response.output_text.done", "response.content_part.done"),
            *("response.output_item.done", "conversation.item.done", "response.done"),
        ]
        assert text_of(events) == "320320"
        added = [e for e in events if e["type"] == "conversation.item.added"]
        names = [e["item"]["id"] for e in added]
        assert [e["previous_item_id"] for e in added] == [None, *names[:-1]]
        roles = [e["item"]["role"] for e in added]
        assert roles == ["user", "assistant", "user", "user", "assistant"]
        assert names[2] == "text"
        done = [e for e in events if e["type"] == "conversation.item.done"]
        wanted = list(zip(names, [None, *names[:-1]], strict=True))
        assert [(e["item"]["id"], e["previous_item_id"]) for e in done] == wanted
        committed = [e for e in events if e["type"] == "input_audio_buffer.committed"]
        assert [e["previous_item_id"] for e in committed] == [None, "text"]
        metadata = [response["metadata"] for response in responses_of(events)]
        assert metadata == [MINE, MINE, None, None]
        assert len({e["event_id"] for e in events}) == len(events)


async def test_a_response_without_a_turn():
    """It is empty, as clients' loops end with any error; after a forgotten commit it fails."""
    async with talking() as talk:
        *_, done = responses_of(await talk.say(BINARY, item(), CREATE))
        assert (done["status"], done["output"], done["metadata"]) == ("completed", [], MINE)
        *_, done = responses_of(await talk.say(SOUND, CREATE))
        assert (done["status"], done["metadata"]) == ("failed", MINE)
        assert done["status_details"]["error"]["code"] == "input_audio_not_committed"
        assert "commit it" in done["status_details"]["error"]["message"]
        assert text_of(await talk.say(COMMIT, ANSWER)) == "320"


async def test_one_response_is_in_progress_until_it_is_cancelled():
    """A second request is refused; others cannot be cancelled. One for no turn is empty."""
    async with talking(waits=True, is_slow=True) as talk:
        (error,) = await errors_of(talk, BINARY, SOUND, COMMIT, ANSWER, ANSWER)
        assert error["code"] == "conversation_already_has_active_response"
        (error,) = await errors_of(talk, CANCEL | {"response_id": "resp_x"})
        assert error["code"] == "response_cancel_not_active"
        assert error["message"].startswith("Cancellation failed: "), "as clients match it"
        *_, done = responses_of(await talk.say(CANCEL))
        assert done["status"] == "cancelled"
        *_, done = responses_of(await talk.say(CREATE))
        assert (done["status"], done["output"]) == ("completed", [])
        (error,) = await errors_of(talk, CANCEL)
        assert error["code"] == "response_cancel_not_active"


async def test_waiting_audio_is_not_lost_to_other_options():
    """An update that would drop it is refused until it is committed, answered or cleared."""
    async with talking(waits=True) as talk:
        other = session_update(rate=8_000, binary=True)
        for messages in ((BINARY, SOUND, other), (COMMIT, other)):
            (error,) = await errors_of(talk, *messages)
            assert error["code"] == "session_busy"
        assert text_of(await talk.say(ANSWER)) == "320"
        for message in (SOUND, json.dumps(CLEAR)):
            await talk.session.take(message)  # the update follows at once
        assert kinds_of(await talk.say(other)) == ["input_audio_buffer.cleared", "session.updated"]


OWN = {"type": "output_text"}  # it stays as the client gave it


async def test_clients_of_the_beta_hear_its_names():
    async with talking(is_beta=True, waits=True) as talk:
        events = await talk.say(update(turn_detection=None), ours(binary=True), SOUND, COMMIT)
        events += await talk.say(json.dumps(json.loads(ANSWER) | {"response": {"metadata": OWN}}))
    kinds = kinds_of(events)
    assert [kinds.count("conversation.item.created"), kinds.count("response.text.delta")] == [2, 3]
    assert "response.text.done" in kinds
    assert not [kind for kind in kinds if "output_text" in kind]
    assert not {"conversation.item.added", "conversation.item.done"} & set(kinds)
    session = events[0]["session"]
    assert (session["turn_detection"], session["input_audio_format"]) == (None, "pcm16")
    assert session["modalities"] == ["text"]
    response = events[-1]["response"]
    assert response["output"][0]["content"] == [{"type": "text", "text": "320"}]
    assert (response["modalities"], response["metadata"]) == (["text"], OWN)


def heard(**more):
    return {"audio": {"input": more}}


def flat(**vad):
    return {"turn_detection": {"type": "server_vad", **vad}}


@pytest.mark.parametrize(
    ("session", "name", "value"),
    [
        ({"turn_detection": None}, "turn_detection", None),
        (flat(threshold=0.7), "threshold", 0.7),
        (flat(type="semantic_vad", silence_duration_ms=900), "silence_duration_ms", 900),
        (flat(create_response=False), "create_response", False),
        ({"input_audio_format": "g711_ulaw"}, "format", "audio/pcmu"),
        ({"input_audio_format": None}, "rate", 24_000),
        (heard(format=None), "rate", 24_000),
        (heard(turn_detection=None), "turn_detection", None),
    ],
)
async def test_a_field_of_either_generation_is_obeyed(session, name, value):
    async with talking() as talk:
        *_, updated = await talk.say(update(input_audio_format="g711_alaw"), update(**session))
        heard = updated["session"]["audio"]["input"]
        kind = {"format": heard["format"]["type"], "rate": heard["format"].get("rate")}
        found = heard | kind | (heard["turn_detection"] or {})
        assert found[name] == value


# a field of a session, of either generation, without effect -> a session with it
INERT = {
    "instructions": {"instructions": "be kind"},
    "audio.output": {"audio": {"output": {"voice": "marin"}}},
    "audio.input.transcription": heard(transcription={"model": "whisper-1"}),
    "audio.input.turn_detection.eagerness": heard(turn_detection={"eagerness": "high"}),
    "tools": {"tools": [{"type": "function", "name": "f"}]},
    "input_audio_transcription": {"input_audio_transcription": {"model": "whisper-1"}},
    "modalities": {"modalities": ["text", "audio"]},
}


async def test_fields_without_effect_are_named():
    """In updates and requests; null has none anyway. A session may be sent back as it came."""
    async with talking(waits=True) as talk:
        (updated,) = await talk.say(update(instructions=None))
        assert updated["session"]["streamer"]["ignored"] == []
        for name, session in INERT.items():
            (updated,) = await talk.say(update(**session))
            assert updated["session"]["streamer"]["ignored"] == [name]
            (again,) = await talk.say(update(**updated["session"]))
            assert again["session"]["audio"] == updated["session"]["audio"]
            validate(again)
        asked = {"instructions": "be kind", "metadata": MINE, "output_modalities": ["text"]}
        create = {"type": "response.create", "response": asked, "voice": "marin"}
        for response in responses_of(await talk.say(BINARY, SOUND, COMMIT, create)):
            assert response["streamer"] == {"ignored": ["instructions", "voice"]}


LARGE = "x" * 900_000


def pcm_at(rate, kind="audio/pcm"):
    return update(**heard(format={"type": kind, "rate": rate}))


def coach(**options):
    return ours(coach=options)


NO_EVENTS = [
    *("", "{", "null", '"text"', '["e4"]', "{}", "[" * 100_000),
    '{"type": "input_audio_buffer.append", "audio": NaN}',
    '{"type": "response.create", "event_id": ' + "9" * 5_000 + "}",
    b"\xed\xa0\x80".decode("utf-8", "surrogatepass"),
    *({"type": LARGE}, {"type": "\x1b" * 300}, {"type": "response.create", "event_id": LARGE}),
    *(ours(**{LARGE: 1}), update(audio=None), pcm_at("24000")),
]
# message -> code of its error, and a part of it
WRONG = [
    ({"type": "no.such.event", "event_id": "e2"}, "invalid_event", ""),
    (coach(baseline=LARGE * 4), "invalid_event", "only an append of audio may be longer than 1"),
    (ours(evnts=True), "invalid_event", "`evnts` - at `$.session.streamer`; known are events, "),
    (update(**flat(threshold=2)), "invalid_value", "threshold is 2"),
    (pcm_at(24_000, "audio/ogg"), "invalid_value", "'audio/ogg'; it may be audio/pcm, pcm16"),
    (update(turn_detection={"type": "none"}), "invalid_value", "may be server_vad, semantic_vad"),
    (ours(events=True, measures=True, pitch_reference="high"), "invalid_value", "auto"),
    (update(type="transcription"), "invalid_value", "connect anew"),
    (pcm_at(500), "invalid_value", "sample_rate_hz is 500; it may be 1000 to 384000"),
    (pcm_at(16_000, "audio/pcmu"), "invalid_value", "16000 is none of audio/pcmu; it is 8000 Hz"),
    (ours(live_update_s=0.1), "invalid_value", "it may be 0.5 to 3600"),
    (ours(measures=True, pitch_reference="auto"), "invalid_value", "set events to true as well"),
    (ours(events=True, pitch_reference=180), "invalid_value", "set measures to true as well"),
    (ours(language="en"), "invalid_value", "language is 'en'"),
    (ours(attributes=["tempo"]), "invalid_value", "tempo"),
    (coach(baseline={"speech_s": 30, "form": FORM - 1}), "invalid_value", "another version of"),
    (json.loads(COMMIT) | {"event_id": "e3"}, "input_audio_buffer_commit_empty", "append audio"),
    (item("input_audio"), "unsupported", "append audio, and commit it"),
    ({"type": "conversation.item.delete"}, "unsupported", "conversation.item.delete is not"),
    (SOUND, "binary_not_enabled", "session.streamer.binary"),
    (append(base64.b64encode(bytes((3 << 20) + 2)).decode()), "append_too_large", "at most 3 MiB"),
]


async def test_each_wrong_message_is_one_error_and_the_session_goes_on():
    async with talking() as talk:
        for message in NO_EVENTS:
            (error,) = await errors_of(talk, message)
            assert (error["code"], error["event_id"]) == ("invalid_event", None), str(message)[:99]
        for message, code, part in WRONG:
            event_id = message.get("event_id") if isinstance(message, dict) else None
            (error,) = await errors_of(talk, message)
            assert (error["code"], error["event_id"]) == (code, event_id), str(message)[:99]
            assert part in error["message"]
        assert text_of(await talk.say(BINARY, SOUND, COMMIT, ANSWER)) == "320"


async def test_a_resume_says_what_was_taken_and_what_is_lost(monkeypatch):
    monkeypatch.setattr(session, "MAX_HELD_BYTES", 3_000)
    async with talking() as talk:
        await talk.say(BINARY, SOUND, COMMIT, ANSWER)
        events = talk.session.journal
        assert 1 < events.first < events.end
        query = {"resume": ["sess_0"], "event": ["1"], "bytes": ["400"]}
        first, row = talk.session.resume(Resume.parse(query))
        told = json.loads(row)
        assert (first, told["event"], told["lost_events"]) == (events.first, first, first - 1)
        assert (told["bytes"], told["messages"], told["lost_bytes"]) == (320, 4, 80)
