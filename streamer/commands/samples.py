"""`streamer samples`: lists or copies the bundled recordings and the client."""

from __future__ import annotations

import shutil
from importlib.resources import files
from pathlib import Path

from streamer.commands.options import SamplesOptions
from streamer.commands.process import fail, put


def run(options: SamplesOptions) -> int:
    """List their paths, or copy them; the exit status is 1 if they cannot be copied."""
    found = bundled()
    if options.copy is None:
        for file in found:
            put(str(file))
        return 0
    directory = Path(options.copy)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        copies = [shutil.copyfile(file, directory / file.name) for file in found]
    except OSError as error:
        fail(f"{directory}: cannot be written ({error.strerror}); choose another with --copy")
        return 1
    for copy in copies:
        put(str(copy))
    return 0


def bundled() -> list[Path]:
    """Recordings, then the client."""
    home = Path(str(files("streamer"))) / "data"
    return [*sorted(home.glob("samples/*.wav")), *sorted(home.glob("clients/*.py"))]
