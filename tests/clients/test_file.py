"""The client's command `file` as a process: the sentences of `describe`, errors in one line."""

import importlib.util
import json
import re
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest
import soundfile
from patience import PATIENCE_S
from places import ROOT
from processes import ENVIRONMENT, ended, listening
from speech import SAMPLES, speech
from tls import certificate
from wire import describe_files, http, serving

from streamer.core.audio.chunker import Mixer

CLIENT = ROOT / "clients" / "streamer_client.py"


def client(*arguments, **environment):
    done = ended(sys.executable, CLIENT, "file", *arguments, env=ENVIRONMENT | environment)
    return done.returncode, done.stdout, done.stderr


def fails(told, *arguments, **environment):
    """One line, which holds `told`."""
    status, out, err = client(*arguments, **environment)
    assert (status, out, err.count("\n")) == (1, "", 1)
    assert told in err


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


def test_silence_is_told(server, tmp_path):
    soundfile.write(tmp_path / "a.wav", np.zeros(16_000), 16_000)
    told = f"streamer_client.py: {tmp_path / 'a.wav'}: no speech was heard, so there is no sentence"
    assert client(tmp_path / "a.wav", "--url", server, "--speed", 20) == (0, "\n", f"{told}\n")


@pytest.mark.parametrize("why", ["Bad file descriptor", "No space left on device"])
def test_a_stdout_that_cannot_be_written_is_no_broken_connection(server, why):
    """It would try again for a minute, or lose the text with status 0."""
    to = "&-" if why.startswith("Bad") else "/dev/full"
    command = (sys.executable, CLIENT, "file", SAMPLES[0], "--url", server, "--speed", 20)
    done = ended("sh", "-c", f'exec "$@" >{to}', "sh", *command)
    told = f"streamer_client.py: stdout cannot be written ({why})\n"
    assert (done.returncode, done.stderr) == (1, told)


def test_broken_files_are_each_one_line(server, tmp_path):
    (tmp_path / "empty.wav").touch()
    (tmp_path / "text.wav").write_text("these are words")
    soundfile.write(tmp_path / "header.wav", [], 16_000)
    soundfile.write(tmp_path / "nan.wav", [0.0] * 8000 + [np.nan], 16_000, subtype="FLOAT")
    reasons = {
        "missing.wav": "cannot be opened (No such file or directory)",
        "": "is a directory",
        "empty.wav": "is empty (0 bytes)",
        "text.wav": "is no recording that libsndfile can read",
        "header.wav": "holds no samples",
        "nan.wav": "bad audio at 0.500 s: sample value nan; give finite ones",
    }
    files = [tmp_path / name for name in reasons]
    status, out, err = client(*files, "--url", server)
    assert (status, out, err.count("\n")) == (1, "", len(files))
    for file, reason, line in zip(files, reasons.values(), err.splitlines(), strict=True):
        assert line.startswith(f"streamer_client.py: {file}: {reason}")


@pytest.mark.parametrize("kind", ["WAV", "AIFF"])
def test_a_cut_file_fails_with_its_sentence(server, tmp_path, kind):
    """As with `describe`."""
    samples, rate = soundfile.read(SAMPLES[0])
    samples = np.tile(samples, 4)
    soundfile.write(tmp_path / "cut", samples, rate, format=kind)
    data = (tmp_path / "cut").read_bytes()
    (tmp_path / "cut").write_bytes(data[: len(data) // 2])
    status, out, err = client(tmp_path / "cut", "--url", server, "--speed", 20, "--json")
    row = json.loads(out)
    assert row["text"]
    of_s = len(samples) / rate
    told = f"is cut short: {of_s / 2:.2f} s of the {of_s:.2f} s it promises are there"
    assert (status, row["is_cut"], row["warning"]) == (1, True, told)
    assert err == f"streamer_client.py: {tmp_path / 'cut'}: {told}\n"


@pytest.mark.skipif(shutil.which("ffmpeg") is None, reason="needs ffmpeg")
def test_an_mp3_in_a_wav_is_whole(server, tmp_path):
    """It counts frames that its decoder leaves out."""
    made = ("ffmpeg", "-v", "fatal", "-i", SAMPLES[0], "-c:a", "mp3", tmp_path / "a.wav")
    subprocess.run(made, check=True)
    status, out, err = client(tmp_path / "a.wav", "--url", server, "--speed", 20, "--json")
    assert (status, json.loads(out)["is_cut"], err) == (0, False, "")


UNREACHABLE = "ws://127.0.0.1:9/v1/realtime: cannot be reached"
ADDRESSES = {
    "ws://127.0.0.1:9/v1/realtime": "is `streamer serve` running?",
    "ws://127.0.0.1:9": UNREACHABLE,
    "nonsense": "nonsense: is no address of a server; start it with ws://",
    "http://127.0.0.1:8770": "start it with ws://",
    "https://127.0.0.1:8770": "start it with wss://",
    "ws://127.0.0.1:99999": "is no address of a server (Port out of range 0-65535)",
}


def test_a_server_that_cannot_be_used_is_one_line(server):
    for url, told in ADDRESSES.items():
        fails(told, SAMPLES[0], "--url", url)
    fails("no such path", SAMPLES[0], "--url", server.replace("realtime", "other"))
    told = "language is 'de'; this server speaks"
    fails(told, SAMPLES[0], "--url", server, "--language", "de")
    told = "this is a `streamer verifier`; give the address of a `streamer serve`"
    with listening("verifier", "--port", 0) as (url, _):
        fails(told, SAMPLES[0], "--url", url)


def test_what_went_unverified_is_told():
    """By the client for each file; by the server in its log and a counter."""
    with serving("--cloud", "ws://127.0.0.1:9") as (url, _):
        status, out, err = client(SAMPLES[0], SAMPLES[0], "--url", url, "--speed", 20, "--json")
        counters = http(url, "/metrics")[1]
    assert status == 0
    rows = [json.loads(row) for row in out.splitlines()]
    for row in rows:
        assert "went unverified" in row["warning"]
        assert (row["blocks_unverified"] > 0, row["is_cut"]) == (True, False)
    assert err == "".join(f"streamer_client.py: {SAMPLES[0]}: {row['warning']}\n" for row in rows)
    assert "\nstreamer_turns_unverified_total 2.0\n" in counters


@pytest.mark.parametrize("package", ["numpy", "soundfile", "websockets"])
def test_a_missing_package_is_told_in_one_line(package, tmp_path):
    missing = f"raise ModuleNotFoundError('there is none', name={package!r})"
    (tmp_path / f"{package}.py").write_text(missing)
    told = f"the package {package} is missing or too old; pip install "
    fails(told, SAMPLES[0], PYTHONPATH=str(tmp_path))
    header = re.search(r"^# dependencies = (.+)$", CLIENT.read_text("utf-8"), re.M)[1]
    assert f'"{package}>=' in header


def test_channels_are_mixed_as_describe_mixes_them(tmp_path):
    """To a step of PCM16: a voice beside noise, beside silence, and upside down beside itself."""
    spec = importlib.util.spec_from_file_location("streamer_client", CLIENT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    voice = speech(2, 3)
    noise = np.random.default_rng(0).normal(0, 0.05, len(voice)).astype(np.float32)
    later = np.concatenate([noise[:8000], 3 * voice[8000:]])
    for other in (noise, later, 0 * voice + 0.1, 0.1 - 0.99 * voice):
        both = np.stack([voice, other], 1)
        soundfile.write(tmp_path / "both.wav", both, 16_000, subtype="FLOAT")
        recording = module.Recording(str(tmp_path / "both.wav"))
        heard = np.frombuffer(b"".join(recording.pieces()), "<i2") / 32_768
        mixer = Mixer(2, 16_000)
        wanted = np.concatenate([mixer.push(both), mixer.finish()])
        assert np.abs(heard - np.clip(wanted, -1, 1)).max() <= 1 / 32_768


def test_tls_and_where_it_is_not(server, tmp_path):
    """A wrong scheme and an unknown authority are named, with the way out; the way out works."""
    chain, key, ca = certificate(tmp_path)
    authority = "name the PEM file of its authority in SSL_CERT_FILE\n"
    with serving("--mode", "edge", "--cert", chain, "--key", key) as (url, _):
        for address, told in (
            (
                server.replace("ws:", "wss:"),
                "TLS, it seems); without --cert a server is reached by ws://\n",
            ),
            (
                url.replace("wss:", "ws:"),
                "TLS, it seems); with --cert a server is reached by wss://\n",
            ),
            (url, f"unable to get local issuer certificate); {authority}"),
        ):
            fails(told, SAMPLES[0], "--url", address)
        status, out, _ = client(SAMPLES[0], "--url", url, "--speed", 20, SSL_CERT_FILE=str(ca))
        assert (status, out[:3]) == (0, "说话人")


def test_ctrl_c_ends_it_cleanly(server, tmp_path):
    """The recording is longer than any timeout, so Ctrl-C ends it."""
    samples, rate = soundfile.read(SAMPLES[0], dtype="int16")
    soundfile.write(tmp_path / "long.wav", np.resize(samples, int(3 * PATIENCE_S) * rate), rate)
    command = [sys.executable, CLIENT, "file", tmp_path / "long.wav", "--url", server]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([*command, "--live-updates", "0.5"], env=ENVIRONMENT, **pipes) as process:
        assert process.stderr.readline().strip(), "a live update: it is streaming"
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 130
