"""The page in a real Chromium: recordings, languages, a keyboard, failures, the coach."""

import asyncio
import contextlib
import json
import re
from urllib.parse import urlsplit

import numpy as np
import pytest
import soundfile
from browser import LINK_ERRORS, LOOP, replay, save_speech, taken, visiting
from processes import PATIENCE_S
from speech import SAMPLES, recording, speech, wav
from wire import describe_files, opening, running, serving, url_of

from bench.proxy import Proxy
from streamer.extras.coach.options import Baseline


@LOOP
async def test_files_say_what_describe_says(server, wanted, measured, tmp_path, browser):
    """Chosen and dropped, two in a row, in parts, in the page's language; no sound is one line."""
    soundfile.write(tmp_path / "long.wav", speech(65, 3), 16_000, subtype="PCM_16")
    soundfile.write(tmp_path / "silence.wav", np.zeros(32_000), 16_000)
    (tmp_path / "noise.mp3").write_bytes(b"no sound at all")
    shown_so = ("--measures", "--language", "en")
    (described,) = describe_files([tmp_path / "long.wav"], "exact", *shown_so)
    first, second, third = (measured[file.name] for file in SAMPLES[:3])
    async with visiting(server, browser=browser) as guest:
        await guest.page.set_input_files("#file", SAMPLES[:2])
        await guest.until_said("#history", first["text"])
        await guest.until_said("#facts", SAMPLES[1].name)
        shown = await guest.text("#sentence"), await guest.levels()
        assert shown == (second["text"], second["attributes"])
        await guest.drop(SAMPLES[2])
        await guest.until_said("#facts", SAMPLES[2].name)
        assert await guest.text("#sentence") == third["text"]
        played = """async audio => { await audio.play(); return [audio.duration, audio.error]; }"""
        seconds, error = await guest.page.locator("#playback").evaluate(played)
        assert (seconds, error) == (pytest.approx(soundfile.info(SAMPLES[2]).duration, 0.01), None)
        await guest.page.set_input_files("#file", [tmp_path / "silence.wav"])
        await guest.until_said("#problem", "silence.wav")
        await guest.until_said("#history", third["text"])  # no sentence stands beside silence
        assert await guest.text("#sentence") == ""
        assert not await guest.page.is_visible("#playback")
        names = ("noise.mp3", "silence.wav", "long.wav")
        await guest.page.set_input_files("#file", [tmp_path / name for name in names])
        await guest.until_said("#facts", "long.wav")
        await guest.page.wait_for_selector("#progress", state="hidden")
        why = "no sound that this browser can decode."
        problems = [f"noise.mp3: {why}", "silence.wav: no speech"]
        assert await guest.page.locator("#problem p").all_text_contents() == problems
        earlier = await guest.page.locator("#history li p:first-child").all_text_contents()
        assert [await guest.text("#sentence"), *earlier] == [
            *(part["text"] for part in reversed(described["parts"])),
            *(row["text"] for row in (third, second, first)),
        ]
        await guest.speaks("zh")
        await guest.page.set_input_files("#file", SAMPLES[0])
        await guest.until_said("#sentence", wanted[SAMPLES[0].name]["text"])
        assert await guest.page.get_attribute("#sentence", "lang") == "zh-Hans"


async def test_a_keyboard_is_enough(server, measured, tmp_path):
    """Tab to the button, Enter starts, Space stops; a recording is chosen; the history scrolls."""
    save_speech(tmp_path / "speech.wav", speech(10, 2), 16_000)
    async with visiting(server, tmp_path / "speech.wav") as guest:
        keyboard, choosing = guest.page.keyboard, asyncio.get_running_loop().create_future()
        guest.page.on("filechooser", lambda chooser: choosing.set_result(chooser))
        assert await guest.tab() == "summary"
        await keyboard.press("Enter")
        assert [await guest.tab() for _ in range(4)] == ["language", "live", "coaching", "sounding"]
        await keyboard.press("Escape")
        assert not await guest.page.is_visible("#language")
        await guest.page.focus("#settings summary")
        assert await guest.tab() == "mic"
        await keyboard.press("Enter")
        await guest.until_said("#status", "Hearing you")
        await guest.until_said("#now-title", "So far, after")
        await keyboard.press("Space")
        assert (await guest.until_described()).endswith(".")
        await guest.until_said("#mic", "Speak")
        assert [await guest.tab(), await guest.tab()] == ["sample", "file"]
        await keyboard.press("Enter")
        await (await asyncio.wait_for(choosing, PATIENCE_S)).set_files(SAMPLES[1])
        await guest.until_said("#facts", SAMPLES[1].name)
        assert await guest.text("#sentence") == measured[SAMPLES[1].name]["text"]
        while (at := await guest.tab()) == "playback":  # each of its buttons
            pass
        assert at == "history"


ASKED = "() => [...document.querySelectorAll('[data-word]')].map((each) => each.textContent)"


@pytest.fixture
def sound(tmp_path):
    """name, seconds -> a WAV of noise."""

    def save(name, seconds):
        noise = np.random.default_rng(0).normal(0, 0.1, int(16_000 * seconds))
        soundfile.write(tmp_path / name, noise.astype(np.float32), 16_000)
        return tmp_path / name

    return save


@pytest.fixture
def page(browser):
    """A Guest on the page of a scripted server; each in a context of its own."""

    @contextlib.asynccontextmanager
    async def opened(size=(1280, 800), **script):
        async with (
            running(opening(**script)) as (url, _),
            visiting(url, size=size, browser=browser) as guest,
        ):
            yield guest

    return opened


@LOOP
async def test_parts_have_their_times_and_a_recording_can_be_cancelled(page, sound):
    async with page(part_s=30, feed_s=0.005) as guest:
        await guest.page.set_input_files("#file", sound("long.wav", 75))
        await guest.until_said("#status", "Sending long.wav")
        await guest.until_said("#status", "Done.")
        assert "from 1:00 to 1:15" in await guest.text("#facts")
        earlier = await guest.page.locator("#history .facts:not(:empty)").all_text_contents()
        assert ["from 0:30 to 1:00" in earlier[0], "from 0:00 to 0:30" in earlier[1]] == [True] * 2
        for way in ("click", "Escape"):
            await guest.page.set_input_files("#file", [sound("one.wav", 90), sound("two.wav", 90)])
            await guest.until_said("#status", "Sending one.wav")
            if way == "click":
                await guest.page.click("#cancel")
            else:
                await guest.page.keyboard.press(way)
            await guest.until_said("#status", "one.wav: cancelled")
            assert not await guest.page.is_visible("#cancel")
            assert "two.wav" not in await guest.text("#history")
        await guest.page.set_input_files("#file", sound("three.wav", 1))
        await guest.until_said("#facts", "three.wav")


@LOOP
@pytest.mark.parametrize("size", [(1280, 800), (375, 740)], ids=["laptop", "phone"])
async def test_it_speaks_chinese_and_remembers(page, sound, size):
    """Names and numbers stay as they are. Nothing is wider than a phone."""
    async with page(size) as guest:
        home = guest.page.url
        await guest.speaks("zh")
        assert await guest.page.title() == "streamer：您怎么说话？"
        assert await guest.page.evaluate("document.documentElement.lang") == "zh-Hans"
        await guest.page.set_input_files("#file", [sound("a.wav", 1), sound("b.wav", 1)])
        await guest.until_said("#status", "完成。")
        assert "a.wav，1.0 秒" in await guest.text("#history")
        said = [text for text in await guest.page.evaluate(ASKED) if text]
        told = [re.sub(r"[ab]\.wav|API|\d+:\d+ [AP]M", "", text) for text in said]
        assert not [text for text in told if re.search("[A-Za-z]", text)]
        assert await guest.fits()
        await guest.page.goto(home)
        await guest.until_said("#status", "按“说话”")
        assert await guest.page.input_value("#language") == "zh"
        await guest.speaks("en")
        await guest.until_said("#status", "Press Speak")


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
            servers.enter_context(serving("--mode", "edge", "--port", urlsplit(url).port))
            await guest.until_said("#problem", "The server started anew.")
            assert await guest.text("#mic") == "Speak"
            await guest.page.set_input_files("#file", SAMPLES[0])
            await guest.until_said("#facts", SAMPLES[0].name)


BLOCKED = """for (const name of ["localStorage", "sessionStorage"])
    Object.defineProperty(window, name, { get() { throw new DOMException("", "SecurityError"); } });
"""


@LOOP
async def test_without_a_microphone_and_storage_the_page_works(server, browser):
    """As Chromium does it where cookies are blocked."""
    async with visiting(server, browser=browser, script=BLOCKED) as guest:
        await guest.coached()
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
        await guest.speaks("zh")
        await guest.page.set_input_files("#file", SAMPLES[0])
        await guest.until_described()


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
    assert await report.locator("svg path.pitch_median_hz[d^=M]").count() == 1
    assert await report.locator("svg path.nudge").count() >= 3
    assert await report.locator("script, link, img").count() == 0
    assert 5 < await report.locator("audio").evaluate(SECONDS) < 60
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
        for curve in ("path.pitch_median_hz[d^=M]", "path.level_dbfs", "path.usual", "path.nudge"):
            assert await guest.page.locator(f"#curves {curve}").count() >= 1
        await guest.page.click("#mic")
        sentence = await guest.until_described()
        report = await report_of(guest, tmp_path / "report.html")
        for part in ("Curves", "Rate, syllables/s", sentence):
            assert part in report
        await guest.page.click("#keep")
        assert await guest.page.evaluate("localStorage.getItem('streamer.usual')") is None
        await guest.until_said("#keep", "Keep this as my usual way")
