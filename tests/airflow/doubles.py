"""A task instance that runs nowhere: what operators ask of it, and nothing else. Real ones are in test_end_to_end."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any


class NoSuchDag(Exception):
    """As Airflow's API says it."""


@dataclass
class FakeTi:
    dag_id: str = "orders__checkpoint"
    run_id: str = "scheduled__1"
    task_id: str = "task"
    map_index: int = -1
    active: Mapping[str, int] = field(default_factory=dict)  # Dags that exist, and how many of their runs are active

    paused: Collection[str] = ()

    def get_dag(self, dag_id: str) -> "FakeDag":
        if dag_id not in self.active:
            raise NoSuchDag(dag_id)
        return FakeDag(is_paused=dag_id in self.paused)

    def get_dr_count(self, dag_id: str, states: list[str]) -> int:
        assert states == ["queued", "running"]
        return self.active.get(dag_id, 0)


@dataclass
class FakeDag:
    is_paused: bool


@dataclass
class FakeEvent:
    extra: dict[str, Any] = field(default_factory=dict)


class FakeEvents(dict[Any, FakeEvent]):
    def __missing__(self, key: object) -> FakeEvent:
        return self.setdefault(key, FakeEvent())


def a_context(**given: Any) -> Any:
    return {"ti": FakeTi(**given), "outlet_events": FakeEvents()}
