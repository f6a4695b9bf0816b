"""fleet.toml: every wrong key is reported in one line."""

import pytest
from places import ROOT
from processes import streamer

from streamer.config import ConfigError
from streamer.extras.fleet.command import plan_of
from streamer.extras.fleet.options import DirectorOptions, of, read

LEAST = {"server": {}}


def test_the_example_is_one_and_servers_find_verifiers_through_the_director():
    config = read(ROOT / "pipelines" / "fleet.toml")
    assert list(config.kinds) == ["verifier", "server"]
    plan = plan_of(config, "alice,bob", "ws://here:8764", "server", 2)
    assert plan.given == {
        "max_sessions": 16,
        "mode": "exact",
        "cloud": "ws://here:8764",
        "cloud_key": "alice",
        "host": "127.0.0.1",
        "port": 9101,
        "name": "server-2",
        "api_key": "alice,bob",
    }
    assert plan.shown_host == "127.0.0.1"


@pytest.mark.parametrize(
    ("tables", "told"),
    [
        ({}, r"neither \[server\] nor \[verifier\]"),
        ({"servers": {}}, r"unknown table \[servers\]; did you mean server\?"),
        ({"server": 3}, r"server is no table; write \[server\] above its keys"),
        ({"server": {"leest": 1}}, r"\[server\] unknown key 'leest'; did you mean least\?"),
        ({"server": {"host": "h"}}, r"\[server\] unknown key 'host'"),
        ({"server": {"least": 3, "most": 2}}, r"\[server\] least is 3; it may be at most 2"),
        ({"server": {"mode": "exakt"}}, r"\[server\] mode is 'exakt'; did you mean exact"),
        ({"verifier": {"mode": "exact"}}, r"\[verifier\] unknown key 'mode'"),
        ({"verifier": {"max_sessions": 0}}, r"\[verifier\] --max-sessions is 0; it may be 1 to"),
        (
            {"server": {}, "verifier": {}},
            r"\[server\] 9100 to 9100 are its ports; \[verifier\] has",
        ),
        ({"server": {"port": 8763, "most": 2}}, r"8763 to 8764 .*; \[director\] has 8764"),
        ({"server": {"port": 65_535, "most": 2}}, r"too high for 2 .*; the last port is 65535"),
        ({**LEAST, "director": {"port": 0}}, r"\[director\] port is 0; .* give one"),
        ({**LEAST, "director": {"replicas": ["ws://h:1"]}}, r"\[director\] replicas are of"),
        ({"server": {"api_key": "k"}}, r"\[server\] api_key stands in \[director\], and holds"),
        ({"verifier": {"cert": "c"}}, r"\[verifier\] cert stands in \[director\], and holds"),
        ({**LEAST, "ray": {"adress": ""}}, r"\[ray\] unknown option 'adress'; did you mean addr"),
    ],
)
def test_what_is_wrong_is_told(tables, told):
    with pytest.raises(ConfigError, match=told) as error:
        of(tables)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "told"), [("[server", "is not TOML"), (None, "cannot be read"), ("", "neither")]
)
def test_a_file_that_is_none_is_told_by_its_name(tmp_path, text, told):
    file = tmp_path / "fleet.toml"
    if text is not None:
        file.write_text(text)
    with pytest.raises(ConfigError, match=told) as error:
        read(file)
    assert str(error.value).startswith(f"{file}: ")


@pytest.mark.parametrize(
    ("tables", "words", "told"),
    [
        ("[server]\ncloud_key = 'k'", [], "[server] --cloud-key is for a verifier elsewhere"),
        ("[server]\npipeline = 'none.toml'", [], "[server] none.toml: cannot be read"),
        ("[server]", ["--down"], "[ray] address is local: that fleet ends with the command"),
    ],
)
def test_what_no_replica_could_do_is_told_before_ray_is_started(tables, words, told, tmp_path):
    file = tmp_path / "fleet.toml"
    file.write_text(tables)
    status, out, err = streamer("fleet", file, *words)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert f"streamer: {file}: {told}" in err


@pytest.mark.parametrize(
    "url", ["h:8765", "server-0", "ws://", "ws://h:port", "ftp://h", "ws://[::1", "ws://a\nb:1"]
)
def test_an_address_that_is_none_is_told_at_the_start(url):
    with pytest.raises(ConfigError, match="--replicas has ws://h:1 twice; each is another replica"):
        DirectorOptions(replicas=("ws://h:1", "ws://h:1"))
    with pytest.raises(ConfigError, match=r"--replicas is .*; give ws://HOST:PORT of a replica"):
        DirectorOptions(replicas=(url,))
