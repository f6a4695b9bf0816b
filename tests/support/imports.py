"""The imports of a file, those under TYPE_CHECKING and inside functions included."""

import ast
import functools

from places import ROOT

PACKAGE = ROOT / "streamer"


@functools.cache
def names_of(file):
    """(module, name in it or None) of each import, wherever it stands."""
    found = []
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found += [(alias.name, None) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: relative import"
            found += [(node.module, alias.name) for alias in node.names]
    return found
