"""Real processes under faults: a link cut at any byte, verifiers hung, killed, restarted, gone, and
edges killed.

Exact says what it says without faults, or why not within its limit; gated goes on within its
budget; committed text stands; no slot is lost.
"""

import contextlib
import random
import signal

import anyio
import numpy as np
import pytest
from far import (
    FIRST,
    finish,
    free_port,
    hear,
    linked,
    opening,
    raw,
    say,
    verifiers,
    verifying,
    wire_rules,
)
from patience import until
from processes import memory_mb
from speech import SAMPLES
from tqdm import tqdm
from wire import until_metric

from bench.proxy import Proxy, Toxics
from streamer import Describer, TextDelta
from streamer.core.decoding.plan import Verdict, VerifyRequest, prefix_hash
from streamer.core.link import wire
from streamer.core.link.edge_turn import DecodingTerms
from streamer.core.rules.settings import Rules, Sampling
from streamer.model.checkpoint.card import read_card
from streamer.model.thinker import EMBEDDED
from streamer.stages.events import TurnFailed

BUDGET_S, SPARE_S = 2.0, 1.8  # a second budget would be more
ENDS = ("sentence", "eos", "loop", "max_tokens")
LONG = pytest.mark.long


def near(port, **options):
    """A describer whose cloud is at `port`."""
    return Describer.open(cloud=f"ws://127.0.0.1:{port}", **options)


async def turn(describer, file, found, name):
    """One turn through a session: (deltas' text, deltas' ids, whether each was verified, the last
    event)."""
    text, ids, verified = "", [], []
    async with describer.session() as session:
        await session.feed(file.read_bytes()[44:])
        await session.commit()
        async for event in session:
            if isinstance(event, TextDelta):
                text, ids = text + event.text, ids + list(event.ids)
                verified += [event.verified] * len(event.ids)
    found[name] = text, ids, verified, event


def check(name, found, one):
    """one: what the cloud says. gated: the deltas are the text; it went on after at most one
    budget, the cloud's text as far as it was there, then the edge's own, marked. strict:
    the whole text, or one clear line and the text's beginning."""
    text, ids, verified, end = found
    if isinstance(end, TurnFailed):
        assert name == "strict", end
        assert f"within {BUDGET_S:g} s" in end.message
        assert "--mode gated" in end.message
        assert "\n" not in end.message
    else:
        assert (end.text, list(end.ids)) == (text, ids)
        assert end.stop_reason in ENDS
    match name:
        case "gated":
            assert end.stall_ms < 1000 * (BUDGET_S + SPARE_S)
            assert end.n_accepted <= end.n_uploaded
            n = verified.index(False) if False in verified else len(ids)
            assert ids[:n] == one["ids"][:n], "committed text never changes"
        case "strict" if isinstance(end, TurnFailed):
            assert all(verified)
            assert ids == one["ids"][: len(ids)]
            assert one["text"].startswith(text)
        case _:
            assert all(verified)
            wanted = (one["text"], one["ids"], one["stop_reason"])
            assert (text, ids, end.stop_reason) == wanted


@pytest.mark.parametrize(
    ("harm", "times"),
    [
        *(("killed", 2), ("stopped", 4)),
        *(pytest.param(harm, 100, marks=LONG) for harm in ("killed", "stopped")),
    ],
)
async def test_a_verifier_is_harmed_at_any_moment(wanted, harm, times):
    """Killed, and a fresh process is in its place while exact still waits: exact goes on where it
    was, gated does not wait for it. Stopped, and continued when those are through, or
    in a third of the turns while they still wait."""
    chance = random.Random(times)
    budget = {"verify_budget_s": BUDGET_S}
    ways = {
        "exact": {"mode": "exact", "verify_budget_s": 120},  # a process may start slowly
        "gated": {"mode": "gated", "threshold": 0.0, **budget},
    }
    if harm == "stopped":
        ways["strict"] = {"mode": "exact", **budget}
    async with contextlib.AsyncExitStack() as stack:
        another = stack.enter_context(verifiers())
        port, process = await anyio.to_thread.run_sync(another)
        proxy = await stack.enter_async_context(Proxy(port, Toxics(latency_s=0.005)))
        opened = {}
        for name, options in ways.items():
            opened[name] = await stack.enter_async_context(near(proxy.port, **options))
            await opened[name].load()
        for i in tqdm(range(times), harm, disable=None):
            for describer in opened.values():  # a breaker's pause doubles with failures in a row
                await until(lambda describer=describer: describer.link.is_up)
            file, found = SAMPLES[i % len(SAMPLES)], {}
            async with anyio.create_task_group() as group:
                group.start_soon(turn, opened["exact"], file, found, "exact")
                await anyio.sleep(chance.uniform(0.0, 0.4))
                async with anyio.create_task_group() as others:
                    for name in ways.keys() - {"exact"}:
                        others.start_soon(turn, opened[name], file, found, name)
                    await anyio.sleep(chance.uniform(0.0, 0.4))
                    process.send_signal(signal.SIGKILL if harm == "killed" else signal.SIGSTOP)
                    if harm == "killed":
                        proxy.target_port, process = await anyio.to_thread.run_sync(another)
                    elif i % 3 == 0:
                        await anyio.sleep(chance.uniform(0.0, BUDGET_S))
                        process.send_signal(signal.SIGCONT)
                if harm == "stopped":
                    process.send_signal(signal.SIGCONT)
            for name in ways:
                check(name, found[name], wanted["exact"][file.name])


async def test_without_a_verifier_a_turn_costs_one_budget_and_the_next_one_nothing():
    options = {"mode": "gated", "threshold": 0.0, "verify_budget_s": 0.5}
    async with near(free_port(), **options) as describer:
        found = await describer.describe(SAMPLES[0])
        assert (found.stop_reason, found.verified_share) == ("sentence", 0.0)
        assert found.stall_ms < 3_000, "one budget, and then it asks no more"
        again = await describer.describe(SAMPLES[1])
        assert (again.stop_reason, again.cloud_calls, again.stall_ms) == ("sentence", 0, 0.0)


@pytest.mark.parametrize("times", [5, pytest.param(50, marks=LONG)])
async def test_edges_cut_off_at_any_moment_leave_nothing(wanted, times, tokenizer):
    """Without a goodbye, in audio, prefill or decoding. Every slot comes back; memory after the
    first few stays what it is."""
    chance, sizes = random.Random(times), []
    rules = wire_rules(read_card(EMBEDDED / "cloud").phrases)
    with verifying("--max-sessions", 2, "--resume-s", 0) as (url, process):
        for i in tqdm(range(times), "edges cut off", disable=None):
            data = SAMPLES[i % len(SAMPLES)].read_bytes()[44:]
            pieces = [
                wire.Audio(at // 2, data[at : at + 32_000], False)
                for at in range(0, len(data), 32_000)
            ]
            async with raw(url) as edge:
                await say(edge, opening(tokenizer=tokenizer, rules=rules), *pieces)
                await say(edge, wire.Finish(len(data) // 2, {}), wire.Verify.of(FIRST, True))
                await anyio.sleep(chance.uniform(0.0, 0.5))
                edge.transport.abort()
            await until_metric(url, "streamer_sessions 0.0")
            sizes.append(memory_mb(process))
        await until_metric(url, "streamer_links 0.0")
        async with Describer.open(mode="exact", cloud=url) as describer:
            found = await describer.describe(SAMPLES[0])
            assert list(found.ids) == wanted["exact"][SAMPLES[0].name]["ids"]
    settled = sizes[len(sizes) // 5 :]
    assert max(settled) - settled[0] < 16


SOUND = np.random.default_rng(3).integers(-9_000, 9_000, 1_600).astype(np.float32) / 32768
NUM_IDS = 1 << 20
K, WORKERS = 4, 8


def terms_of(tokenizer, runs_on=False):
    return DecodingTerms(tokenizer, NUM_IDS, Rules(form="", language="zh"), Sampling(), runs_on)


async def decode(link, num=None):
    """The verifier decodes alone: the answer's ids, `num` of them, or as many as come at once."""
    target, ids = link.listen(), []
    await hear(target, SOUND)
    await finish(target)
    while num is None or len(ids) < num:
        verdict, request = None, VerifyRequest(len(ids) + 1, len(ids), prefix_hash(ids), (), ())
        with anyio.move_on_after(1.0 if num is None else 60):
            verdict = await target.verify(request)
        if verdict is None:
            break
        assert isinstance(verdict, Verdict), verdict
        ids.append(verdict.next_id)
    target.close()
    return ids


async def verify(link, answer, seed):
    """Blocks of K drafted ids, some of them wrong, as an edge would ask about them: the ids that
    stand."""
    chance, target, ids, number = random.Random(seed), link.listen(), [], 0
    await hear(target, SOUND)
    await finish(target)
    while len(ids) < len(answer):
        draft = answer[len(ids) : len(ids) + K]
        if chance.random() < 0.4:
            draft[chance.randrange(len(draft))] ^= 1
        number += 1
        request = VerifyRequest(number, len(ids), prefix_hash(ids), (), tuple(draft))
        verdict = await target.verify(request)
        assert isinstance(verdict, Verdict), verdict
        ids += [*draft[: verdict.n_accepted], verdict.next_id]
    target.close()
    return ids[: len(answer)]


@pytest.mark.parametrize("stride", [173, pytest.param(1, marks=pytest.mark.long)])
async def test_cut_after_any_number_of_bytes(tokenizer, stride, monkeypatch):
    """Every N from the first byte of the connection to the turn's last, both directions counted
    together."""
    with verifying("--max-sessions", 32, "--resume-s", 2) as (url, _):
        port, tried = int(url.rsplit(":", 1)[1]), []
        async with linked(port, terms_of(tokenizer, runs_on=True)) as link:
            answer = await decode(link)
        assert len(answer) >= 8
        places = iter(range(1, 1 << 20, stride))
        is_through = False

        async def work(bar):
            nonlocal is_through
            for n in places:
                if is_through:
                    return
                async with (
                    Proxy(port) as proxy,
                    linked(proxy.port, terms_of(tokenizer, n % 5 == 0)) as link,
                ):
                    proxy.cut_after = n
                    alone = n % 5 == 0
                    with anyio.fail_after(60):
                        found = await (
                            decode(link, len(answer)) if alone else verify(link, answer, n)
                        )
                    assert found == answer, n
                    is_through |= proxy.cut_after is not None  # the turn has fewer bytes
                    tried.append(n)
                bar.update()

        with tqdm(desc="bytes", disable=None) as bar:
            async with anyio.create_task_group() as group:
                for _ in range(WORKERS):
                    group.start_soon(work, bar)
    print(f"cut after {len(tried)} numbers of bytes, to {max(tried)}")
    assert max(tried) > 3_200
