"""The page in a real Chromium: microphone, files, parts, languages, a keyboard."""

import asyncio
import contextlib
import re

import numpy as np
import pytest
import soundfile
from browser import LOOP, save_speech, visiting
from fake_session import opening
from patience import PATIENCE_S
from speech import SAMPLES, speech
from wire import describe_files, running


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
