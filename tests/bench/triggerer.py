"""What the Airflow side costs while nothing happens: triggers that wait, and Dag files that are parsed.

Waiting: a process with 200 `CheckpointTrigger`s, each for a checkpoint of another pipeline that nobody acknowledges, on
a real store, against a process with 200 of Airflow's own `DateTimeTrigger`s, in turns. Those sleep for up to an hour
while their moment is far away, which costs nothing; ours look every second, so theirs are given a moment so near that
they do, too. Neither writes its log: theirs says every second that it sleeps, which would flatter ours. What they do
differs (a clock is read, a database is asked), so the ratio of CPU is shown and has no goal.

Parsing: importing what a Dag file imports, in fresh interpreters, against the bare `DAG` and `BaseOperator` of
`airflow.sdk`, and against those with the `SparkSubmitOperator` that such a file would import in any case. Measured is
CPU time: other processes of a busy machine do not count.
"""

import json
import math
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median

from .databases import Database, Servers
from .measure import Goal, Line, Say, Seconds, Sizes, in_turns, median_of, show
from .sample import clone, freeze, run_pipeline

PIPELINES = 200
WINDOW = 12  # seconds
TURNS = 3
CHECKPOINT = 1
CLOSER_EVERY = 10  # looks
PARTICIPANTS = [f"totals/state/0/0-{partition}" for partition in range(20)]
OURS = "import airflow_provider_ckpt.dag_factory"
BARE = "from airflow.sdk import DAG, BaseOperator"
WITH_SPARK = f"{BARE}; from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator"
MARK = "@bench "  # Airflow may write to the same output
_ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Waited:
    """What waiting has cost a process; CPU in seconds, memory in bytes."""

    cpu: Seconds
    memory: int
    looks: int
    queries: int

    def __str__(self) -> str:
        return f"{show(self.cpu)} CPU, {_mb(self.memory)}"


def bench(servers: Servers, sizes: Sizes, say: Say) -> list[Line]:
    database = servers.fresh("SQLite")
    environ = _environ(database)
    return [*_waiting(database, environ, min(sizes.pairs, TURNS), say), *_parsing(environ, sizes.pairs, say)]


def name_of(number: int) -> str:
    return f"waiting-{number}"


def _waiting(database: Database, environ: Mapping[str, str], turns: int, say: Say) -> Iterator[Line]:
    _fill(database)
    orders = [("ours", "theirs"), ("theirs", "ours")]
    pairs = [{side: _wait(side, environ) for side in orders[turn % 2]} for turn in range(turns)]
    for pair in pairs:
        say(f"{WINDOW} s of {PIPELINES} triggers: ours {pair['ours']}; theirs {pair['theirs']}")
    ours, theirs = ([pair[side] for pair in pairs] for side in ("ours", "theirs"))
    yield _compare("CPU of {} waiting triggers", lambda waited: waited.cpu, show, ours, theirs)
    memory = _compare("memory of a process with {}", lambda waited: waited.memory, _mb, ours, theirs)
    yield replace(memory, goal=Goal(most=1.25))
    yield _queries(ours)


def _compare(
    what: str,
    of: Callable[[Waited], float],
    unit: Callable[[float], str],
    ours: Sequence[Waited],
    theirs: Sequence[Waited],
) -> Line:
    return Line(
        what=what.format(PIPELINES),
        ours=unit(median(map(of, ours))),
        against=f"DateTimeTriggers, {unit(median(map(of, theirs)))}",
        ratio=median(of(our) / of(their) for our, their in zip(ours, theirs, strict=True)),
    )


def _queries(ours: Sequence[Waited]) -> Line:
    looks, queries = sum(waited.looks for waited in ours), sum(waited.queries for waited in ours)
    closer = sum(math.ceil(waited.looks / CLOSER_EVERY) for waited in ours)
    return Line(
        what=f"queries for {PIPELINES} waiting triggers",
        ours=f"{queries} queries",
        against=f"{looks} looks, at most {closer} of them closer",
        ratio=queries / (looks + closer),
        goal=Goal(most=1),
    )


def _parsing(environ: Mapping[str, str], turns: int, say: Say) -> Iterator[Line]:
    for imports in (OURS, WITH_SPARK):
        _import(imports, environ)  # compiled, and in the file system's cache
    for what, theirs, goal in (
        ("bare airflow.sdk", BARE, Goal(most=1.25)),
        ("with SparkSubmitOperator", WITH_SPARK, None),
    ):
        pairs = in_turns(partial(_import, OURS, environ), partial(_import, theirs, environ), turns)
        our, their = show(median_of(pairs.ours)), show(median_of(pairs.theirs))
        say(f"importing takes {our}, {what} {their}")
        yield Line(
            what="importing what a Dag file imports",
            ours=our,
            against=f"{what}, {their}",
            ratio=pairs.slowness,
            goal=goal,
        )


def _fill(database: Database) -> None:
    """A checkpoint in progress for each pipeline; nobody acknowledges."""
    store = database.open()
    run_pipeline(store, "model")
    assert freeze(store, "model", PARTICIPANTS).id == CHECKPOINT
    clone(store, "model", map(name_of, range(PIPELINES)))
    store.close()


def _wait(side: str, environ: Mapping[str, str]) -> Waited:
    said = _run(["-m", "tests.bench.waiting", side, str(PIPELINES), str(WINDOW)], environ)
    return Waited(**json.loads(said))


def _import(imports: str, environ: Mapping[str, str]) -> Seconds:
    program = f"import time; began = time.process_time(); {imports}; print({MARK!r}, time.process_time() - began)"
    return float(_run(["-c", program], environ))


def _run(arguments: Sequence[str], environ: Mapping[str, str]) -> str:
    """What a fresh interpreter has found."""
    done = subprocess.run(
        [sys.executable, *arguments], env=environ, cwd=_ROOT, stdout=subprocess.PIPE, text=True, check=True
    )
    return next(line for line in done.stdout.splitlines() if line.startswith(MARK)).removeprefix(MARK)


def _environ(database: Database) -> dict[str, str]:
    extra = {"storage": str(database.folder / "storage"), "work": str(database.folder / "work")}
    return {
        **{name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"},
        "PYTHONPATH": str(_ROOT),
        "AIRFLOW_HOME": str(database.folder / "airflow"),
        "AIRFLOW__LOGGING__LOGGING_LEVEL": "WARNING",
        "AIRFLOW_CONN_CKPT_DEFAULT": json.dumps({"conn_type": "ckpt", "password": database.url, "extra": extra}),
    }


def _mb(size: float) -> str:
    return f"{size / 2**20:.0f} MiB"
