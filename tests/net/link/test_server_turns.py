"""Turns on a verifier, message by message: who does not fit, what cannot be, what is said again."""

from raw_links import PHRASES, hear, opening, say
from websockets.asyncio.client import connect

from streamer.core.decoding.verdict import VerifyRequest, prefix_hash
from streamer.core.link import packing, wire
from streamer.core.rules.settings import Rules


async def test_an_edge_that_does_not_fit_is_told_why(verifier, tokenizer):
    """Before a slot is taken; the link lives, and the next turn on it may fit."""
    rules = vars(Rules()) | {"phrases": PHRASES}
    misfits = {
        "different tokenizers": {"tokenizer": "other"},
        "speaks version": {"version": 99, "tokenizer": tokenizer},
        "describes in 'zh'": {"language": "en", "tokenizer": tokenizer},
        "not the one": {"model": "0123", "tokenizer": tokenizer},
        "say different phrases": {"rules": rules | {"phrases": "0123"}, "tokenizer": tokenizer},
        "has others": {"rules": rules | {"new_rule": 1}, "tokenizer": tokenizer},
        "repetition_penalty must be at least 0.001": {
            "rules": rules | {"repetition_penalty": 1e-300},
            "tokenizer": tokenizer,
        },
        "loop_temperature must be at least 0.001": {
            "rules": rules | {"loop_temperature": 1e-300},
            "tokenizer": tokenizer,
        },
        "loop_max_period is": {"rules": rules | {"loop_max_period": 10**9}, "tokenizer": tokenizer},
        "temperature must be": {"sampling": (-1.0, 1.0, 0), "tokenizer": tokenizer},
    }
    async with connect(verifier + wire.PATH) as ws:
        for i, (why, fields) in enumerate(misfits.items()):
            await say(ws, opening(i, **fields))
            told = await hear(ws)
            assert (type(told), told.channel, told.is_final) == (wire.Rejected, i, True)
            assert why in told.reason
        await say(ws, opening(200, tokenizer=tokenizer))
        assert isinstance(await hear(ws), wire.OpenedMessage)


async def test_what_cannot_be_ends_the_turn_and_no_other(verifier, tokenizer):
    """Gaps, requests too early, ids that are none, half samples: Rejected; the link and its other
    turn go on."""
    silence = wire.AudioMessage(0, 0, bytes(32_000), False)
    ready = (silence, wire.Finish(0, 16_000))
    wrong = [
        [wire.AudioMessage(0, 5, bytes(20), False)],
        [wire.Finish(0, 77)],
        [silence, wire.VerifyMessage(0, 1, 1, 0, 0, b"", b"")],
        [*ready, wire.VerifyMessage(0, 1, 1, 0, 0, b"\xff\xff\xff" * 3, b"")],
        [*ready, wire.VerifyMessage(0, 1, 1, 0, 0, b"\x01\x00\x00" * 300, b"")],
        [*ready, wire.AudioMessage(0, 16_000, bytes(20), False)],
    ]
    async with connect(verifier + wire.PATH) as ws:
        await say(ws, opening(7, b"other turn      ", tokenizer=tokenizer))
        assert isinstance(await hear(ws), wire.OpenedMessage)
        for i, messages in enumerate(wrong):
            await say(ws, opening(0, bytes([i]) * 16, tokenizer=tokenizer), *messages)
            told = await hear(ws)
            while not isinstance(told, wire.Rejected):
                assert told.channel == 0
                told = await hear(ws)
            assert told.is_final
        await say(ws, wire.AudioMessage(7, 0, bytes(32_000), False), wire.Finish(7, 16_000))
        told = await hear(ws)
        while not (isinstance(told, wire.HeardMessage) and told.is_finished):
            told = await hear(ws)
        assert (told.channel, told.num_samples) == (7, 16_000)


async def test_a_repeat_is_answered_once_more_and_an_older_link_is_not_heard(verifier, tokenizer):
    request = VerifyRequest(1, 0, prefix_hash(()), (), ())
    async with connect(verifier + wire.PATH) as old, connect(verifier + wire.PATH) as new:
        session = b"repeated request"
        await say(
            old,
            opening(3, session, 1, tokenizer=tokenizer),
            wire.AudioMessage(3, 0, bytes(32_000), False),
            wire.Finish(3, 16_000),
        )
        ask = [packing.verify_message(3, 1, request)] * 2
        await say(old, *ask)
        replies = []
        while len(replies) < 2:
            told = await hear(old)
            replies += [told] * isinstance(told, wire.Judged)
        assert replies[0] == replies[1]
        await say(
            new,
            opening(9, session, 2, tokenizer=tokenizer),
            wire.Finish(9, 16_000),
            packing.verify_message(9, 2, request),
        )
        told = await hear(new)
        assert told == wire.OpenedMessage(9, 2, 16_000, told.model)
        while not isinstance(told, wire.Judged):
            told = await hear(new)
        assert (told.n_accepted, told.next_id, told.epoch) == (
            replies[0].n_accepted,
            replies[0].next_id,
            2,
        )
        await say(old, opening(3, session, 1, tokenizer=tokenizer))
        told = await hear(old)
        assert isinstance(told, wire.Rejected)
        assert "older than link 2" in told.reason


async def test_an_answer_decoded_alone_is_said_again_from_anywhere(verifier, tokenizer):
    """A cut link: the verifier is further on than its edge, and says what was lost, in order, and
    nothing else."""

    async def hear_all(ws, number):
        found = []
        while len(found) < 8:
            told = await hear(ws)
            if isinstance(told, wire.Judged | wire.Refused):
                assert isinstance(told, wire.Judged), told
                assert (told.channel, told.number) == (0, number + len(found))
                assert (told.n_accepted, len(told.log_probs)) == (0, 2)  # of the one id that stands
                found.append(told.next_id)
        return found

    session, whole = b"decodes alone   ", None
    for epoch, number in enumerate((1, 1, 4), start=1):
        ids = (whole or [])[: number - 1]
        prefix = int.from_bytes(prefix_hash(ids), "big")
        async with connect(verifier + wire.PATH) as ws:
            await say(
                ws,
                opening(0, session, epoch, tokenizer=tokenizer),
                *[wire.AudioMessage(0, 0, bytes(32_000), False)] * (epoch == 1),
            )
            await say(
                ws, wire.Finish(0, 16_000), wire.Decode(0, epoch, number, len(ids), prefix, b"")
            )
            found = await hear_all(ws, number)
            whole = whole or found
            assert ids + found == whole + found[8 - len(ids) :]
