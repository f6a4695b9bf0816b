"""In: a model, and the same trained on. Out: a model folder whose weights lie between theirs.

What is trained on for a short time forgets a part of what it knew. Half way between, most of the
new is there and little of the old is lost.
"""

import argparse
from pathlib import Path

from pipelines.embedded.evaluate import open_model
from pipelines.embedded.export import export


def between(before: dict, after: dict, share: float) -> dict:
    """Every weight at `share` of the way from `before` to `after` (0 to 1); both state dicts
    have the same names."""
    return {
        name: before[name] * (1 - share) + weight * share if weight.is_floating_point() else weight
        for name, weight in after.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--name", choices=("edge", "cloud"), required=True)
    parser.add_argument("--before", required=True, help="a model folder, or SIZE=last.pt")
    parser.add_argument("--after", required=True, help="the same, trained on")
    parser.add_argument("--share", type=float, default=0.5)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    before, model = open_model(args.before), open_model(args.after)
    model.load_state_dict(between(before.state_dict(), model.state_dict(), args.share))
    for part in (
        model.config,
        *(getattr(model.config, f"{n}_config") for n in ("audio", "text", "vision")),
    ):
        part.dtype = None
    export(model, args.name, args.out)


if __name__ == "__main__":
    main()
