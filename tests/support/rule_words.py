"""A vocabulary for the rules: words and marks, whole and in pieces."""

from __future__ import annotations

from streamer.core.text.vocabulary import Vocabulary

WORDS = [
    *("慢", "慢慢", "音", "音色", "色", "语速", "中", "，", "、", "，请", "、、", "音，", "。"),
    *("！", "色。", "，色。", "“"),
]


MORE = [
    *("哈哈哈", "哈", "a", "Human", " human", "Hum", "an", "hu", "USER", "us", "er", " ", "##"),
    *(".", "9", "速", "。。", "a，"),
]
TOKENS = [
    *(w.encode() for w in WORDS + MORE),
    *(b"\xe9\xbe", b"\x98", b"\xe9", b"\xbe", "龙".encode(), b"<eos>"),
]
VOCABULARY = Vocabulary.build(TOKENS, [len(TOKENS) - 1], [len(TOKENS) - 1], len(TOKENS) + 3)
EOS = len(TOKENS) - 1
ID = {text: i for i, text in enumerate(WORDS + MORE)}
