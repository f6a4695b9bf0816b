"""The page in a real Chromium: a recording in the place of its microphone, files, keys, cuts, a
keyboard, a phone."""

import asyncio
import contextlib
import json
import re
import shutil
import subprocess
import sys
import zipfile
from urllib.parse import urlsplit
from urllib.request import urlopen

import numpy as np
import pytest
import soundfile
import soxr
from browser import LINK_ERRORS, replay, save_speech, taken, visiting
from cutting import cutting
from places import ROOT
from scipy.signal import correlate
from speech import SAMPLES, recording, speech
from wire import describe_files, http, serving

from streamer.core.attributes import ENGLISH
from streamer.core.coach.baseline import Baseline
from streamer.net.realtime.server import PAGE

LOOP = pytest.mark.asyncio(loop_scope="module")  # that of a browser for all its guests


def samples_of(messages):
    """(PCM16 in a session's messages as floats, its rate)."""
    rate = json.loads(messages[0])["session"]["audio"]["input"]["format"]["rate"]
    data = b"".join(message for message in messages if isinstance(message, bytes))
    return np.frombuffer(data, "<i2").astype(np.float32) / 32_768, rate


def likeness(heard, speech, rate_hz):
    """Median (correlation, gain) of the loud quarter seconds of speech, each with the place in
    `heard` most like it.

    In pieces, because a busy machine drops or doubles buffers of the browser's fake device now and
    then.
    """
    n, found = rate_hz // 4, []
    for at in range(0, len(speech) - n, n):
        piece = speech[at : at + n]
        if np.sqrt(np.mean(piece**2)) < 0.3 * np.sqrt(np.mean(speech**2)):
            continue
        where = int(np.argmax(correlate(heard, piece, mode="valid", method="fft")))
        place = heard[where : where + n]
        norms = np.linalg.norm(place), np.linalg.norm(piece)
        found.append((float(place @ piece / norms[0] / norms[1]), float(norms[0] / norms[1])))
    return np.median(found, axis=0)


@pytest.mark.parametrize("rate_hz", [8_000, pytest.param(44_100, marks=pytest.mark.long), 48_000])
async def test_a_microphone_is_described(server, tmp_path, rate_hz):
    """The right sentence, in two steps: what the page sends is what the file in the microphone's
    place holds (neither levelled nor filtered); what it shows is, id for id, what the server says
    of those very bytes to another client. Voice activity cuts the turn, so `describe` on the file,
    which has its silences too, need not say the same."""
    spoken = save_speech(
        tmp_path / "speech.wav", recording(0 if rate_hz == 44_100 else 2)[:40_000], rate_hz
    )
    async with visiting(server, tmp_path / "speech.wav") as guest:
        await guest.page.click("#mic")
        sentence = await guest.until_described()
        messages = taken(guest.sockets)
        await guest.page.click("#mic")  # there is nothing left to be said
        await guest.until_said("#status", "Press Speak")
    heard, heard_hz = samples_of(messages)
    correlation, gain = likeness(heard, soxr.resample(spoken, rate_hz, heard_hz), heard_hz)
    assert correlation > 0.999
    assert 0.98 < gain < 1.02
    assert [sentence] == await replay(server, messages)
    assert sentence.endswith("。")


@LOOP
async def test_files_say_what_describe_says(server, wanted, tmp_path, browser):
    """Chosen and dropped; two in a row; longer than a turn, in parts; what is no sound is told in
    one line."""
    soundfile.write(tmp_path / "long.wav", speech(65, 3), 16_000, subtype="PCM_16")
    soundfile.write(tmp_path / "silence.wav", np.zeros(32_000), 16_000)
    for name in ("noise.mp3", "more.mp3"):
        (tmp_path / name).write_bytes(b"no sound at all")
    described = describe_files([tmp_path / "long.wav"], "exact")[0]
    first, second, third = (wanted[file.name] for file in SAMPLES[:3])
    async with visiting(server, browser=browser) as guest:
        await guest.page.set_input_files("#file", SAMPLES[:2])
        await guest.until_said("#history", first["text"])
        await guest.until_said("#facts", SAMPLES[1].name)
        assert (await guest.text("#sentence"), await guest.levels()) == (
            second["text"],
            second["attributes"],
        )
        await guest.drop(SAMPLES[2])
        await guest.until_said("#facts", SAMPLES[2].name)
        assert await guest.text("#sentence") == third["text"]
        await guest.page.set_input_files(
            "#file",
            [tmp_path / name for name in ("noise.mp3", "silence.wav", "more.mp3", "long.wav")],
        )
        await guest.until_said("#facts", "long.wav")
        await guest.page.wait_for_selector("#progress", state="hidden")
        why = "no sound that this browser can decode."
        assert await guest.text("#problem") == f"more.mp3: {why}"
        earlier = await guest.page.locator("#history li p:first-child").all_text_contents()
        assert [await guest.text("#sentence"), *earlier] == [
            *(part["text"] for part in reversed(described["parts"])),
            f"more.mp3: {why}",
            "silence.wav: no speech",
            f"noise.mp3: {why}",
            *(row["text"] for row in (third, second, first)),
        ]


@LOOP
async def test_levels_have_the_names_and_numbers_of_the_api(server, wanted, browser):
    levels = json.loads(http(server, "/attributes.json")[1])
    async with visiting(server, browser=browser) as guest:
        await guest.page.set_input_files("#file", SAMPLES[0])
        await guest.until_described()
        for name, level in wanted[SAMPLES[0].name]["attributes"].items():
            found = levels[name][level]
            told = (
                f"{found['name']} {found['english']}, level {level} of 0 to {len(levels[name]) - 1}"
            )
            assert found["name"] in ENGLISH[name]
            assert await guest.text(f"#attribute-{name} .level") == told


@LOOP
async def test_what_went_unverified_is_told(browser):
    with serving("--cloud", "ws://127.0.0.1:9") as (url, _):
        async with visiting(url, browser=browser) as guest:
            await guest.page.set_input_files("#file", [SAMPLES[0], SAMPLES[0]])
            await guest.until_said("#history", "that the gate wanted verified went unverified")
            await guest.until_described()
            assert "that the gate wanted verified went unverified" in await guest.text("#warning")
            assert await guest.text("#problem") == ""


async def test_what_was_heard_so_far_is_told_from_the_last_sentence(server, tmp_path):
    """The attributes are said to be so far's, and the sentence to be the last turn's, grey; then it
    is the new one."""
    quiet = np.zeros(32_000, np.float32)
    save_speech(
        tmp_path / "speech.wav",
        np.concatenate([recording(2)[:40_000], quiet, speech(6, 2)]),
        16_000,
    )
    colour = "element => getComputedStyle(element).color"
    async with visiting(server, tmp_path / "speech.wav") as guest:
        labels = guest.page.locator(".so-far-only")
        await guest.page.click("#mic")
        first = await guest.until_described()
        ink = await guest.page.locator("#sentence").evaluate(colour)
        assert await labels.evaluate_all("all => all.some(each => each.checkVisibility())") is False
        await labels.last.wait_for()
        assert await guest.page.locator("#chart-title").inner_text() == "SEVEN ATTRIBUTES, SO FAR"
        assert await guest.page.locator("#now-title").inner_text() == "HOW YOU SPOKE BEFORE"
        assert await guest.text("#sentence") == first
        assert await guest.page.locator("#sentence").evaluate(colour) != ink
        await guest.until_said("#history", first)
        await guest.until_described()
        assert await labels.evaluate_all("all => all.some(each => each.checkVisibility())") is False
        assert await guest.page.locator("#sentence").evaluate(colour) == ink


async def test_a_keyboard_is_enough(server, wanted, tmp_path):
    """Tab to the button, Enter starts, Space stops and brings the sentence; a recording is chosen;
    the history scrolls."""
    save_speech(tmp_path / "speech.wav", recording(0), 16_000)
    async with visiting(server, tmp_path / "speech.wav") as guest:
        keyboard, choosing = guest.page.keyboard, asyncio.get_running_loop().create_future()
        guest.page.on("filechooser", lambda chooser: choosing.set_result(chooser))
        assert [await guest.tab() for _ in range(5)] == [
            "language",
            "live",
            "coaching",
            "key",
            "mic",
        ]
        await keyboard.press("Enter")
        await guest.until_said("#status", "Hearing you")
        await guest.until_said("#so-far", "So far, after 3 s")
        await keyboard.press("Space")
        assert (await guest.until_described()).endswith("。")
        await guest.until_said("#mic", "Speak")
        assert await guest.tab() == "file"
        await keyboard.press("Enter")
        await (await asyncio.wait_for(choosing, 10)).set_files(SAMPLES[1])
        await guest.until_said("#facts", SAMPLES[1].name)
        assert await guest.text("#sentence") == wanted[SAMPLES[1].name]["text"]
        assert await guest.tab() == "history"


@LOOP
async def test_a_key_is_typed_and_a_phone_is_wide_enough(tmp_path, browser):
    """One line says what is wrong, and the field is ready; no URL holds the key; unverified text is
    told from verified."""
    with serving("--mode", "edge", "--api-key", "s3cret") as (url, _):
        async with visiting(url, size=(375, 740), tolerates=LINK_ERRORS, browser=browser) as guest:
            assert await guest.fits()
            for key, told in (
                ("", "The server wants an API key. Type it"),
                ("wrong", "That API key is not the server's."),
            ):
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
            assert await guest.page.locator("#sentence .verified").count() == 0
            spans = guest.page.locator("#sentence .unverified")
            assert "".join(await spans.all_text_contents()) == await guest.text("#sentence") != ""
            colour = "element => getComputedStyle(element).color"
            assert await spans.first.evaluate(colour) != await guest.page.locator(
                "#sentence"
            ).evaluate(colour)
            assert not any("s3cret" in address for address in guest.urls)


async def test_a_link_that_is_cut_is_resumed(server, wanted, tmp_path):
    """In the middle of a recording, and of speech: the sentence is whole, as if the link had
    held."""
    save_speech(tmp_path / "speech.wav", recording(0), 16_000)
    async with (
        cutting(server) as (url, link),
        visiting(url, tmp_path / "speech.wav", tolerates=LINK_ERRORS) as guest,
    ):
        link.max_bytes = 50_000
        await guest.page.set_input_files("#file", SAMPLES[0])
        assert await guest.until_described() == wanted[SAMPLES[0].name]["text"]
        link.max_bytes = None
        assert link.num_cuts >= 2
        guest.sockets.clear()
        await guest.page.click("#mic")
        # the latter is said again when the link is back
        for status in ("Hearing you", "Listening"):
            await guest.until_said("#status", status)
            link.cut()
        await guest.until_said("#facts", "microphone")
        assert len(guest.sockets) >= 3
        assert [await guest.text("#sentence")] == await replay(server, taken(guest.sockets))


async def test_a_server_that_died_is_found_again(tmp_path):
    """Killed while someone speaks and started again: the page waits, says so, goes on with a new
    session."""
    save_speech(tmp_path / "speech.wav", speech(5, 1), 16_000)
    with contextlib.ExitStack() as servers:
        url, process = servers.enter_context(serving("--mode", "edge"))
        async with visiting(url, tmp_path / "speech.wav", tolerates=LINK_ERRORS) as guest:
            await guest.page.click("#mic")
            await guest.until_said("#status", "Hearing you")
            process.kill()
            await guest.until_said("#status", "The connection broke; trying again")
            process.wait()
            servers.enter_context(serving("--mode", "edge", "--port", urlsplit(url).port))
            await guest.until_said(
                "#problem", "The server started anew: a sentence may miss its beginning."
            )
            assert (await guest.until_described()).endswith("。")


@LOOP
async def test_a_microphone_that_is_missing_is_told(server, browser):
    async with visiting(server, browser=browser) as guest:
        for reason, told in (
            ("NotFoundError", "There is no microphone."),
            ("NotAllowedError", "The microphone is not allowed."),
        ):
            await guest.page.evaluate(
                """(reason) => { navigator.mediaDevices.getUserMedia = async () => { throw new DOMException("", reason); }; }""",
                reason,
            )
            await guest.page.click("#mic")
            await guest.until_said("#problem", told)
            assert await guest.text("#mic") == "Speak"


@LOOP
async def test_one_screen_however_long_the_history(server, browser):
    """A laptop's window needs no scrolling; the list of earlier sentences scrolls by itself."""
    async with visiting(server, size=(1280, 720), browser=browser) as guest:
        await guest.page.set_input_files("#file", SAMPLES[2:3] * 7)
        await guest.page.locator("#history li:nth-child(6)").wait_for(state="attached")
        assert await guest.page.evaluate(
            "document.documentElement.scrollHeight <= window.innerHeight"
        )
        assert await guest.page.evaluate(
            "document.getElementById('history').scrollHeight > document.getElementById('history').clientHeight"
        )


def test_pages_are_served_as_often_as_asked_with_their_policy(server):
    """The same headers each time; nothing but the page's own files, and the model's levels."""
    for _ in range(3):
        with urlopen(
            server.replace("ws", "http", 1).removesuffix("v1/realtime"), timeout=10
        ) as answer:
            assert answer.headers.get_all("Server") == ["streamer"]
            (policy,) = answer.headers.get_all("Content-Security-Policy")
            assert policy.startswith("default-src 'none'; script-src 'self';")
            assert b"<title>" in answer.read()
    levels = json.loads(http(server, "/attributes.json")[1])
    assert [level["name"] for level in levels["rate"]] == ["很慢", "偏慢", "适中", "偏快", "很快"]
    assert [http(server, path)[0] for path in ("/app.js", "/../server.py", "/server.py")] == [
        200,
        404,
        404,
    ]


def test_the_page_has_no_jargon():
    for file in PAGE.glob("*.*"):
        assert not re.search(r"TTFT|\bITL\b|prefill", file.read_text("utf-8")), file.name


def test_a_wheel_holds_the_page(tmp_path):
    tree = tmp_path / "tree"
    shutil.copytree(
        ROOT / "streamer", tree / "streamer", ignore=shutil.ignore_patterns("__pycache__")
    )
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree)
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--disable-pip-version-check",
        "--no-deps",
        "--no-build-isolation",  # torch brings setuptools
        "-w",
        tmp_path,
        tree,
    ]
    subprocess.run(command, check=True, timeout=100)
    (wheel,) = tmp_path.glob("*.whl")
    held = set(zipfile.ZipFile(wheel).namelist())
    assert {f"streamer/net/page/{file.name}" for file in PAGE.iterdir()} <= held


async def report_of(guest, language, file):
    """Save a report, by keyboard, and look at it on a phone: its text. It asks for nothing else."""
    await guest.page.select_option("#language", language)
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
    assert await report.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    text = await report.text_content("main")
    await report.close()
    return text


async def test_the_coach_is_seen_heard_and_kept(server, tmp_path):
    """Gauges move beside what is usual, a word is said and told to screen readers, a phone is wide
    enough; the report is one file that needs nothing else, in the page's language."""
    spoken = np.concatenate([recording(2), recording(2) * 0.01, np.zeros(7 * 16_000, np.float32)])
    save_speech(tmp_path / "speech.wav", spoken, 48_000)
    usual = Baseline(5, 120, 2.5, -20, 0.1, 30, 0.3, 0.04, -25, 2.5, 0.9, 0.1).as_json()
    async with visiting(server, tmp_path / "speech.wav", size=(375, 740)) as guest:
        assert not await guest.page.is_visible("#coach")
        keep = "([name, value]) => localStorage.setItem(name, value)"
        await guest.page.evaluate(keep, ["streamer.usual", json.dumps(usual)])
        await guest.page.check("#coaching")
        await guest.page.click("#mic")
        await guest.until_said("#learning", "beside your usual way, of 30 s")
        await guest.until_said("#gauge-level_dbfs small", "usually −20")
        gauge = guest.page.locator("#gauge-level_dbfs [role=meter].on")
        await gauge.wait_for()
        assert float(await gauge.get_attribute("aria-valuenow")) < 0
        assert await gauge.get_attribute("aria-label") == "Level"
        assert "dBFS, usually −20" in (await gauge.get_attribute("aria-valuetext")).replace(
            " usually", ", usually"
        )
        await guest.page.locator("#words[aria-live=polite] #nudge:not(:empty)").wait_for()
        await guest.until_said("#nudge", "Keep talking")
        assert await guest.fits()
        drawn = """canvas => canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height)
            .data.some((value) => value > 0)"""
        assert await guest.page.locator("#curve").evaluate(drawn)
        await guest.page.click("#mic")
        sentence = await guest.until_described()
        for language, told in (("en", "How it was computed"), ("zh", "计算方法")):
            text = await report_of(guest, language, tmp_path / f"{language}.html")
            assert told in text
            assert sentence in text
        await guest.page.click("#keep")
        assert await guest.page.evaluate("localStorage.getItem('streamer.usual')") is None


@pytest.mark.parametrize("older", ['{"rate_syllables_per_s": 5.0, "speech_s": 30.0}', "null"])
async def test_a_usual_way_of_an_older_page_is_told_and_learnt_anew(server, tmp_path, older):
    """The server would refuse it, and nobody could speak until the browser's store was cleared."""
    save_speech(tmp_path / "speech.wav", recording(2), 48_000)
    async with visiting(server, tmp_path / "speech.wav") as guest:
        keep = "([name, value]) => localStorage.setItem(name, value)"
        await guest.page.evaluate(keep, ["streamer.usual", older])
        await guest.page.check("#coaching")
        await guest.page.click("#mic")
        await guest.until_said("#problem", "an older form of this page; it is learnt anew")
        await guest.until_said("#learning", "learning how you usually speak")
        assert await guest.page.evaluate("localStorage.getItem('streamer.usual')") is None


async def test_a_browser_that_blocks_storage_is_coached_all_the_same(server, tmp_path):
    """Whatever it remembers is out of reach, so that nothing is kept; the page goes on."""
    save_speech(tmp_path / "speech.wav", recording(2), 48_000)
    blocked = """for (const name of ["localStorage", "sessionStorage"])
        Object.defineProperty(window, name, { get() { throw new DOMException("", "SecurityError"); } })"""
    async with visiting(server, tmp_path / "speech.wav") as guest:
        await guest.page.add_init_script(blocked)
        await guest.page.reload()
        await guest.page.wait_for_selector("#attributes tr:nth-child(7)")
        await guest.page.select_option("#language", "en")
        await guest.page.check("#coaching")
        await guest.page.click("#mic")
        await guest.until_said("#learning", "learning how you usually speak")
        assert await guest.until_described()


@LOOP
async def test_without_a_coach_the_page_asks_for_none(server, wanted, browser):
    async with visiting(server, browser=browser) as guest:
        await guest.page.set_input_files("#file", SAMPLES[0])
        assert await guest.until_described() == wanted[SAMPLES[0].name]["text"]
        asked = json.loads(taken(guest.sockets)[0])["session"]["streamer"]
        assert asked.keys() == {"events", "binary", "acks", "live_update_s"}
        assert not await guest.page.is_visible("#coach")
