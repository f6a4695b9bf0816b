"""wss and https by --cert and --key: a real handshake, and nothing in the clear."""

import ssl
import urllib.request

import pytest
import trustme
from patience import PATIENCE_S
from speech import speech
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidMessage
from wire import describe, pcm, serving, session_update, text_of


@pytest.fixture
def authority():
    return trustme.CA()


@pytest.fixture
def files(authority, tmp_path):
    """(certificate chain, private key), for 127.0.0.1."""
    issued = authority.issue_cert("127.0.0.1")
    chain, key = tmp_path / "chain.pem", tmp_path / "key.pem"
    chain.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    key.write_bytes(issued.private_key_pem.bytes())
    return chain, key


async def test_a_turn_over_wss(authority, files):
    context = ssl.create_default_context()
    authority.configure_trust(context)
    with serving("--cert", files[0], "--key", files[1], "--api-key", "secret") as (url, _):
        assert url.startswith("wss://")
        async with connect(
            url, ssl=context, additional_headers={"Authorization": "Bearer secret"}
        ) as ws:
            await ws.send(session_update(binary=True))
            assert text_of(await describe(ws, pcm(speech(3, 1))))
        page = url.replace("wss", "https").replace("/v1/realtime", "/readyz")
        with urllib.request.urlopen(page, context=context, timeout=PATIENCE_S) as answer:
            assert answer.read() == b"ready\n"
        with pytest.raises(ssl.SSLError):  # a client that does not know the authority
            await connect(url, ssl=ssl.create_default_context())
        with pytest.raises(InvalidMessage):  # nothing is answered in the clear
            await connect(url.replace("wss", "ws"))
