"""A schedule of faults, drawn from a seed and run against a house: exact loses nothing."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from dataclasses import dataclass, replace

import numpy as np
import toy_parts
from fakes import ToyModel, no_rules
from history import Attempt, prove
from house import Returning, house
from processes import PATIENCE_S

from bench.proxy import Toxics
from streamer.core.decoding.plan import Plan
from streamer.core.rules.settings import NOT_SHOWN, Rules, Sampling, stop
from streamer.model.decoding import choose

FOREVER_S = 1e9
SHORT_S = 0.15
WAIT_S = 5.0  # for a client that is held up, until the next fault comes all the same
KINDS = ("exact", "cloud", "gated", "gated, all blocks")


@dataclass(frozen=True)
class Fault:
    """It hits once the client has sent or seen `after` things more, for `for_s`."""

    after: int
    name: str
    for_s: float = 0.0


FAULTS = {"client link cut": 4, "edge link cut": 4, "client link hangs": 2, "edge link hangs": 2}
FAULTS |= {"client link cut after bytes": 2, "edge link cut after bytes": 2}
FAULTS |= {"verifier killed": 3, "server killed": 2}
# stopped: all that it is connected to hangs, then its clock has jumped
FAULTS |= {"server stopped": 1, "clock jumps": 2, "client link slow": 1, "edge link slow": 1}


@dataclass(frozen=True)
class Schedule:
    seed: int
    kind: str
    decoding: toy_parts.Decoding
    turns: tuple[bytes, ...]
    cut_share: float
    faults: tuple[Fault, ...]

    @property
    def is_equal(self) -> bool:
        """Whether faults must change nothing at all."""
        return self.kind in ("exact", "cloud")


def draw(seed: int) -> Schedule:
    chance = random.Random(seed)
    kind = KINDS[seed % len(KINDS)]
    rules = chance.choice([Rules(max_new_tokens=24), no_rules(max_new_tokens=16)])
    plan = Plan(
        kind.split(",")[0],
        k=chance.randint(1, 6),
        threshold=0.0 if "all" in kind else 1.2,
        rules=rules,
        verify_budget_s=FOREVER_S if kind in ("exact", "cloud") else SHORT_S,
        ahead=chance.choice([0, 3, 12]),
        credits=chance.randint(1, 4),
    )
    sampling = chance.choice([Sampling(), Sampling(temperature=1.0, seed=seed)])
    noise = np.random.default_rng(seed)
    lengths = [chance.choice([1, 300, 3_000, 20_000]) for _ in range(chance.randint(1, 3))]
    turns = tuple(noise.integers(-9_000, 9_000, n).astype("<i2").tobytes() for n in lengths)
    faults = tuple(
        Fault(
            chance.choice([0, 3, 20, 60]),
            chance.choices(list(FAULTS), list(FAULTS.values()))[0],
            chance.choice([0.0, 0.02, 0.3]) * chance.random(),
        )
        for _ in range(chance.randint(2, 6))
    )
    decoding = toy_parts.Decoding(plan, sampling)
    return Schedule(seed, kind, decoding, turns, chance.choice([0.0, 0.02]), faults)


async def run(schedule: Schedule) -> Counter[str]:
    """How often each fault hit, and the turns answered. Raises AssertionError."""
    done: Counter[str] = Counter()
    async with house(schedule.decoding, schedule.seed) as found:
        client = Returning(
            found.url, schedule.turns, random.Random(schedule.seed), schedule.cut_share, True
        )
        harm = asyncio.create_task(_harm(found, schedule, client.history, done))
        try:
            async with asyncio.timeout(PATIENCE_S):
                history = await client.run()
        except TimeoutError:
            last = [(e.kind, str(e.what)[:80]) for e in client.history.entries[-5:]]
            raise AssertionError(f"it hangs behind {dict(done)}; at last {last}") from None
        finally:
            harm.cancel()
            await asyncio.gather(harm, return_exceptions=True)
    if not harm.cancelled():
        harm.result()
    done["turns answered"] += len(prove(history, schedule.turns, Wanted(schedule).wrong))
    done["sockets cut"] += history.count("cut")
    done["sessions resumed"] += history.count("resumed")
    done["sessions lost with their server"] += history.count("began") - 1
    return done


async def _harm(found, schedule, history, done):
    for fault in schedule.faults:
        await history.grown_by(fault.after, WAIT_S)
        done[fault.name] += 1
        await _do(found, fault, random.Random(f"{schedule.seed}/{fault}"))


async def _do(found, fault, chance):
    name, for_s = fault.name, fault.for_s
    proxy = found.client_proxy if "client" in name else found.edge_proxy
    match name.partition(" ")[0], name.rpartition(" ")[2]:
        case (("client" | "edge"), "cut"):
            proxy.cut()
        case (("client" | "edge"), "bytes"):
            proxy.cut_after = chance.randint(1, 20_000)
        case (("client" | "edge"), "hangs"):
            proxy.toxics.is_hung = True
            await asyncio.sleep(for_s)
            proxy.toxics.is_hung = False
        case (("client" | "edge"), "slow"):
            is_down = proxy.toxics.is_down
            proxy.toxics = Toxics(0.003, chance.choice([0.0, 0.02]), slice_bytes=7, is_down=is_down)
            await asyncio.sleep(for_s)
            proxy.toxics = replace(Toxics(), is_down=is_down)
        case "server", "stopped":
            for each in (found.client_proxy, found.edge_proxy):
                each.toxics.is_hung = True
            await asyncio.sleep(for_s)
            found.clock.ahead_s += 100 * for_s
            for each in (found.client_proxy, found.edge_proxy):
                each.toxics.is_hung = False
        case "clock", _:
            found.clock.ahead_s += chance.choice([0.01, 1.0, 60.0])
        case _, "killed":
            program = found.server if name.startswith("server") else found.verifier
            await program.kill()
            await asyncio.sleep(for_s)
            await program.start()


class Wanted:
    """What a schedule's answers may be."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._prompts = [toy_parts.prompt_of(toy_parts.samples_of(data)) for data in schedule.turns]

    def wrong(self, attempt: Attempt) -> str | None:
        """Why this cannot be the turn's answer, or its beginning where it has no end; or None."""
        if self._schedule.is_equal and not all(attempt.verified):
            return "what the cloud has not verified is shown"
        for at, token in enumerate(attempt.ids):
            wanted = self._says(attempt.turn, attempt.ids[:at], attempt.verified[at])
            if wanted != token:
                return f"id {at} is {token}; {wanted} stands there without faults"
        if attempt.description is None:
            return None
        reason = attempt.description["stop_reason"]
        return None if reason in self._ends(attempt) else f"it ends by {reason}"

    def _ends(self, attempt: Attempt) -> set[str]:
        """How it may end: with its last id, or with one behind it that is not shown."""
        rules, ids = self._schedule.decoding.plan.rules, attempt.ids
        found = []
        if ids:
            found.append(stop(toy_parts.VOCABULARY, rules, ids[:-1], ids[-1]))
        for is_verified in (True, self._schedule.is_equal):
            token = self._says(attempt.turn, ids, is_verified)
            end = stop(toy_parts.VOCABULARY, rules, ids, token)
            found.append(end if end in NOT_SHOWN else None)
        return set(filter(None, found))

    def _says(self, turn, answer, is_verified):
        """The id that stands behind `answer` without faults."""
        seed = toy_parts.CLOUD_SEED if is_verified else toy_parts.EDGE_SEED
        prompt = (
            self._prompts[turn] if is_verified else (*toy_parts.EDGE_PROMPT, *self._prompts[turn])
        )
        decoding = self._schedule.decoding
        logits = ToyModel(toy_parts.VOCABULARY.num_ids, seed).logits([*prompt, *answer])
        return choose(logits, answer, toy_parts.VOCABULARY, decoding.plan.rules, decoding.sampling)
