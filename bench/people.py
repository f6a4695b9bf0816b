"""How often the sentences are right on recordings of people.

    python -m bench.people --data DIR [--noise DIR] [--num 100] [--only table|robust|languages]
                           [--words models]

DIR holds recordings and manifest.jsonl (bench/people_clips.py).

    table      every attribute against the labels, by mode, language, source, sex, length
    robust     levels that change if the same speech is in noise, a room, a codec
    languages  levels that Chinese and English sentences of the same recording say differently

--noise takes a folder of sounds without speech and counts the ones called no speech.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench.common import mean, options_of, progress, rightness, table, table_of, write
from bench.people_changes import CHANGES, Heard
from bench.people_clips import Clip, recordings
from pipelines.embedded.labels import ATTRIBUTES
from pipelines.embedded.speak import SAMPLE_RATE, read
from streamer import Describer, Description

MODES = ("edge", "cloud", "gated", "exact")
TOLD = ("edge", "cloud")  # the other modes say what one of them says
ROBUST_S = (2.0, 10.0)  # lengths of the recordings that are changed
SHORT_S = 1.5  # speech shorter than this may be missed
MIN_GROUP = 30  # clips
NUM_VOICES = 5  # in the babble
SOUNDS = (".wav", ".ogg", ".flac", ".mp3")
Row = dict[str, Any]
Said = Mapping[str, Sequence[Description]]  # mode -> one description per clip
Say = Callable[[str, Sequence[np.ndarray], str], list[Description]]


def speaker(**models: str) -> Say:
    """A function (mode, sounds at 16 kHz, label) -> descriptions, by the public API. models: and
    other options."""

    async def describe_all(mode: str, sounds: Sequence[np.ndarray], what: str) -> list[Description]:
        async with Describer.open(mode=mode, **models) as describer:
            return [
                await describer.describe((sound, SAMPLE_RATE)) for sound in progress(sounds, what)
            ]

    return lambda mode, sounds, what: asyncio.run(describe_all(mode, sounds, what))


def groups(clips: Sequence[Clip]) -> list[tuple[str, str, list[int]]]:
    """(by, name, places) of each group; joined turns count by their length alone."""
    whole = [i for i, clip in enumerate(clips) if not clip.is_joined] or list(range(len(clips)))
    found = [("all", "all", whole)]
    for by in ("language", "source", "sex"):
        members = defaultdict(list)
        for i in whole:
            members[getattr(clips[i], by)].append(i)
        large = {name: own for name, own in sorted(members.items()) if len(own) >= MIN_GROUP}
        rest = [i for name in members if name not in large for i in members[name]]
        found += [(by, name, own) for name, own in {**large, "others": rest}.items() if own]
    for name in sorted({clip.length for clip in clips}):
        found.append(("length", name, [i for i, c in enumerate(clips) if c.length == name]))
    return found


def attribute(pairs: Sequence[tuple[int, int | None]]) -> Row:
    """Scores of (true level, level said); an attribute that is not said is wrong."""
    if not pairs:
        return {"n": 0, "exact": None, "within": None, "bias": None, "constant": None}
    common = Counter(true for true, _ in pairs).most_common(1)[0][1]
    return {
        "n": len(pairs),
        "exact": mean(float(said == true) for true, said in pairs),
        "within": mean(float(said is not None and abs(said - true) <= 1) for true, said in pairs),
        "bias": mean(said - true for true, said in pairs if said is not None),
        "constant": common / len(pairs),
    }


def is_no_speech(found: Description) -> bool:
    """Whether it says that there was no speech."""
    return all(level is None for level in found.attributes.values())


def scored(mode: str, clips: Sequence[Clip], found: Sequence[Description]) -> Row:
    both = list(zip(clips, found, strict=True))
    people = len({(c.source, c.speaker) for c in clips})
    row: Row = {"mode": mode, "clips": len(clips), "speakers": people}
    for name in ATTRIBUTES:
        known = [(c.levels[name], f.attributes.get(name)) for c, f in both if name in c.levels]
        row[name] = attribute(known)
    row["mean"] = mean(row[name]["exact"] for name in ATTRIBUTES if row[name]["n"])
    long = [f for c, f in both if len(c.samples) >= SHORT_S * SAMPLE_RATE]
    row["called no speech"] = sum(map(is_no_speech, long))
    return row


def table_rows(clips: Sequence[Clip], said: Said) -> list[Row]:
    """One row for every group and mode."""
    rows = []
    for by, group, members in groups(clips):
        own = [clips[i] for i in members]
        for mode, found in said.items():
            here = scored(mode, own, [found[i] for i in members])
            rows.append({"by": by, "group": group, **here})
    return rows


def gap_rows(clips: Sequence[Clip], said: Said, base: str = "edge") -> list[Row]:
    """Mean exact of each other mode minus that of `base`, clip by clip, with its standard error."""
    right = {mode: np.array(rights(clips, found)) for mode, found in said.items()}
    rows = []
    for by, group, members in groups(clips):
        for mode in (mode for mode in said if mode != base):
            gaps = (right[mode] - right[base])[members]
            rows.append({"by": by, "group": group, "gap": f"{mode} - {base}", **gap_of(gaps)})
    return rows


def robust_rows(clips: Sequence[Clip], say: Say, changes: Sequence[str]) -> list[Row]:
    """Levels of seven that differ from the clean clip's, by mode and change."""
    changed = {
        name: [CHANGES[name](heard_of(clips, i, name)) for i in progress(range(len(clips)), name)]
        for name in changes
    }
    rows: list[Row] = []
    right: dict[str, list[np.ndarray]] = defaultdict(list)  # of each change, by mode
    for mode in TOLD:
        clean = say(mode, [clip.samples for clip in clips], f"{mode}, clean")
        for name, sounds in {"none": None, **changed}.items():
            found = clean if sounds is None else say(mode, sounds, f"{mode}, {name}")
            rows.append({"mode": mode, "change": name, **against(clips, clean, found)})
            right[name].append(np.array(rights(clips, found)))
    for name, (edge, cloud) in right.items():
        rows.append({"gap": "cloud - edge", "change": name, **gap_of(cloud - edge)})
    return rows


def gap_of(gaps: np.ndarray) -> Row:
    """Mean of differences, clip by clip, with its standard error."""
    error = float(gaps.std(ddof=1) / math.sqrt(len(gaps))) if len(gaps) > 1 else None
    return {"clips": len(gaps), "mean": float(gaps.mean()), "se": error}


def rights(clips: Sequence[Clip], found: Sequence[Description]) -> list[float]:
    return [rightness(clip.levels, said) for clip, said in zip(clips, found, strict=True)]


def heard_of(clips: Sequence[Clip], index: int, name: str) -> Heard:
    """A clip to change; its chance depends on its place and the change alone."""
    clip = clips[index]
    chance = np.random.default_rng([index, zlib.crc32(name.encode())])
    others = [c.samples for c in clips if (c.source, c.speaker) != (clip.source, clip.speaker)]
    picked = chance.permutation(len(others))[:NUM_VOICES]
    voices = [others[i] for i in picked] or [np.roll(clip.samples, len(clip.samples) // 2)]
    return Heard(clip.samples, clip.measures.loudness, voices, chance)


def against(
    clips: Sequence[Clip], clean: Sequence[Description], found: Sequence[Description]
) -> Row:
    both = list(zip(clean, found, strict=True))
    shares = {
        n: mean(float(a.attributes[n] != b.attributes[n]) for a, b in both) for n in ATTRIBUTES
    }
    exact = mean(rights(clips, found))
    return {"clips": len(clips), "levels changed": sum(shares.values()), **shares, "exact": exact}


def language_rows(clips: Sequence[Clip], **models: str) -> list[Row]:
    """Shares of recordings whose sentences in two languages say other levels, by mode."""
    sounds, rows = [clip.samples for clip in clips], []
    for mode in ("edge", "exact"):
        both = [speaker(language=each, **models)(mode, sounds, each) for each in ("zh", "en")]
        same = mean(float(a.attributes == b.attributes) for a, b in zip(*both, strict=True))
        rows.append({"mode": mode, **against(clips, *both), "all equal": same})
    return rows


def noise_rows(folder: Path, say: Say) -> list[Row]:
    """Share of sounds without speech that are called so, by mode and subfolder."""
    files = sorted(file for file in folder.rglob("*") if file.suffix.lower() in SOUNDS)
    if not files:
        raise SystemExit(f"{folder} holds no {', '.join(SOUNDS)}; --noise takes recorded noises")
    sounds = [read(file) for file in progress(files, "reading the noises")]
    rows = []
    for mode in TOLD:
        quiet = [is_no_speech(found) for found in say(mode, sounds, f"{mode}, noises")]
        for kind in ("all", *sorted({file.parent.name for file in files})):
            own = [q for q, f in zip(quiet, files, strict=True) if kind in ("all", f.parent.name)]
            share = mean(map(float, own))
            rows.append({"mode": mode, "noise": kind, "clips": len(own), "no speech": share})
    return rows


def run_table(clips: Sequence[Clip], say: Say, name: str, modes: Sequence[str]) -> None:
    said = {mode: say(mode, [clip.samples for clip in clips], mode) for mode in modes}
    rows, gaps = table_rows(clips, said), gap_rows(clips, said)
    header = ("group", "mode", "clips", "people", *ATTRIBUTES, "mean", "called no speech")
    cells = []
    for row in (row for row in rows if row["by"] == "all" or row["mode"] in TOLD):
        exact = [row[n]["exact"] if row[n]["n"] else "-" for n in ATTRIBUTES]
        first = [f"{row['by']} {row['group']}", row["mode"], row["clips"], row["speakers"]]
        cells.append([*first, *exact, row["mean"], row["called no speech"]])
    print(table(header, cells))
    print(f"\nMean exact against the edge's, clip by clip\n\n{table_of(gaps)}")
    print("written:", write(name, [*rows, *gaps]))


def show(title: str, name: str, rows: Sequence[Row], more: Sequence[Row] = ()) -> None:
    print(f"\n{title}\n\n{table_of(rows)}\n\nwritten: {write(name, [*rows, *more])}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="a folder of recordings and their manifest.jsonl")
    parser.add_argument("--noise", type=Path, help="a folder of recordings without speech")
    parser.add_argument("--num", type=int, help="recordings of --data; default all")
    parser.add_argument("--only", choices=("table", "robust", "languages"))
    parser.add_argument("--robust", type=int, default=60, help="recordings whose sound is changed")
    told = "of the sound, again for each; default all"
    parser.add_argument("--change", action="append", choices=CHANGES, help=told)
    parser.add_argument("--edge", default="embedded", help="the edge model")
    parser.add_argument("--cloud", default="embedded", help="the cloud model")
    parser.add_argument("--words", default="measured", help="or models: without the measures")
    parser.add_argument("--name", default="people", help="of the files that are written")
    options = options_of(parser)
    if options.data is None and options.noise is None:
        parser.error("give --data DIR, recordings with a manifest.jsonl, or --noise DIR")
    models = {"edge": options.edge, "cloud": options.cloud, "words": options.words}
    say = speaker(**models)
    clips = recordings(options.data, options.num) if options.data else []
    if clips and options.only in (None, "table"):
        modes = TOLD if options.words == "models" else MODES
        run_table(clips, say, options.name, modes)
    if clips and options.only in (None, "languages"):
        rows = language_rows(clips, **models)
        show("Levels that differ between the languages", f"{options.name}_languages", rows)
    if clips and options.only in (None, "robust"):
        low, high = (SAMPLE_RATE * s for s in ROBUST_S)
        some = [c for c in clips if not c.is_joined and low <= len(c.samples) <= high]
        rows = robust_rows(some[: options.robust], say, options.change or tuple(CHANGES))
        gaps = [row for row in rows if "gap" in row]
        print(f"\nThe cloud against the edge\n\n{table_of(gaps)}")
        show("Levels that change", f"{options.name}_robust", rows[: -len(gaps)], gaps)
    if options.noise:
        rows = noise_rows(options.noise, say)
        show("Sounds without speech", f"{options.name}_noise", rows)


if __name__ == "__main__":
    main()
