"""Whether the sentences in two languages say the same levels of the same recordings.

In: recordings, a pair that speaks both. Out: for each attribute the share of recordings with equal
levels; the exit status is 1 where fewer than --least have all levels equal.
"""

import argparse
import sys
from pathlib import Path

import streamer
from streamer.audio.source import recordings_in
from streamer.core.attributes import ATTRIBUTES


def compared(files: list[str], languages: tuple[str, str], **options: str) -> list[dict[str, bool]]:
    """attribute -> whether both sentences say the same level, of each recording with speech."""
    described = {
        language: streamer.describe_many(files, language=language, **options)
        for language in languages
    }
    rows = []
    for file, *both in zip(files, *described.values(), strict=True):
        for found in both:
            if isinstance(found, Exception):
                raise SystemExit(f"{file}: {found}")
        one, other = (found.attributes for found in both)
        if any(level is not None for level in one.values()):
            rows.append({name: one[name] == other[name] for name in ATTRIBUTES})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("recordings", nargs="+", help="files or directories")
    parser.add_argument("--num", type=int, default=600, help="recordings, evenly over all")
    parser.add_argument("--languages", nargs=2, default=("zh", "en"))
    parser.add_argument("--edge", type=Path, default="embedded")
    parser.add_argument("--cloud", type=Path, default="embedded")
    parser.add_argument("--mode", default="exact")
    parser.add_argument("--words", default="measured", help="or models")
    parser.add_argument("--least", type=float, default=0.99, help="share with all levels equal")
    args = parser.parse_args()
    files = [file for path in args.recordings for file in recordings_in(path)]
    files = files[:: max(1, len(files) // args.num)][: args.num]
    models = {"edge": str(args.edge), "cloud": str(args.cloud)}
    rows = compared(files, tuple(args.languages), mode=args.mode, words=args.words, **models)
    if not rows:
        sys.exit("no recording has speech")
    for name in ATTRIBUTES:
        print(f"{name:10} {sum(row[name] for row in rows) / len(rows):.4f}")
    share = sum(all(row.values()) for row in rows) / len(rows)
    print(f"{'all seven':10} {share:.4f} of {len(rows)} recordings")
    sys.exit(share < args.least)


if __name__ == "__main__":
    main()
