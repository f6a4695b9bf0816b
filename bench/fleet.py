"""How many verifiers do so many people need, what does it cost, and what breaks first? In: costs on
paper. Out: tables, a plot.

`python -m bench.fleet` (3 minutes) simulates one GPU that verifies for many people, in discrete
events: pieces of audio come while they speak, requests when they stop; each step of the model takes
what a roofline allows. So it finds how many people one GPU carries, how much of its work is
hearing, and how soon it recovers when another machine is lost. Fleets are multiples of it.
`python -m bench.fleet --live` measures a real one: bench/fleet_live.py.

The models are a 3B edge and a 7B cloud of Qwen2.5-Omni. Their numbers are counts from the published
configuration; the GPU's are its maker's, at a stated share of them. Measured here: tokens of a
sentence, requests for each, blocks that are asked about (bench/capacity.py, bench/gate.py). What is
assumed says so.
"""

from __future__ import annotations

import argparse
import heapq
import math
import random
from collections import deque
from dataclasses import dataclass
from typing import Any

from bench.common import merge, table, write
from bench.fleet_live import QUESTIONS, Amounts, measure
from bench.keep import options_of, place

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


def p95(values: list[float]) -> float:
    found = sorted(values)
    return found[int(0.95 * (len(found) - 1))] if found else 0.0


def simulated(
    arm: str, model: PaperModel, num: int, asks: float, until: float = 40.0
) -> PaperVerifier:
    verifier = PaperVerifier(arm, model, num, asks=asks)
    verifier.run(until)
    return verifier


def delay_s(verifier: PaperVerifier) -> float:
    """p95 of first verdicts after the first 15 s, without a lazy turn's upload."""
    return p95([took for asked, took, _ in verifier.delays if asked > 15.0])


def with_upload_s(verifier: PaperVerifier) -> float:
    """The same with it."""
    return p95([took + upload for asked, took, upload in verifier.delays if asked > 15.0])


def capacity(arm: str, model: PaperModel, asks: float = 1 - SKIPPED) -> tuple[int, PaperVerifier]:
    """The most people whose first verdicts come within BOUND_S, beyond what one alone waits; to
    4 %."""
    alone_s = delay_s(simulated(arm, model, 8, asks, 200.0))
    low, high = 8, 40_000
    best = simulated(arm, model, low, asks)
    while high / low > 1.04:
        num = round(math.sqrt(low * high))
        verifier = simulated(arm, model, num, asks)
        late = p95([now for now, *_ in verifier.delays]) < 30.0  # it has stopped answering
        if late or delay_s(verifier) - alone_s > BOUND_S:
            high = num
        else:
            low, best = num, verifier
    return low, best


def recovery_s(arm: str, num: int, machines: int, load: float) -> float:
    """How long first verdicts are late after one of `machines` was lost, at `load` of the
    capacity."""
    people = round(num * load)
    alone_s = delay_s(simulated(arm, CLOUD, 8, 1 - SKIPPED, 200.0))
    verifier = PaperVerifier(arm, CLOUD, people, seed=1)
    verifier.run(60.0, 30.0, round(people / (machines - 1)))
    late = [at for at, took, _ in verifier.delays if at > 30.0 and took - alone_s > 2 * BOUND_S]
    return max(late) - 30.0 if late else 0.0


def capacities() -> list[dict[str, Any]]:
    rows = []
    for arm in ARMS:
        num, verifier = capacity(arm, CLOUD)
        rows.append(
            {
                "arm": arm,
                "people_per_gpu": num,
                "hearing_share": verifier.heard_flop / verifier.flop,
                "busy": verifier.busy_s / 40.0,
                "first_verdict_p95_ms": 1_000 * delay_s(verifier),
                "with_upload_p95_ms": 1_000 * with_upload_s(verifier),
                "gpu_s_per_speaker_hour": 3_600 / num,
            }
        )
    return rows


def fleets(capacities: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """edge "device": it costs nobody but its owner; "server": a 3B on GPUs of ours, which hears
    all and drafts all."""
    drafting, _ = capacity("cloud only", EDGE)
    rows = []
    for people in (1_000, 100_000, 1_000_000):
        for each in capacities:
            for edge in ("device", "server") if each["arm"] != "cloud only" else ("none",):
                verifiers = math.ceil(people / each["people_per_gpu"])
                drafters = math.ceil(people / drafting) if edge == "server" else 0
                machines = math.ceil((verifiers + drafters) / GPUS_PER_MACHINE)
                spare = max(1, math.ceil(0.1 * machines))
                rows.append(
                    {
                        "people": people,
                        "arm": each["arm"],
                        "edge": edge,
                        "verifiers": verifiers,
                        "drafters": drafters,
                        "machines": machines + spare,
                        "dollars_per_1000_speaker_hours": 1_000
                        * (machines + spare)
                        * GPUS_PER_MACHINE
                        * CLOUD.dollars_h
                        / people,
                        "audio_gbit_s": _audio_gbit_s(people, each["arm"]),
                    }
                )
    return rows


def _audio_gbit_s(people: int, arm: str) -> float:
    """To verifiers, from edges on devices."""
    share = TURN_S / (TURN_S + PAUSE_S + 1.0)
    asked = 1 - SKIPPED ** round(TOKENS / K) if arm == "gated lazy" else 1.0
    return people * share * asked * PCM_BITS / 1e9


def slack(capacities: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The highest load at which verdicts are late for at most 3 s when a machine is lost."""
    rows = []
    for each in capacities[1:]:
        for machines in (2, 4, 16):
            loads = [load / 20 for load in range(6, 20)]
            held = [
                load
                for load in loads
                if recovery_s(each["arm"], each["people_per_gpu"], machines, load) <= 3.0
            ]
            rows.append({"arm": each["arm"], "machines": machines, "load": max(held, default=0.0)})
    return rows


def lazy_against_eager() -> list[dict[str, Any]]:
    """By the share of blocks that are asked about: the work of the one over that of the other, and
    what the first verdict waits for, at 1,000 people on one GPU."""
    rows = []
    for asks in (0.02, 0.05, 0.1, 0.15, 0.27, 0.5):
        eager, lazy = (simulated(arm, CLOUD, 1_000, asks) for arm in ("gated eager", "gated lazy"))
        rows.append(
            {
                "asked": asks,
                "turns_asked": 1 - (1 - asks) ** round(TOKENS / K),
                "flop_ratio": lazy.flop / eager.flop,
                "gpu_ratio": capacity("gated eager", CLOUD, asks)[0]
                / capacity("gated lazy", CLOUD, asks)[0],
                "eager_p95_ms": 1_000 * with_upload_s(eager),
                "lazy_p95_ms": 1_000 * with_upload_s(lazy),
            }
        )
    return rows


def breaks(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What each part must carry beside the models. Sessions last ten minutes; a place is a
    server's, 64 for each (bench/load.py); polls are every 0.25 s by each of two directors."""
    found = []
    for people in sorted({row["people"] for row in rows}):
        verifiers = max(
            r["verifiers"] for r in rows if r["people"] == people and r["arm"] == "exact"
        )
        found.append(
            {
                "people": people,
                "redirects_s": people / 600,
                "replicas": verifiers,
                "polls_s": verifiers * 4 * 2,
                "sockets_per_verifier": people / verifiers,
                "audio_gbit_s": _audio_gbit_s(people, "exact"),
            }
        )
    return found


def plot(
    fleets: list[dict[str, Any]], lazy: list[dict[str, Any]], slack: list[dict[str, Any]]
) -> str:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 3, figsize=(14, 4), layout="constrained")
    of = [row for row in fleets if row["people"] == 100_000]
    names = [f"{row['arm']}\n(edge: {row['edge']})" for row in of]
    axes[0].barh(names, [row["dollars_per_1000_speaker_hours"] for row in of], color="#00796b")
    axes[0].invert_yaxis()
    axes[0].set_xlabel("dollars per 1,000 speaker-hours, 100,000 people")
    asked = [row["asked"] for row in lazy]
    axes[1].plot(asked, [row["gpu_ratio"] for row in lazy], "o-", label="GPUs, lazy over eager")
    axes[1].plot(asked, [row["turns_asked"] for row in lazy], ":", label="turns that ask at all")
    axes[1].axhline(1, color="grey", lw=0.5)
    axes[1].set_ylim(0, 1.1)
    axes[1].set_xlabel("share of blocks that are asked about")
    axes[1].legend(loc="lower right")
    for arm in ARMS[1:]:
        mine = [row for row in slack if row["arm"] == arm]
        axes[2].plot([r["machines"] for r in mine], [r["load"] for r in mine], "o-", label=arm)
    axes[2].set_xscale("log", base=2)
    axes[2].set_ylim(0, 1)
    axes[2].set_xlabel("machines, one of which is lost")
    axes[2].set_ylabel("load that recovers within 3 s")
    axes[2].legend()
    file = place("fleet.png")
    figure.savefig(file, dpi=110)
    return str(file)


def show(rows: list[dict[str, Any]]) -> str:
    return table(tuple(rows[0]), [tuple(row.values()) for row in rows])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--live", action="store_true", help="measure a real fleet on Ray instead")
    parser.add_argument("--turns", type=int, default=20, help="of each way, live")
    parser.add_argument("--sessions", type=int, default=40, help="while replicas are killed, live")
    parser.add_argument("--kills", type=int, default=4, help="of random replicas, live")
    parser.add_argument("--only", nargs="+", choices=QUESTIONS, default=list(QUESTIONS))
    options = options_of(parser)
    if options.live:
        amounts = Amounts(options.turns, options.sessions, options.kills)
        rows = measure(options.only, amounts)
        print("written:", merge("fleet_live", rows))
        return
    found = capacities()
    tables = {
        "capacities": found,
        "fleets": fleets(found),
        "slack": slack(found),
        "lazy": lazy_against_eager(),
    }
    tables["breaks"] = breaks(tables["fleets"])
    for name, rows in tables.items():
        print(f"\n{name}\n{show(rows)}")
    all_rows = [{"table": name, **row} for name, rows in tables.items() for row in rows]
    print(
        "\nwritten:",
        write("fleet", all_rows),
        plot(tables["fleets"], tables["lazy"], tables["slack"]),
    )


if __name__ == "__main__":
    main()
