"""Real servers and what speaks to them, for tests of the wire: processes, HTTP, raw and strict
clients."""

import asyncio
import contextlib
import json
import random
import re
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import anyio
import pipecat_types
from in_process import in_process
from openai.types import realtime as types
from patience import PATIENCE_S
from processes import listening

from streamer import Describer
from streamer.net.realtime.server import PATH, RealtimeServer, ServerTerms
from streamer.net.service.admission import Admission

COMMIT = '{"type": "input_audio_buffer.commit"}'
ANSWER = '{"type": "response.create"}'


def serving(*options, **environment):
    """A server process, on a free port unless one is given: (its websocket address, process)."""
    port = () if "--port" in options else ("--port", 0)
    return listening("serve", *port, *options, **environment)


def describe_files(files, mode, measures=False):
    """What `streamer describe --json` says, a row for each; in this process, on a thread of its
    own, as the caller's loop may run. clients/test_file.py and link/test_describe.py hold the
    command to it."""

    async def described():
        with anyio.fail_after(120):
            async with Describer.open(mode=mode) as describer:
                return [
                    (await describer.describe(file, measures=measures)).as_json() for file in files
                ]

    with ThreadPoolExecutor(1) as pool:
        return json.loads(json.dumps(pool.submit(anyio.run, described).result()))


def http(url, path, headers=None, context=None):
    """(status, body, headers) of a GET. context: of TLS."""
    request = urllib.request.Request(
        url.replace("ws", "http", 1).replace("/v1/realtime", path), headers=headers or {}
    )
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_S, context=context) as answer:
            return answer.status, answer.read().decode(), dict(answer.headers)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode(), dict(error.headers)


def link_gauges(text):
    """What /metrics tells of a link to a verifier: name -> value, without the prefix."""
    return {
        name: float(value) for name, value in re.findall(r"^streamer_link_(\w+) (\S+)$", text, re.M)
    }


def pcm(samples):
    return (samples * 32767).astype("<i2").tobytes()


def session_update(rate=16_000, vad=None, **extensions):
    audio = {"input": {"format": {"type": "audio/pcm", "rate": rate}, "turn_detection": vad}}
    return json.dumps(
        {
            "type": "session.update",
            "session": {"type": "realtime", "audio": audio, "streamer": extensions},
        }
    )


@contextlib.asynccontextmanager
async def running(open_session, max_sessions=4, hold_s=5.0, api_key=None, at=0, **more):
    """A server in this process: (its websocket address, the server). at: its port; more: of its
    Admission."""
    admission = Admission((PATH,), max_sessions, api_key, **more)
    server = RealtimeServer(open_session, admission, ServerTerms(hold_s))
    async with in_process(server, at) as port:
        yield f"ws://127.0.0.1:{port}{PATH}", server


async def until_left(url):
    """The server has noticed that everyone is gone."""
    with anyio.fail_after(PATIENCE_S):
        while "\nstreamer_sessions 0.0" not in http(url, "/metrics")[1]:
            await anyio.sleep(0.1)


async def until(ws, kind):
    """Events up to the first of `kind`."""
    events = []
    while not events or events[-1]["type"] != kind:
        events.append(json.loads(await asyncio.wait_for(ws.recv(), PATIENCE_S)))
    return events


async def describe(ws, data, seed=0):
    """Feed raw PCM16 in random pieces, commit, ask: all events to response.done."""
    chance, at = random.Random(seed), 0
    while at < len(data):
        n = chance.choice([1, 333, 3_200, 16_000])
        await ws.send(data[at : at + n])
        at += n
    await ws.send(COMMIT)
    await ws.send(ANSWER)
    return await until(ws, "response.done")


def text_of(events):
    return "".join(
        event["delta"] for event in events if event["type"] == "response.output_text.delta"
    )


STRICT = {
    "session.created": types.SessionCreatedEvent,
    "session.updated": types.SessionUpdatedEvent,
    "error": types.RealtimeErrorEvent,
    "input_audio_buffer.committed": types.InputAudioBufferCommittedEvent,
    "input_audio_buffer.cleared": types.InputAudioBufferClearedEvent,
    "input_audio_buffer.speech_started": types.InputAudioBufferSpeechStartedEvent,
    "input_audio_buffer.speech_stopped": types.InputAudioBufferSpeechStoppedEvent,
    "conversation.item.added": types.ConversationItemAdded,
    "conversation.item.done": types.ConversationItemDone,
    "response.created": types.ResponseCreatedEvent,
    "response.done": types.ResponseDoneEvent,
    "response.output_item.added": types.ResponseOutputItemAddedEvent,
    "response.output_item.done": types.ResponseOutputItemDoneEvent,
    "response.content_part.added": types.ResponseContentPartAddedEvent,
    "response.content_part.done": types.ResponseContentPartDoneEvent,
    "response.output_text.delta": types.ResponseTextDeltaEvent,
    "response.output_text.done": types.ResponseTextDoneEvent,
    "conversation.item.input_audio_transcription.delta": types.ConversationItemInputAudioTranscriptionDeltaEvent,
    "conversation.item.input_audio_transcription.completed": types.ConversationItemInputAudioTranscriptionCompletedEvent,
    "conversation.item.input_audio_transcription.failed": types.ConversationItemInputAudioTranscriptionFailedEvent,
}


def validate(raw):
    """Strictly, by the official client's types and by pipecat's; ours only where they were asked
    for."""
    STRICT[raw["type"]].model_validate(raw, strict=True)
    if raw.get("session", {}).get("type") != "transcription":
        pipecat_types.TYPES[raw["type"]].model_validate(raw)
