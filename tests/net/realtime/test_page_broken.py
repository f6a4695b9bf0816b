"""The page where a link, a server, a key, a microphone or a verifier fails; its coach."""

import contextlib
import json
from urllib.parse import urlsplit

import numpy as np
from browser import LINK_ERRORS, LOOP, replay, save_speech, taken, visiting
from speech import SAMPLES, recording, speech, wav
from wire import serving, url_of

from bench.proxy import Proxy
from streamer.extras.coach.options import Baseline


@LOOP
async def test_what_was_wrong_is_told_beside_its_own_sentence(browser, tmp_path):
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
                await guest.page.click("#mic", trial=True)  # nothing covers it
                assert await guest.fits()
            await guest.page.keyboard.press("Control+A")
            await guest.page.keyboard.type("s3cret")
            await guest.page.set_input_files("#file", [SAMPLES[0], SAMPLES[1]])
            await guest.until_said("#facts", SAMPLES[1].name)
            assert await guest.text("#problem") == ""
            assert await guest.fits()
            assert not any("s3cret" in address for address in guest.urls)


async def test_a_link_that_is_cut_is_resumed(server, measured, tmp_path):
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


async def test_a_server_that_died_is_told(tmp_path):
    save_speech(tmp_path / "speech.wav", speech(20, 11), 16_000)
    with contextlib.ExitStack() as servers:
        url, process = servers.enter_context(serving("--mode", "edge"))
        async with visiting(url, tmp_path / "speech.wav", tolerates=LINK_ERRORS) as guest:
            await guest.page.click("#mic")
            await guest.until_said("#status", "Hearing you")
            process.kill()
            await guest.until_said("#problem", "The connection broke; trying again")
            assert await guest.text("#status") == "Waiting for the server …"
            process.wait()
            again = ("--mode", "edge", "--port", urlsplit(url).port)
            servers.enter_context(serving(*again))
            await guest.until_said("#problem", "The server started anew.")
            assert await guest.text("#mic") == "Speak"
            await guest.page.set_input_files("#file", SAMPLES[0])
            await guest.until_said("#facts", SAMPLES[0].name)


BLOCKED = """for (const name of ["localStorage", "sessionStorage"])
    Object.defineProperty(window, name, { get() { throw new DOMException("", "SecurityError"); } });
"""


@LOOP
async def test_the_page_works_where_storage_is_blocked(server, browser):
    """As Chromium does it where cookies are blocked."""
    async with visiting(server, browser=browser, script=BLOCKED) as guest:
        await guest.coached()
        await guest.speaks("zh")
        await guest.page.set_input_files("#file", SAMPLES[0])
        await guest.until_described()


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


# of the sound in a report, once the browser has read it
SECONDS = """async (audio) => {
    if (!audio.duration) await new Promise((read) => audio.addEventListener("loadedmetadata", read));
    return audio.duration;
}"""


async def report_of(guest, file):
    """Save a report, by keyboard, and look at it on a phone: its text. It asks for nothing else."""
    await guest.page.focus("#save")
    async with guest.page.expect_download() as download:
        await guest.page.keyboard.press("Enter")
    await (await download.value).save_as(file)
    report = await guest.page.context.browser.new_page(viewport={"width": 375, "height": 740})
    asked = []
    report.on("request", lambda request: asked.append(request.url))
    await report.goto(file.as_uri())
    assert asked == [file.as_uri()]
    assert await report.locator("svg path.pitch[d^=M]").count() == 1
    assert await report.locator("svg line.nudge").count() >= 3
    assert await report.locator("script, link, img").count() == 0
    seconds = await report.locator("audio").evaluate(SECONDS)
    assert 5 < seconds < 60
    assert await report.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    text = await report.text_content("main")
    await report.close()
    return text


USUAL = Baseline(5, 120, 2.5, -20, 0.1, 30, -25, 2.0, 0.0, 0.2, 0.0, 0.2).as_json()


async def test_the_coach_is_seen_heard_and_kept(server, tmp_path):
    """Gauges, words and a report in one file, on a phone."""
    spoken = np.concatenate([recording(2), recording(2) * 0.01, np.zeros(7 * 16_000, np.float32)])
    save_speech(tmp_path / "speech.wav", spoken, 48_000)
    async with visiting(server, tmp_path / "speech.wav", size=(375, 740)) as guest:
        assert not await guest.page.is_visible("#coach")
        keep = "([name, value]) => localStorage.setItem(name, value)"
        await guest.page.evaluate(keep, ["streamer.usual", json.dumps(USUAL)])
        await guest.settings()
        await guest.page.check("#sounding")
        await guest.coached()
        await guest.page.click("#mic")
        await guest.until_said("#learning", "from 30 s of speech")
        await guest.until_said("#list-title", "The last seconds")
        await guest.until_said("#attribute-loudness small", "usually −20")
        await guest.page.locator("#attribute-loudness .gauge.known").wait_for()
        await guest.until_said("#attribute-loudness b", "−")
        await guest.page.locator("#words[aria-live=polite] #nudge:not(:empty)").wait_for()
        await guest.until_said("#nudge", "Keep talking")
        assert await guest.fits()
        for curve in ("path.pitch[d^=M]", "path.level", "path.usual", "path.nudge"):
            assert await guest.page.locator(f"#curve {curve}").count() >= 1
        await guest.page.click("#mic")
        sentence = await guest.until_described()
        report = await report_of(guest, tmp_path / "report.html")
        for part in ("Curves", "Rate, syllables/s", sentence):
            assert part in report
        await guest.page.click("#keep")
        assert await guest.page.evaluate("localStorage.getItem('streamer.usual')") is None
        await guest.until_said("#keep", "Keep this as my usual way")
