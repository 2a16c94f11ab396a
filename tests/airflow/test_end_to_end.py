"""Real Airflow, real Spark: scheduled checkpoints, kill -9, restore Dags; what is published equals what came in."""

import shutil
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from airflow_provider_ckpt.protocol.phases import Phase
from airflow_provider_ckpt.protocol.records import Checkpoint, Rung
from airflow_provider_ckpt.testing.airflow import until
from airflow_provider_ckpt.testing.orders import Orders, Reader
from tests.airflow.stage import DAGS, Stage
from tests.harness import campaign

pytestmark = [pytest.mark.slow, pytest.mark.spark]
GATED = Path(__file__).parent / "programs" / "gated.py"


@pytest.mark.campaign
@pytest.mark.parametrize(
    ("pipeline", "database"),
    [
        pytest.param("orders", "sqlite", id="plain Dags, SQLite"),
        pytest.param("payments", "postgresql", id="declared Dags, PostgreSQL"),
    ],
)
def test_a_pipeline_killed_at_bad_moments_comes_back_and_publishes_every_row_once(
    pipeline: str,
    database: str,
    tmp_path: Path,
    new_database: Callable[[str], str],
    empty_database: Callable[[str], str],
    orders: Orders,
) -> None:
    airflow = Stage(
        tmp_path / "airflow",
        only_dags_of(pipeline, tmp_path),
        new_database(database),
        database_url=None if database == "sqlite" else empty_database(database),
        environment=environment_of(pipeline, tmp_path),
    )
    with closing(airflow.store), airflow:
        airflow.until_running(pipeline, 1)
        airflow.until_completed(pipeline, 2)
        rungs = [Rung.FRESH]
        for kill in _kills_of_today(database):
            until(lambda: not is_any_restore_active(airflow, pipeline), "whoever waits for it has seen it", airflow.say)
            rungs.append(kill(airflow, pipeline, tmp_path / "target"))
            airflow.until_running(pipeline, len(rungs))
            airflow.until_completed(pipeline, 1)

        assert [each.rung for each in airflow.store.attempts.of(pipeline)] == rungs, airflow.say()
        taken = 2 + len(rungs) - 1
        until(
            lambda: airflow.states(f"{pipeline}__checkpoint", "complete")["success"] >= taken,
            f"{taken} tasks have completed a checkpoint",
            airflow.say,
        )
        everything_is_published_once(airflow, orders, tmp_path / "target" / "published")
        _no_task_failed_but_those_that_were_killed(airflow, pipeline, len(rungs) - 1)


Kill = Callable[[Stage, str, Path], Rung]


def _kills_of_today(database: str) -> list[Kill]:
    """One of the three in the gate, another one every day; each gives where the next attempt must start from."""
    kills: list[Kill] = [_kill_at_any_moment, _kill_before_acks, _kill_before_the_decision_and_lose_the_location]
    shift = 0 if database == "sqlite" else 1
    return [kill for number, kill in enumerate(kills) if campaign.is_turn(number + shift, of=3)]


def _kill_at_any_moment(airflow: Stage, pipeline: str, target: Path) -> Rung:
    airflow.kill_drivers()
    return Rung.TIP


def _kill_before_acks(airflow: Stage, pipeline: str, target: Path) -> Rung:
    _kill_at(airflow, pipeline, target / "before-acks", lambda flying: flying.phase is Phase.IN_PROGRESS)
    return Rung.TIP


def _kill_before_the_decision_and_lose_the_location(airflow: Stage, pipeline: str, target: Path) -> Rung:
    attempt = airflow.attempt(pipeline)
    assert attempt is not None
    _kill_at(airflow, pipeline, target / "before-decision", _is_acknowledged(airflow))
    shutil.rmtree(airflow.folder / "work" / pipeline / str(attempt.number))
    return Rung.CHECKPOINT


def is_any_restore_active(airflow: Stage, pipeline: str) -> bool:
    return any(run["state"] in ("queued", "running") for run in airflow.runs(f"{pipeline}__restore"))


def only_dags_of(pipeline: str, folder: Path) -> Path:
    dags = folder / "dags"
    dags.mkdir()
    for file in DAGS.glob(f"{pipeline}*.py"):
        shutil.copy(file, dags)
    return dags


def environment_of(pipeline: str, folder: Path) -> dict[str, str]:
    given = {
        "APPLICATION": str(GATED),
        "SOURCE": str(folder / "source"),
        "TARGET": str(folder / "target"),
        "CHECKPOINT_SECONDS": "4",
        "CLEANUP_SECONDS": "60",
        "LOOK_SECONDS": "30",
        "ATTEMPT_TTL": "10s",
    }
    return {f"{pipeline.upper()}_{name}": value for name, value in given.items()}


def _kill_at(airflow: Stage, pipeline: str, gate: Path, is_there: Callable[[Checkpoint], bool]) -> None:
    """Close a gate, wait for a checkpoint to come to it, and kill the driver there."""
    gate.touch()

    def has_come() -> bool:
        flying = airflow.store.checkpoints.in_flight(pipeline)
        return flying is not None and is_there(flying)

    until(has_come, f"a checkpoint comes to {gate.name}", airflow.say)
    airflow.kill_drivers()
    gate.unlink()


def _is_acknowledged(airflow: Stage) -> Callable[[Checkpoint], bool]:
    def is_acknowledged(flying: Checkpoint) -> bool:
        progress = airflow.store.acks.progress(flying.ref)
        return flying.phase is Phase.IN_PROGRESS and progress.acked == progress.expected

    return is_acknowledged


def everything_is_published_once(airflow: Stage, orders: Orders, table: Path) -> None:
    truth, reader = orders.stop(), Reader(table)
    until(lambda: len(reader.read()) >= truth.total(), "everything is published", airflow.say)
    published = Counter(reader.read())
    assert published - truth == {}, "doubled or invented"
    assert truth - published == {}, "lost"


def _no_task_failed_but_those_that_were_killed(airflow: Stage, pipeline: str, killed: int) -> None:
    assert airflow.states(f"{pipeline}__run", "run")["failed"] == killed
    for dag, task in (
        ("restore", "restore"),
        ("restore", "wait"),
        ("cleanup", "cleanup"),
        ("sla", "sweep"),
        ("sla", "watch"),
    ):
        assert airflow.states(f"{pipeline}__{dag}", task)["failed"] == 0, (dag, task)
