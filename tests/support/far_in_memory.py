"""A verifier in memory, of toys. In: messages as bytes. Out: its replies as bytes."""

from __future__ import annotations

import numpy as np
from fakes import ToyModel, ToyStream, ToyVerifier, toy_vocabulary

from streamer.core.decoding.sequence import Sequence
from streamer.core.decoding.verdict import Refusal, VerifyRequest, prefix_hash
from streamer.core.link import wire
from streamer.core.link.verifier_turn import VerifierModel, VerifierTurn
from streamer.core.rules.stop import stop

VOCABULARY = toy_vocabulary()
MODEL = VerifierModel("model", VOCABULARY.fingerprint, VOCABULARY.num_ids, 60.0, {"": ""})


def prompt_of(samples):
    """Three ids that tell which samples were heard, in which order."""
    position = np.arange(1, len(samples) + 1)
    number = int(np.sum(np.round(samples * 32768).astype(np.int64) * position))
    return (len(samples) % 19, number % 23, number // 23 % 23)


class Far:
    """A verifier: its turns by session; `forget` loses all slots, as a restart does."""

    def __init__(self, rules, sampling):
        self.rules, self.sampling = rules, sampling
        self.turns, self.turn, self.num_refed = {}, None, 0

    def cut(self):
        self.turn = None

    def forget(self):
        self.turns.clear()

    def take(self, data):
        """Bytes up, bytes down."""
        message = wire.decode_up(data)
        if isinstance(message, wire.Open):
            self.turn = self.turns.get(message.session)
            if self.turn is None:
                self.turn = self.turns[message.session] = Hosted(VerifierTurn(MODEL, message))
            else:
                self.turn.served.resume(message)
            return [wire.encode(wire.Opened(self.turn.served.num_samples, MODEL.fingerprint))]
        return [wire.encode(reply) for reply in self.turn.work(message, self)]


class Hosted:
    def __init__(self, served):
        self.served, self.heard, self.verifier = served, [], None

    def work(self, message, far):
        match message:
            case wire.Audio():
                self.heard.append(self.served.audio(message))
                yield wire.Heard(self.served.num_samples, False)
            case wire.Finish():
                self.served.finish(message)
                self.begin(far)
                yield wire.Heard(self.served.num_samples, True)
            case wire.Verify():
                request = self.served.request(message)
                yield from self.judge(request, message.runs_on)
                far.num_refed += self.verifier.stream.num_refed
                self.verifier.stream.num_refed = 0

    def begin(self, far):
        if self.verifier is None:
            sequence = Sequence(prompt_of(np.concatenate(self.heard)))
            sequence.start_answer()
            stream = ToyStream(ToyModel(VOCABULARY.num_ids, 2), sequence)
            assert (self.served.rules, self.served.sampling) == (far.rules, far.sampling)
            self.verifier = ToyVerifier(stream, VOCABULARY, far.rules, far.sampling)

    def judge(self, request, runs_on):
        rules = self.served.rules
        while True:
            reply = self.verifier.verify(request)
            if isinstance(reply, Refusal):
                yield wire.Refused(reply.number, reply.reason)
                return
            yield wire.Judged.of(reply)
            at = request.base + len(request.unverified) + reply.n_accepted + 1
            answer = self.verifier.stream.sequence.answer[:at]
            if not runs_on or stop(VOCABULARY, rules, answer[:-1], answer[-1]) is not None:
                return
            request = VerifyRequest(request.number + 1, at, prefix_hash(answer), (), ())
