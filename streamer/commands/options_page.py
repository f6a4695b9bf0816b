"""docs/options.md, made from the declarations: `python -m streamer.commands.options_page`."""

from __future__ import annotations

from dataclasses import MISSING, Field
from typing import Any

from streamer.commands.table import COMMANDS
from streamer.config import Config
from streamer.core.coach.coach import Coach
from streamer.core.declare import About, Kind, declared, flag_of, metavar_of, shown_default
from streamer.extras import load

HEAD = """# Options

This page is generated: `make options` writes it, and a test holds it current.

The model's options have three forms. On the command line `--max-new-tokens 48`; as a keyword
`Describer.open(max_new_tokens=48)`; in a pipeline file `max_new_tokens = 48`. What is given on the
command line wins over a pipeline file. An option cannot be shortened, and a wrong one is told with
the nearest right one.

`streamer describe` and `streamer serve` take the model's options. Each command's own follow them.
"""
TABLE = "| option | takes | default | what it does | example |\n|---|---|---|---|---|"


FLEET = """
## fleet.toml

[The fleet](fleet.md) tells what the file is for. `[director]` takes the options of `streamer
director`, with _ for -. So do `[server]` those of `streamer serve` and the model's, `[verifier]`
those of `streamer verifier`; host, port, key and certificate of the director hold for all."""
COACH = """
## The coach

[The coach](coach.md) tells what these mean. They are keywords of `Coach`, keys of a TOML file,
names of `streamer serve --coach`, and fields of `coach` in `session.streamer`.
"""
FLEET_TABLES = load("fleet.tables")


def page() -> str:
    """The whole page, in Markdown."""
    parts = [HEAD, "## The model's options\n", _table(Config)]
    for name, command in COMMANDS.items():
        rows = _table(command.options)
        parts += [f"\n## streamer {name}\n", f"{command.description}\n", rows]
    parts += [COACH, _table(Coach)]
    parts += [FLEET]
    parts += [f"\n### {head}\n\n{_table(owner)}" for head, owner in FLEET_TABLES.items()]
    return "\n".join(parts).rstrip() + "\n"


def _table(owner: type) -> str:
    rows = [_row(*each) for each in declared(owner)]
    return "\n".join([TABLE, *rows]) if rows else "No options."


def _row(each: Field[Any], about: About, kind: Kind) -> str:
    default = "required" if each.default is MISSING else shown_default(each, about)
    default = "off" if kind.type is bool else "" if about.is_argument else default
    flag = flag_of(each.name)
    shown = f"{about.short}, {flag}" if about.short else flag
    if about.is_argument:
        shown = f"{about.metavar} ..."
    elif about.group is None:
        shown = each.name
    takes = "`, `".join(kind.choices) or about.range() or _type(each, about, kind)
    takes = f"`{takes}`" if kind.choices else takes
    example = f"`{flag} {about.example}`" if about.example and about.group else ""
    cells = (f"`{shown}`", takes, default, about.help, example)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _type(each: Field[Any], about: About, kind: Kind) -> str:
    if kind.type is bool or about.is_argument:
        return ""
    return metavar_of(each.name, about, kind)


if __name__ == "__main__":
    print(page(), end="")
