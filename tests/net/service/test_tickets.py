"""A ticket lets one client into one replica, once, and not for long."""

from hypothesis import given
from hypothesis import strategies as st

from streamer.net.service.admission import LIFE_S, Tickets, sign

KEYS = ("alice", "bob")


class Clock:
    now = 1_000_000.0

    def __call__(self):
        return self.now


def test_it_is_the_one_who_signed_and_only_once():
    tickets = Tickets("server-1.ab", Clock())
    one, other = (sign(key, "server-1.ab", Clock.now) for key in KEYS)
    assert tickets.redeem(other, KEYS) == "bob"
    assert tickets.redeem(one, KEYS) == "alice"
    assert tickets.redeem(one, KEYS) is None
    assert tickets.redeem(sign("eve", "server-1.ab", Clock.now), KEYS) is None


def test_it_is_of_no_use_at_another_replica_or_incarnation():
    ticket = sign("alice", "server-1.ab", Clock.now)
    assert Tickets("server-2.ab", Clock()).redeem(ticket, KEYS) is None
    assert Tickets("server-1.cd", Clock()).redeem(ticket, KEYS) is None


def test_it_is_of_no_use_later_and_the_used_are_forgotten():
    clock = Clock()
    tickets = Tickets("s", clock)
    used = sign("alice", "s", clock.now)
    late = sign("alice", "s", clock.now)
    assert tickets.redeem(used, KEYS) == "alice"
    clock.now += LIFE_S + 1
    assert tickets.redeem(late, KEYS) is None
    assert tickets.redeem(used, KEYS) is None
    for _ in range(100):
        clock.now += 1
        assert tickets.redeem(sign("bob", "s", clock.now), KEYS) == "bob"
    assert len(tickets._used) <= LIFE_S + 2


def test_one_from_far_in_the_future_is_none():
    """Else it would be good, and kept, for ever."""
    assert Tickets("s", Clock()).redeem(sign("alice", "s", Clock.now + 3_600), KEYS) is None


@given(st.text(max_size=200))
def test_whatever_is_written_there_is_no_ticket(text):
    assert Tickets("s", Clock()).redeem(text, KEYS) is None


@given(st.integers(0, 60), st.characters())
def test_a_changed_character_makes_it_worthless(at, character):
    ticket = sign("alice", "s", Clock.now)
    at %= len(ticket)
    changed = ticket[:at] + character + ticket[at + 1 :]
    found = Tickets("s", Clock()).redeem(changed, KEYS)
    assert found is None or changed == ticket


def test_one_that_is_no_text_is_none():
    """A byte that is no ASCII, as websockets 15 hands it on."""
    until = f"{int(Clock.now + LIFE_S):x}"
    assert Tickets("s", Clock()).redeem(f"{until}.\udc80.x", KEYS) is None
