"""docs/options.md, made from the declarations: `make options`."""

from streamer.cli import COMMANDS, options_class
from streamer.config import Config
from streamer.core.declare import REQUIRED, Option, options_of
from streamer.extras import load

HEAD = """# Options

`make options` writes this page. `describe`, `compare`, `listen`, `label`, `serve` and `mcp` take
the model's options, too: as `--max-new-tokens 48`, as a keyword `max_new_tokens=48` in Python, or
as `max_new_tokens = 48` in a pipeline file. A name without `--` is for Python and files only.
Values and defaults stand in parentheses.
"""
FLEET = """
## fleet.toml

[The fleet](fleet.md) explains the file. `[director]` takes the options of `streamer
director`, with _ for -; `[server]` those of `streamer serve` and the model's; `[verifier]`
those of `streamer verifier`. Host, port, key and certificate of the director hold for all."""
COACH = """
## The coach

[The coach](coach.md) explains them. They are keywords of `Coach`, keys of a TOML file,
names of `streamer serve --coach`, and fields of `coach` in `session.streamer`.
"""


def page() -> str:
    """The whole page, in Markdown."""
    shown: set[str] = set()
    parts = [HEAD, "## The model's options\n", _list(Config, shown)]
    for name in COMMANDS:
        own = options_class(name)
        parts += [f"\n## streamer {name}\n", own.__doc__]
        parts += [f"\n{listed}" for listed in [_list(own, shown)] if listed]
    parts += [COACH, _list(load("coach"), shown), FLEET]
    parts += [
        f"\n### {head}\n\n{_list(each, shown)}" for head, each in load("fleet.tables").items()
    ]
    return "\n".join(parts).rstrip() + "\n"


def _list(owner: type, shown: set[str]) -> str:
    """One item for each option; those that are `shown` above in the same words by name only."""
    lines = [(each, _line(each)) for each in options_of(owner)]
    new = [line for _, line in lines if line not in shown]
    old = [f"`{_name(each)}`" for each, line in lines if line in shown]
    shown.update(new)
    return "\n".join([*new, *([f"- As above: {', '.join(old)}"] if old else [])])


def _line(each: Option) -> str:
    takes = "" if each.type is bool or each.positional else each.range or each.placeholder
    takes = f"`{'`, `'.join(each.choices)}`" if each.choices else takes
    default = "" if each.type is bool or each.positional else each.shown_default
    default = "required" if each.default is REQUIRED and not each.positional else default
    told = "; ".join(filter(None, (takes, "" if default == "none" else default)))
    return f"- `{_name(each)}`{f' ({told})' if told else ''}: {each.help}"


def _name(each: Option) -> str:
    if each.positional:
        return f"{each.metavar} ..."
    shown = each.flag if each.group is not None else each.name
    return f"{each.short}, {shown}" if each.short else shown


if __name__ == "__main__":
    print(page(), end="")
