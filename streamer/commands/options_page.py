"""docs/options.md, made from the declarations: `python -m streamer.commands.options_page`."""

from __future__ import annotations

from streamer.commands.table import COMMANDS
from streamer.config import Config
from streamer.core.declare import REQUIRED, Option, options_of
from streamer.extras import load

HEAD = """# Options

This page is generated: `make options` writes it, and a test holds it current.

The model's options have three forms. On the command line `--max-new-tokens 48`; as a keyword
`Describer.open(max_new_tokens=48)`; in a pipeline file `max_new_tokens = 48`. Options on the
command line override a pipeline file. An option cannot be shortened or given twice. The error of
a mistyped one names the nearest right one.

`streamer describe`, `streamer label` and `streamer serve` take the model's options, shown by
`--help-all`. A name without `--` is for Python and pipeline files only. The options of each
command follow.
"""
TABLE = "| option | takes | default | what it does | example |\n|---|---|---|---|---|"


FLEET = """
## fleet.toml

[The fleet](fleet.md) explains the file. `[director]` takes the options of `streamer
director`, with _ for -. So do `[server]` those of `streamer serve` and the model's, `[verifier]`
those of `streamer verifier`; host, port, key and certificate of the director hold for all."""
COACH = """
## The coach

[The coach](coach.md) explains them. They are keywords of `Coach`, keys of a TOML file,
names of `streamer serve --coach`, and fields of `coach` in `session.streamer`.
"""


def page() -> str:
    """The whole page, in Markdown."""
    parts = [HEAD, "## The model's options\n", _table(Config)]
    for name, command in COMMANDS.items():
        parts += [f"\n## streamer {name}\n", f"{command.description}\n", _table(command.options)]
    parts += [COACH, _table(load("coach")), FLEET]
    parts += [f"\n### {head}\n\n{_table(owner)}" for head, owner in load("fleet.tables").items()]
    return "\n".join(parts).rstrip() + "\n"


def _table(owner: type) -> str:
    rows = [_row(each) for each in options_of(owner)]
    return "\n".join([TABLE, *rows]) if rows else "No options."


def _row(each: Option) -> str:
    shown = each.flag if each.group is not None else each.name
    shown = f"{each.short}, {shown}" if each.short else shown
    shown = f"{each.metavar} ..." if each.positional else shown
    default = "required" if each.default is REQUIRED else each.shown_default
    default = "off" if each.is_switch else "" if each.positional else default
    takes = "" if each.is_switch or each.positional else each.range or each.placeholder
    takes = "`" + "`, `".join(each.choices) + "`" if each.choices else takes
    example = f"`{each.flag} {each.example}`" if each.example and each.group else ""
    cells = (f"`{shown}`", takes, default, each.help, example)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


if __name__ == "__main__":
    print(page(), end="")
