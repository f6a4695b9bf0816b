"""No circle of imports anywhere in streamer/: between files, and between folders.

Imports under TYPE_CHECKING and inside functions count: whoever needs a name needs the file. A
folder's files are the modules right in it; at the top each file stands for itself.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import cache

from places import ROOT

PACKAGE = ROOT / "streamer"
Graph = Mapping[str, set[str]]


def modules() -> dict[str, str]:
    """Module -> its source."""
    found = {}
    for file in PACKAGE.rglob("*.py"):
        name = ".".join(file.relative_to(ROOT).with_suffix("").parts)
        found[name.removesuffix(".__init__")] = file.read_text("utf-8")
    return found


def imported(source: str) -> Iterator[str]:
    """All names that a source imports from us, wherever in it: `a.b`, and `a.b.c` of `from a.b
    import c`."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@cache
def files() -> Graph:
    """Module -> the modules it imports; a package stands for its own __init__ alone."""
    sources = modules()
    graph: dict[str, set[str]] = {}
    for name, source in sources.items():
        own = set()
        for found in imported(source):
            parent = found.rpartition(".")[0]
            own |= {found} & sources.keys() or {parent} & sources.keys()
        graph[name] = own - {name}
    return graph


def folder_of(module: str) -> str:
    is_folder = (ROOT / module.replace(".", "/")).is_dir()
    parent = module if is_folder else module.rpartition(".")[0]
    return module if parent == "streamer" else parent


def folders() -> Graph:
    graph: dict[str, set[str]] = {}
    for name, others in files().items():
        own = graph.setdefault(folder_of(name), set())
        own |= {folder_of(other) for other in others} - {folder_of(name)}
    return graph


def circles(graph: Graph) -> list[set[str]]:
    """Sets of nodes each of which reaches all the others."""
    reached = {node: _reach(graph, node) for node in graph}
    found: list[set[str]] = []
    for node, others in reached.items():
        circle = {other for other in others if node in reached[other]}
        if node in circle and circle not in found:
            found.append(circle)
    return found


def _reach(graph: Graph, start: str) -> set[str]:
    seen: set[str] = set()
    todo = [start]
    while todo:
        for other in graph[todo.pop()] - seen:
            seen.add(other)
            todo.append(other)
    return seen


def test_files_import_each_other_in_no_circle() -> None:
    assert circles(files()) == []


def test_folders_import_each_other_in_no_circle() -> None:
    assert circles(folders()) == []
