"""The sentences the models learn: seven levels to one sentence in Chinese or English, and back.

A bar marks where the tokenizer's words end, so that one table gives sentences, phrases and
vocabulary. No word occurs twice in a sentence: the repetition penalty and the n-gram ban have
nothing to act on. Each attribute is a clause of its own, so a sentence about fewer attributes
leaves clauses out.
"""

import random
from typing import NamedTuple

from pipelines.embedded.labels import ATTRIBUTES

Levels = dict[str, list[tuple[str, ...]]]  # per attribute and level: its name, then its phrases
SKEW = (0.6, 0.25, 0.15)  # uniform synonyms would make the greedy choice a coin toss


class Language(NamedTuple):
    """orders: of all attributes but arousal, which comes last; the order whose first two hold the
    most prominent attribute is taken, or the only one."""

    levels: Levels
    openings: tuple[str, ...]
    orders: tuple[tuple[str, ...], ...]
    no_speech: str
    comma: str
    end: str


CHINESE: Levels = {
    "rate": [
        ("很慢", "语速|极慢", "说得|非常|慢", "吐字|十分|缓慢"),
        ("偏慢", "语速|偏慢", "说得|比较|慢", "吐字|略|慢"),
        ("适中", "语速|适中", "说得|不快不慢", "吐字|快慢|合适"),
        ("偏快", "语速|偏快", "说得|比较|快", "吐字|略|快"),
        ("很快", "语速|极快", "说得|非常|快", "吐字|十分|急促"),
    ],
    "pitch": [
        ("低沉", "音调|低沉", "嗓音|浑厚|深沉", "声线|压得|很低"),
        ("偏低", "音调|偏低", "嗓音|稍低", "声线|较低"),
        ("偏高", "音调|偏高", "嗓音|稍高", "声线|较高"),
        ("很高", "音调|高亢", "嗓音|格外|高", "声线|拔得|很高"),
    ],
    "variation": [
        ("平直", "语调|平淡", "起伏|很小", "抑扬|几乎|没有"),
        ("自然", "语调|自然", "起伏|得当", "抑扬|恰到好处"),
        ("丰富", "语调|多变", "起伏|明显", "抑扬|顿挫"),
    ],
    "loudness": [
        ("很轻", "音量|微弱", "声音|很轻", "话音|轻柔"),
        ("偏轻", "音量|偏小", "声音|较轻", "话音|偏轻"),
        ("中等", "音量|中等", "声音|大小|正好", "话音|不大不小"),
        ("响亮", "音量|洪亮", "声音|很大", "话音|响亮"),
    ],
    "pauses": [
        ("连贯", "停顿|很少", "讲话|一气呵成", "语句|连贯|流畅"),
        ("适度", "停顿|适度", "讲话|偶有|间歇", "语句|稍有|间断"),
        ("频繁", "停顿|频繁", "讲话|断断续续", "语句|时断|时续"),
    ],
    "timbre": [
        ("暗沉", "音色|暗沉", "音质|沉闷", "听感|偏暗"),
        ("均衡", "音色|均衡", "音质|匀净", "听感|明暗|得宜"),
        ("明亮", "音色|明亮", "音质|清亮", "听感|清脆|透亮"),
    ],
    "arousal": [
        ("平静", "情绪|平静", "整体|沉稳", "给人|冷静的|感觉"),
        ("平和", "情绪|放松", "整体|从容", "给人|轻松的|感觉"),
        ("激动", "情绪|激动", "整体|亢奋", "给人|热烈的|感觉"),
    ],
}
ENGLISH: Levels = {
    "rate": [
        ("very slow", " very| slow", " quite| unhurried", " extremely| slow"),
        ("slow", " slow", " leisurely", " deliberate"),
        ("medium", " moderately| paced", " measured", " neither| fast| nor| slow"),
        ("fast", " fast", " quick", " brisk"),
        ("very fast", " very| fast", " rapid", " extremely| fast"),
    ],
    "pitch": [
        ("very low", " deep", " remarkably| low|-pitched", " bass"),
        ("low", " low|-pitched", " rather| low", " lowish"),
        ("high", " high|-pitched", " rather| high", " highish"),
        ("very high", " piercing", " remarkably| high|-pitched", " shrill"),
    ],
    "variation": [
        ("flat", " monotone", " flat", " level"),
        ("natural", " naturally| intoned", " gently| melodic", " modulated"),
        ("lively", " expressive", " animated", " lively"),
    ],
    "loudness": [
        ("very soft", " hushed", " barely| audible", " faint"),
        ("soft", " soft", " quiet", " gentle"),
        ("medium", " of| medium| volume", " normally| loud", " moderate| in| volume"),
        ("loud", " loud", " booming", " strong"),
    ],
    "pauses": [
        ("few", " flowing", " hardly| pausing", " fluent"),
        ("some", " pausing| at| times", " occasionally| pausing", " punctuated"),
        ("many", " often| pausing", " halting", " broken| by| pauses"),
    ],
    "timbre": [
        ("dark", " dark", " mellow", " dull"),
        ("balanced", " balanced", " even|-toned", " neutral"),
        ("bright", " bright", " crisp", " clear"),
    ],
    "arousal": [
        ("calm", " calm", " subdued", " composed"),
        ("relaxed", " relaxed", " easygoing", " untroubled"),
        ("excited", " excited", " energetic", " agitated"),
    ],
}  # fmt: skip
LANGUAGES = {
    "zh": Language(
        CHINESE,
        ("说话人", "这位|讲者", "这段|录音里"),
        (
            ("rate", "pauses", "pitch", "variation", "loudness", "timbre"),
            ("pitch", "variation", "loudness", "timbre", "rate", "pauses"),
            ("loudness", "timbre", "rate", "pauses", "pitch", "variation"),
        ),
        "没有|检测|到|说话|声|，|这段|录音里|只|剩|背景|杂音|或者|一片|寂静|，|请|再|试|一次|。",
        "，",
        "。",
    ),
    "en": Language(
        ENGLISH,
        ("The| speaker| is", "This| voice| is", "The| person| heard| is"),
        (("pitch", "timbre", "rate", "variation", "loudness", "pauses"),),
        "No| speech| was| found|,| only| background| noise| or| silence|,| please| try| again|.",
        ",",
        ".",
    ),
}
MARKS = frozenset("，。,.")


def sentence(
    levels: dict[str, int], prominence: dict[str, float], rng: random.Random, language: str = "zh"
) -> list[str]:
    """One sentence as words. The group of the most prominent attribute comes first, arousal
    last."""
    of = LANGUAGES[language]
    lead = max(ATTRIBUTES[:-1], key=lambda name: abs(prominence[name]))
    order = next((order for order in of.orders if lead in order[:2]), of.orders[0])
    words = rng.choices(of.openings, SKEW)[0].split("|")
    for name in (*order, "arousal"):
        words += rng.choices(of.levels[name][levels[name]][1:], SKEW)[0].split("|")
        words.append(of.end if name == "arousal" else of.comma)
    return words


def no_speech(language: str = "zh") -> list[str]:
    return LANGUAGES[language].no_speech.split("|")


def all_words() -> list[str]:
    """Every word that a sentence can hold, sorted, without punctuation."""
    texts: list[str] = []
    for of in LANGUAGES.values():
        texts += [*of.openings, of.no_speech]
        for level in (level for levels in of.levels.values() for level in levels):
            texts += level[1:]
    return sorted({word for text in texts for word in text.split("|")} - MARKS)


def attributes(language: str = "zh") -> dict[str, list[dict]]:
    """The table of `streamer.json`: each attribute's levels, physically lowest first, with their
    names and phrases. Attributes stand in the order in which a sentence names them."""
    of = LANGUAGES[language]
    return {
        name: [
            {"name": level[0], "phrases": [text.replace("|", "").strip() for text in level[1:]]}
            for level in of.levels[name]
        ]
        for name in (*of.orders[0], "arousal")
    }
