"""The client against real servers, and `streamer listen`; a recording is the microphone."""

import asyncio
import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
from urllib.parse import urlsplit

import numpy as np
import pytest
import soundfile
from places import ROOT
from processes import ENVIRONMENT, PATIENCE_S, ended
from speech import SAMPLES, speech
from wire import certificate, describe_files, http, serving, url_of

from bench.proxy import Proxy
from streamer.commands.listen import Screen

CLIENT = ROOT / "clients" / "streamer_client.py"


@pytest.fixture(scope="module")
def server():
    with serving("--mode", "exact") as (url, _):
        yield url


def client(*arguments, **more):
    """(exit status, stdout, stderr) of the command `file`. more: of its environment."""
    done = ended(sys.executable, CLIENT, "file", *arguments, env=ENVIRONMENT | more)
    return done.returncode, done.stdout, done.stderr


def fails(told, *arguments, **more):
    """One line, which holds `told`."""
    status, out, err = client(*arguments, **more)
    assert (status, out, err.count("\n")) == (1, "", 1), err
    assert told in err


async def start(*arguments, env=None, stderr=subprocess.PIPE):
    command = map(str, (sys.executable, *arguments))
    pipes = {"stdout": subprocess.PIPE, "stderr": stderr}
    return await asyncio.create_subprocess_exec(*command, **pipes, env=env)


async def end(process):
    """Ctrl-C; (exit status, what was still printed, what was told)."""
    process.send_signal(signal.SIGINT)
    out, err = await asyncio.wait_for(process.communicate(), PATIENCE_S)
    return process.returncode, out.decode(), err.decode()


def test_it_says_what_describe_says(server):
    described = describe_files(SAMPLES[:2], "exact")
    status, out, err = client(*SAMPLES[:2], "--url", server, "--speed", 20, "--json")
    assert (status, err) == (0, "")
    for mine, theirs in zip(map(json.loads, out.splitlines()), described, strict=True):
        assert (mine["text"], mine["attributes"]) == (theirs["text"], theirs["attributes"])
        assert mine["warning"] is None
    bare = server.removesuffix("/v1/realtime")
    proxies = {"http_proxy": "http://127.0.0.1:9", "https_proxy": "http://127.0.0.1:9"}
    options = ("--url", bare, "--speed", 2, "--live-updates", 1)
    status, out, err = client(SAMPLES[0], *options, **proxies)  # which do not lead to this machine
    assert (status, out) == (0, described[0]["text"] + "\n")
    assert " 1 s: " in err


def test_it_hears_the_louder_channel(server, tmp_path):
    samples, rate = soundfile.read(SAMPLES[0])
    (wanted,) = describe_files(SAMPLES[:1], "exact")
    for name, other in (("cancel.wav", -0.9 * samples), ("dead.wav", 0 * samples)):
        soundfile.write(tmp_path / name, np.stack([samples, other], 1), rate)
        _, out, _ = client(tmp_path / name, "--url", server, "--speed", 20, "--json")
        assert json.loads(out)["text"] == wanted["text"]


def test_silence_is_told_and_broken_files_are_each_one_line(server, tmp_path):
    soundfile.write(tmp_path / "silent.wav", np.zeros(16_000), 16_000)
    soundfile.write(tmp_path / "nan.wav", [0.0] * 8000 + [np.nan], 16_000, subtype="FLOAT")
    (tmp_path / "text.wav").write_text("these are words")
    reasons = {
        "silent.wav": "no speech was heard, so there is no sentence",
        "missing.wav": "cannot be read (No such file or directory)",
        "text.wav": "cannot be read (",
        "nan.wav": "bad audio at 0.50 s; give finite samples",
    }
    files = [tmp_path / name for name in reasons]
    status, out, err = client(*files, "--url", server, "--speed", 20)
    assert (status, out, err.count("\n")) == (1, "\n", len(files))
    for file, reason, told in zip(files, reasons.values(), err.splitlines(), strict=True):
        assert told.startswith(f"streamer_client.py: {file}: {reason}")


def test_a_server_that_cannot_be_used_is_one_line(server):
    for url, told in {
        "ws://127.0.0.1:9": "ws://127.0.0.1:9/v1/realtime: cannot be reached",
        server.replace("ws:", "wss:"): "serve` running? With --cert it is reached by wss",
        "nonsense": "nonsense: is no address of a server (it begins with ws:// or wss://)",
        "ws://127.0.0.1:99999": "is no address of a server (Port out of range 0-65535)",
        server.replace("realtime", "other"): "no such path",
    }.items():
        fails(told, SAMPLES[0], "--url", url)
    fails("language is 'de'; it may be", SAMPLES[0], "--url", server, "--language", "de")


async def test_a_server_that_is_full_or_wants_a_key_is_told_at_once():
    with serving("--mode", "edge", "--max-sessions", 1, "--api-key", "s3cret") as (url, _):
        held = ("--api-key", "s3cret", "--live-updates", 0.5, "--speed", 0.05)
        holder = await start(CLIENT, "file", SAMPLES[0], "--url", url, *held)
        await holder.stderr.readline()
        for key, told in (
            ("wrong", "give --api-key KEY or STREAMER_API_KEY"),
            ("s3cret", "all 1 sessions are taken"),
        ):
            await asyncio.to_thread(fails, told, SAMPLES[0], "--url", url, "--api-key", key)
        assert (await end(holder))[0] == 130


def test_it_speaks_tls_with_an_authority_of_ones_own(tmp_path):
    chain, key, ca = certificate(tmp_path)
    with serving("--mode", "edge", "--cert", chain, "--key", key) as (url, _):
        fails("SSL_CERT_FILE names the PEM file", SAMPLES[0], "--url", url)
        status, out, _ = client(SAMPLES[0], "--url", url, "--speed", 20, SSL_CERT_FILE=str(ca))
        assert (status, out[:3]) == (0, "说话人")


def test_it_needs_nothing_of_streamer_and_names_a_missing_package(tmp_path):
    imports = set(re.findall(r"^ *(?:import|from) (\w+)", CLIENT.read_text("utf-8"), re.M))
    assert {"websockets", "numpy", "soundfile", "sounddevice"} == imports - sys.stdlib_module_names
    (tmp_path / "soundfile.py").write_text("raise ModuleNotFoundError('No module named it')")
    told = "No module named it; pip install websockets numpy soundfile, or `uv run"
    fails(told, SAMPLES[0], PYTHONPATH=str(tmp_path))


async def test_a_link_that_is_cut_again_and_again_gives_the_same_text(server, tmp_path):
    soundfile.write(tmp_path / "long.wav", speech(65, 5), 16_000, subtype="PCM_16")
    (wanted,) = describe_files([tmp_path / "long.wav"], "exact")
    async with Proxy(urlsplit(server).port) as proxy:
        proxy.cut_after = proxy.cut_every = 300_000
        url = url_of(proxy)
        one = await start(
            CLIENT, "file", tmp_path / "long.wav", "--url", url, "--speed", 100, "--json"
        )
        out, err = await asyncio.wait_for(one.communicate(), PATIENCE_S)
    assert (one.returncode, err) == (0, b"")
    metrics = await asyncio.to_thread(http, server, "/metrics")
    assert float(re.search(r"^streamer_resumed_total (\S+)$", metrics[1], re.M)[1]) >= 4
    found = json.loads(out)
    assert found["text"] == wanted["text"]
    assert [part["text"] for part in found["parts"]] == [part["text"] for part in wanted["parts"]]


# a module `sounddevice` that repeats a recording at four times its speed, or fails
SOURCE = """
import os, threading, time, wave

if os.environ.get("NO_PORTAUDIO"):
    raise OSError("PortAudio library not found")

class PortAudioError(Exception):
    pass

def query_devices(device, kind):
    if os.environ.get("NO_MICROPHONE"):
        raise PortAudioError("Error querying device -1")
    return {"default_samplerate": 16_000.0}

class RawInputStream:
    def __init__(self, rate, size=0, device=None, channels=1, dtype="int16", callback=None):
        self.size, self.callback, self.open, self.at = size, callback, True, 0
        with wave.open(os.environ["RECORDING"]) as file:
            self.data = file.readframes(10**9) + bytes(64_000)
    def start(self):
        self.thread = threading.Thread(target=self.play, daemon=True)
        self.thread.start()
    def close(self):
        self.open = False
        self.thread.join()
    def play(self):
        while self.open and self.callback:
            self.callback(self.read(self.size)[0], self.size, None, None)
    def read(self, size):
        time.sleep(size / 16_000 / 4)
        piece = self.data[self.at : self.at + 2 * size]
        self.at = (self.at + 2 * size) % len(self.data)
        return piece, True
"""


def environment(folder, **more):
    """The environment of a process that imports the false sounddevice, written to `folder`."""
    (folder / "sounddevice.py").write_text(SOURCE)
    return ENVIRONMENT | {"PYTHONPATH": str(folder), "RECORDING": str(SAMPLES[1])} | more


@pytest.fixture
async def listening(tmp_path):
    """start(arguments, ...): a process that listens to a recording. Ends with the test."""
    async with contextlib.AsyncExitStack() as stack:

        async def begin(*arguments, recording=SAMPLES[1], **pipes):
            env = environment(tmp_path, RECORDING=str(recording))
            process = await start(*arguments, env=env, **pipes)
            stack.push_async_callback(stop, process)
            return process

        async def stop(process):
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.communicate()

        yield begin


async def line(stream, part=""):
    """The next line of a process's output that holds `part`."""
    while part not in (found := (await asyncio.wait_for(stream.readline(), PATIENCE_S)).decode()):
        assert found, f"no line with {part}"
    return found


async def test_a_server_that_is_started_anew(listening, tmp_path):
    """The recording is sent again; the microphone goes on. Each says so in one line."""
    soundfile.write(tmp_path / "speech.wav", speech(6, 5), 16_000, subtype="PCM_16")
    (wanted,) = describe_files([tmp_path / "speech.wav"], "edge")
    with contextlib.ExitStack() as servers:
        url, process = servers.enter_context(serving("--mode", "edge"))
        slowly = ("--speed", 1, "--live-updates", 0.5)
        one = await start(CLIENT, "file", tmp_path / "speech.wav", "--url", url, *slowly)
        mic = await listening(CLIENT, "mic", "--url", url, "--live-updates", 1)
        await line(mic.stdout)
        await line(one.stderr, " s: ")
        process.kill()
        process.wait()
        servers.enter_context(serving("--mode", "edge", "--port", urlsplit(url).port))
        await line(mic.stderr, "the server started anew; a sentence may miss its beginning")
        await line(mic.stdout, "。\n")  # the beginning of a turn may be lost, and its words
        out, err = await asyncio.wait_for(one.communicate(), PATIENCE_S)
    assert one.returncode == 0
    assert out.decode() == wanted["text"] + "\n"
    assert err.decode().count("started anew; once more from the beginning") == 1


async def test_the_microphone_is_described_until_ctrl_c(server, listening):
    mic = await listening(CLIENT, "mic", "--url", server, "--live-updates", 1)
    assert (await line(mic.stderr)).startswith("listening; speak, pause, read.")
    assert (await line(mic.stderr, " s: ")).strip().endswith("。"), "live updates"
    assert (await line(mic.stdout)).endswith("。\n")
    status, _, err = await end(mic)
    # 1, if it had waited for a turn that is over
    assert (status, "streamer_client" in err) == (0, False)


async def test_ctrl_c_while_someone_speaks_still_brings_the_sentence(server, listening):
    words = ("mic", "--url", server, "--live-updates", 1)
    mic = await listening(CLIENT, *words, recording=SAMPLES[0])
    await line(mic.stderr, " s: ")
    status, out, _ = await end(mic)
    assert (status, out.endswith("。\n")) == (0, True)


LISTEN = ("-m", "streamer", "listen", "--mode", "edge")


async def test_listen_says_a_sentence_at_each_pause_until_ctrl_c(listening):
    process = await listening(*LISTEN)
    await line(process.stderr, "listening; speak, pause, read.")
    for _ in range(2):
        assert (await line(process.stdout)).startswith("说话人")
    status, _, err = await end(process)
    assert (status, "Traceback" in err) == (0, False)
    assert err.count("audio is left out") == 1


async def test_a_second_ctrl_c_ends_listening_without_the_verdict(listening):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"ws://127.0.0.1:{silent.getsockname()[1]}"
        process = await listening(*LISTEN[:3], "--mode", "exact", "--cloud", url)
        await line(process.stderr, "listening;")
        await asyncio.sleep(1)
        process.send_signal(signal.SIGINT)
        await asyncio.sleep(1)
        status, _, err = await end(process)
    assert (status, "Traceback" in err) == (0, False)


def test_gauges_erase_no_message(capsys):
    screen = Screen("en")
    screen._num_drawn = 6
    screen.fail("it failed")
    screen.erase()
    assert capsys.readouterr().err.endswith("\x1b[Jstreamer: it failed\n")


async def test_listen_shows_gauges_on_a_terminal_in_the_sentences_language(listening):
    leader, follower = os.openpty()
    await listening(*LISTEN, stderr=follower)
    os.close(follower)
    seen = b""
    while not all(word.encode() in seen for word in ("语速", "音节/秒", "■")):
        piece = await asyncio.wait_for(asyncio.to_thread(os.read, leader, 4_096), PATIENCE_S)
        assert piece, seen
        seen += piece
    os.close(leader)


NO_MICROPHONE = {"NO_MICROPHONE": "1"}
WHY = "be opened (Error querying device -1); plug one in"


@pytest.mark.parametrize(
    ("words", "lack", "status", "told"),
    [
        ([CLIENT, "mic"], NO_MICROPHONE, 1, f"cannot {WHY}"),
        ([CLIENT, "mic"], {"PYTHONPATH": ""}, 1, "pip install sounddevice, and"),
        (LISTEN, NO_MICROPHONE, 1, f"no microphone can {WHY}"),
        (LISTEN, {"NO_PORTAUDIO": "1"}, 2, "(PortAudio library not found); install PortAudio"),
    ],
)
def test_without_a_microphone_there_is_one_line(tmp_path, words, lack, status, told):
    done = ended(sys.executable, *words, env=environment(tmp_path, **lack))
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (status, "", 1)
    assert told in done.stderr
