"""The page in a real Chromium where something breaks or is missing: links, the server, a key, the
microphone, the verifier."""

import asyncio
import contextlib
import json
import re
from urllib.parse import urlsplit

import numpy as np
import pytest
from browser import LINK_ERRORS, LOOP, chromium, replay, save_speech, taken, visiting
from patience import PATIENCE_S, until
from playwright.async_api import Error
from sound_files import wav
from speech import SAMPLES, recording, speech
from wire import serving, url_of

from bench.proxy import Proxy


@LOOP
async def test_a_browser_that_has_ended_is_replaced(server, capsys):
    """The system may kill it where memory is short; later tests of the room go on."""
    async with chromium() as lost:
        ended = asyncio.Event()
        lost.on("disconnected", lambda _: ended.set())
        session = await lost.new_browser_cdp_session()
        with contextlib.suppress(Error):
            await session.send("Browser.crash")
        await asyncio.wait_for(ended.wait(), PATIENCE_S)
        assert "Chromium has ended; MemAvailable:" in capsys.readouterr().out
        async with visiting(server, browser=lost) as guest:
            assert await guest.text("#problem") == ""


@LOOP
async def test_what_was_wrong_is_told_beside_its_own_sentence(browser, tmp_path):
    """Blocks that went unverified, and a clipped recording."""
    clipped = wav(tmp_path / "clipped.wav", np.clip(30 * recording(1), -1, 1))
    unverified = "that the gate wanted verified went unverified"
    with serving("--cloud", "ws://127.0.0.1:9", "--threshold", 0) as (url, _):
        async with visiting(url, browser=browser) as guest:
            await guest.page.set_input_files("#file", [clipped, SAMPLES[0]])
            for part in (unverified, "clipped: "):
                await guest.until_said("#history", part)
            await guest.until_described()
            assert unverified in await guest.text("#warning")
            assert "clipped" not in await guest.text("#warning")
            assert await guest.text("#problem") == ""


@LOOP
async def test_a_key_is_typed_and_a_phone_is_wide_enough(tmp_path, browser):
    """One line says what is wrong, and the field is ready; no URL holds the key."""
    with serving("--mode", "edge", "--api-key", "s3cret") as (url, _):
        async with visiting(url, size=(375, 740), tolerates=LINK_ERRORS, browser=browser) as guest:
            assert await guest.fits()
            assert not await guest.page.is_visible("#key")
            for key, told in (
                ("", "The server wants an API key. Type it"),
                ("wrong", "That API key is not the server's."),
            ):
                if key:
                    await guest.page.fill("#key", key)
                await guest.page.set_input_files("#file", SAMPLES[0])
                await guest.until_said("#problem", told)
                assert await guest.page.evaluate("document.activeElement.id") == "key"
                assert await guest.fits()
            await guest.page.keyboard.press("Control+A")
            await guest.page.keyboard.type("s3cret")
            await guest.page.set_input_files("#file", [SAMPLES[0], SAMPLES[1]])
            await guest.until_said("#facts", SAMPLES[1].name)
            assert await guest.text("#problem") == ""
            assert await guest.fits()
            assert not any("s3cret" in address for address in guest.urls)


async def test_a_link_that_is_cut_is_resumed(server, measured, tmp_path):
    """In the middle of a recording, and of speech: the sentence is whole, as if the link had
    held."""
    save_speech(tmp_path / "speech.wav", recording(0), 16_000)
    async with (
        Proxy(urlsplit(server).port) as proxy,
        visiting(url_of(proxy), tmp_path / "speech.wav", tolerates=LINK_ERRORS) as guest,
    ):
        proxy.cut_after = proxy.cut_every = 25_000
        await guest.page.set_input_files("#file", SAMPLES[0])
        assert await guest.until_described() == measured[SAMPLES[0].name]["text"]
        proxy.cut_after = proxy.cut_every = None
        assert proxy.num_cuts >= 2
        guest.sockets.clear()
        await guest.page.click("#mic")
        # the latter is said again when the link is back
        for status in ("Hearing you", "Listening"):
            await guest.until_said("#status", status)
            proxy.cut()
        await guest.until_said("#facts", "microphone")
        assert len(guest.sockets) >= 3
        assert await guest.text("#sentence") == await replay(server, taken(guest.sockets))


async def test_a_server_that_died_is_found_again(tmp_path):
    """Killed while someone speaks and started again: the page waits, says so, goes on with a new
    session. Its coach knows what was learnt."""
    save_speech(tmp_path / "speech.wav", speech(20, 2), 16_000)
    how = ("--mode", "edge", "--coach", "learn_s=5")
    with contextlib.ExitStack() as servers:
        url, process = servers.enter_context(serving(*how))
        async with visiting(url, tmp_path / "speech.wav", tolerates=LINK_ERRORS) as guest:
            await guest.coached()
            await guest.page.click("#mic")
            await guest.until_said("#learning", "from 5 s of speech")
            process.kill()
            num_dead = len(guest.sockets)
            await guest.until_said("#problem", "The connection broke; trying again")
            assert await guest.text("#status") == "Waiting for the server …"
            process.wait()
            servers.enter_context(serving(*how, "--port", urlsplit(url).port))
            anew = "The server started anew: a sentence may miss its beginning."
            await guest.until_said("#problem", anew)
            # not a sentence of the server that died
            await until(lambda: any(one.descriptions for one in guest.sockets[num_dead:]))
            assert (await guest.until_described("s from the microphone")).endswith(".")
            # a busy server may have been given up for a third socket meanwhile
            texts = (m for one in guest.sockets for m in one.sent if isinstance(m, str))
            *_, update = (text for text in texts if "session.update" in text)
            asked = json.loads(update)["session"]["streamer"]["coach"]
            assert asked["baseline"]["speech_s"] == pytest.approx(5, abs=0.5)
            assert "from 5 s of speech" in await guest.text("#learning")
            assert await guest.page.is_enabled("#keep")
            assert await times_of_report(guest, tmp_path / "report.html")


async def times_of_report(guest, file):
    """Whether its curve of the level goes on, from left to right, though a session begins at 0."""
    await guest.page.click("#mic")
    async with guest.page.expect_download() as download:
        await guest.page.click("#save")
    await (await download.value).save_as(file)
    drawn = re.search(r'<path class="level" d="M([^"]*)Z"', file.read_text("utf-8"))[1]
    at = [float(point.split()[0]) for point in drawn.split("L")]
    return at == sorted(at)


@LOOP
async def test_a_microphone_that_is_missing_is_told(server, browser):
    async with visiting(server, browser=browser) as guest:
        for reason, told in (
            ("NotFoundError", "There is no microphone."),
            ("NotAllowedError", "The microphone is not allowed."),
        ):
            fail = """(reason) => { navigator.mediaDevices.getUserMedia =
                async () => { throw new DOMException("", reason); }; }"""
            await guest.page.evaluate(fail, reason)
            await guest.page.click("#mic")
            await guest.until_said("#problem", told)
            assert await guest.text("#mic") == "Speak"
