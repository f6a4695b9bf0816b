"""clients/mic.py as a real process against a real server; the hardware, and only it, is played by a recording."""

import os
import signal
import subprocess
import sys

import pytest
from conftest import ROOT
from speech import SAMPLES

CLIENT = ROOT / "clients" / "mic.py"
MICROPHONE = """
import os, threading, time, wave

class PortAudioError(Exception):
    pass

class RawInputStream:
    def __init__(self, rate, size, device, channels, kind, callback):
        if rate != 16_000 or os.environ.get("NO_MICROPHONE"):
            raise PortAudioError("Error querying device -1")
        self.size, self.callback, self.open = size, callback, True
    def start(self):
        threading.Thread(target=self.play, daemon=True).start()
    def close(self):
        self.open = False
    def play(self):
        with wave.open(os.environ["RECORDING"]) as file:
            data = file.readframes(10**9) + bytes(64_000)
        while self.open:
            for at in range(0, len(data), 2 * self.size):
                self.callback(data[at : at + 2 * self.size], self.size, None, None)
                time.sleep(self.size / 16_000 / 4)
"""


@pytest.fixture
def environment(tmp_path):
    (tmp_path / "sounddevice.py").write_text(MICROPHONE)
    return os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(tmp_path), "RECORDING": str(SAMPLES[1])}


def test_it_says_how_someone_speaks_and_ends_with_ctrl_c(environment):
    serve = [sys.executable, "-m", "streamer", "serve", "--port", "0"]
    with subprocess.Popen(serve, stdout=subprocess.PIPE, text=True, env=environment | {"PYTHONPATH": ""}) as server:
        url = server.stdout.readline().split()[2]
        command = [sys.executable, str(CLIENT), "--url", url, "--live-updates", "1"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment) as mic:
            sentence = mic.stdout.readline()
            mic.send_signal(signal.SIGINT)
            _, err = mic.communicate(timeout=20)
        server.terminate()
    assert sentence.startswith("说话人")
    assert sentence.endswith("。\n")
    assert "listening at 16000 Hz" in err
    assert " s: 说话人" in err, "live updates"
    assert mic.returncode == 0


def test_what_is_missing_is_told_in_one_line(environment):
    def run(*arguments, **more):
        command = [sys.executable, CLIENT, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, env=environment | more, timeout=30, check=False)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
        return done.stderr

    assert "no microphone can be opened (Error querying device -1)" in run(NO_MICROPHONE="1")
    assert "is `streamer serve` running?" in run("--url", "ws://127.0.0.1:9/v1/realtime")
    assert "sounddevice" in run(PYTHONPATH="")
