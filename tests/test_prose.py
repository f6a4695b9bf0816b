"""Comments, docstrings, messages and docs are plain English: seven habits stay rare.

The bound of an area is the highest rate of any habit, per 10,000 words. Lower it after a rewrite.
"""

import ast
import io
import re
import tokenize
from pathlib import Path

import pytest
from places import ROOT

HABITS = {
    "a sentence that begins with What": r"(?:^|[.;:!] )What (?![^.]*\?)",
    "a sentence that begins with Of": r"(?:^|[.;:!] )Of (?!course)",
    "behind for after": r"\bbehind\b",
    "so many, so much, so long": r"\bso (?:many|much|few|long)\b",
    "nobody, whoever": r"\b(?:nobody|whoever)\b",
    "who as a noun": r"(?:^|[.;:!] )Who (?![^.]*\?)|\b(?:to|of|by|for|with|from) who\b",
    "is told": r"\b(?:is|are|was|were|be|been) told\b",
}
LEAST_WORDS = 4  # of a message
BOUNDS = {  # places -> how many
    "streamer/core/decoding streamer/core/link streamer/stages streamer/net tests/core/decoding": 0,
    "tests/deploy tests/net/link tests/net/realtime tests/net/service tests/stages": 0,
    "streamer streamer/commands pipelines bench README.md": 2,
    "streamer/model streamer/extras clients docs": 3,
    "streamer/core": 5,
    "tests": 23,
}
BOUNDS = {place: most for places, most in BOUNDS.items() for place in places.split()}


def texts_of_python(source):
    """Docstrings, messages, and comments, of which consecutive lines are one text."""
    for node in ast.walk(ast.parse(source)):
        text = node.value if isinstance(node, ast.Constant) else None
        if isinstance(text, str) and len(text.split()) >= LEAST_WORDS:
            yield text
    comments = {}  # the last line of each -> its text so far
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            line, said = token.start[0], token.string.lstrip("#: ")
            comments[line] = f"{comments.pop(line - 1, '')} {said}"
    yield from comments.values()


def texts_of(path):
    source = path.read_text("utf-8")
    if path.suffix == ".py":
        return texts_of_python(source)
    if path.suffix == ".js":
        return re.findall(r"// (.*)", source)
    prose = re.sub(r"```.*?```|<!--.*?-->|`[^`\n]*`", " ", source, flags=re.S)
    return re.split(r"\n\s*\n|\n *(?:[-*|#]|\d+\.) ?", prose)


def files_of(area):
    place = ROOT / area
    if place.is_file():
        return [place]
    inner = [ROOT / other for other in BOUNDS if other.startswith(area + "/")]
    inner.append(Path(__file__))  # it quotes the habits
    found = [path for suffix in ("py", "js", "md") for path in place.rglob(f"*.{suffix}")]
    return [f for f in found if not any(f.is_relative_to(each) for each in inner)]


@pytest.mark.parametrize("area", BOUNDS)
def test_habits_are_rare(area):
    texts = [
        (path.relative_to(ROOT), re.sub(r"\s+", " ", text).strip())
        for path in files_of(area)
        for text in texts_of(path)
    ]
    num_words = sum(len(text.split()) for _, text in texts)
    for habit, pattern in HABITS.items():
        hits = [(path, text) for path, text in texts for _ in re.finditer(pattern, text)]
        rate = 10_000 * len(hits) / max(1, num_words)
        told = "\n".join(f"{path}: {text[:150]}" for path, text in hits[:10])
        assert rate <= BOUNDS[area], f"{habit}: {rate:.1f} per 10,000 words\n{told}"


def test_habits_are_found():
    text = "What is sent is kept. Of each one part is told to who waits behind it, so long as nobody asks."
    assert [len(re.findall(pattern, text)) for pattern in HABITS.values()] == [1] * len(HABITS)
