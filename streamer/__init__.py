"""Describe HOW someone speaks, in one sentence, the moment they stop.

    import streamer

    d = streamer.describe("samples/plain.wav")
    print(d)                                # the sentence
    if rate := d.levels["rate"]:            # one attribute; None without speech
        print(rate.name)
    print(d.measures.rate_syllables_per_s)  # its number

    with streamer.open(mode="exact") as describer:      # models stay loaded
        print(describer.describe("samples/slow_soft.wav"))

Live audio: `Describer.open(...)` and its `session`. A server: `streamer serve`.
Importing this package loads no model code.
"""

from importlib import import_module as _import_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from streamer.public import *  # noqa: F403

__version__ = "0.2.0"


def __dir__() -> list[str]:
    """The public names."""
    found = vars(_import_module("streamer.public"))
    return sorted(["__version__", *(name for name in found if not name.startswith("_"))])


def __getattr__(name: str) -> "Any":
    """Load the public names when one is first used (PEP 562)."""
    if name == "__all__":
        return __dir__()
    found = {} if name.startswith("_") else vars(_import_module("streamer.public"))
    if name not in found:
        raise AttributeError(f"module 'streamer' has no attribute {name!r}")
    return found[name]
