"""Pages of the list over 100,000 checkpoints, against the same over 1,000.

The rows of one pipeline are made by one INSERT … SELECT: every tenth has failed, the newest twenty are completed, all
others are discarded. Timed are pages of 20: the newest, one from the middle, and both again for some phases. How much
of the table is read is asked of the database: PostgreSQL counts the rows that its scans handed on or threw away
(EXPLAIN ANALYZE), SQLite the steps of its virtual machine.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import sqlalchemy as sa

from airflow_provider_ckpt.metastore import Metastore
from airflow_provider_ckpt.metastore.schema import checkpoints
from airflow_provider_ckpt.protocol.phases import Phase

from .databases import Servers
from .measure import Goal, Line, Say, Sizes, in_turns, median_of, show, timed
from .sample import freeze, run_pipeline

LIMIT = 20
PIPELINE = "orders"
KINDS = ("SQLite", "PostgreSQL")


@dataclass(frozen=True, slots=True)
class View:
    """One way to look at the list."""

    name: str
    is_deep: bool
    phases: frozenset[Phase]

    def read(self, store: Metastore, rows: int) -> None:
        store.checkpoints.page(PIPELINE, before=rows // 2 if self.is_deep else None, limit=LIMIT, phases=self.phases)

    @property
    def most_rows(self) -> int:
        """A page, and one row more to know whether there is another; for each phase, where several are merged."""
        return (LIMIT + 1) * max(len(self.phases), 1)


VIEWS = [
    View("first page", is_deep=False, phases=frozenset()),
    View("deep page", is_deep=True, phases=frozenset()),
    View("first page of FAILED", is_deep=False, phases=frozenset({Phase.FAILED})),
    View("deep page of two rare phases", is_deep=True, phases=frozenset({Phase.COMPLETED, Phase.DISCARDING})),
    View("first page of two phases", is_deep=False, phases=frozenset({Phase.COMPLETED, Phase.FAILED})),
]


def bench(servers: Servers, sizes: Sizes, say: Say) -> list[Line]:
    return [line for kind in KINDS for line in _compare(servers, kind, sizes, say)]


def _compare(servers: Servers, kind: str, sizes: Sizes, say: Say) -> Iterator[Line]:
    stores = {rows: _filled(servers.fresh(kind).open(), rows) for rows in sizes.rows}
    few, many = sizes.rows
    for view in VIEWS:
        large, small = partial(view.read, stores[many], many), partial(view.read, stores[few], few)
        large(), small()  # connected and compiled
        pairs = in_turns(partial(timed, large), partial(timed, small), 25)
        say(f"{kind}: {view.name}: {show(median_of(pairs.ours))}, of {few:,} {show(median_of(pairs.theirs))}")
        yield Line(
            what=f"{view.name}, {many:,} rows, {kind}",
            ours=show(median_of(pairs.ours)),
            against=f"{few:,} rows, {show(median_of(pairs.theirs))}",
            ratio=pairs.slowness,
            goal=Goal(most=2),
        )
        yield _work(kind, view, stores, sizes)


def _filled(store: Metastore, rows: int) -> Metastore:
    fill(store, PIPELINE, rows)
    return store


def fill(store: Metastore, pipeline: str, rows: int) -> None:
    """A pipeline with so many checkpoints, the first of which is in flight."""
    run_pipeline(store, pipeline)
    ref = freeze(store, pipeline, ["totals/log"])
    number = sa.select(sa.literal(ref.id + 1).label("id")).cte("number", recursive=True)
    number = number.union_all(sa.select(number.c.id + 1).where(number.c.id < rows))
    phase = sa.case(
        (number.c.id % 10 == 0, Phase.FAILED), (number.c.id > rows - 20, Phase.COMPLETED), else_=Phase.DISCARDED
    )
    columns: Mapping[str, sa.ColumnElement[Any]] = {column.name: column for column in checkpoints.c} | {
        "id": number.c.id,
        "phase": phase,
        "trigger_key": sa.literal("run ") + sa.cast(number.c.id, sa.Text),
    }
    model = sa.and_(checkpoints.c.pipeline == pipeline, checkpoints.c.id == ref.id)
    copies = sa.select(*columns.values()).select_from(checkpoints.join(number, model))
    with store.engine.write() as tx:
        tx.connection.execute(sa.insert(checkpoints).from_select(list(columns), copies))
    with store.engine.write() as tx:
        tx.connection.exec_driver_sql("ANALYZE ckpt_checkpoints")  # as autovacuum does within a minute


def _work(kind: str, view: View, stores: Mapping[int, Metastore], sizes: Sizes) -> Line:
    few, many = sizes.rows
    if kind == "PostgreSQL":
        found = _rows_read(stores[many], partial(view.read, stores[many], many))
        return Line(
            what=f"{view.name}: rows read of {many:,}, {kind}",
            ours=f"{found} rows",
            against=f"{view.most_rows} rows that it may need",
            ratio=found / view.most_rows,
            goal=Goal(most=1),
        )
    ours, theirs = (_steps(stores[rows], partial(view.read, stores[rows], rows)) for rows in (many, few))
    return Line(
        what=f"{view.name}: steps over {many:,} rows, {kind}",
        ours=f"{ours} steps",
        against=f"{few:,} rows, {theirs} steps",
        ratio=ours / theirs,
        goal=Goal(most=1.2),
    )


def _steps(store: Metastore, read: Callable[[], None]) -> int:
    """How many steps SQLite's virtual machine takes."""
    steps = 0

    def count() -> int:
        nonlocal steps
        steps += 1
        return 0

    with store.engine.sa.connect() as connection:
        driver = connection.connection.driver_connection
    assert driver is not None
    driver.set_progress_handler(count, 1)
    read()
    driver.set_progress_handler(None, 1)
    return steps


def _rows_read(store: Metastore, read: Callable[[], None]) -> int:
    """What PostgreSQL's scans touched for the one query of `read`."""
    sent: list[tuple[str, Any]] = []

    def note(_connection: object, _cursor: object, statement: str, parameters: object, *_: object) -> None:
        sent.append((statement, parameters))

    sa.event.listen(store.engine.sa, "before_cursor_execute", note)
    read()
    sa.event.remove(store.engine.sa, "before_cursor_execute", note)
    ((statement, parameters),) = sent
    with store.engine.read() as tx:
        explained = tx.connection.exec_driver_sql(f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}", parameters)
        return sum(_scanned(explained.scalar_one()[0]["Plan"]))


def _scanned(node: Mapping[str, Any]) -> Iterator[int]:
    below = node.get("Plans", [])
    if not below:
        removed = sum(node.get(f"Rows Removed by {why}", 0) for why in ("Filter", "Index Recheck"))
        yield round((node["Actual Rows"] + removed) * node["Actual Loops"])
    for each in below:
        yield from _scanned(each)
