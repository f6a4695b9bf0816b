"""Cut after N bytes, for many N, from the handshake to the last verdict, a turn has the ids that it
has without a cut; and an edge survives a verifier that talks nonsense."""

import random

import anyio
import numpy as np
import pytest
from far import finish, hear, linked, lying, mutated, obliging, verifying
from patience import PATIENCE_S, until
from tqdm import tqdm

from bench.proxy import Proxy
from streamer.core.decoding.verdict import Refusal, Verdict, VerifyRequest, prefix_hash
from streamer.core.link import backoff, wire
from streamer.core.link.edge_turn import DecodingTerms
from streamer.core.rules.sampling import Sampling
from streamer.core.rules.settings import Rules
from streamer.stages.ports import TargetLost

SOUND = np.random.default_rng(3).integers(-9_000, 9_000, 1_600).astype(np.float32) / 32768
NUM_IDS = 1 << 20
K, WORKERS = 4, 8
EMPTY = prefix_hash(())


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


@pytest.mark.parametrize("num", [200, pytest.param(5_000, marks=pytest.mark.long)])
async def test_nonsense_from_a_verifier_ends_its_link_at_most(num, tokenizer, monkeypatch):
    """Messages that are nearly right, to links with turns that ask: verdicts that could be,
    refusals, or nothing; the edge lives, and an honest verifier on the same link's next connection
    is served."""
    monkeypatch.setattr(backoff, "PAUSES_S", (0.0,))
    monkeypatch.setattr(backoff, "LONGEST_PAUSE_S", 0.5)
    count, is_honest, told = 0, False, []

    def reply(message, chance):
        nonlocal count
        right = obliging(message, None)
        if is_honest:
            return right
        count += len(right)
        return [mutated(chance, wire.encode(m)) if chance.random() < 0.5 else m for m in right]

    async def ask(link, chance):
        while count < num:
            target = link.listen()
            try:
                await hear(target, SOUND[: chance.randint(1, 1_600)])
                await finish(target)
                for number in range(1, 4):
                    draft = tuple(chance.randrange(NUM_IDS) for _ in range(K))
                    with anyio.move_on_after(0.2):
                        found = await target.verify(VerifyRequest(number, 0, EMPTY, (), draft))
                        if not isinstance(found, Refusal):
                            assert 0 <= found.n_accepted <= K
                            assert 0 <= found.next_id < NUM_IDS
            except TargetLost as lost:
                told.append(str(lost))
            finally:
                target.close()

    async with (
        lying(reply, num) as port,
        linked(port, terms_of(tokenizer)) as one,
        linked(port, terms_of(tokenizer)) as two,
    ):
        async with anyio.create_task_group() as group:
            for i in range(8):
                group.start_soon(ask, (one, two)[i % 2], random.Random(i))
        assert count >= num
        assert all(line.isprintable() for line in told)
        is_honest = True
        for link in (one, two):
            await until(lambda link=link: link.is_up, 60)
            target = link.listen()
            await hear(target, SOUND)
            await finish(target)
            with anyio.fail_after(PATIENCE_S):
                assert await target.verify(VerifyRequest(1, 0, EMPTY, (), ())) == Verdict(1, 0, 5)
    print(f"{count} messages down, {one.num_cuts + two.num_cuts} connections cut")
