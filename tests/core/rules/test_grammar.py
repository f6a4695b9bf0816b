"""The form of a sentence: it allows exactly the well-formed sentences, and weights add up; the other
rules change no sentence of it, so a form may leave them out.
"""

import random
import re

import numpy as np
import pytest
from fakes import WORDS, levels_said

from bench.sentence_quality import measure
from pipelines.embedded import export, sentences
from pipelines.embedded import tokenizer as words
from streamer.core.attributes import ATTRIBUTES, parse
from streamer.core.rules import settings
from streamer.core.rules.form import BEGIN, SentenceForm, marks_of
from streamer.core.text.vocabulary import Vocabulary
from streamer.model.checkpoint.card import Tokenizer, card_of, read_card
from streamer.model.checkpoint.weights import shapes_of
from streamer.model.thinker import EMBEDDED

RULES = settings.Rules()
LEARNT = ("", "说话人", "这位讲者", "这段录音里")  # of the sentences that the shipped pair learnt


@pytest.fixture(scope="module", params=["edge", "cloud", "zh", "en"])
def model(request, tmp_path_factory):
    """A model that ships, or a language of the training's recipe."""
    if request.param in ("edge", "cloud"):
        directory = EMBEDDED / request.param
        card, num_ids = read_card(directory), shapes_of(directory).text.vocab
    else:
        directory = tmp_path_factory.mktemp("recipe")
        words.save(directory)
        card = card_of(export.card("recipe"), "recipe").speaking(request.param)
        num_ids = words.build().get_vocab_size()
    tokenizer = Tokenizer(directory)
    return tokenizer, tokenizer.vocabulary(num_ids), card


def sentences_of(card, n):
    """Each phrase of the card, attributes in any order, an opening."""
    rng = random.Random(0)
    for _ in range(n):
        names = rng.sample(list(card.attributes), len(card.attributes))
        levels = {name: rng.randrange(len(card.attributes[name])) for name in names}
        clauses = [rng.choice(card.attributes[n][level]["phrases"]) for n, level in levels.items()]
        comma, end, gap = marks_of(card.language)
        text = comma.join(gap + clause for clause in clauses)
        yield levels, rng.choice(card.openings or LEARNT) + text + end


@pytest.mark.parametrize("n", [200, pytest.param(5000, marks=pytest.mark.long)])
def test_no_rule_touches_a_sentence_of_the_form(model, n):
    tokenizer, vocabulary, card = model
    for levels, text in sentences_of(card, n):
        ids = tokenizer.encode(text)
        assert vocabulary.text_of(ids) == text
        assert not vocabulary.never[ids].any(), text
        for i, chosen in enumerate(ids):
            constraint = settings.constrain(vocabulary, RULES, ids[:i])
            for name in ("never", "commas", "adjacency", "ngram", "lowered", "penalised"):
                assert chosen not in getattr(constraint, name), f"{name}: {text} at {chosen}"
            assert constraint.recent.count(chosen) < settings.LOOP_COUNT, text
            assert not settings.loop_suspected(ids[: i + 1]), text
            end = settings.stop(vocabulary, RULES, ids[:i], chosen)
            assert end == ("sentence" if i == len(ids) - 1 else None), text
        quality = measure(vocabulary, ids)
        assert quality.one_sentence
        assert not quality.adjacent_repeats
        if card.language == "zh":
            assert 0.10 <= quality.density <= 0.25, text
        else:
            spelled = re.findall("[A-Za-z]+(?:-[a-z]+)?", text.lower())
            assert len(set(spelled)) == len(spelled), text
        assert parse(text, card.attributes) == levels


PHRASES = sentences.attributes()
NO_SPEECH = "".join(sentences.no_speech())
OPENINGS = export.spoken("zh")["openings"]


@pytest.fixture(scope="module")
def family(tmp_path_factory):
    directory = tmp_path_factory.mktemp("form")
    words.save(directory)
    tokenizer = Tokenizer(directory)
    vocabulary = tokenizer.vocabulary(words.build().get_vocab_size())
    return tokenizer, vocabulary, SentenceForm(vocabulary, PHRASES, (), OPENINGS)


def keeps(form, answer, token):
    state = form.after(answer)
    return state is not None and form.step(state, token) is not None


@pytest.mark.parametrize("language", ["zh", "en"])
def test_a_guess_goes_on_in_an_order_that_the_models_learnt(language):
    """A wrong guess costs a step of the edge; so only the attribute named first can be wrong."""
    directory = EMBEDDED / "edge"
    card, tokenizer = read_card(directory).speaking(language), Tokenizer(directory)
    vocabulary = tokenizer.vocabulary(shapes_of(directory).text.vocab)
    marks = marks_of(language)
    form = SentenceForm(vocabulary, card.attributes, (), card.openings, marks)
    for order in sentences.LANGUAGES[language].orders:
        clauses = [card.attributes[name][0]["phrases"][0] for name in (*order, "arousal")]
        text = card.openings[0] + marks.comma.join(marks.gap + clause for clause in clauses)
        ids = tokenizer.encode(text)
        known = tokenizer.encode(text.partition(marks.comma)[0] + marks.comma)
        assert known + form.guess(known, 99) == ids


@pytest.mark.parametrize("said", [("rate",), ("pitch", "arousal"), ATTRIBUTES[:-1]])
def test_a_sentence_of_some_attributes_has_no_word_of_the_others(family, said):
    """On any walk each of them is said once."""
    _, vocabulary, _ = family
    form = SentenceForm(vocabulary, PHRASES, said, OPENINGS)
    for seed in range(10):
        chance = random.Random(seed)
        ids = []
        while not form.is_whole(text := vocabulary.text_of(ids)):
            ids.append(chance.choice(form.allowed(form.after(ids)).tolist()))
        found = parse(text, PHRASES)
        assert [name for name, level in found.items() if level is not None] == list(said), text


@pytest.mark.parametrize(
    "text",
    [
        "说话人音调偏低，语调自然，音量浑厚",  # mixed
        "说话人说得略显",  # mixed in the first clause
        "这段录音里时断说话人",  # a piece in the opening
        "说话人音调偏低，语速适中，音高处在低处",  # twice
        "说话人音调偏低。",  # a clause too few
        "说话人说话人说话人",  # an opening too long
        "说话人，",  # an opening alone
        "没有检测到音调",  # no speech and then speech
        NO_SPEECH,
        "音调偏低",  # no opening
    ],
)
def test_what_breaks_the_form_is_found_where_it_breaks(family, text):
    tokenizer, _, form = family
    ids = tokenizer.encode(text)
    assert not all(keeps(form, ids[:i], token) for i, token in enumerate(ids))
    assert not form.is_whole(text)


def test_flat_weights_and_weights_of_other_levels_are_no_bias(family):
    _, _, form = family
    assert form.biases(BEGIN) is None
    held = form.weighted({"pitch": (0, -1, -2, -3)})
    assert held.biases(BEGIN) is not None
    for none in ({}, {"rate": (0,) * 5, "pitch": (0, -1), "unknown": (0, -9)}):
        assert held.weighted(none).biases(BEGIN) is None


@pytest.fixture(scope="module", params=["zh", "en"])
def listed(request, family):
    """(a language, its phrases, its form, whose openings are listed)"""
    words = export.spoken(request.param)
    given = words["attributes"], (), words["openings"]
    form = SentenceForm(family[1], *given, marks_of(request.param))
    return request.param, words["attributes"], form


@pytest.mark.parametrize("seed", range(12))
def test_both_languages_say_the_sentences_of_the_training(family, listed, seed):
    (tokenizer, vocabulary, _), (language, _, form) = family, listed
    rng = random.Random(seed)
    levels = {name: rng.randrange(len(of)) for name, of in sentences.CHINESE.items()}
    prominence = {name: rng.random() for name in sentences.CHINESE}
    text = "".join(sentences.sentence(levels, prominence, rng, language))
    ids = tokenizer.encode(text)
    for i, token in enumerate(ids):
        assert keeps(form, ids[:i], token), vocabulary.text_of(ids[: i + 1])
    assert form.is_whole(text)
    assert all(keeps(form, ids, end) for end in vocabulary.eos)


@pytest.mark.parametrize("seed", range(12))
def test_any_walk_in_either_language_is_a_sentence_with_its_levels_weights(family, listed, seed):
    """No dead end, the same ids as each id by itself, and the biases add up to the weights."""
    vocabulary, (language, phrases, form) = family[1], listed
    chance = random.Random(seed)
    weights = {
        name: tuple(chance.sample([0, *chance.sample(range(-99, 0), len(levels) - 1)], len(levels)))
        for name, levels in phrases.items()
    }
    held, answer, total = form.weighted(weights), [], 0.0
    while not form.is_whole(vocabulary.text_of(answer)):
        state = form.after(answer)
        ids = held.allowed(state)
        if chance.random() < 0.2:
            each = np.flatnonzero(~vocabulary.never).tolist() + sorted(vocabulary.eos)
            assert sorted(i for i in each if form.step(state, i) is not None) == ids.tolist()
        i = chance.randrange(len(ids))
        total += held.biases(state)[i]
        answer.append(int(ids[i]))
    text = vocabulary.text_of(answer)
    found = levels_said(text, language)
    assert parse(text, phrases) == found
    wanted = sum(weights[name][level] for name, level in found.items())
    assert total * settings.UNITS_PER_NAT == wanted


@pytest.mark.parametrize(
    ("good", "bad"),
    [
        *(("The speaker is", "the speaker is"), ("The speaker is", "")),
        *((", ", ","), (", ", " "), (".", "。")),
        *((" calm", " calm calm"), (" calm", " calm, deep"), (" calm", " deep")),
    ],
)
def test_an_english_sentence_has_english_marks_and_no_word_twice(family, good, bad):
    _, vocabulary, _ = family
    words = export.spoken("en")
    form = SentenceForm(vocabulary, words["attributes"], (), words["openings"], marks_of("en"))
    text = "The speaker is deep, dark, very slow, flat, soft, flowing, calm."
    assert form.is_whole(text)
    assert not form.is_whole(text.replace(good, bad, 1))
    assert not form.is_whole(text.replace(good, bad))


def test_the_marks_of_a_language():
    assert {marks_of(code) for code in ("zh", "zh-Hans", "yue", "ja")} == {("，", "。", "")}
    assert {marks_of(code) for code in ("en", "de-AT", "")} == {(",", ".", " ")}


SMALL = {"rate": (["语速较慢"], ["快"]), "loudness": (["很轻"], ["响亮"])}
SMALL |= {"pauses": (["停顿"], ["看"]), "pitch": (["高"], ["低"])}
TOY = Vocabulary([*(word.encode() for word in (*WORDS, "快，")), b"<eos>"], [28], [28])


def small_form(phrases=SMALL, **given):
    card = {name: [{"phrases": each} for each in levels] for name, levels in phrases.items()}
    return SentenceForm(TOY, card, **given)


@pytest.mark.parametrize("wrong", ["语速，快", "语速快。", "语速飞", "飞语速"])
def test_a_form_without_a_phrase_of_an_attribute_is_not_to_be_used(wrong):
    """A phrase with a mark, or one that no ids spell, is none."""
    assert small_form(SMALL | {"rate": ([wrong], ["快"])}).can_be_said
    assert not small_form(SMALL | {"rate": ([wrong],)}).can_be_said
    assert not small_form(openings=["飞"]).can_be_said
    assert not small_form(marks=marks_of("en")).can_be_said, "it has no opening"


GUESSES = {
    "": "说话人 快， 响亮 ， 停顿 ， 高",  # but for the id that ends it
    "声音 很 轻 ，": "停顿 ， 快， 高",
    "说话人 看 ，": "快， 响亮 ， 高",
    "说话人 快， 停顿 ，": "响亮 ， 高",
    "说话人 低 ， 语速 较慢 ，": "响亮 ， 停顿",
    "说话人 快， 响亮 ， 停顿 ， 高 。": "",
    "，": "",
}


@pytest.mark.parametrize("said", GUESSES)
def test_a_guess_names_the_best_levels_in_the_card_s_order(said):
    """It goes on from the attribute said last, and the card's last one ends the sentence."""
    weights = {"rate": (-9, 0), "loudness": (-9, 0), "pauses": (0, -9), "pitch": (0, -9)}
    form = small_form(openings=["说话人", "声音"]).weighted(weights)
    ids = [TOY.texts.index(word) for word in said.split()]
    wanted = [TOY.texts.index(word) for word in GUESSES[said].split()]
    for n in range(len(wanted)):
        assert form.guess([*ids, *wanted[:n]], 2) == wanted[n : n + 2]
    assert form.guess(ids, 99) == wanted
