"""Completing a checkpoint of 20,000 participants, against writing its manifest as JSON.

Ours is `complete`: the rows are read, the manifest is built and written durably, the decision and the marker are made.
Theirs is one `json.dumps` of the manifest that came out. A tenth of the participants shows whether the cost for each
grows with their number. Run in a child, whose memory is looked at.
"""

import json
from functools import partial

from airflow_provider_ckpt.coordinator.complete import complete
from airflow_provider_ckpt.coordinator.context import Context
from airflow_provider_ckpt.coordinator.manifests import load_manifest
from airflow_provider_ckpt.protocol.phases import Phase
from airflow_provider_ckpt.protocol.records import Ref
from airflow_provider_ckpt.storage.local import LocalStorage

from .databases import Database, Servers
from .measure import Goal, Line, Say, Seconds, Sizes, median_of, show, timed
from .processes import alone
from .sample import ATTEMPT, freeze, make_ack, participants, run_pipeline


def bench(servers: Servers, sizes: Sizes, say: Say) -> list[Line]:
    return [line for kind in ("SQLite", "PostgreSQL") for line in _compare(servers.fresh(kind), sizes, say)]


def _compare(database: Database, sizes: Sizes, say: Say) -> list[Line]:
    few, many = sizes.participants // 10, sizes.participants
    few_seconds = median_of([_measure(database, few, turn)[0] for turn in range(3)])
    seconds, dumping, memory = _measure(database, many, 0)
    each = seconds / many / (few_seconds / few)
    say(f"{database.name}: {show(seconds)}, json.dumps {show(dumping)}, {memory / 2**20:.0f} MiB more")
    return [
        Line(
            what=f"complete with {many:,} participants, {database.name}",
            ours=f"{show(seconds)}, {memory / 2**20:.0f} MiB more",
            against=f"json.dumps of the manifest, {show(dumping)}",
            ratio=seconds / dumping,
        ),
        Line(
            what=f"complete, for each participant, {database.name}",
            ours=f"{show(seconds / many)} of {many:,}",
            against=f"{show(few_seconds / few)} of {few:,}",
            ratio=each,
            goal=Goal(most=1.5),
        ),
    ]


def _measure(database: Database, count: int, turn: int) -> tuple[Seconds, Seconds, int]:
    """`complete`, `json.dumps`, and the memory of both; made in a child of its own, so that none is there already."""
    ref, _ = alone(partial(_acknowledged, database, count, turn))
    (seconds, dumping), memory = alone(partial(_complete, database, ref))
    return seconds, dumping, memory


def _acknowledged(database: Database, count: int, turn: int) -> Ref:
    store = database.open()
    pipeline = f"of-{count}-{turn}"
    run_pipeline(store, pipeline)
    names = participants(count)
    ref = freeze(store, pipeline, names)
    store.acks.acknowledge(ref, ATTEMPT, [make_ack(name, ref) for name in names])
    return ref


def _complete(database: Database, ref: Ref) -> tuple[Seconds, Seconds]:
    context = Context(store=database.open(), storage=LocalStorage(database.folder / "storage"), actor="bench")
    context.store.checkpoints.get(ref)  # connected
    seconds = timed(partial(complete, context, ref))
    checkpoint = context.store.checkpoints.get(ref)
    assert checkpoint.phase is Phase.COMPLETED
    document = json.loads(load_manifest(context, checkpoint).to_bytes())
    return seconds, median_of([timed(partial(json.dumps, document, sort_keys=True)) for _ in range(3)])
