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
    """With two recordings, what is none, a link that leads out, and a playlist that does."""
    found = tmp_path_factory.mktemp("allowed")
    for sample in (FAST, SLOW):
        shutil.copy(sample, found)
    (found / "out.wav").symlink_to(SAMPLES[0])
    (found / "notes.wav").write_text("not a recording")
    outside = tmp_path_factory.mktemp("outside") / "outside.ts"
    subprocess.run(["ffmpeg", "-v", "error", "-i", FAST, outside], check=True)
    head = "#EXTM3U\n#EXT-X-TARGETDURATION:10\n#EXTINF:10,"
    (found / "list.m3u8").write_text(f"{head}\n{outside}\n#EXT-X-ENDLIST\n")
    return found


def opened(folder):
    return Client(server([folder], Config(mode="edge")))


async def test_tools_say_what_the_api_says(folder):
    profile = streamer.voice_profile(streamer.describe(FAST, mode="edge", measures=True))
    async with opened(folder) as client:
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
        asked = {"path": "fast_loud.wav", "language": "zh"}
        found = (await client.call_tool("describe", asked)).structured_content["attributes"]
        assert all(not row["label"].isascii() for row in found.values())
        assert {n: row["level"] for n, row in found.items()} == {
            n: row["level"] for n, row in profile.items()
        }


async def test_nothing_outside_is_heard_and_each_error_is_one_line(folder):
    """FFmpeg could decode the recording outside that a playlist names."""
    outside = "no recording in the allowed folders"
    for path, told in {
        **dict.fromkeys(("out.wav", str(SAMPLES[0]), "../x.wav", "", ".", "a\0b.wav"), outside),
        "notes.wav": "notes.wav",
        "list.m3u8": "no recording that can be read",
    }.items():
        async with opened(folder) as client:
            refused = await client.call_tool("describe", {"path": path})
        assert refused.is_error
        assert told in refused.content[0].text
        assert "\n" not in refused.content[0].text


async def test_the_command_serves_over_stdio(folder):
    arguments = ["-m", "streamer", "mcp", str(folder), "--mode", "edge"]
    async with Client(StdioServerParameters(command=sys.executable, args=arguments)) as client:
        found = await client.call_tool("describe", {"path": "slow_soft.wav"})
    assert found.structured_content["sentence"].endswith("。")
