"""In: the exported pair, held-out clips. Out: the gate's entropy thresholds, written into both `streamer.json`.

Runs exact mode once, so that every block has the cloud's verdict. `fluent` (k 4) uploads the most uncertain blocks
until at most 5 % of all blocks would skip a correction, `quality` (k 6) until at most 2 %. No confidence is claimed.
"""

import argparse
import json
from pathlib import Path

import numpy as np
import soundfile
from tqdm import tqdm

from streamer.config import Config
from streamer.core.verify import Verdict
from streamer.model.drafters import IncrementalDrafter
from streamer.model.turn import Turn
from streamer.models import Models

RISKS = {"fluent": (4, 0.05), "quality": (6, 0.02)}


class Recorder:
    """Stands between a turn and its drafter and verifier: per block the largest entropy, and whether it was changed."""

    def __init__(self) -> None:
        self.blocks: list[tuple[float, bool]] = []
        self._entropies: list[float] = []

    def drafter(self, inner: IncrementalDrafter):
        class Recorded:
            def draft(_, n):
                ids, signals = yield from inner.draft(n)
                self._entropies += [signal.entropy for signal in signals]
                return ids, signals

        return Recorded()

    def verifier(self, inner):
        class Recorded:
            def verify(_, request):
                verdict = yield from inner.verify(request)
                assert isinstance(verdict, Verdict)
                self.blocks.append((max(self._entropies), verdict.n_accepted < len(request.draft)))
                self._entropies.clear()
                return verdict

        return Recorded()


def blocks_of(models: Models, samples: np.ndarray) -> list[tuple[float, bool]]:
    """(largest entropy in nats, changed by the cloud) of every block of one turn."""
    recorder, (edge, cloud) = Recorder(), models.pair
    plan = models.config.plan(models.first.card.presets["fluent"])
    sampling = models.config.sampling()
    turn = Turn(edge, cloud, plan, sampling,
                lambda listener: recorder.drafter(IncrementalDrafter(listener, plan.rules, sampling)))  # fmt: skip
    start = turn._start_verifier
    turn._start_verifier = lambda: recorder.verifier(start())  # type: ignore[method-assign]
    try:
        turn.push(samples)
        turn.finish()
        list(turn.answer())
    finally:
        turn.close()
    return recorder.blocks


def threshold(blocks: list[tuple[float, bool]], risk: float) -> float:
    """The largest entropy that may be skipped so that skipped corrections stay <= risk of all blocks."""
    best = 0.0
    missed = 0
    for entropy, changed in sorted(blocks):
        missed += changed
        if missed > risk * len(blocks):
            break
        best = entropy
    return round(best, 3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--edge", default="embedded")
    parser.add_argument("--cloud", default="embedded")
    parser.add_argument("clips", nargs="+", type=Path, help="held-out recordings at 16 kHz")
    args = parser.parse_args()
    gate = {}
    for preset, (k, risk) in RISKS.items():
        models = Models(Config(mode="exact", k=k, edge=args.edge, cloud=args.cloud))
        blocks = []
        for clip in tqdm(args.clips, desc=preset):
            blocks += blocks_of(models, soundfile.read(clip, dtype="float32")[0])
        limit = threshold(blocks, risk)
        gate[preset] = {"entropy": limit, "k": k}
        uploads = np.mean([entropy > limit for entropy, _ in blocks])
        missed = np.mean([changed and entropy <= limit for entropy, changed in blocks])
        print(f"{preset}: {len(blocks)} blocks, {np.mean([c for _, c in blocks]):.3f} changed, "
              f"threshold {limit} nats uploads {uploads:.3f}, misses {missed:.3f}")  # fmt: skip
    for thinker in models.pair:
        assert thinker is not None
        file = thinker.directory / "streamer.json"
        card = json.loads(file.read_text("utf-8")) | {"gate": gate}
        file.write_text(json.dumps(card, ensure_ascii=False, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
