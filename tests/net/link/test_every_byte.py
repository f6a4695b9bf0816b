"""Cut after N bytes, for many N, from the handshake to the last verdict, a turn has the ids that it
has without a cut."""

import random

import anyio
import numpy as np
import pytest
from far import finish, hear, linked, verifying
from tqdm import tqdm

from bench.proxy import Proxy
from streamer.core.decoding.plan import Verdict, VerifyRequest, prefix_hash
from streamer.core.link.edge_turn import DecodingTerms
from streamer.core.rules.settings import Rules, Sampling

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
