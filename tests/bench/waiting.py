"""A process with many triggers in one event loop, as a triggerer has them; says what it costs when they wait.

`python -m tests.bench.waiting ours|theirs COUNT SECONDS`
"""

import asyncio
import json
import logging
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

import psutil
import sqlalchemy as sa
from airflow.providers.standard.triggers.temporal import DateTimeTrigger

from airflow_provider_ckpt.triggers import watching
from airflow_provider_ckpt.triggers.checkpoint import CheckpointTrigger

from .triggerer import CHECKPOINT, MARK, Waited, name_of

_SETTLE = 3.0  # seconds
_NEAR = timedelta(seconds=20)  # from here on Airflow's trigger looks at the clock every second


class Trigger(Protocol):
    def run(self) -> AsyncIterator[Any]: ...


def ours(count: int) -> list[Trigger]:
    return [
        CheckpointTrigger(ckpt_conn_id="ckpt_default", pipeline=name_of(number), checkpoint=CHECKPOINT)
        for number in range(count)
    ]


def theirs(count: int) -> list[Trigger]:
    moment = datetime.now(UTC) + _NEAR
    return [DateTimeTrigger(moment=moment) for _ in range(count)]


SIDES: dict[str, Callable[[int], list[Trigger]]] = {"ours": ours, "theirs": theirs}


def main(side: str, count: str, seconds: str) -> None:
    logging.disable(logging.INFO)
    found = asyncio.run(_wait(SIDES[side](int(count)), float(seconds)))
    print(MARK + json.dumps(asdict(found)))


async def _wait(triggers: Sequence[Trigger], seconds: float) -> Waited:
    tasks = [asyncio.create_task(_first(trigger)) for trigger in triggers]
    await asyncio.sleep(_SETTLE)
    with _counted() as queries:
        looks, cpu = _looks(), time.process_time()
        await asyncio.sleep(seconds)
        looks, cpu = _looks() - looks, time.process_time() - cpu
    assert not any(task.done() for task in tasks), "somebody waits no longer"
    found = Waited(cpu=cpu, memory=psutil.Process().memory_info().rss, looks=looks, queries=len(queries))
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return found


async def _first(trigger: Trigger) -> None:
    async for _ in trigger.run():
        return


def _looks() -> int:
    return sum(shared.loop.looks for shared in watching._shared.values())


@contextmanager
def _counted() -> Iterator[list[str]]:
    """Every query that is sent to any store."""
    statements: list[str] = []

    def note(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        if not statement.startswith("BEGIN"):
            statements.append(statement)

    sa.event.listen(sa.Engine, "before_cursor_execute", note)
    try:
        yield statements
    finally:
        sa.event.remove(sa.Engine, "before_cursor_execute", note)


if __name__ == "__main__":
    main(*sys.argv[1:])
