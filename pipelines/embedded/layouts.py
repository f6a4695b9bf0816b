"""The speaker, language and text of each file of a clone.

One public function for each `layout` of recordings.toml. Each yields facts by path; a file that no
table names has no speaker and is left out.
"""

import csv
import io
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

Facts = tuple[str, "Said"]


@dataclass(frozen=True)
class Said:
    """The facts of a file; empty where they are unknown."""

    speaker: str
    language: str
    sex: str = ""
    text: str = ""
    group: str = ""  # the source's own division, where its split rule needs one


@dataclass(frozen=True)
class Clone:
    """Reads one commit: `paths` are its files, `text` decodes one of them."""

    paths: list[str]
    text: Callable[[str], str]


def stem(path: str) -> str:
    """The name of a file without its folder and endings."""
    return path.split("/")[-1].split(".")[0]


def sex_of(told: str) -> str:
    """m or f, by the first letter; empty for other answers."""
    return told[:1] if told[:1] in ("m", "f") else ""


def common_voice(clone: Clone, source: dict) -> Iterator[Facts]:
    """validated.tsv: path, client_id, sentence, gender; the folder is the language where the
    source names none."""
    inside = [p for p in clone.paths if p.startswith(source["base"])]
    for table in (p for p in inside if p.split("/")[-1] == "validated.tsv"):
        folder = table.rpartition("/")[0]
        sounds = (p for p in clone.paths if p.startswith(folder) and p.endswith(".mp3"))
        clips = {p.split("/")[-1]: p for p in sounds}
        language, lines = source.get("language", folder), io.StringIO(clone.text(table))
        for row in csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE):
            if row["path"] in clips:
                about = (sex_of(row.get("gender") or ""), row["sentence"] or "")
                yield clips[row["path"]], Said(row["client_id"], language, *about)


def speechocean(clone: Clone, source: dict) -> Iterator[Facts]:
    """WAVE/SPEAKERnnnn/utterance.WAV; {train,test}/text, spk2gender."""
    texts, sexes, sides = {}, {}, {}
    for side in ("train", "test"):
        texts |= dict(line.split(maxsplit=1) for line in clone.text(f"{side}/text").splitlines())
        rows = dict(line.split() for line in clone.text(f"{side}/spk2gender").splitlines())
        sexes |= rows
        sides |= dict.fromkeys(rows, side)
    for path in clone.paths:
        found = re.match(r"WAVE/SPEAKER(\d+)/(\d+)\.wav", path, re.IGNORECASE)
        if found:
            who, utterance = found.groups()
            about = (sexes.get(who, ""), texts.get(utterance, ""), sides.get(who, ""))
            yield path, Said("SPEAKER" + who, "en", *about)


def librispeech(clone: Clone, source: dict) -> Iterator[Facts]:
    """The speaker is the first number of the file's name; sex in SPEAKERS.TXT."""
    lines = clone.text(source["base"] + "/SPEAKERS.TXT").splitlines()
    rows = [line.split("|") for line in lines if "|" in line]
    sexes = {row[0].strip(): row[1].strip().lower() for row in rows}
    for path in clone.paths:
        who = path.split("/")[-1].split("-")[0]
        yield path, Said(who, "en", sex_of(sexes.get(who, "")))


def aishell1(clone: Clone, source: dict) -> Iterator[Facts]:
    """BAC009S0150W0001.wav with its text beside it."""
    for path in clone.paths:
        found = re.search(r"BAC009(S\d+)W\d+\.wav$", path)
        if found:
            yield path, Said(found[1], "zh-CN", text=clone.text(path[:-4] + ".txt").strip())


def aishell3(clone: Clone, source: dict) -> Iterator[Facts]:
    """SSBnnnn at the front of the name; metadata_hanzi.csv."""
    lines = clone.text(source["base"] + "/metadata_hanzi.csv").splitlines()
    rows = (line.split("\t") for line in lines if "\t" in line)
    texts = {stem(row[0]): row[1] for row in rows}
    for path in clone.paths:
        text = re.sub("[^\u4e00-\u9fff]", "", texts.get(stem(path), ""))
        yield path, Said(stem(path)[:7], "zh-CN", text=text)


def kerstin(clone: Clone, source: dict) -> Iterator[Facts]:
    """metadata.csv: name|text, one woman."""
    rows = (line.split("|") for line in clone.text("metadata.csv").splitlines())
    texts = {row[0].split(".")[0]: row[-1] for row in rows if len(row) > 1}
    for path in clone.paths:
        yield path, Said("kerstin", "de", "f", texts.get(stem(path), ""))


def kathleen(clone: Clone, source: dict) -> Iterator[Facts]:
    """Each .wav has its text beside it, one woman."""
    for path in clone.paths:
        if path.endswith(".wav"):
            text = clone.text(path[:-4] + ".txt").strip()
            yield path, Said("kathleen", "en", "f", text)


def unnamed(clone: Clone, source: dict) -> Iterator[Facts]:
    """Nobody says who speaks, or what: each file counts as a speaker of its own."""
    for path in clone.paths:
        yield path, Said(stem(path), source["language"])
