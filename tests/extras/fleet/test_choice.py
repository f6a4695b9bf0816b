"""Which replica a client gets, how many there should be, and the options of a fleet."""

import itertools
import math
from collections import Counter

import pytest
from places import ROOT

from streamer.cli import build_parser
from streamer.config import ConfigError
from streamer.extras.fleet.command import plan_of
from streamer.extras.fleet.director import Known, choose
from streamer.extras.fleet.manager import Scaler
from streamer.extras.fleet.options import DirectorOptions, of, read
from streamer.net.service.admission import ReplicaStatus


def replica(number, taken=0, kind="verifier", limit=8, is_draining=False, **more):
    status = ReplicaStatus(f"{kind}-{number}.0", kind, 1, is_draining, taken, limit, 0.0)
    return Known(f"ws://127.0.0.1:{9000 + number}", status=status, **more)


def test_a_newcomer_goes_where_most_places_are_free_and_not_where_none_is():
    found = [replica(1, 3), replica(2, 1), replica(3, 2), replica(4, 0, kind="server")]
    assert choose(found, "verifier") is found[1]
    found[1] = replica(2, 1, sent=5)
    assert choose(found, "verifier") is found[2]
    full = [replica(1, 8), replica(5, 9), replica(6, 1, silent_since=0.0)]
    full += [replica(3, is_leaving=True), replica(4, is_draining=True)]
    assert choose(full, "verifier") is choose(full, "verifier", "edge") is None
    assert choose([], "server") is None
    only, other = replica(1, 6, sent=9), replica(2, 6)
    assert choose([only], "verifier") is only, "clients on their way take no place of others"
    assert choose([only, other], "verifier") is other


def test_an_edge_comes_back_to_its_own_and_edges_spread():
    found = [replica(i) for i in range(8)]
    edges = [f"edge-{i}" for i in range(800)]
    first = {edge: choose(found, "verifier", edge).address for edge in edges}
    assert first == {edge: choose(found[::-1], "verifier", edge).address for edge in edges}
    counts = Counter(first.values())
    assert len(counts) == 8
    assert max(counts.values()) < 1.5 * 100


LIMIT = 16


def replicas(*taken, lag_s=0.0):
    """The status of replicas. taken: places taken at each."""
    return [
        ReplicaStatus(f"server-{i}.0", "server", 1, False, num, LIMIT, lag_s)
        for i, num in enumerate(taken, 1)
    ]


def test_speech_that_waits_calls_for_one_more_and_a_start_is_awaited():
    policy = Scaler(1, 8)
    late = replicas(1, 1, lag_s=2.0)
    assert policy.decide(late, 0, 100.0) == (1, "2 places taken, 2.0 s of speech unheard")
    assert policy.decide(late, 1, 105.0)[0] == 0, "the pause is not over"
    assert policy.decide(late, 1, 110.0)[0] == 1
    assert policy.decide([], 2, 111.0)[0] == 0


def test_an_hour_up_and_down_again():
    scaler, numbers, ready_at, counts = Scaler(1, 8), itertools.count(), {}, []
    for now in range(3_600):
        load = 80 * math.sin(math.pi * now / 3_600) ** 2
        there = [number for number, at in ready_at.items() if at <= now]
        assert not there or load <= LIMIT * len(there)
        found = replicas(*[math.ceil(load / len(there))] * len(there)) if there else []
        change, _ = scaler.decide(found, len(ready_at) - len(there), float(now))
        ready_at |= {next(numbers): now + 20 for _ in range(change)}
        if change < 0:
            del ready_at[max(there)]
        counts.append(len(ready_at))
    top = counts.index(max(counts))
    assert (counts[0], counts[top], counts[-1]) == (1, 7, 1)
    assert counts[:top] == sorted(counts[:top])
    assert counts[top:] == sorted(counts[top:], reverse=True)


def test_the_example_is_one_and_servers_find_verifiers_through_the_director():
    config = read(ROOT / "pipelines" / "fleet.toml")
    assert list(config.kinds) == ["verifier", "server"]
    plan = plan_of(config, "alice,bob", "ws://here:8764", "server", 2)
    found = vars(build_parser(["serve"]).parse_args(plan.words))
    wanted = {"max_sessions": "16", "mode": "exact", "cloud": "ws://here:8764", "name": "server-2"}
    wanted |= {"host": "127.0.0.1", "port": "9101"}
    assert {name: found[name] for name in wanted} == wanted
    assert plan.address == "ws://127.0.0.1:9101"
    assert plan.keys == {"STREAMER_API_KEY": "alice,bob", "STREAMER_CLOUD_KEY": "alice"}
    assert "alice" not in " ".join(plan.words), "others see a command"


@pytest.mark.parametrize(
    ("tables", "told"),
    [
        ({}, r"neither \[server\] nor \[verifier\]"),
        ({"servers": {}}, r"servers is no table of a fleet; known are \[ray\], "),
        ({"server": 3}, r"server is no table of a fleet"),
        ({"server": {"leest": 1}}, r"\[server\] unknown key 'leest'; docs"),
        ({"server": {"api_key": "k"}}, r"\[server\] unknown key 'api_key'"),
        ({"server": {"least": 3, "most": 2}}, r"\[server\] least is 3; it may be at most 2"),
        (
            {"server": {"mode": "exakt"}},
            r"\[server\] --mode is 'exakt'; choose one of gated, exact",
        ),
        ({"verifier": {"mode": "exact"}}, r"\[verifier\] unknown key 'mode'"),
        ({"server": {}, "verifier": {}}, r"\[server\] and \[verifier\] share a port; each"),
        ({"server": {}, "director": {"replicas": ["ws://h:1"]}}, r"unknown key 'replicas'"),
    ],
)
def test_what_is_wrong_is_told(tables, told):
    with pytest.raises(ConfigError, match=told) as error:
        of(tables)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("url", ["h:8765", "ws://", "ws://h:port", "ftp://h"])
def test_an_address_that_is_none_is_told_at_the_start(url):
    with pytest.raises(ConfigError, match=r"--replicas is .*; give ws://HOST:PORT of a replica"):
        DirectorOptions(replicas=(url,))
