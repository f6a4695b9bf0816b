"""A verifier in memory, of toys. In: messages as bytes. Out: its replies as bytes."""

from __future__ import annotations

import numpy as np
from fakes import ToyModel, ToyStream, ToyVerifier, toy_vocabulary

from streamer.core.decoding.sequence import Sequence
from streamer.core.decoding.verdict import Refusal, VerifyRequest, prefix_hash
from streamer.core.link import wire
from streamer.core.link.verifier_turn import End, Hear, ServedTurn, VerifierModel, VerifyWork
from streamer.core.rules.stop import stop

VOCABULARY = toy_vocabulary()
MODEL = VerifierModel("model", VOCABULARY.fingerprint, "zh", VOCABULARY.num_ids, 60.0)


def prompt_of(samples):
    """Three ids that tell which samples were heard, in which order."""
    position = np.arange(1, len(samples) + 1)
    number = int(np.sum(np.round(samples * 32768).astype(np.int64) * position))
    return (len(samples) % 19, number % 23, number // 23 % 23)


class Far:
    """A verifier: its turns by session; `forget` loses all slots, as a restart does."""

    def __init__(self, rules, sampling):
        self.rules, self.sampling = rules, sampling
        self.turns, self.channels, self.num_refed = {}, {}, 0

    def cut(self):
        self.channels.clear()

    def forget(self):
        self.turns.clear()

    def take(self, data):
        """Bytes up, bytes down."""
        message = wire.decode_up(data)
        if isinstance(message, wire.Open):
            turn = self.turns.get(message.session)
            if turn is None:
                turn = self.turns[message.session] = Hosted(ServedTurn(MODEL, message))
            else:
                turn.served.reopen(message)
            self.channels[message.channel] = turn
            return [
                wire.encode(
                    wire.OpenedMessage(
                        message.channel, message.epoch, turn.served.num_samples, MODEL.fingerprint
                    )
                )
            ]
        turn = self.channels.get(message.channel)
        if turn is None or getattr(message, "epoch", turn.served.epoch) != turn.served.epoch:
            return []
        return [wire.encode(reply) for reply in turn.work(turn.served.take(message), self)]


class Hosted:
    def __init__(self, served):
        self.served, self.heard, self.verifier = served, [], None

    def work(self, work, far):
        match work:
            case Hear(samples):
                self.heard.append(samples)
            case End():
                if self.verifier is None:
                    sequence = Sequence(prompt_of(np.concatenate(self.heard)))
                    sequence.start_answer()
                    stream = ToyStream(ToyModel(VOCABULARY.num_ids, 2), sequence)
                    assert (self.served.rules, self.served.sampling) == (far.rules, far.sampling)
                    self.verifier = ToyVerifier(stream, VOCABULARY, far.rules, far.sampling)
            case VerifyWork(request, runs_on):
                yield from self.judge(request, runs_on)
                far.num_refed += self.verifier.stream.num_refed
                self.verifier.stream.num_refed = 0

    def judge(self, request, runs_on):
        channel, epoch = self.served.channel, self.served.epoch
        while True:
            reply = self.verifier.verify(request)
            if isinstance(reply, Refusal):
                yield wire.Refused(channel, epoch, reply.number, reply.reason)
                return
            yield wire.Judged(channel, epoch, reply.number, reply.n_accepted, reply.next_id)
            at = request.base + len(request.unverified) + reply.n_accepted + 1
            answer = self.verifier.stream.sequence.answer[:at]
            if (
                not runs_on
                or stop(VOCABULARY, far_rules(self), answer[:-1], answer[-1]) is not None
            ):
                return
            request = VerifyRequest(request.number + 1, at, prefix_hash(answer), (), ())


def far_rules(hosted):
    return hosted.served.rules
