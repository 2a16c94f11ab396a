"""The command: runs the benchmarks one after the other and draws one table."""

import argparse
import json
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from . import acks, cleanup, completing, flat, page, spark, triggerer, watcher
from .databases import Servers, servers
from .measure import QUICK, TINY, Line, Say, Sizes

Bench = Callable[[Servers, Sizes, Say], list[Line]]


def _ui(servers: Servers, sizes: Sizes, say: Say) -> list[Line]:
    """It imports Airflow's server, which no other benchmark should pay for."""
    from . import browser, ui  # noqa: PLC0415

    return [*ui.bench(servers, sizes, say), *browser.bench(servers, sizes, say)]


BENCHES: dict[str, Bench] = {
    "acks": acks.bench,
    "flat": flat.bench,
    "watcher": watcher.bench,
    "cleanup": cleanup.bench,
    "complete": completing.bench,
    "page": page.bench,
    "ui": _ui,
    "triggerer": triggerer.bench,
    "spark-throughput": spark.THROUGHPUT,
    "spark-copies": spark.COPIES,
    "spark-partitions": spark.PARTITIONS,
    "spark-sinks": spark.SINKS,
}
GROUPS = {"spark": [name for name in BENCHES if name.startswith("spark-")]}


_HELP = f"{', '.join(BENCHES)}; {', '.join(GROUPS)}: all that begin with it"


def main(arguments: Sequence[str] | None = None) -> int:
    """0, unless a benchmark crashed or, with --strict, missed its goal."""
    options = _parse(arguments)
    console = Console(width=None if sys.stdout.isatty() else 150)  # a file or a pipe has room
    sizes = TINY if options.tiny else QUICK if options.quick else Sizes()
    lines, crashed = _run(_named(options.only) or list(BENCHES), sizes, console)
    console.print(_draw(lines))
    if options.json is not None:
        options.json.write_text(json.dumps([line.to_json() for line in lines], indent=2, ensure_ascii=False) + "\n")
    missed = [line for line in lines if line.is_met is False]
    return 1 if crashed or (options.strict and missed) else 0


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("only", nargs="*", metavar="benchmark", choices=[[], *BENCHES, *GROUPS], help=_HELP)
    parser.add_argument("--quick", action="store_true", help="smaller sizes")
    parser.add_argument("--tiny", action="store_true", help="just enough to see that it runs")
    parser.add_argument("--strict", action="store_true", help="fail when a goal is missed")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the table there as well")
    return parser.parse_args(arguments)


def _named(given: Sequence[str]) -> list[str]:
    return [name for each in given for name in GROUPS.get(each, [each])]


def _run(names: Sequence[str], sizes: Sizes, console: Console) -> tuple[list[Line], bool]:
    lines: list[Line] = []
    crashed = False
    with servers() as running:
        for name in names:
            began = time.monotonic()
            console.print(f"[bold]{name}[/bold]")
            try:
                lines += BENCHES[name](running, sizes, lambda text: console.print(f"  {text}", highlight=False))
            except Exception:
                crashed = True
                traceback.print_exc()
            console.print(f"  [dim]{time.monotonic() - began:.0f} s[/dim]")
    return lines, crashed


def _draw(lines: Sequence[Line]) -> Table:
    table = Table("what", "ours", "against what", "ratio", "goal", "met?")
    for line in lines:
        goal = "" if line.goal is None else str(line.goal)
        table.add_row(line.what, line.ours, line.against, f"{line.ratio:.2f}", goal, _MET[line.is_met])
    return table


_MET = {None: "[dim]shown only[/dim]", True: "[green]yes[/green]", False: "[red]NO[/red]"}
