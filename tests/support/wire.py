"""Real servers and what speaks to them: processes, HTTP, strict clients; certificates."""

import asyncio
import json
import random
import urllib.error
import urllib.request
from contextlib import asynccontextmanager
from typing import get_args

import anyio
import trustme
from openai.types import realtime as types
from processes import PATIENCE_S, listening
from processes import describe as describe_command
from processes import until as wait_until

from streamer.net.realtime.server import PATH, RealtimeServer, ServerTerms
from streamer.net.service.admission import Admission


@asynccontextmanager
async def in_process(server, port=0, tls=None):
    async def run(task_status):
        await server.run(task_status.started, port=port, tls=tls)

    async with anyio.create_task_group() as group:
        yield await group.start(run)
        server.stop()


COMMIT = '{"type": "input_audio_buffer.commit"}'
ANSWER = '{"type": "response.create"}'


def serving(*options, **environment):
    """A server process, on a free port unless one is given: (its websocket address, process)."""
    port = () if "--port" in options else ("--port", 0)
    return listening("serve", *port, *options, **environment)


def describe_files(files, mode, *more):
    """What `streamer describe --json` says, a row for each."""
    status, rows, err = describe_command(*files, "--mode", mode, *more)
    assert status == 0, err
    return rows


def http(url, path, headers=None, context=None):
    """(status, body, headers) of a GET. context: of TLS."""
    address = url.replace("ws", "http", 1).removesuffix("/v1/realtime") + path
    request = urllib.request.Request(address, headers=headers or {})
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_S, context=context) as answer:
            return answer.status, answer.read().decode(), answer.headers
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode(), error.headers


def url_of(proxy):
    """The address of a server through a proxy."""
    return f"ws://127.0.0.1:{proxy.port}{PATH}"


def session_update(rate=16_000, vad=None, **extensions):
    audio = {"input": {"format": {"type": "audio/pcm", "rate": rate}, "turn_detection": vad}}
    session = {"type": "realtime", "audio": audio, "streamer": extensions}
    return json.dumps({"type": "session.update", "session": session})


@asynccontextmanager
async def running(open_session, max_sessions=4, hold_s=5.0, api_key=None, at=0, **more):
    """(websocket address, server) in this process. at: its port; more: of its Admission."""
    admission = Admission((PATH,), max_sessions, api_key, **more)
    server = RealtimeServer(open_session, admission, ServerTerms(hold_s))
    async with in_process(server, at) as port:
        yield f"ws://127.0.0.1:{port}{PATH}", server


async def until_metric(url, line):
    """Wait until /metrics holds this line."""
    await wait_until(lambda: f"\n{line}\n" in http(url, "/metrics")[1])


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
    deltas = (e for e in events if e["type"] == "response.output_text.delta")
    return "".join(event["delta"] for event in deltas)


# kind of a server event -> its type in the official client
STRICT = {
    get_args(kind.model_fields["type"].annotation)[0]: kind
    for kind in get_args(get_args(types.RealtimeServerEvent)[0])
}
# pipecat wants these to be there, null or not
RESPONSE = {"id", "object", "status", "status_details", "output", "usage"}
USAGE = {"total_tokens", "input_tokens", "output_tokens"}
USAGE |= {"input_token_details", "output_token_details"}


def validate(raw):
    """Strictly, by the official client's types."""
    STRICT[raw["type"]].model_validate(raw, strict=True)
    if (response := raw.get("response")) is not None:
        assert response.keys() >= RESPONSE
        assert response["usage"] is None or response["usage"].keys() >= USAGE


def certificate(folder):
    """(chain, private key, the authority's certificate): PEM files in `folder`."""
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    chain, key, ca = folder / "chain.pem", folder / "key.pem", folder / "ca.pem"
    chain.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    key.write_bytes(issued.private_key_pem.bytes())
    ca.write_bytes(authority.cert_pem.bytes())
    return chain, key, ca
