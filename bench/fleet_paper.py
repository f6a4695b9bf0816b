"""One GPU on paper that verifies for many people, in discrete events. In: an arm, how many they
are. Out: a PaperVerifier, and what it did.

What is measured here comes from bench/capacity.py and bench/gate.py; the models' counts from their
published configuration, the GPU's from its maker, at a stated share. What is assumed says so.
"""

from __future__ import annotations

import heapq
import math
import random
from collections import deque
from dataclasses import dataclass

TOKENS = 22  # of a sentence, mean (bench/capacity.py)
K = 4
REQUESTS = 6  # of exact for it: 0.27 for each token (bench/capacity.py)
SKIPPED = 0.73  # share of blocks that gated, fluent, asks nobody about (bench/gate.py)
TURN_S = 10.0  # assumed: mean of a log-normal, sigma 0.6
PAUSE_S = 8.0  # assumed: mean between two turns, exponential
WINDOW_S = 2.0
RTT_S = 0.04  # assumed
UPLINK_BITS = 5e6  # assumed
PCM_BITS = 256e3
STEP_POSITIONS = 512  # of audio in one step; verdicts wait for no more than that
BOUND_S = 0.25  # a verdict's p95, from its request's arrival to its reply
GPUS_PER_MACHINE = 8
ARMS = ("cloud only", "exact", "gated eager", "gated lazy")


@dataclass(frozen=True)
class PaperModel:
    """One model on one GPU. Counts are of the published configuration: parameters in 1e9; kv_bytes:
    of one position, bfloat16."""

    name: str
    text_b: float
    tower_b: float
    kv_bytes: float
    flops: float = 989e12 * 0.4  # H100 SXM, dense bfloat16; assumed: 0.4 of it
    bytes_s: float = 3.35e12 * 0.7  # the same; assumed: 0.7 of it
    fixed_s: float = 0.001  # assumed: of a step, to launch it
    dollars_h: float = 3.0  # assumed: of one GPU

    @property
    def heard_flop(self) -> float:
        """Of one second: 50 positions of the tower, 25 of the text model."""
        return 2e9 * (50 * self.tower_b + 25 * self.text_b)

    def step_s(self, heard_s: float, num_rows: int, num_tokens: int) -> float:
        """A step that hears so much and verifies so many rows with so many tokens in all."""
        flop = heard_s * self.heard_flop + 2e9 * self.text_b * num_tokens
        read = 2e9 * self.text_b + num_rows * 300 * self.kv_bytes
        return self.fixed_s + max(flop / self.flops, read / self.bytes_s)


CLOUD = PaperModel("7B", 7.6, 0.64, 2 * 28 * 4 * 128 * 2)
EDGE = PaperModel("3B", 3.4, 0.64, 2 * 36 * 2 * 128 * 2)


@dataclass
class Person:
    """One turn at a time. num_left: requests (or tokens) that are still to come."""

    turn_s: float = 0.0
    unheard_s: float = 0.0
    is_asking: bool = False
    num_left: int = 0
    asked_at: float = 0.0
    upload_s: float = 0.0
    is_first: bool = True


class PaperVerifier:
    """One GPU and the people it serves. `run` it; then read `delays`, `busy_s`, and of all `flop`
    the `heard_flop`."""

    def __init__(
        self, arm: str, model: PaperModel, num: int, seed: int = 0, asks: float = 1 - SKIPPED
    ):
        self.arm = arm
        self.model = model
        self.asks = asks
        self.chance = random.Random(seed)
        self.people = [Person() for _ in range(num)]
        self.events: list[tuple[float, int, str, Person]] = []
        self.hearing: deque[Person] = deque()
        self.rows: deque[Person] = deque()
        # of first verdicts: when it could be given at the earliest, how long after that, and how
        # long the turn's audio was on its way before
        self.delays: list[tuple[float, float, float]] = []
        self.busy_s = self.heard_flop = self.flop = 0.0
        self._number = 0
        for person in self.people:
            self._at(self.chance.uniform(0, TURN_S + PAUSE_S), "speaks", person)

    @property
    def _is_eager(self) -> bool:
        return self.arm != "gated lazy"

    def _at(self, when: float, what: str, person: Person) -> None:
        self._number += 1
        heapq.heappush(self.events, (when, self._number, what, person))

    def run(self, until: float, lost_at: float = math.inf, num_lost: int = 0) -> None:
        """lost_at: then so many people come from a lost machine, each in the middle of a turn."""
        now = 0.0
        while now < until:
            if now >= lost_at:
                lost_at = math.inf
                self._take_over(now, num_lost)
            while self.events and self.events[0][0] <= now:
                when, _, what, person = heapq.heappop(self.events)
                getattr(self, f"_{what}")(when, person)
            if not self.hearing and not self.rows:
                now = self.events[0][0]
                continue
            now = self._step(now)

    def _take_over(self, now: float, num: int) -> None:
        for _ in range(num):
            person = Person(turn_s=self._turn_s())
            self.people.append(person)
            if self.chance.random() > TURN_S / (TURN_S + PAUSE_S):
                self._at(now + self.chance.expovariate(1 / PAUSE_S), "speaks", person)
                continue
            done_s = self.chance.uniform(0, person.turn_s)
            if self._is_eager:
                self._hear(person, done_s)
            self._at(now + person.turn_s - done_s, "stops", person)

    def _turn_s(self) -> float:
        return min(60.0, self.chance.lognormvariate(math.log(TURN_S) - 0.18, 0.6))

    def _speaks(self, now: float, person: Person) -> None:
        person.turn_s = self._turn_s()
        num = int(person.turn_s / WINDOW_S)
        if self._is_eager:
            for i in range(1, num + 1):
                self._at(now + i * WINDOW_S, "says", person)
        self._at(now + person.turn_s, "stops", person)

    def _says(self, now: float, person: Person) -> None:
        self._hear(person, WINDOW_S)

    def _hear(self, person: Person, seconds: float) -> None:
        if person.unheard_s == 0.0:
            self.hearing.append(person)
        person.unheard_s += max(seconds, 0.01)

    def _stops(self, now: float, person: Person) -> None:
        person.num_left = self._num_requests()
        person.is_first = True
        if self._is_eager:
            self._hear(person, person.turn_s % WINDOW_S)
        if person.num_left:
            person.upload_s = 0.0 if self._is_eager else person.turn_s * PCM_BITS / UPLINK_BITS
            self._at(now + RTT_S / 2 + person.upload_s, "asks", person)
        self._at(now + self.chance.expovariate(1 / PAUSE_S) + 1.0, "speaks", person)

    def _num_requests(self) -> int:
        if self.arm == "cloud only":
            return TOKENS
        if self.arm == "exact":
            return REQUESTS
        return sum(self.chance.random() < self.asks for _ in range(round(TOKENS / K)))

    def _asks(self, now: float, person: Person) -> None:
        if not self._is_eager and person.is_first:
            self._hear(person, person.turn_s)
        person.asked_at = now
        person.is_asking = True
        if person.unheard_s == 0.0:
            self.rows.append(person)

    def _step(self, now: float) -> float:
        """Rows first, then as much audio as one step takes."""
        rows = [self.rows.popleft() for _ in range(min(len(self.rows), 256))]
        room_s = STEP_POSITIONS / 25
        heard_s = 0.0
        while self.hearing and heard_s < room_s:
            person = self.hearing[0]
            took = min(person.unheard_s, room_s - heard_s)
            heard_s += took
            person.unheard_s -= took
            if person.unheard_s > 1e-9:
                break
            person.unheard_s = 0.0
            self.hearing.popleft()
            if person.is_asking:
                self.rows.append(person)
        num_tokens = len(rows) * (1 if self.arm == "cloud only" else K + 1)
        took_s = self.model.step_s(heard_s, len(rows), num_tokens)
        self.busy_s += took_s
        self.heard_flop += heard_s * self.model.heard_flop
        self.flop += heard_s * self.model.heard_flop + 2e9 * self.model.text_b * num_tokens
        for person in rows:
            self._answered(now + took_s, person)
        return now + took_s

    def _answered(self, now: float, person: Person) -> None:
        if person.is_first:
            self.delays.append((person.asked_at, now - person.asked_at, person.upload_s))
        person.is_first = False
        person.num_left -= 1
        person.is_asking = person.num_left > 0 and self.arm == "cloud only"
        if person.is_asking:
            self.rows.append(person)
        elif person.num_left > 0:
            self._at(now + RTT_S, "asks", person)
