"""No sentence leaves with an attribute missing, twice or of mixed phrases, whatever chance draws."""

import random

import pytest
from speech import recording

from streamer.core.rules.settings import Rules, Sampling, stop
from streamer.model.decoding import IncrementalDrafter
from streamer.model.offline import hear_parts
from streamer.model.scheduler import drive
from streamer.model.thinker import form_of, load


@pytest.fixture(scope="module", params=["edge", "cloud"])
def thinker(request):
    return load("embedded", request.param)


@pytest.mark.parametrize("language", ["zh", "en"])
def test_guesses_change_nothing_whatever_is_asked_for(thinker, language):
    """Any attributes, weights, length, draw and length of a draft; and they save steps. Whatever
    chance draws, no attribute is missing or stands twice, and no phrase is a mixture."""
    chance = random.Random(language)
    names, num_steps = list(thinker.card.attributes), [0, 0, 0]
    for (listener,), _ in hear_parts([thinker], [recording(0)], language=language):
        for seed in range(12):
            said = ",".join(chance.sample(names, chance.randint(1, 7)))
            rules = Rules(language=language, max_new_tokens=chance.randint(2, 60)).saying(said)
            sampling = Sampling(chance.choice([0.0, 0.7, 2.0]), chance.choice([0.5, 1.0]), seed)
            weights = {
                name: [chance.randint(-99, 0) for _ in levels]
                for name, levels in thinker.card.attributes.items()
                if chance.random() < 0.7
            }
            found = []
            for n, most in ((1, 0), (chance.randint(2, 40), 0), (1, chance.randint(2, 40))):
                listener.sequence.replace_tail(listener.sequence.answer_start)
                drafter = IncrementalDrafter(listener, rules, sampling, weights)
                found.append(drafted(drafter, n, rules, most))
            assert found[0][:2] == found[1][:2] == found[2][:2], (rules, sampling, weights)
            text = thinker.vocabulary.text_of(found[0][0])
            form = form_of(thinker, rules)
            assert form.is_whole(text) or len(found[0][0]) == rules.max_new_tokens, text
            num_steps = [num + each[2] for num, each in zip(num_steps, found, strict=True)]
    assert max(num_steps[1:]) < 0.8 * num_steps[0]


def drafted(drafter, n, rules, most=0):
    """A sentence, `n` to `most` ids at a time, and how many steps it took."""
    ids = []
    signals = []
    num_steps = 0
    vocabulary = drafter.listener.thinker.vocabulary
    while not ids or stop(vocabulary, rules, ids[:-1], ids[-1]) is None:
        steps = counted(drafter.draft(n, most))
        found, told, num = drive(drafter.listener.engine, steps)
        ids, signals, num_steps = ids + found, signals + told, num_steps + num
    return ids, signals, num_steps


def counted(steps):
    """The same steps, and their number."""
    num = 0
    try:
        wanted = next(steps)
        while True:
            num += 1
            wanted = steps.send((yield wanted))
    except StopIteration as over:
        return *over.value, num
