"""The choice of a replica: free places count, and an edge returns to its verifier."""

from collections import Counter, deque

from streamer.extras.fleet.replicas import Known, choose
from streamer.net.service.admission import ReplicaStatus


def replica(number, taken=0, kind="verifier", limit=8, is_draining=False, sent=(), **more):
    """sent: the tenants of clients on their way."""
    status = ReplicaStatus(f"{kind}-{number}.0", kind, 1, is_draining, taken, limit, 0, 0.0)
    on_way = deque((0.0, tenant) for tenant in sent)
    return Known(f"ws://127.0.0.1:{9000 + number}", status, sent=on_way, **more)


def test_a_newcomer_goes_where_most_places_are_free_and_not_where_none_is():
    found = [replica(1, 3), replica(2, 1), replica(3, 2), replica(4, 0, kind="server")]
    assert choose(found, "verifier") is found[1]
    found[1] = replica(2, 1, sent=[""] * 5)
    assert choose(found, "verifier") is found[2]
    full = [
        replica(1, 8),
        replica(2, 6, sent=[""] * 2),
        replica(3, is_leaving=True),
        replica(4, is_draining=True),
        replica(5, 9),
    ]
    assert choose(full, "verifier") is choose(full, "verifier", "edge") is None
    assert choose([], "server") is None


def test_clients_on_their_way_take_no_place_of_another_tenant():
    """But it is not sent where many are on the way, while there is somewhere else."""
    [only] = [replica(1, 6, sent=["noisy"] * 9)]
    assert choose([only], "verifier", tenant="noisy") is None
    assert choose([only], "verifier", tenant="quiet") is only
    other = replica(2, 6)
    assert choose([only, other], "verifier", tenant="quiet") is other


def test_an_edge_comes_back_to_its_own_and_edges_spread():
    found = [replica(i) for i in range(8)]
    edges = [f"edge-{i}" for i in range(800)]
    first = {edge: choose(found, "verifier", edge).address for edge in edges}
    assert first == {edge: choose(found[::-1], "verifier", edge).address for edge in edges}
    counts = Counter(first.values())
    assert len(counts) == 8
    assert max(counts.values()) < 1.5 * 100
