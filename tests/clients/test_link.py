"""The client's link: cut and resumed with nothing lost; a server that is started anew."""

import asyncio
import contextlib
import json
import re
import subprocess
import sys
from urllib.parse import urlsplit

import soundfile
from fake_microphone import line
from patience import PATIENCE_S
from places import ROOT
from speech import SAMPLES, speech
from wire import describe_files, http, serving, url_of

from bench.proxy import Proxy

CLIENT = ROOT / "clients" / "streamer_client.py"
SLOWLY = ("--speed", 2, "--live-updates", 0.5)


async def start(*arguments):
    command = [sys.executable, str(CLIENT), "file", *map(str, arguments)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return await asyncio.create_subprocess_exec(*command, **pipes)


def num_resumed(url):
    return float(re.search(r"^streamer_resumed_total (\S+)$", http(url, "/metrics")[1], re.M)[1])


def test_the_client_needs_nothing_of_streamer():
    imports = re.findall(r"^ *(?:import|from) (\w+)", CLIENT.read_text("utf-8"), re.M)
    assert imports
    assert "streamer" not in imports


async def test_a_link_that_is_cut_again_and_again_gives_the_same_text(server, tmp_path):
    """A turn in two parts through a link that breaks every 300 kB, at both ends at once."""
    soundfile.write(tmp_path / "long.wav", speech(65, 5), 16_000, subtype="PCM_16")
    (wanted,) = describe_files([tmp_path / "long.wav"], "exact")
    before = num_resumed(server)
    async with Proxy(urlsplit(server).port) as proxy:
        proxy.cut_after = proxy.cut_every = 300_000
        client = await start(
            tmp_path / "long.wav", "--url", url_of(proxy), "--speed", 100, "--json"
        )
        out, err = await asyncio.wait_for(client.communicate(), PATIENCE_S)
    assert (client.returncode, err) == (0, b"")
    assert num_resumed(server) - before >= 4
    found = json.loads(out)
    assert found["text"] == wanted["text"]
    assert [part["text"] for part in found["parts"]] == [part["text"] for part in wanted["parts"]]


async def test_a_server_that_is_started_anew(listening, tmp_path):
    """The recording is sent again; the microphone goes on. Each says so in one line."""
    soundfile.write(tmp_path / "speech.wav", speech(6, 5), 16_000, subtype="PCM_16")
    (wanted,) = describe_files([tmp_path / "speech.wav"], "edge")
    with contextlib.ExitStack() as servers:
        url, process = servers.enter_context(serving("--mode", "edge"))
        client = await start(tmp_path / "speech.wav", "--url", url, *SLOWLY)
        mic = await listening(url)
        await line(mic.stdout)
        await line(client.stderr, " s: ")
        process.kill()
        process.wait()
        servers.enter_context(serving("--mode", "edge", "--port", urlsplit(url).port))
        await line(mic.stderr, "the server started anew; a sentence may miss its beginning")
        assert (await line(mic.stdout)).endswith("。\n")
        out, err = await asyncio.wait_for(client.communicate(), PATIENCE_S)
    assert client.returncode == 0
    assert out.decode() == wanted["text"] + "\n"
    assert err.decode().count("started anew; once more from the beginning") == 1


async def test_a_server_that_is_full_or_wants_a_key_is_told_at_once():
    """Long before the client would give up a link that is broken: 60 s."""
    with serving("--mode", "edge", "--max-sessions", 1, "--api-key", "s3cret") as (url, _):
        held = ("--api-key", "s3cret", "--live-updates", 0.5, "--speed", 0.3)
        holder = await start(SAMPLES[0], "--url", url, *held)
        await holder.stderr.readline()
        for key, told in (
            ("wrong", b"wrong or missing API key"),
            ("s3cret", b"all 1 sessions are taken"),
        ):
            client = await start(SAMPLES[0], "--url", url, "--api-key", key)
            out, err = await asyncio.wait_for(client.communicate(), 20)
            assert (client.returncode, out, err.count(b"\n")) == (1, b"", 1)
            assert told in err
            assert key != "wrong" or b"give --api-key KEY or STREAMER_API_KEY" in err
        await asyncio.wait_for(holder.communicate(), PATIENCE_S)
        assert holder.returncode == 0
