"""The page in a real Chromium: a recording in the place of its microphone, files, keys, cuts, a
keyboard, a phone."""

import asyncio

import numpy as np
import pytest
import soundfile
import tiny
from browser import LOOP, replay, save_speech, taken, visiting
from patience import PATIENCE_S
from speech import SAMPLES, recording, speech
from wire import describe_files, serving


@pytest.mark.parametrize("rate_hz", [8_000, 48_000])
async def test_a_microphone_is_described(server, tmp_path, rate_hz):
    """It shows, id for id, what the server says of the very bytes that the page sent to another
    client; they are neither levelled nor filtered (test_page_words.py)."""
    save_speech(tmp_path / "speech.wav", recording(2)[:40_000], rate_hz)
    async with visiting(server, tmp_path / "speech.wav") as guest:
        await guest.page.click("#mic")
        sentence = await guest.until_described()
        messages = taken(guest.sockets)
        await guest.page.click("#mic")  # there is nothing left to be said
        await guest.until_said("#status", "Press Speak")
    assert sentence == await replay(server, messages)
    assert sentence.endswith(".")


@LOOP
async def test_files_say_what_describe_says(server, measured, tmp_path, browser):
    """Chosen and dropped; two in a row; longer than a turn, in parts; a file without sound is
    one line."""
    soundfile.write(tmp_path / "long.wav", speech(65, 3), 16_000, subtype="PCM_16")
    soundfile.write(tmp_path / "silence.wav", np.zeros(32_000), 16_000)
    for name in ("noise.mp3", "more.mp3"):
        (tmp_path / name).write_bytes(b"no sound at all")
    described = describe_files([tmp_path / "long.wav"], "exact", measures=True, language="en")[0]
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
        names = ("noise.mp3", "silence.wav", "more.mp3", "long.wav")
        await guest.page.set_input_files("#file", [tmp_path / name for name in names])
        await guest.until_said("#facts", "long.wav")
        await guest.page.wait_for_selector("#progress", state="hidden")
        why = "no sound that this browser can decode."
        assert await guest.page.locator("#problem p").all_text_contents() == [
            f"noise.mp3: {why}",
            "silence.wav: no speech",
            f"more.mp3: {why}",
        ]
        earlier = await guest.page.locator("#history li p:first-child").all_text_contents()
        assert [await guest.text("#sentence"), *earlier] == [
            *(part["text"] for part in reversed(described["parts"])),
            *(row["text"] for row in (third, second, first)),
        ]


async def test_a_keyboard_is_enough(server, measured, tmp_path):
    """Tab to the button, Enter starts, Space stops and brings the sentence; a recording is chosen;
    the history scrolls."""
    save_speech(tmp_path / "speech.wav", speech(10, 2), 16_000)
    async with visiting(server, tmp_path / "speech.wav") as guest:
        keyboard, choosing = guest.page.keyboard, asyncio.get_running_loop().create_future()
        guest.page.on("filechooser", lambda chooser: choosing.set_result(chooser))
        assert await guest.tab() == "summary"
        await keyboard.press("Enter")
        assert [await guest.tab() for _ in range(3)] == ["language", "live", "coaching"]
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


@LOOP
async def test_sentences_are_in_the_page_s_language_if_the_model_speaks_it(tmp_path, browser):
    """The next recording's; the sentence is marked with its language."""
    edge, cloud = tiny.save_bilingual(tmp_path)
    with serving("--mode", "exact", "--edge", edge, "--cloud", cloud) as (url, _):
        async with visiting(url, browser=browser) as guest:
            for language, lang in (("zh", "zh-Hans"), ("en", "en")):
                await guest.speaks(language)
                await guest.page.set_input_files("#file", SAMPLES[0])
                await guest.until_said("#status", "Done" if language == "en" else "完成")
                text = await guest.text("#sentence")
                assert text.isascii() == (language == "en"), text
                assert await guest.page.get_attribute("#sentence", "lang") == lang
                (found,) = guest.sockets[-1].descriptions
                assert (found["text"], found["attributes"]) == (text, await guest.levels())
