"""Admission: keys and their shares, Origins, tickets, and a service's last moments."""

from contextlib import suppress

import pytest
from websockets.datastructures import Headers

from streamer.commands.serve import key_of, origins_of
from streamer.config import ConfigError
from streamer.net.realtime.server import PATH
from streamer.net.service.admission import LIFE_S, Admission, HttpRefusal, sign

REPLICA = "server-1.ab"


def bearer(key, **more):
    return Headers({"Authorization": f"Bearer {key}"} | more)


def refused(call, *arguments):
    """The refusal that it raises."""
    with pytest.raises(HttpRefusal) as found:
        call(*arguments)
    return found.value


@pytest.fixture
def door():
    return Admission((PATH,), 10, "alice,bob", max_per_key=4, name=REPLICA)


NOW = 1_000_000.0


def admitted(door, ticket):
    """The tenant that a ticket lets in, or None."""
    with suppress(HttpRefusal):
        return door.check(PATH, Headers(), {"ticket": [ticket]})


def test_each_key_is_a_tenant(door):
    assert door.check(PATH, bearer("alice")) == "alice"
    browser = Headers({"Sec-WebSocket-Protocol": "realtime, openai-insecure-api-key.bob"})
    assert door.check(PATH, browser) == "bob"
    assert door.check(PATH, Headers({"Authorization": "bearer alice"})) == "alice"
    for key in ("eve", "alice,bob", "", "ali", "\xff"):
        assert refused(door.check, PATH, bearer(key)).status == 401
    for wrong in ({}, {"Authorization": "Basic alice"}):
        assert refused(door.check, PATH, Headers(wrong)).status == 401
    assert Admission((PATH,), 1).check(PATH, Headers()) == ""


def test_a_tenant_has_its_share(door):
    for _ in range(3):
        door.enter("alice")
    assert door.check_room("alice") is None
    door.enter("alice")
    refusal = refused(door.check_room, "alice")
    assert (refusal.status, refusal.headers["Retry-After"]) == (503, "5")
    assert str(refusal) == "all 4 sessions of this key are taken; try again later"
    assert door.check_room("bob") is None
    door.leave("alice")
    assert door.check_room("alice") is None
    door.max_per_key = None
    for _ in range(7):
        door.enter("bob")
    refusal = refused(door.check_room, "bob")
    assert str(refusal) == "all 10 sessions are taken; try again later"
    assert door.num_sessions == 10


@pytest.mark.parametrize("text", ["a,", "a,,b", "a b"])
def test_a_list_of_keys_has_no_empty_ones(text):
    with pytest.raises(ConfigError, match="one or more letters"):
        key_of(text)


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("https://example.org/", "https://example.org"),
        ("HTTPS://Example.ORG:443", "https://example.org"),
        ("http://example.org:443", "http://example.org:443"),
        ("http://[::1]:3000", "http://[::1]:3000"),
        ("http://my_app:3000", "http://my_app:3000"),
    ],
)
def test_an_origin_is_written_as_browsers_send_it(given, wanted):
    door = Admission((PATH,), 1, "key", origins_of([given]))
    assert door.check(PATH, bearer("key", Host="elsewhere", Origin=wanted)) == "key"
    elsewhere = bearer("key", Host="elsewhere", Origin="https://c.org")
    assert refused(door.check, PATH, elsewhere).status == 403


WRONG = ("*", "null", "", "example.org", "//a.org", "https://", "https://a.org/page")


@pytest.mark.parametrize("given", [*WRONG, "https://u@a.org", "ftp://a.org", "https://\u00fc.org"])
def test_what_is_no_origin_is_refused_at_the_start(given):
    with pytest.raises(ConfigError, match="is no Origin"):
        origins_of([given])


@pytest.mark.parametrize(
    ("key", "replica", "after_s", "wanted"),
    [
        ("alice", REPLICA, 0, "alice"),
        ("bob", REPLICA, 0, "bob"),
        ("eve", REPLICA, 0, None),
        ("alice", "server-2.ab", 0, None),
        ("alice", "server-1.cd", 0, None),
        ("alice", REPLICA, LIFE_S + 1, None),
        # it would be good, and kept, for ever
        ("alice", REPLICA, -3_600, None),
    ],
)
def test_a_ticket_is_of_one_key_one_replica_and_one_time(door, key, replica, after_s, wanted):
    door.clock = lambda: NOW
    assert admitted(door, sign(key, replica, NOW - after_s)) == wanted


def test_used_tickets_are_forgotten_when_they_expire(door):
    used = sign("alice", REPLICA, NOW)
    door.clock = lambda: NOW
    assert admitted(door, used) == "alice"
    for i in range(1, 100):
        door.clock = lambda i=i: NOW + i
        assert admitted(door, used) is None
        assert admitted(door, sign("bob", REPLICA, NOW + i)) == "bob"
    assert len(door._used) <= LIFE_S + 2
