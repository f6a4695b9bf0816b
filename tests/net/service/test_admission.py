"""Several keys, and a share for each."""

import pytest
from websockets.datastructures import Headers

from streamer.commands.serve import key_of, origins_of
from streamer.config import ConfigError
from streamer.net.service import admission as of_admission
from streamer.net.service.admission import Admission, sign

PATH = "/v1/realtime"


def bearer(key, **more):
    return Headers({"Authorization": f"Bearer {key}"} | more)


def admission(**more):
    return Admission((PATH,), 10, "alice,bob", max_per_key=4, name="server-1.ab", **more)


def test_each_key_is_a_tenant_and_others_are_nobody():
    door = admission()
    assert door.check(PATH, bearer("alice")) == "alice"
    assert door.check(PATH, bearer("bob")) == "bob"
    assert (
        door.check(PATH, Headers({"Sec-WebSocket-Protocol": "openai-insecure-api-key.bob"}))
        == "bob"
    )
    for key in ("eve", "alice,bob", "", "alice "[:3]):
        assert door.check(PATH, bearer(key)).status == 401
    assert Admission((PATH,), 1).check(PATH, Headers()) == ""


def test_a_tenant_s_share_is_its_own():
    """Those on their way count; who leaves makes place."""
    door = admission()
    for _ in range(3):
        door.enter("alice")
    assert door.check_room("alice") is None
    door.expect("her fourth", "alice")
    refusal = door.check_room("alice")
    assert (refusal.status, refusal.headers["Retry-After"]) == (503, "5")
    assert refusal.message == "all 4 sessions of this key are taken; try again later"
    assert door.check_room("bob") is None
    door.arrived("her fourth")
    assert door.check_room("alice") is None
    door.enter("alice")
    assert door.check_room("alice").status == 503
    door.leave("alice")
    assert door.check_room("alice") is None


def test_all_together_have_no_more_than_there_is():
    door = admission()
    for tenant in ("alice", "bob"):
        for _ in range(4):
            door.enter(tenant)
    door.max_per_key = None
    door.enter("bob")
    door.enter("alice")
    assert door.check_room("bob").message == "all 10 sessions are taken; try again later"
    assert (door.num_admitted, door.num_taken) == (10, 10)


def test_a_ticket_stands_for_a_key_once():
    import time

    door = admission()
    query = {"ticket": [sign("bob", "server-1.ab", time.time())]}
    assert door.check(PATH, Headers(), query) == "bob"
    assert door.check(PATH, Headers(), query).status == 401
    assert door.check(PATH, Headers(), {"ticket": ["x"]}).status == 401


@pytest.mark.parametrize("text", [",", "a,", ",a", "a,,b", "a b", "a,b c"])
def test_a_list_of_keys_has_no_empty_ones(text):
    with pytest.raises(ConfigError, match="one or more letters"):
        key_of(text)
    assert key_of("a,b") == "a,b"


def test_a_handshake_that_never_ended_takes_no_share_for_ever(monkeypatch):
    """It was let in and never arrived; nobody else comes, who would count the places again."""
    door = admission()
    for i in range(4):
        door.expect(i, "alice")
    assert door.check_room("alice").status == 503
    now = of_admission.time.monotonic() + 10.0
    monkeypatch.setattr(of_admission.time, "monotonic", lambda: now)
    assert door.check_room("alice") is None


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("https://example.org", "https://example.org"),
        ("https://example.org/", "https://example.org"),
        ("HTTPS://Example.ORG", "https://example.org"),
        ("https://example.org:443", "https://example.org"),
        ("http://example.org:80/", "http://example.org"),
        ("http://example.org:443", "http://example.org:443"),
        ("https://example.org:8443", "https://example.org:8443"),
        (" https://a.org ", "https://a.org"),
        ("https://b\u00fccher.example", "https://xn--bcher-kva.example"),
        ("http://[::1]:3000", "http://[::1]:3000"),
    ],
)
def test_an_origin_is_put_as_browsers_send_it(given, wanted):
    assert origins_of([given]) == (wanted,)
    door = Admission((PATH,), 1, "key", origins_of([given]))
    assert door.check(PATH, bearer("key", Host="elsewhere", Origin=wanted)) == "key"


@pytest.mark.parametrize(
    "given",
    [
        *("*", "null", "", "example.org", "example.org:443", "//example.org", "https://"),
        *("https://example.org/page", "https://a.org?x", "https://a.org#x", "https://u@a.org"),
        *("ftp://example.org", "https://a.org:99999", "https://a.org:x", "https://*.a.org"),
    ],
)
def test_a_text_that_is_no_origin_is_refused_at_the_start(given):
    with pytest.raises(ConfigError, match="is no Origin") as told:
        origins_of([given])
    assert str(told.value).count("\n") == 0
