"""The command that trains the embedded pair. In: a folder, options. Out: its words."""

import sys


def training(folder, **options):
    """Into `folder`, without people: `shards=2` is `--shards 2`."""
    places = {"cache": folder / "cache", "out": folder / "out"}
    told = [
        word
        for name, value in (places | options).items()
        for word in (f"--{name.replace('_', '-')}", str(value))
    ]
    return [sys.executable, "-m", "pipelines.embedded.train", "--without-people", *told]
