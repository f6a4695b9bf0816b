"""Clips of people from local clones of the repositories in recordings.toml, each on its side of
the split.

Nothing is downloaded and nothing of a recording is committed. Speakers are split by a hash of their
name: a person is on one side, whichever source they come from.
"""

import argparse
import hashlib
import io
import random
import re
import subprocess
import tomllib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import soundfile

from pipelines.embedded import layouts
from pipelines.embedded.layouts import Clone, Said
from pipelines.embedded.speak import SAMPLE_RATE, read

TABLE = Path(__file__).with_name("recordings.toml")
OF_NOISE = {"min_bytes": 200, "min_seconds": 0.5, "max_seconds": 600.0}
OF_NOISE |= {"min_level_dbfs": -90.0, "max_clipped": 1.0}


@dataclass(frozen=True)
class Clip:
    """One recording that has not been decoded yet."""

    source: str
    path: str
    blob: str  # git's object name
    git: Path
    said: Said
    held: bool

    @property
    def speaker(self) -> str:
        return self.said.speaker


def table() -> dict:
    """recordings.toml: `source` and `noise`, with the `filters` of a clip."""
    return tomllib.loads(TABLE.read_text("utf-8"))


def git_folder(clones: Path, repository: str, commit: str) -> Path | None:
    """The git directory of a clone that holds `commit`: DIR/name, DIR/owner+name or
    DIR/owner/name, bare or not."""
    owner, name = repository.removesuffix(".git").split("/")[-2:]
    folders = [clones / name, clones / f"{owner}+{name}", clones / owner / name]
    for folder in [f / inner for f in folders for inner in (".git", ".", "repo/.git", "repo")]:
        if (folder / "HEAD").exists() and _has(folder, commit):
            return folder
    return None


def _has(git: Path, commit: str) -> bool:
    command = ["git", "--git-dir", git, "cat-file", "-e", commit + "^{tree}"]
    return subprocess.run(command, capture_output=True).returncode == 0


def missing(clones: Path, rows: list[dict]) -> list[str]:
    """One line for each repository that is not there, with the commands that bring it."""
    found, lines = set(), []
    for row in rows:
        repository, commit = row["repository"], row["commit"]
        if (repository, commit) in found or git_folder(clones, repository, commit):
            continue
        found.add((repository, commit))
        folder = clones / "+".join(repository.split("/")[-2:])
        how = f"git clone {repository} {folder} && git -C {folder} checkout {commit}"
        lines.append(f"{row['id']} is missing; get it with: {how}")
    return lines


def held_out(speaker: str, source: dict, group: str = "") -> bool:
    """Which side a speaker is on: by the source, else one in seven by hash (speechocean: of its
    own test side)."""
    if "side" in source:
        return source["side"] == "held"
    if "held_speakers" in source:
        return speaker in source["held_speakers"]
    number = hashed(f"streamer-heldout:{speaker}")
    if source["layout"] == "speechocean":
        return group == "test" and number % 5 < 2
    return number % 7 == 0


def hashed(name: str) -> int:
    """A number of 32 bits, the same for the same name."""
    return int(hashlib.sha1(name.encode()).hexdigest()[:8], 16)


def listed(git: Path, commit: str) -> dict[str, str]:
    """Path to blob of every file at `commit`."""
    command = ["git", "--git-dir", git, "ls-tree", "-r", "-z", commit]
    told = subprocess.run(command, capture_output=True, check=True).stdout
    rows = (
        row.split("\t", 1) for row in told.decode("utf-8", "replace").split("\0") if "\t" in row
    )
    return {path: facts.split()[2] for facts, path in rows}


def clips(clones: Path, source: dict, seed: int = 0) -> list[Clip]:
    """The clips of one source, shuffled, at most `cap` of a speaker; none where the clone is
    missing."""
    git = git_folder(clones, source["repository"], source["commit"])
    if git is None:
        return []
    blobs = listed(git, source["commit"])
    wanted = [path for path in blobs if re.search(source["paths"], path)]
    sounds = (".mp3", ".wav", ".flac", ".webm")
    tables = [path for path in blobs if not path.lower().endswith(sounds)]
    with blobs_of(git) as blob:
        clone = Clone(wanted + tables, lambda path: blob(blobs[path]).decode("utf-8", "replace"))
        facts = dict(getattr(layouts, source["layout"])(clone, source))
    left_out = source.get("exclude", ())
    inside = [path for path in wanted if path in facts and facts[path].speaker not in left_out]
    random.Random(f"{seed}/{source['id']}").shuffle(inside)
    count: Counter[str] = Counter()
    result = []
    for path in inside:
        said = facts[path]
        count[said.speaker] += 1
        if count[said.speaker] <= source["cap"]:
            side = held_out(said.speaker, source, said.group)
            result.append(Clip(source["id"], path, blobs[path], git, said, side))
    return result


def by_speaker(clones: Path, source: dict, wanted: Callable[[Clip], bool]) -> dict[str, list[Clip]]:
    """The clips of one source that are wanted, of each speaker by their name."""
    found = defaultdict(list)
    for clip in clips(clones, source):
        if wanted(clip):
            found[clip.speaker].append(clip)
    return {speaker: found[speaker] for speaker in sorted(found)}


@contextmanager
def blobs_of(git: Path) -> Iterator[Callable[[str], bytes]]:
    """`git cat-file --batch` of one repository: object name to bytes. The function raises KeyError
    where the clone lacks the object."""
    command = ["git", "--git-dir", git, "cat-file", "--batch"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:

        def read_blob(blob: str) -> bytes:
            process.stdin.write(blob.encode() + b"\n")
            process.stdin.flush()
            header = process.stdout.readline().split()
            if len(header) < 3:
                raise KeyError(blob)
            return process.stdout.read(int(header[2]) + 1)[:-1]

        yield read_blob


def decode(data: bytes, filters: dict) -> np.ndarray:
    """Mono float32 samples at 16 kHz. Raises ValueError for what the filters leave out."""
    if len(data) < filters["min_bytes"]:
        raise ValueError("no audio in it: missing, or a pointer to a large file")
    try:
        samples = read(io.BytesIO(data))
    except soundfile.LibsndfileError as error:
        raise ValueError(f"cannot be decoded: {error}") from error
    if not filters["min_seconds"] <= len(samples) / SAMPLE_RATE <= filters["max_seconds"]:
        raise ValueError("too short or too long")
    if 10 * np.log10(np.mean(samples**2) + 1e-12) < filters["min_level_dbfs"]:
        raise ValueError("too soft")
    if np.mean(np.abs(samples) > 0.999) > filters["max_clipped"]:
        raise ValueError("clipped")
    return samples


def decoded(chosen: list[Clip], filters: dict | None = None) -> Iterator[tuple[Clip, np.ndarray]]:
    """Each clip with its samples; those that the filters leave out are passed over."""
    filters = filters or table()["filters"]
    with ExitStack() as stack:
        opened = cache(lambda git: stack.enter_context(blobs_of(git)))
        for clip in chosen:
            with suppress(ValueError, KeyError):
                yield clip, decode(opened(clip.git)(clip.blob), filters)


def noises(clones: Path) -> list[tuple[str, np.ndarray]]:
    """(path, samples at 16 kHz) of the noise sources that are there."""
    found = []
    for row in table()["noise"]:
        git = git_folder(clones, row["repository"], row["commit"])
        blobs = listed(git, row["commit"]) if git else {}
        paths = sorted(path for path in blobs if re.search(row["paths"], path))
        clips = [Clip(row["id"], path, blobs[path], git, Said("", ""), False) for path in paths]
        found += [(clip.path, samples) for clip, samples in decoded(clips, OF_NOISE)]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clones", type=Path, required=True, help="folder of the clones")
    args = parser.parse_args()
    known = table()
    for line in missing(args.clones, known["source"] + known["noise"]):
        print(line)
    for source in known["source"]:
        found = clips(args.clones, source)
        people = {clip.speaker: clip.held for clip in found}
        told = f"{len(found)} clips of {len(people)} people, {sum(people.values())} held out"
        print(f"{source['id']}: {told}")


if __name__ == "__main__":
    main()
