"""The page in a real Chromium: a recording in the place of its microphone, files, keys, cuts, a
keyboard, a phone."""

import asyncio
import json

import numpy as np
import pytest
import soundfile
import soxr
import tiny
from browser import LOOP, replay, save_speech, taken, visiting
from patience import PATIENCE_S
from scipy.signal import correlate
from speech import SAMPLES, recording, speech
from wire import describe_files, http, serving


def samples_of(messages):
    """(PCM16 in a session's messages as floats, its rate)."""
    rate = json.loads(messages[0])["session"]["audio"]["input"]["format"]["rate"]
    data = b"".join(message for message in messages if isinstance(message, bytes))
    return np.frombuffer(data, "<i2").astype(np.float32) / 32_768, rate


def gains_of(heard, speech, rate_hz):
    """(begin as a share of the speech, gain) of loud 50 ms of speech that `heard` holds, sample for
    sample but for a gain, as two lists.

    In pieces, because a busy machine drops or doubles buffers of the browser's fake device: most of
    them, where it is very busy. High-pass filters and suppression of noise leave no piece, levelling
    shows in the gains. A low-pass is not found.
    """
    n, places, gains = rate_hz // 20, [], []
    sums = np.cumsum(np.pad(heard.astype(float) ** 2, (1, 0)))
    norms = np.sqrt(np.maximum(sums[n:] - sums[:-n], 1e-6))
    for at in range(0, len(speech) - n, n):
        piece = speech[at : at + n]
        if np.sqrt(np.mean(piece**2)) < 0.3 * np.sqrt(np.mean(speech**2)):
            continue
        like = correlate(heard, piece, mode="valid", method="fft") / norms
        where, norm = int(np.argmax(like)), np.linalg.norm(piece)
        if like[where] > 0.9999 * norm:
            places.append(at / len(speech))
            gains.append(norms[where] / norm)
    return places, gains


@pytest.mark.parametrize("rate_hz", [8_000, 48_000])
async def test_a_microphone_is_described(server, tmp_path, rate_hz):
    """The right sentence, in two steps: what the page sends is what the file in the microphone's
    place holds (neither levelled nor filtered); what it shows is, id for id, what the server says
    of those very bytes to another client. Voice activity cuts the turn, so `describe` on the file,
    which has its silences too, need not say the same."""
    spoken = save_speech(tmp_path / "speech.wav", recording(2)[:40_000], rate_hz)
    async with visiting(server, tmp_path / "speech.wav") as guest:
        await guest.page.click("#mic")
        sentence = await guest.until_described()
        messages = taken(guest.sockets)
        await guest.page.click("#mic")  # there is nothing left to be said
        await guest.until_said("#status", "Press Speak")
    heard, heard_hz = samples_of(messages)
    places, gains = gains_of(heard, soxr.resample(spoken, rate_hz, heard_hz), heard_hz)
    # what adapts would change the second half, however much is lost
    assert len(gains) > 2
    assert max(places) > 0.5
    assert 0.98 < min(gains) <= max(gains) < 1.02
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


@LOOP
async def test_the_list_is_of_the_sentence(server, measured, browser):
    """Levels by the names of the API, numbers of the same turn, in both languages."""
    levels = json.loads(http(server, "/attributes.json")[1])
    async with visiting(server, browser=browser) as guest:
        await guest.page.click("#sample")
        await guest.until_described("sample.wav")
        for language, name_of in (("en", "english"), ("zh", "name")):
            await guest.speaks(language)
            for name, level in measured["plain.wav"]["attributes"].items():
                word = await guest.text(f"#attribute-{name} .word")
                assert word == levels[name][level][name_of]
        number = float(await guest.text("#attribute-rate b"))
        (found,) = guest.sockets[0].descriptions
        assert number == round(found["measures"]["rate_syllables_per_s"], 1)


# The page notes what it shows: a busy machine may look too late, when the next turn has begun.
NOTE_LOOKS = """() => {
    const at = (id) => document.getElementById(id);
    const number = document.querySelector("#attribute-loudness b");
    const texts = () => ["now-title", "list-title", "sentence"].map((id) => at(id).textContent);
    const look = () => [...texts(), number.textContent];
    window.looks = [look()];
    const note = () => {
        const now = look();
        if (JSON.stringify(now) !== JSON.stringify(looks.at(-1))) looks.push(now);
    };
    new MutationObserver(note).observe(at("main"), { subtree: true, childList: true, characterData: true });
}"""


async def test_a_live_update_is_told_from_a_sentence(server, tmp_path):
    """Sentence, list and numbers are of the turn so far; the last sentence is in the history."""
    quiet = np.zeros(32_000, np.float32)
    spoken = np.concatenate([recording(2)[:40_000], quiet, speech(6, 2)])
    save_speech(tmp_path / "speech.wav", spoken, 16_000)
    async with visiting(server, tmp_path / "speech.wav") as guest:
        await guest.page.evaluate(NOTE_LOOKS)
        await guest.page.click("#mic")
        first = await guest.until_described()
        await guest.until_said("#history", first)
        second = await guest.until_described()
        looks = await guest.page.evaluate("looks")
    so_far = [look for look in looks if look[0].startswith("So far")]
    assert so_far
    assert all(title == other and text.endswith(".") for title, other, text, _ in so_far)
    assert any(number for *_, number in so_far)
    assert ["How you spoke", "What was heard", second] in [look[:3] for look in looks]


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
async def test_one_screen_however_long_the_history(server, browser):
    """A laptop's window needs no scrolling; the list of earlier sentences scrolls by itself."""
    async with visiting(server, size=(1280, 720), browser=browser) as guest:
        await guest.page.set_input_files("#file", SAMPLES[2:3] * 7)
        await guest.page.locator("#history li:nth-child(6)").wait_for(state="attached")
        scrolls = """() => [document.documentElement.scrollHeight > window.innerHeight,
            document.getElementById("history").scrollHeight > document.getElementById("history").clientHeight]"""
        assert await guest.page.evaluate(scrolls) == [False, True]


@LOOP
async def test_sentences_are_in_the_page_s_language_if_the_model_speaks_it(tmp_path, browser):
    """The next recording's; the sentence is marked with its language, the list reads it."""
    edge, cloud = tiny.save_bilingual(tmp_path)
    ask = """async (text) => {
        const { parse } = await import("./list.js");
        return parse(text, await (await fetch("attributes.json")).json());
    }"""
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
                assert await guest.page.evaluate(ask, text) == found["attributes"]
