"""`streamer listen` as a process; a recording plays the microphone."""

import asyncio
import os
import signal
import sys

import anyio
import pytest
from fake_microphone import environment, line
from patience import PATIENCE_S
from speech import SAMPLES

from streamer.commands.listen import putting


async def start(tmp_path, stderr=asyncio.subprocess.PIPE, **more):
    command = (sys.executable, "-m", "streamer", "listen", "--mode", "edge")
    pipes = {"stdout": asyncio.subprocess.PIPE, "stderr": stderr}
    env = environment(tmp_path, SAMPLES[1], **more)
    return await asyncio.create_subprocess_exec(*command, **pipes, env=env)


async def test_a_sentence_comes_at_each_pause_and_ctrl_c_ends_it(tmp_path):
    listening = await start(tmp_path)
    try:
        await line(listening.stderr, "listening; speak, pause, read.")
        for _ in range(2):
            assert (await line(listening.stdout)).startswith("说话人")
        listening.send_signal(signal.SIGINT)
        _, err = await asyncio.wait_for(listening.communicate(), PATIENCE_S)
        assert (listening.returncode, b"Traceback" in err) == (0, False)
    finally:
        if listening.returncode is None:
            listening.kill()
            await listening.communicate()


async def test_audio_that_is_left_out_is_told_once(capsys):
    send, receive = anyio.create_memory_object_stream[bytes](2)
    with send, receive:
        put_piece = putting(send)
        for piece in (b"1", b"2", b"3", b"4"):
            put_piece(piece)
        assert [receive.receive_nowait() for _ in range(2)] == [b"1", b"2"]
    put_piece(b"5")
    err = capsys.readouterr().err
    assert "audio is left out" in err
    assert err.count("\n") == 1


async def test_a_terminal_shows_gauges_in_the_sentences_language(tmp_path):
    master, slave = os.openpty()
    listening = await start(tmp_path, slave)
    os.close(slave)
    try:
        seen = b""
        while not all(word.encode() in seen for word in ("语速", "音节/秒", "■")):
            seen += await asyncio.wait_for(asyncio.to_thread(os.read, master, 4_096), PATIENCE_S)
    finally:
        listening.kill()
        await listening.communicate()
        os.close(master)


@pytest.mark.parametrize(
    ("lack", "told"),
    [
        ("NO_MICROPHONE", "no microphone can be opened (Error querying device -1); plug one in"),
        ("NO_PORTAUDIO", "(PortAudio library not found); install PortAudio"),
    ],
)
async def test_without_a_microphone_there_is_one_line(tmp_path, lack, told):
    listening = await start(tmp_path, **{lack: "1"})
    out, err = await asyncio.wait_for(listening.communicate(), PATIENCE_S)
    assert out == b""
    assert err.count(b"\n") == 1
    assert told in err.decode()
