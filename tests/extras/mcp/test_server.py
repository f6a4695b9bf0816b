"""`streamer mcp` by the official client: its tools, and the fence around the allowed folders."""

import shutil
import subprocess
import sys

import pytest
from mcp import StdioServerParameters
from mcp.client import Client
from places import SAMPLES

import streamer
from streamer.config import Config
from streamer.extras.mcp.server import server

FAST, SLOW = (next(s for s in SAMPLES if s.stem == name) for name in ("fast_loud", "slow_soft"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """With two recordings, and a link that leads out."""
    found = tmp_path_factory.mktemp("allowed")
    for sample in (FAST, SLOW):
        shutil.copy(sample, found)
    (found / "out.wav").symlink_to(SAMPLES[0])
    (found / "loop.wav").symlink_to("loop.wav")
    return found


@pytest.fixture(scope="module")
def profile():
    return streamer.voice_profile(streamer.describe(FAST, mode="edge", measures=True))


async def test_tools_say_what_the_api_says(folder, profile):
    async with Client(server([folder], Config(mode="edge"))) as client:
        told = (await client.list_tools()).tools
        assert [tool.name for tool in told] == ["describe", "measure", "compare"]
        found = (await client.call_tool("describe", {"path": "fast_loud.wav"})).structured_content
        assert found["attributes"] == profile
        assert found["in_english"].startswith("The user speaks very fast")
        measured = await client.call_tool("measure", {"path": str(folder / "fast_loud.wav")})
        rate = measured.structured_content["rate_syllables_per_s"]
        assert rate == pytest.approx(profile["rate"]["value"], abs=0.01)
        paths = {"first": "slow_soft.wav", "second": "fast_loud.wav"}
        both = (await client.call_tool("compare", paths)).structured_content
        assert both["rate"]["difference"] > 2
        assert both["rate"]["verdict"] == "faster"
        second = both["loudness"]["second"]["value"]
        assert second == pytest.approx(profile["loudness"]["value"], abs=0.01)


async def test_labels_are_in_the_language_that_is_asked_for(folder, profile):
    """A language that the model does not speak is one line."""
    async with Client(server([folder], Config(mode="edge"))) as client:
        asked = {"path": "fast_loud.wav", "language": "zh"}
        found = (await client.call_tool("describe", asked)).structured_content
        rows = found["attributes"].items()
        assert all(not row["label"].isascii() for _, row in rows)
        assert {name: row["level"] for name, row in rows} == {
            name: row["level"] for name, row in profile.items()
        }
        wrong = await client.call_tool("describe", asked | {"language": "fr"})
        assert wrong.is_error


NOT_INSIDE = (
    *("out.wav", str(SAMPLES[0]), "../x.wav", "absent.wav", "", ".", "loop.wav", "/dev/stdin"),
    *("a\0b.wav", 5_000 * "a", "~nobody-of-that-name/a.wav"),
)


@pytest.mark.parametrize("path", NOT_INSIDE)
async def test_nothing_outside_is_heard(folder, path):
    async with Client(server([folder], Config(mode="edge"))) as client:
        refused = await client.call_tool("describe", {"path": path})
    assert refused.is_error
    assert "no recording in the allowed folders" in refused.content[0].text


async def test_a_file_that_is_no_recording_is_one_line(folder):
    (folder / "notes.wav").write_text("not a recording")
    async with Client(server([folder], Config(mode="edge"))) as client:
        refused = await client.call_tool("measure", {"path": "notes.wav"})
    assert refused.is_error
    assert len(refused.content[0].text.splitlines()) == 1


async def test_a_playlist_opens_no_other_file(folder, tmp_path):
    """ffmpeg would decode the recording outside that it names."""
    outside = tmp_path / "outside.ts"
    subprocess.run(["ffmpeg", "-v", "error", "-i", FAST, outside], check=True)
    head = "#EXTM3U\n#EXT-X-TARGETDURATION:10\n#EXTINF:10,"
    (folder / "list.m3u8").write_text(f"{head}\n{outside}\n#EXT-X-ENDLIST\n")
    async with Client(server([folder], Config(mode="edge"))) as client:
        refused = await client.call_tool("describe", {"path": "list.m3u8"})
    assert refused.is_error
    assert "it names other files, which are not opened" in refused.content[0].text


async def test_the_command_serves_over_stdio(folder):
    arguments = ["-m", "streamer", "mcp", str(folder), "--mode", "edge"]
    async with Client(StdioServerParameters(command=sys.executable, args=arguments)) as client:
        found = await client.call_tool("describe", {"path": "slow_soft.wav"})
    assert found.structured_content["sentence"].endswith("。")
