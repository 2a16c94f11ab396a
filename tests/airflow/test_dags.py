"""The Dags: those in `dags/` and those that `checkpoint_dags` makes are loaded by Airflow; bad ones are refused."""

import runpy
import sys
from datetime import timedelta
from pathlib import Path

import pytest
from airflow.sdk import DAG
from airflow.serialization.serialized_objects import DagSerialization

from airflow_provider_ckpt import checkpoint_dags, every, keep
from airflow_provider_ckpt.operators.spark_submit import CheckpointedSparkSubmitOperator
from airflow_provider_ckpt.operators.trigger import TriggerCheckpointOperator
from airflow_provider_ckpt.protocol.errors import Misused
from tests.airflow.parsing import dags_in
from tests.airflow.stage import DAGS

BAD = sorted((Path(__file__).parent / "dags_that_must_fail").glob("*.py"))
LAST_WORDS = ("run", "checkpoint", "cleanup", "restore", "sla")


@pytest.mark.parametrize("file", BAD, ids=lambda file: file.stem)
def test_a_bad_declaration_is_refused_when_it_is_parsed_with_a_sentence(file: Path) -> None:
    why = file.read_text().partition("Must fail with: ")[2].partition('"""')[0]
    with pytest.raises(Misused, match=why):
        runpy.run_path(str(file))


def test_one_declaration_makes_five_dags_that_airflow_can_store() -> None:
    dags = checkpoint_dags(
        "orders",
        application="orders.py",
        checkpoint=every("auto", least=timedelta(minutes=1), most=timedelta(minutes=30)),
        retention=keep(last=3, daily=7, age="30d"),
        tags=["team-a"],
    )
    assert tuple(dags) == LAST_WORDS
    for last_word, dag in dags.items():
        assert dag.dag_id == f"orders__{last_word}"
        assert dag.tags == {"ckpt", "orders", "team-a"}
        again = DagSerialization.from_dict(DagSerialization.to_dict(dag))
        assert set(again.task_ids) == set(dag.task_ids)
    trigger, run = dags["checkpoint"].get_task("trigger"), dags["run"].get_task("run")
    assert isinstance(trigger, TriggerCheckpointOperator)
    assert isinstance(run, CheckpointedSparkSubmitOperator)
    assert trigger.adapt == (timedelta(minutes=1), timedelta(minutes=30))
    assert (run.settings or {})["keep_age"] == "30d"


def test_the_plain_dags_and_the_declared_ones_have_the_same_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(DAGS), *sys.path])
    found = {dag.dag_id: dag for file in sorted(DAGS.glob("*.py")) for dag in dags_in(file)}
    assert set(found) == {f"{name}__{word}" for name in ("orders", "payments") for word in LAST_WORDS}
    for word in LAST_WORDS:
        plain, declared = found[f"orders__{word}"], found[f"payments__{word}"]
        assert _shape(plain) == _shape(declared)


def _shape(dag: DAG) -> dict[str, tuple[str, frozenset[str]]]:
    return {task.task_id: (type(task).__name__, frozenset(task.downstream_task_ids)) for task in dag.tasks}
