"""The choice of a replica: free places count, and an edge returns to its verifier."""

from collections import Counter

from streamer.extras.fleet.replicas import Candidate, choose, find
from streamer.net.service.admission import (
    ReplicaStatus,
    incarnation_in,
    incarnation_of,
    new_session_id,
)


def candidate(number, taken=0, kind="verifier", limit=8, is_draining=False, **more):
    status = ReplicaStatus(f"{kind}-{number}.0", kind, 1, is_draining, taken, limit, 0, 0.0)
    return Candidate(f"ws://127.0.0.1:{9000 + number}", status, **more)


def test_a_newcomer_goes_where_most_places_are_free():
    found = [candidate(1, 3), candidate(2, 1), candidate(3, 2), candidate(4, 0, kind="server")]
    assert choose(found, "verifier") is found[1]
    found[1] = candidate(2, 1, sent={"": 5})
    assert choose(found, "verifier") is found[2]


def test_nobody_goes_to_one_that_is_full_or_leaves():
    full = [
        candidate(1, 8),
        candidate(2, 6, sent={"": 2}),
        candidate(3, is_leaving=True),
        candidate(4, is_draining=True),
        candidate(5, 9),
    ]
    assert choose(full, "verifier") is None
    assert choose(full, "verifier", "edge") is None
    assert choose([], "server") is None


def test_who_is_on_the_way_takes_no_place_of_another_tenant():
    """But it is not sent where many are on the way, while there is somewhere else."""
    [only] = [candidate(1, 6, sent={"noisy": 9})]
    assert choose([only], "verifier", tenant="noisy") is None
    assert choose([only], "verifier", tenant="quiet") is only
    other = candidate(2, 6)
    assert choose([only, other], "verifier", tenant="quiet") is other


def test_an_edge_comes_back_to_its_own_and_edges_spread():
    found = [candidate(i) for i in range(8)]
    edges = [f"edge-{i}" for i in range(800)]
    first = {edge: choose(found, "verifier", edge).address for edge in edges}
    assert first == {edge: choose(found[::-1], "verifier", edge).address for edge in edges}
    counts = Counter(first.values())
    assert len(counts) == 8
    assert max(counts.values()) < 1.5 * 100


def test_when_one_is_lost_only_its_own_edges_move():
    found = [candidate(i) for i in range(8)]
    edges = [f"edge-{i}" for i in range(200)]
    before = {edge: choose(found, "verifier", edge).address for edge in edges}
    after = {edge: choose(found[1:], "verifier", edge).address for edge in edges}
    moved = {edge for edge in edges if before[edge] != after[edge]}
    assert moved == {edge for edge in edges if before[edge] == found[0].address}


def test_an_id_names_its_process_and_each_start_is_another_one():
    incarnation = incarnation_of("server-12")
    assert incarnation.startswith("server-12.")
    assert incarnation != incarnation_of("server-12")
    session_id = new_session_id(incarnation)
    assert incarnation_in(session_id) == incarnation
    assert session_id.startswith("sess_server-12.")
    assert incarnation_of("") == ""
    assert incarnation_in(new_session_id("")) == ""
    assert incarnation_in("nonsense") == incarnation_in("") == ""


def test_a_session_s_replica_is_found_though_it_is_full_or_leaving():
    found = [candidate(1, 8, kind="server"), candidate(2, kind="server", is_leaving=True)]
    assert find(found, "server-1.0") is found[0]
    assert find(found, "server-2.0") is found[1]
    assert find(found, "server-1.1") is None  # another incarnation
    nameless = Candidate("ws://x", ReplicaStatus("", "server", 1, False, 0, 1, 0, 0.0))
    assert find([nameless], "") is None
