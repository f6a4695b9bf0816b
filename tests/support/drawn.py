"""Rules and small vocabularies of any kind, for property tests."""

from hypothesis import strategies as st

from streamer.core.rules.settings import Rules
from streamer.core.text.vocabulary import Vocabulary

PIECES = [
    *("音", "色", "中", "慢", "慢慢", "音色", "色音", "，", "。", "、", "，请", "音，色"),
    *("色。", "。”", "语速", "a", "b1", "A", " ", "_", "\n", "a\nb", "\ufffd", "音\ufffd音"),
    *("Hum", "Human", "an", "系", "统", "！", ".", "哈哈哈", "〇", "İ", "微", "，，", "”"),
    *("us", "er"),
]
SPLIT = [b"\xe9\xbe", b"\x98", b"\x99", b"\xe9"]
BOUNDS = {"ngram": (0, 4), "comma_gap": (0, 5), "end_gap": (0, 8), "min_new_tokens": (0, 16)}
BOUNDS |= {"max_new_tokens": (1, 24), "loop_window": (0, 6), "loop_count": (1, 3)}
BOUNDS |= {"loop_min_ids": (2, 9), "loop_max_period": (0, 8)}
rules_of_any_kind = st.builds(
    Rules,
    repetition_penalty=st.sampled_from([1.0, 1.22, 0.7]),
    **{name: st.integers(*least_most) for name, least_most in BOUNDS.items()},
    **dict.fromkeys(("adjacency", "loop_local", "loop_global", "clean"), st.booleans()),
)


@st.composite
def vocabularies(draw: st.DrawFn) -> Vocabulary:
    """Any of the pieces and words of two of them, some split characters, two ends, padding."""
    pieces = draw(st.lists(st.sampled_from(PIECES), min_size=4, max_size=20, unique=True))
    pairs = draw(st.lists(st.tuples(st.sampled_from(PIECES), st.sampled_from(PIECES)), max_size=6))
    data = [p.encode() for p in [*pieces, *(a + b for a, b in pairs)]] + draw(
        st.sampled_from([[], SPLIT])
    )
    n = len(data)
    return Vocabulary(
        [*data, b"<eos>", b"<end>"], [n, n + 1], [n, n + 1], n + 2 + draw(st.integers(0, 3))
    )
