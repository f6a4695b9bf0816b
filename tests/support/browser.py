"""A real Chromium on a server's page, which must complain of nothing and ask no other host."""

import base64
import contextlib
import json
import shutil
from types import SimpleNamespace

import numpy as np
import pytest
import soundfile
import soxr
from playwright.async_api import Error, async_playwright
from websockets.asyncio.client import connect
from wire import until

PATIENCE_MS = 120_000  # a safety net for a busy machine
# What a browser itself writes when a connection is refused or cut; only where a test does that.
LINK_ERRORS = ("WebSocket connection to", "Failed to load resource")
LOOP = pytest.mark.asyncio(loop_scope="package")  # that of a browser for all its guests


class Guest:
    """A page and what it did."""

    def __init__(self, page):
        self.page, self.sockets, self.complaints, self.urls = page, [], [], []
        page.set_default_timeout(PATIENCE_MS)
        page.on("console", self._hear)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("request", lambda request: self.urls.append(request.url))
        page.on("websocket", self._watch)

    def _hear(self, message):
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)

    def _watch(self, socket):
        found = SimpleNamespace(sent=[], heard=[])  # its messages, str or bytes
        self.sockets.append(found)
        self.urls.append(socket.url)
        socket.on("framesent", lambda data: found.sent.append(data))
        socket.on("framereceived", lambda data: found.heard.append(data))

    async def text(self, selector):
        return (await self.page.text_content(selector)).strip()

    async def until_said(self, selector, part):
        """Wait until an element holds `part`."""
        await self.page.locator(selector, has_text=part).first.wait_for()

    async def until_described(self, fact=""):
        """The sentence, once it is whole with such a fact beneath, both at one look."""
        found = await self.page.wait_for_function(
            """(fact) => {
                const facts = document.querySelector("#facts span") && document.querySelector("#facts");
                return facts?.textContent.includes(fact)
                    && { text: document.querySelector("#sentence").textContent };
            }""",
            arg=fact,
        )
        return (await found.json_value())["text"].strip()

    async def levels(self):
        """attribute -> level, as the list shows them."""
        rows = await self.page.locator("#attributes li").evaluate_all(
            "rows => rows.map(row => [row.id.replace('attribute-', ''), row.dataset.level])"
        )
        return {attribute: int(level) if level else None for attribute, level in rows}

    async def settings(self):
        """Open the settings."""
        if not await self.page.evaluate("document.getElementById('settings').open"):
            await self.page.click("#settings summary")

    async def coached(self):
        """Switch the coach on."""
        await self.settings()
        await self.page.check("#coaching")
        await self.page.keyboard.press("Escape")

    async def speaks(self, language):
        """Choose the page's language, in which it is loaded anew."""
        await self.settings()
        async with self.page.expect_navigation():
            await self.page.select_option("#language", language)
        await self.page.wait_for_selector("#attributes li:nth-child(7)")

    async def tab(self):
        """Press Tab; returns the id of what has the focus then."""
        await self.page.keyboard.press("Tab")
        focus = "document.activeElement.id || document.activeElement.localName"
        return await self.page.evaluate(focus)

    async def drop(self, path):
        """A file dropped on the page."""
        fill = """([name, text]) => {
            const transfer = new DataTransfer();
            transfer.items.add(new File([Uint8Array.from(atob(text), (c) => c.charCodeAt(0))], name));
            return transfer;
        }"""
        file = [path.name, base64.b64encode(path.read_bytes()).decode()]
        transfer = await self.page.evaluate_handle(fill, file)
        await self.page.dispatch_event("main", "drop", {"dataTransfer": transfer})

    async def fits(self):
        """Whether nothing is wider than the window."""
        return await self.page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


@contextlib.asynccontextmanager
async def chromium(microphone=None):
    """A browser; microphone: a WAV, played once from when a page listens."""
    found = shutil.which("chromium-headless-shell") or shutil.which("chromium")
    assert found, "install Chromium (Debian: apt-get install chromium-headless-shell)"
    flags = ["--no-sandbox", "--use-fake-ui-for-media-stream", "--use-fake-device-for-media-stream"]
    flags += [f"--use-file-for-fake-audio-capture={microphone}%noloop"] if microphone else []
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=found, args=flags)
        try:
            yield browser
        finally:
            with contextlib.suppress(Error):  # it, or its driver, has ended
                await browser.close()


@contextlib.asynccontextmanager
async def visiting(url, microphone=None, size=(1280, 800), tolerates=(), browser=None, script=""):
    """A Guest on a server's page: in `browser`, or in one with a microphone. script: runs first."""
    async with contextlib.AsyncExitStack() as stack:
        if browser is None:
            browser = await stack.enter_async_context(chromium(microphone))
        viewport = {"width": size[0], "height": size[1]}
        guest = Guest(await browser.new_page(viewport=viewport))
        stack.push_async_callback(guest.page.close)
        await guest.page.add_init_script(script)
        home = url.replace("ws", "http", 1).removesuffix("v1/realtime")
        await guest.page.goto(home)
        await guest.page.wait_for_selector("#attributes li:nth-child(7)")
        yield guest
    assert [text for text in guest.complaints if not text.startswith(tolerates)] == []
    own = (home, home.replace("http", "ws", 1), f"blob:{home}")
    assert all(address.startswith(own) for address in guest.urls)


def save_speech(path, samples, rate_hz):
    """A WAV of speech between silences; returns the speech at `rate_hz`."""
    speech = soxr.resample(samples, 16_000, rate_hz)
    whole = np.pad(speech, (rate_hz // 2, int(1.5 * rate_hz)))
    soundfile.write(path, whole, rate_hz, subtype="PCM_16")
    return speech


def taken(sockets):
    """Every message that the server took, in order, over all the links of one session."""
    messages = []
    for socket in sockets:
        first = json.loads(socket.heard[0]) if socket.heard else {"type": "nothing"}
        if first["type"] == "streamer.resumed":
            del messages[first["messages"] :]
        if first["type"] != "nothing":
            messages += socket.sent
    return messages


async def replay(url, messages):
    """The server's sentence for the same messages from another client."""
    async with connect(url + "?intent=transcription", compression=None) as ws:
        for message in messages:
            await ws.send(message)
        return (await until(ws, "streamer.description"))[-1]["description"]["text"]
