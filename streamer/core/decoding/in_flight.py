"""The blocks that wait for a verdict, in order. In: blocks. Out: requests; which to send next.

Behind a block that is asked about stands one id that the edge guesses the target adds; one that
passed the gate has none. The first is always one that is asked about.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence as Ids
from dataclasses import dataclass, replace

from streamer.core.decoding.verdict import Verdict, VerifyRequest, prefix_hash


@dataclass(eq=False, slots=True)
class Flight:
    """A block of `n` ids.

    request: None for a block that passed the gate; it waits for those before it.
    is_unverified: the gate or the mode wanted it verified, and it is not.
    """

    n: int
    request: VerifyRequest | None = None
    is_sent: bool = False
    sent_at: float | None = None
    deadline: float | None = None
    verdict: Verdict | None = None
    is_refused: bool = False
    is_unverified: bool = False
    num_refusals: int = 0


class Flights:
    """Owns the requests' numbers and what the target holds of the answer."""

    def __init__(self) -> None:
        self._flights: deque[Flight] = deque()
        self._number = 0
        self._known = 0  # answer ids that the target holds and the edge committed

    def __len__(self) -> int:
        return len(self._flights)

    @property
    def head(self) -> Flight | None:
        return self._flights[0] if self._flights else None

    def is_late(self, now: float) -> bool:
        """Whether the first one's verdict is overdue."""
        head = self.head
        return head is not None and head.deadline is not None and now >= head.deadline

    @property
    def span(self) -> int:
        """Ids that all of them take behind the commit, each guess included."""
        return sum(flight.n + (flight.request is not None) for flight in self._flights)

    @property
    def num_ever(self) -> int:
        """Requests so far."""
        return self._number

    @property
    def num_asked(self) -> int:
        return sum(flight.request is not None for flight in self._flights)

    @property
    def unsent(self) -> Flight | None:
        """The next one to be sent."""
        return next((f for f in self._flights if f.request is not None and not f.is_sent), None)

    def find(self, number: int) -> Flight | None:
        return next(
            (f for f in self._flights if f.request is not None and f.request.number == number), None
        )

    def answer(self, verdict: Verdict, num_ids: int) -> Flight | None:
        """The one that has `verdict` now; None where it is not on its way. Raises ValueError."""
        flight = self.find(verdict.number)
        if flight is not None:
            if not 0 <= verdict.n_accepted <= flight.n or not 0 <= verdict.next_id < num_ids:
                raise ValueError(f"verdict {verdict} does not fit a block of {flight.n} ids")
            flight.verdict = verdict
        return flight

    def ask(self, answer: Ids[int], n_committed: int, n: int) -> VerifyRequest:
        """A request for the `n` ids behind those that are here already."""
        start = n_committed + self.span
        base = self._known
        at = n_committed
        for flight in self._flights:
            at += flight.n + (flight.request is not None)
            if flight.request is not None:
                # if all goes well, the target will hold the block and its own next id
                base = at
        self._number += 1
        request = VerifyRequest(
            number=self._number,
            base=base,
            prefix=prefix_hash(answer[:base]),
            unverified=tuple(answer[base:start]),
            draft=tuple(answer[start : start + n]),
        )
        self._flights.append(Flight(n, request))
        return request

    def ask_again(self, answer: Ids[int], n_committed: int) -> None:
        """The target holds none of the answer: the first request tells what is committed."""
        self._known = 0
        for i, flight in enumerate(self._flights):
            if flight.request is None:
                continue
            self._number += 1
            flight.request = replace(flight.request, number=self._number)
            if i == 0:
                told = tuple(answer[:n_committed])
                flight.request = replace(
                    flight.request, base=0, prefix=prefix_hash(()), unverified=told
                )
            flight.is_sent = flight.is_refused = False
            flight.verdict = None

    def skip(self, n: int, is_unverified: bool) -> None:
        """A block behind others that nobody is asked about."""
        self._flights.append(Flight(n, is_unverified=is_unverified))

    def land(self, verdict: Verdict) -> None:
        """The first one's verdict is applied."""
        request = self._flights.popleft().request
        assert request is not None
        self._known = request.base + len(request.unverified) + verdict.n_accepted + 1

    def pop_passed(self) -> Flight | None:
        """Take the first one, where nobody is asked about it."""
        is_passed = bool(self._flights) and self._flights[0].request is None
        return self._flights.popleft() if is_passed else None

    def clear(self) -> None:
        self._flights.clear()
