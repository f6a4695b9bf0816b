"""The client's command `file` as a real process against a real server: what `streamer describe` says, and one
line when it fails."""

import importlib.util
import json
import os
import re
import signal
import subprocess
import sys

import numpy as np
import pytest
import soundfile
from patience import PATIENCE_S
from places import ROOT
from processes import listening
from speech import SAMPLES, speech
from tls import certificate
from wire import describe_files, http, serving

from streamer.core.audio.chunker import Mixer

ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1"}
CLIENT = ROOT / "clients" / "streamer_client.py"


def client(*arguments, **environment):
    command = [sys.executable, CLIENT, "file", *map(str, arguments)]
    given = ENVIRONMENT | environment
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=60, env=given, check=False
    )
    return done.returncode, done.stdout, done.stderr


def test_it_says_what_describe_says(server):
    command = [
        sys.executable,
        "-m",
        "streamer",
        "describe",
        *map(str, SAMPLES[:2]),
        "--json",
        "--mode",
        "exact",
    ]
    described = subprocess.run(
        command, capture_output=True, text=True, check=True, env=ENVIRONMENT
    ).stdout.splitlines()
    status, out, err = client(*SAMPLES[:2], "--url", server, "--speed", 20, "--json")
    assert (status, err) == (0, "")
    for mine, theirs in zip(
        map(json.loads, out.splitlines()), map(json.loads, described), strict=True
    ):
        assert (mine["text"], mine["attributes"]) == (theirs["text"], theirs["attributes"])
    assert [json.loads(line)["warning"] for line in out.splitlines()] == [None, None]
    bare = server.removesuffix("/v1/realtime")
    status, out, err = client(SAMPLES[0], "--url", bare, "--speed", 20, "--live-updates", 1)
    assert (status, out) == (0, json.loads(described[0])["text"] + "\n")
    assert " 1 s: " in err


def test_what_fails_is_told_in_one_line(server, tmp_path):
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
    for arguments, told in (
        ([SAMPLES[0], "--url", server, "--language", "de"], "language is 'de'; this server speaks"),
        ([SAMPLES[0], "--url", server.replace("realtime", "other")], "no such path"),
        ([SAMPLES[0], "--url", "ws://127.0.0.1:9/v1/realtime"], "is `streamer serve` running?"),
        (
            [SAMPLES[0], "--url", "nonsense"],
            "nonsense: is no address of a server; start it with ws://",
        ),
        ([SAMPLES[0], "--url", "http://127.0.0.1:8770"], "start it with ws://"),
        ([SAMPLES[0], "--url", "https://127.0.0.1:8770"], "start it with wss://"),
        (
            [SAMPLES[0], "--url", "ws://127.0.0.1:99999"],
            "is no address of a server (Port out of range 0-65535)",
        ),
        (
            [SAMPLES[0], "--url", "ws://127.0.0.1:9"],
            "ws://127.0.0.1:9/v1/realtime: cannot be reached",
        ),
    ):
        status, out, err = client(*arguments)
        assert (status, out, err.count("\n")) == (1, "", 1)
        assert told in err


def test_what_went_unverified_is_told(tmp_path):
    """By the client, in JSON and on stderr, a line for each file; by the server in a log line and a
    counter."""
    with serving("--cloud", "ws://127.0.0.1:9") as (url, _):
        status, out, err = client(SAMPLES[0], SAMPLES[0], "--url", url, "--speed", 20, "--json")
        counters = http(url, "/metrics")[1]
    assert status == 0
    rows = [json.loads(row) for row in out.splitlines()]
    assert all(
        "went unverified" in row["warning"]
        and row["blocks_unverified"] > 0
        and row["is_cut"] is False
        for row in rows
    )
    assert err == "".join(f"streamer_client.py: {SAMPLES[0]}: {row['warning']}\n" for row in rows)
    assert "\nstreamer_turns_unverified_total 2.0\n" in counters


def test_a_verifier_says_that_it_is_one():
    with listening("verifier", "--port", 0) as (url, _):
        status, out, err = client(SAMPLES[0], "--url", url)
    assert (status, out, err.count("\n")) == (1, "", 1)
    assert "this is a `streamer verifier`; give the address of a `streamer serve`" in err


def test_an_mp3_is_read_straight_on(server, tmp_path):
    """As describe reads it: soundfile's seeks between blocks make the decoder start afresh, and
    complain."""
    chance = np.random.default_rng(0)
    noisy = 0.1 * chance.standard_normal(320_000).astype(np.float32)
    noisy[:80_000] = speech(5, 1)
    soundfile.write(tmp_path / "noisy.mp3", noisy, 16_000, format="MP3", subtype="MPEG_LAYER_III")
    (wanted,) = describe_files([tmp_path / "noisy.mp3"], "exact")
    status, out, err = client(tmp_path / "noisy.mp3", "--url", server, "--speed", 100, "--json")
    assert (status, err) == (0, "")
    assert json.loads(out)["text"] == wanted["text"]


@pytest.mark.parametrize("package", ["numpy", "soundfile", "websockets"])
def test_a_missing_package_is_told_in_one_line(package, tmp_path):
    (tmp_path / f"{package}.py").write_text(
        f"raise ModuleNotFoundError('there is none', name={package!r})"
    )
    status, out, err = client(SAMPLES[0], PYTHONPATH=str(tmp_path))
    assert (status, out, err.count("\n")) == (1, "", 1)
    assert f"the package {package} is missing or too old; pip install " in err
    header = re.search(r"^# dependencies = (.+)$", CLIENT.read_text("utf-8"), re.M)[1]
    assert f'"{package}>=' in header


def test_channels_are_mixed_as_describe_mixes_them(tmp_path):
    """To a step of PCM16: a voice beside noise, beside silence, and upside down beside itself."""
    spec = importlib.util.spec_from_file_location("streamer_client", CLIENT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    voice = speech(2, 3)
    noise = np.random.default_rng(0).normal(0, 0.05, len(voice)).astype(np.float32)
    for other, alone in ((noise, None), (0 * voice + 0.1, None), (0.1 - 0.99 * voice, 0)):
        both = np.stack([voice, other], 1)
        soundfile.write(tmp_path / "both.wav", both, 16_000, subtype="FLOAT")
        recording = module.Recording(str(tmp_path / "both.wav"))
        heard = np.frombuffer(b"".join(recording.pieces()), "<i2") / 32_768
        mixer = Mixer(2, 16_000)
        wanted = np.concatenate([mixer.push(both), mixer.finish()])
        assert np.abs(heard - np.clip(wanted, -1, 1)).max() <= 1 / 32_768
        assert recording.alone == alone


def test_tls_and_where_it_is_not(server, tmp_path):
    """A wrong scheme and an unknown authority are named, with the way out; the way out works."""
    chain, key, ca = certificate(tmp_path)
    with serving("--mode", "edge", "--cert", chain, "--key", key) as (url, _):
        for address, told in (
            (
                server.replace("ws:", "wss:"),
                "(it does not speak TLS, it seems); without --cert a server is reached by ws://",
            ),
            (
                url.replace("wss:", "ws:"),
                "(it speaks TLS, it seems); with --cert a server is reached by wss://",
            ),
            (
                url,
                "unable to get local issuer certificate); name the PEM file of its authority in SSL_CERT_FILE",
            ),
        ):
            status, out, err = client(SAMPLES[0], "--url", address)
            assert (status, out) == (1, "")
            assert err == f"streamer_client.py: {address}: cannot be reached {told}\n" or (
                address == url and err.endswith(told + "\n")
            )
            assert err.count("\n") == 1
        status, out, _ = client(SAMPLES[0], "--url", url, "--speed", 20, SSL_CERT_FILE=str(ca))
        assert status == 0
        assert out.startswith("说话人")


def test_ctrl_c_ends_it_cleanly(server, tmp_path):
    """The recording is longer than any timeout, so Ctrl-C ends it."""
    samples, rate = soundfile.read(SAMPLES[0], dtype="int16")
    soundfile.write(tmp_path / "long.wav", np.resize(samples, int(3 * PATIENCE_S) * rate), rate)
    command = [
        sys.executable,
        str(CLIENT),
        "file",
        str(tmp_path / "long.wav"),
        "--url",
        server,
        "--live-updates",
        "0.5",
    ]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT
    ) as process:
        assert process.stderr.readline().strip(), "a live update: it is streaming"
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 130
