"""The client's command `mic` as a process against a real server; a recording is the hardware."""

import asyncio
import signal
import sys

import pytest
from fake_microphone import environment, line
from patience import PATIENCE_S
from places import ROOT
from processes import ended
from speech import SAMPLES
from wire import serving

CLIENT = ROOT / "clients" / "streamer_client.py"


async def end(mic):
    """Ctrl-C; (exit status, what was still printed, what was told)."""
    mic.send_signal(signal.SIGINT)
    out, err = await asyncio.wait_for(mic.communicate(), PATIENCE_S)
    return mic.returncode, out.decode(), err.decode()


async def test_it_says_how_someone_speaks_and_ends_with_ctrl_c(server, listening):
    mic = await listening(server, "--live-updates", "1")
    assert (await line(mic.stderr)).startswith("listening; speak, pause, read.")
    assert (await line(mic.stderr, " s: ")).strip().endswith("。"), "live updates"
    assert (await line(mic.stdout)).endswith("。\n")
    status, _, err = await end(mic)
    # 1, if it had waited for a turn that is over
    assert (status, "streamer_client" in err) == (0, False)


async def test_ctrl_c_while_someone_speaks_still_brings_the_sentence(server, listening):
    mic = await listening(server, "--live-updates", "1", recording=SAMPLES[0])
    await line(mic.stderr, " s: ")
    status, out, _ = await end(mic)
    assert (status, out.endswith("。\n")) == (0, True)


async def test_the_second_ctrl_c_ends_it_at_once(listening):
    with serving("--mode", "edge") as (url, process):
        mic = await listening(url, "--live-updates", "1", recording=SAMPLES[0])
        await line(mic.stderr, " s: ")
        process.send_signal(signal.SIGSTOP)
        mic.send_signal(signal.SIGINT)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(mic.wait(), 1)
        status, _, err = await end(mic)
    # 1, if it had waited for the last sentence
    assert (status, "Traceback" in err) == (130, False)


def test_what_is_missing_is_told_in_one_line(tmp_path):
    def run(*arguments, **more):
        env = environment(tmp_path, SAMPLES[1], **more)
        done = ended(sys.executable, CLIENT, "mic", *arguments, env=env)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
        return done.stderr

    told = "there is no microphone (Error querying device -1); plug one in"
    assert told in run(NO_MICROPHONE="1")
    assert "the microphone cannot be opened (Device unavailable); is another" in run(BUSY="1")
    told = "PortAudio library not found; install PortAudio (Debian: apt-get install libportaudio2)"
    assert told in run(NO_PORTAUDIO="1")
    assert "is `streamer serve` running?" in run("--url", "ws://127.0.0.1:9/v1/realtime")
    assert "sounddevice" in run(PYTHONPATH="")
