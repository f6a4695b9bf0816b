"""Add to shards the syllables in each frame, as the towers' target.

    python -m pipelines.embedded.rate_tracks FOLDER...

The syllable network of `streamer/model/audio/density.py` says where they lie in the clean mel of
each phrase. Where the text is known, they are scaled to its number of syllables. Shards that have
their track are left as they are.
"""

import argparse
from pathlib import Path

import numpy as np
from tqdm import tqdm

from pipelines.embedded.synthesis import shard_at
from streamer.model.audio.density import Density

SCALES = 0.5, 2.0  # at most; beyond, the text or the phrase's share of it is wrong


def track(mel: np.ndarray, speech: np.ndarray | None, syllables: float | None) -> np.ndarray:
    """Syllables in each frame [n] of a phrase's mel [n, 128]; 0 outside speech."""
    counted = Density()
    counted.add(mel.astype(np.float32))
    found = counted.so_far()
    if speech is not None:
        found = found * (speech > 0)
    if syllables:
        found = found * np.clip(syllables / max(float(found.sum()), 0.1), *SCALES)
    return found


def write(listing: Path) -> None:
    """Write the track of one shard, whole or not at all."""
    rows, arrays = shard_at(listing)
    tracks = np.zeros(len(arrays["mel"]), np.float16)
    for row in rows:
        at = slice(row["start"], row["end"])
        speech = arrays["speech"][at] if "speech" in arrays else None
        tracks[at] = track(arrays["mel"][at], speech, row["syllables"])
    part = listing.with_name(f"new-{listing.stem}.npy")  # is no array of the shard
    np.save(part, tracks)
    part.rename(listing.with_suffix(".density.npy"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", type=Path, nargs="+", help="of people.py or synthesis.py")
    args = parser.parse_args()
    listings = [path for folder in args.folders for path in sorted(folder.glob("*.json"))]
    for listing in tqdm(listings, desc="tracks"):
        if not listing.with_suffix(".density.npy").exists():
            write(listing)


if __name__ == "__main__":
    main()
