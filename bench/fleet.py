"""How many verifiers do so many people need, what does it cost, and what breaks first? In: costs on
paper. Out: tables, a plot.

`python -m bench.fleet` (3 minutes) simulates one GPU that verifies for many people, in discrete
events: pieces of audio come while they speak, requests when they stop; each step of the model takes
what a roofline allows. So it finds how many people one GPU carries, how much of its work is
hearing, and how soon it recovers when another machine is lost. Fleets are multiples of it.
`python -m bench.fleet --live` measures a real one: bench/fleet_live.py.

The models are a 3B edge and a 7B cloud of Qwen2.5-Omni. Their numbers are counts from the published
configuration; the GPU's are its maker's, at a stated share of them. Measured here: tokens of a
sentence, requests for each, blocks that are asked about (bench/capacity.py, bench/gate.py). What is
assumed says so.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from bench.common import merge, panels, saved, table_of, write
from bench.fleet_live import QUESTIONS, Amounts, measure
from bench.fleet_paper import ARMS
from bench.fleet_tables import breaks, capacities, fleets, lazy_against_eager, slack
from bench.keep import options_of


def plot(
    fleets: list[dict[str, Any]], lazy: list[dict[str, Any]], slack: list[dict[str, Any]]
) -> Path:
    figure, axes = panels(1, 3, (14, 4))
    of = [row for row in fleets if row["people"] == 100_000]
    names = [f"{row['arm']}\n(edge: {row['edge']})" for row in of]
    axes[0].barh(names, [row["dollars_per_1000_speaker_hours"] for row in of], color="#00796b")
    axes[0].invert_yaxis()
    axes[0].set_xlabel("dollars per 1,000 speaker-hours, 100,000 people")
    asked = [row["asked"] for row in lazy]
    axes[1].plot(asked, [row["gpu_ratio"] for row in lazy], "o-", label="GPUs, lazy over eager")
    axes[1].plot(asked, [row["turns_asked"] for row in lazy], ":", label="turns that ask at all")
    axes[1].axhline(1, color="grey", lw=0.5)
    axes[1].set_ylim(0, 1.1)
    axes[1].set_xlabel("share of blocks that are asked about")
    axes[1].legend(loc="lower right")
    for arm in ARMS[1:]:
        mine = [row for row in slack if row["arm"] == arm]
        axes[2].plot([r["machines"] for r in mine], [r["load"] for r in mine], "o-", label=arm)
    axes[2].set_xscale("log", base=2)
    axes[2].set_ylim(0, 1)
    axes[2].set_xlabel("machines, one of which is lost")
    axes[2].set_ylabel("load that recovers within 3 s")
    axes[2].legend()
    return saved(figure, "fleet")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--live", action="store_true", help="measure a real fleet on Ray instead")
    parser.add_argument("--turns", type=int, default=20, help="of each way, live")
    parser.add_argument("--sessions", type=int, default=40, help="while replicas are killed, live")
    parser.add_argument("--kills", type=int, default=4, help="of random replicas, live")
    parser.add_argument("--only", nargs="+", choices=QUESTIONS, default=list(QUESTIONS))
    options = options_of(parser)
    if options.live:
        amounts = Amounts(options.turns, options.sessions, options.kills)
        rows = measure(options.only, amounts)
        print("written:", merge("fleet_live", rows))
        return
    found = capacities()
    tables = {
        "capacities": found,
        "fleets": fleets(found),
        "slack": slack(found),
        "lazy": lazy_against_eager(),
    }
    tables["breaks"] = breaks(tables["fleets"])
    for name, rows in tables.items():
        print(f"\n{name}\n{table_of(rows)}")
    all_rows = [{"table": name, **row} for name, rows in tables.items() for row in rows]
    picture = plot(tables["fleets"], tables["lazy"], tables["slack"])
    print("\nwritten:", write("fleet", all_rows), picture)


if __name__ == "__main__":
    main()
