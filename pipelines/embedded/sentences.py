"""In: the seven levels (and how far each is from ordinary). Out: one Chinese sentence; and back
again.

A bar marks where the tokenizer's words end, so that the same table gives sentences, phrases and
vocabulary. In one sentence no word stands twice: the repetition penalty and the n-gram ban have
nothing to act on.
"""

import random

from pipelines.embedded.labels import ATTRIBUTES

LEVELS = {
    "rate": [
        ("很慢", "语速|极慢", "说得|非常|慢", "吐字|十分|迟缓"),
        ("偏慢", "语速|偏慢", "说得|比较|慢", "吐字|略显|缓慢"),
        ("适中", "语速|适中", "说得|不快不慢", "吐字|快慢|合适"),
        ("偏快", "语速|偏快", "说得|比较|快", "吐字|略显|急促"),
        ("很快", "语速|极快", "说得|非常|快", "吐字|十分|迅速"),
    ],
    "pitch": [
        ("低沉", "音调|低沉", "嗓音|压得|很低", "音高|处在|低处"),
        ("偏低", "音调|偏低", "嗓音|稍微|低些", "音高|居于|中低"),
        ("偏高", "音调|偏高", "嗓音|稍微|高些", "音高|居于|中高"),
        ("很高", "音调|高亢", "嗓音|拔得|很高", "音高|处在|高处"),
    ],
    "variation": [
        ("平直", "语调|平直", "起伏|几乎|没有", "抑扬|变化|极少"),
        ("自然", "语调|自然", "起伏|恰到好处", "抑扬|变化|得当"),
        ("丰富", "语调|多变", "起伏|相当|剧烈", "抑扬|变化|丰富"),
    ],
    "loudness": [
        ("很轻", "音量|微弱", "声音|放得|很轻", "响度|特别|小"),
        ("偏轻", "音量|偏小", "声音|放得|较轻", "响度|不太|大"),
        ("中等", "音量|中等", "声音|大小|正好", "响度|较为|合宜"),
        ("响亮", "音量|洪亮", "声音|放得|很响", "响度|特别|大"),
    ],
    "pauses": [
        ("连贯", "停顿|很少", "话语|连贯|流畅", "句间|衔接|紧密"),
        ("适度", "停顿|适度", "话语|偶有|间歇", "句间|稍作|歇息"),
        ("频繁", "停顿|频繁", "话语|时断|时续", "句间|空隙|不少"),
    ],
    "timbre": [
        ("暗沉", "音色|暗沉", "音质|浑厚|发闷", "嗓子|听着|发暗"),
        ("均衡", "音色|均衡", "音质|明暗|得宜", "嗓子|听着|匀净"),
        ("明亮", "音色|明亮", "音质|清脆|透亮", "嗓子|听着|亮堂"),
    ],
    "arousal": [
        ("平静", "情绪|平静", "整体|显得|沉稳", "给人|冷静的|感觉"),
        ("平和", "情绪|放松", "整体|显得|从容", "给人|轻松的|感觉"),
        ("激动", "情绪|激动", "整体|显得|亢奋", "给人|热烈的|感觉"),
    ],
}
OPENINGS = ("说话人", "这位|讲者", "这段|录音里")
NO_SPEECH = "没有|检测|到|说话|声|，|这段|录音里|只|剩|背景|杂音|或者|一片|寂静|，|请|再|试|一次|。"
SKEW = (0.6, 0.25, 0.15)  # uniform synonyms would make the greedy choice a coin toss
ORDERS = (
    ("rate", "pauses", "pitch", "variation", "loudness", "timbre"),
    ("pitch", "variation", "loudness", "timbre", "rate", "pauses"),
    ("loudness", "timbre", "rate", "pauses", "pitch", "variation"),
)


def sentence(levels: dict[str, int], prominence: dict[str, float], rng: random.Random) -> list[str]:
    """One sentence as words. The group that holds the most prominent attribute comes first,
    arousal last."""
    lead = max(ATTRIBUTES[:-1], key=lambda name: abs(prominence[name]))
    order = next(order for order in ORDERS if lead in order[:2])
    words = rng.choices(OPENINGS, SKEW)[0].split("|")
    for name in (*order, "arousal"):
        words += rng.choices(LEVELS[name][levels[name]][1:], SKEW)[0].split("|")
        words.append("。" if name == "arousal" else "，")
    return words


def no_speech() -> list[str]:
    return NO_SPEECH.split("|")


def all_words() -> list[str]:
    """Every word the grammar can say, sorted, punctuation left out."""
    phrases = [text for levels in LEVELS.values() for level in levels for text in level[1:]]
    words = {word for text in (*phrases, *OPENINGS, NO_SPEECH) for word in text.split("|")}
    return sorted(words - {"，", "。"})


def attributes() -> dict[str, list[dict]]:
    """The table of `streamer.json`: per attribute its levels, physically lowest first, with all
    their phrases."""
    return {
        name: [
            {"name": level[0], "phrases": [text.replace("|", "") for text in level[1:]]}
            for level in levels
        ]
        for name, levels in LEVELS.items()
    }


def parse(text: str) -> dict[str, int | None]:
    """A sentence back into levels: phrases by longest match first, not overlapping; None where
    absent."""
    table = {
        p: (name, i)
        for name, levels in attributes().items()
        for i, lv in enumerate(levels)
        for p in lv["phrases"]
    }
    found: dict[str, int | None] = dict.fromkeys(LEVELS)
    for phrase in sorted(table, key=len, reverse=True):
        if phrase in text:
            name, level = table[phrase]
            found[name] = level if found[name] is None else found[name]
            text = text.replace(phrase, "\n")
    return found
