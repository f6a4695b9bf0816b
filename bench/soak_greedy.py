"""What does one that pushes cost those who speak? In: a real `streamer serve`. Out: the rows of
bench/soak.py's `greedy`.

In every phase those who speak say the same at the same times, so that phases differ by the one that
pushes alone. A phase in which others had the machine, or its host, is asked again.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bench import soak_clients as clients
from bench.soak_clients import Process, p, served

Rows = dict[str, float]
Floats = NDArray[np.float64]
PLACES = 128
QUIET = 0.1  # cores that others on this machine, or its host, may take in a phase that counts
TRIES = 3


@dataclass(frozen=True)
class Phase:
    """ms: to the first text of each turn of those that speak. cores: the server's. others: cores
    that neither it nor we had."""

    ms: list[float]
    cores: float
    others: float
    num_pushed: int  # turns of the one that pushes


async def greedy(options: argparse.Namespace) -> Rows:
    """One that pushes `options.pushed` times real time beside 16 that speak. In every phase they
    say the same at the same times, so that phases differ by the one that pushes alone."""
    clips = clients.recordings()

    async def polite(url: str) -> list[float]:
        turns = (clients.talk(url, clips, 3, 5 * i / 16) for i in range(16))
        return [ms for one in await asyncio.gather(*turns) for ms in one]

    async def phase(url: str, seen: Process, speed: int) -> Phase:
        pushing = asyncio.create_task(clients.push(url, clips[0], speed)) if speed else None
        before = np.array([time.perf_counter(), seen.cpu_s, clients.cpu_of_others_s(seen)])
        found = await polite(url)
        now = np.array([time.perf_counter(), seen.cpu_s, clients.cpu_of_others_s(seen)])
        s, cpu_s, others_s = now - before
        num = 0
        if pushing is not None:
            pushing.cancel()
            num = await pushing
        told = f"{speed} x: p50 {p(found, 50):.1f} ms, {cpu_s / s:.2f} cores"
        print(f"{told}, {others_s / s:.2f} of others, {num} turns pushed", flush=True)
        return Phase(found, cpu_s / s, others_s / s, num)

    phases: dict[int, list[Phase]] = {speed: [] for speed in (0, *options.pushed)}
    async with served(PLACES) as (url, seen, _):
        await polite(url)
        for i in range(options.rounds):  # there and back, so that all meet the same machine
            for speed in list(phases)[:: (-1) ** i]:
                tried = [await phase(url, seen, speed)]
                while tried[-1].others > QUIET and len(tried) < TRIES:
                    tried.append(await phase(url, seen, speed))
                phases[speed].append(min(tried, key=lambda one: one.others))
    return _greedy_rows(phases)


def _greedy_rows(phases: dict[int, list[Phase]]) -> Rows:
    alone = np.array([one.ms for one in phases[0]])
    rows = {f"polite, p{n} ms, alone": p(alone.ravel(), n) for n in (50, 95)}
    for speed, found in phases.items():
        told = f"beside one at {speed} x" if speed else "alone"
        if speed:
            rows |= ratio_of(told, np.array([one.ms for one in found]), alone)
            rows[f"turns of the one that pushes {speed} x"] = sum(one.num_pushed for one in found)
        rows[f"cores, {told}"] = float(np.mean([one.cores for one in found]))
        rows[f"cores of others, {told}, most"] = max(one.others for one in found)
    return rows


def ratio_of(told: str, beside: Floats, alone: Floats) -> Rows:
    """[rounds, turns] ms each: the ratios of their percentiles, and where 90 % of them lie with
    rounds and turns drawn anew from these; a turn stays with the same one of the other."""
    chance = np.random.default_rng(0)
    rows = {}
    for n in (50, 95):
        drawn = []
        for _ in range(2_000):
            at = np.ix_(*(chance.integers(size, size=size) for size in alone.shape))
            drawn.append(p(beside[at].ravel(), n) / p(alone[at].ravel(), n))
        name = f"polite, p{n}, {told}, ratio"
        rows[name] = p(beside.ravel(), n) / p(alone.ravel(), n)
        rows |= {f"{name}, low": p(drawn, 5), f"{name}, high": p(drawn, 95)}
    return rows
