"""No circle of imports anywhere in streamer/: between files, and between folders."""

import pytest
from imports import PACKAGE, names_of
from places import ROOT


def files():
    """Module -> the modules of ours that it imports; a package stands for its own __init__ alone."""
    own = {".".join(f.relative_to(ROOT).with_suffix("").parts): f for f in PACKAGE.rglob("*.py")}
    own = {name.removesuffix(".__init__"): file for name, file in own.items()}
    graph = {}
    for name, file in own.items():
        inner = (f"{module}.{part}" if part else module for module, part in names_of(file))
        outer = (n if n in own else n.rpartition(".")[0] for n in inner)
        graph[name] = {other for other in outer if other in own} - {name}
    return graph


def folders():
    """The same of folders: the modules right in them; at the top each file stands for itself."""

    def folder_of(module):
        is_folder = (ROOT / module.replace(".", "/")).is_dir()
        parent = module if is_folder else module.rpartition(".")[0]
        return module if parent == "streamer" else parent

    graph = {}
    for name, others in files().items():
        own = graph.setdefault(folder_of(name), set())
        own |= {folder_of(other) for other in others} - {folder_of(name)}
    return graph


@pytest.mark.parametrize("graph", [files, folders])
def test_imports_make_no_circle(graph):
    circles = [each for each in _components(graph()) if len(each) > 1]
    assert circles == []


def _components(graph):
    """Sets of nodes that reach each other."""
    reached = {}
    for start in graph:
        seen, todo = set(), [start]
        while todo:
            new = graph[todo.pop()] - seen
            seen |= new
            todo += new
        reached[start] = seen
    return {frozenset(n for n in reached[m] if m in reached[n]) for m in graph}
