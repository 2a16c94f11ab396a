"""What the API says of a store with a past."""

import re
from pathlib import Path
from unittest.mock import Mock

import httpx
import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute

from airflow_provider_ckpt.protocol.errors import CkptError, TryAgain, Unreachable
from airflow_provider_ckpt.protocol.phases import Phase
from airflow_provider_ckpt.protocol.records import AttemptStatus, Ref
from airflow_provider_ckpt.ui import actions, page
from tests.ui import scene
from tests.ui.client import Client
from tests.ui.scene import Past

ORDERS = "/api/pipelines/orders"
STATIC = Path(page.__file__).parent / "static"


def test_without_a_store_there_are_no_pipelines_and_none_is_made(
    app: FastAPI, ada: Client, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("AIRFLOW_CONN_CKPT_DEFAULT")
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path / "home"))
    assert ada.get("/api/pipelines") == {"pipelines": [], "next_after": None, "now": None}
    assert ada.get("/api/where", dag_id="orders__run")["pipeline"] is None
    assert ada.ask("GET", ORDERS).status_code == 404
    assert not (tmp_path / "home").exists()


def test_the_list_says_who_is_well_and_how_old_the_newest_is(ada: Client, past: Past) -> None:
    past.completed()
    past.until_now()
    past.store.attempts.heartbeat("orders", 1, "first")
    (line,) = ada.get("/api/pipelines")["pipelines"]
    assert (line["name"], line["is_well"], line["attempt"], line["newest"]["id"]) == ("orders", True, 1, 1)
    assert line["age_seconds"] > 3000
    assert (line["recovery_point_seconds"], line["is_stale"]) == (900, True)
    assert (line["next_run_at"], line["is_paused"]) == (None, None)  # Airflow has no such Dag here


def test_pipelines_come_in_pages(ada: Client, store_url: str, tmp_path: Path) -> None:
    for name in ("c", "a", "b"):
        Past(store_url, tmp_path / "storage", name, hours=1, partitions=1).close()
    first = ada.get("/api/pipelines", limit=2)
    assert ([each["name"] for each in first["pipelines"]], first["next_after"]) == (["a", "b"], "b")
    rest = ada.get("/api/pipelines", after="b")
    assert ([each["name"] for each in rest["pipelines"]], rest["next_after"]) == (["c"], None)


def test_the_overview_counts_and_names_what_was_last(ada: Client, past: Past) -> None:
    for _ in range(3):
        past.completed()
    failed = past.timed_out("totals/state/1")
    savepoint = past.completed(savepoint="safe", by="ada")
    found = ada.get(ORDERS)
    assert found["counts"] == {"total": 5, "completed": 4, "failed": 1, "in_flight": 0}
    assert (found["latest_failed"]["id"], found["latest_failed"]["acked"]) == (failed.id, 2)
    assert (found["latest_savepoint"]["id"], found["latest_savepoint"]["name"]) == (savepoint.id, "safe")
    assert found["pipeline"]["newest"]["id"] == savepoint.id
    assert found["latest_restore"] is None
    assert found["rights"] == {"may_act": True, "may_restore": True}


def test_what_a_failure_would_cost_is_learnt_from_recoveries(ada: Client, past: Past) -> None:
    past.completed()
    assert ada.get(ORDERS)["forecast"]["recovery_seconds"] is None
    past.died("killed", "second")
    past.clock.advance(minutes=3)
    found = ada.get(ORDERS)
    assert found["forecast"]["recovery_seconds"] == 24  # noticed after 11, driver after 8, first batch after 5
    assert found["forecast"]["recoveries"] == 1
    assert found["latest_restore"]["restored_from"] == 1


def test_attempts_say_why_they_ended_and_how_long_the_pipeline_was_away(ada: Client, past: Past) -> None:
    past.completed()
    past.died("its driver ended", "second")
    second, first = ada.get(f"{ORDERS}/attempts")["attempts"]
    assert (first["number"], first["status"], first["failure"]) == (1, "failed", "its driver ended")
    assert (second["rung"], second["restored_from"], second["down_seconds"]) == ("checkpoint", 1, 24)
    assert ada.get(f"{ORDERS}/attempts", limit=1)["next_before"] == 2
    assert [each["number"] for each in ada.get(f"{ORDERS}/attempts", before=2)["attempts"]] == [1]


def test_the_history_comes_in_pages_and_through_filters(ada: Client, past: Past) -> None:
    past.completed()
    past.timed_out("totals/state/1")
    past.completed(savepoint="safe")
    past.died("killed", "second")
    past.completed()

    def ids(**asked: object) -> list[int]:
        return [each["id"] for each in ada.get(f"{ORDERS}/checkpoints", **asked)["checkpoints"]]

    assert ids() == [4, 3, 2, 1]
    assert ids(limit=2) == [4, 3]
    assert ids(limit=2, before=3) == [2, 1]
    assert ids(phase="FAILED") == [2]
    assert ids(phase=["FAILED", "COMPLETED"]) == [4, 3, 2, 1]
    assert ids(kind="savepoint") == [3]
    assert ids(kind="checkpoint") == [4, 2, 1]
    assert ids(attempt=2) == [4]
    assert ids(attempt=1, phase="COMPLETED", kind="checkpoint") == [1]


def test_who_is_late_is_named_with_host_and_history(ada: Client, past: Past) -> None:
    for _ in range(4):
        past.completed()
    late = "totals/state/1"
    ref = past.trigger()
    past.driver.ack(ref, "totals/source")
    past.driver.ack(ref, "totals/state/0")
    past.store.acks.report_stage(ref, past.driver.attempt, [late], "copying", host="executor-2")
    past.clock.advance(seconds=12)
    past.until_now()
    found = ada.get(f"{ORDERS}/checkpoints/{ref.id}")
    (who,) = found["waits_for"]
    assert (who["name"], who["host"], who["stage"]) == (late, "executor-2", "copying")
    assert who["for_seconds"] > 12
    assert (who["late_before"], found["recent"]) == (
        sum(names == (late,) for names in past.store.checkpoints.late_before(ref)),
        4,
    )
    assert (found["checkpoint"]["acked"], found["checkpoint"]["participants"]) == (2, 3)
    lines = ada.get(f"{ORDERS}/checkpoints/{ref.id}/participants")["participants"]
    assert [each["status"] for each in lines] == ["pending", "acked", "acked"]


def test_before_its_cut_a_checkpoint_waits_for_queries(ada: Client, past: Past) -> None:
    past.driver.capture = lambda ref: None  # type: ignore[method-assign, assignment, return-value]
    ref = past.trigger()
    (who,) = ada.get(f"{ORDERS}/checkpoints/{ref.id}")["waits_for"]
    assert (who["name"], who["stage"]) == ("totals", "no cut")


def test_a_failed_checkpoint_shows_its_blame_report(ada: Client, past: Past) -> None:
    ref = past.timed_out("totals/state/1")
    failure = ada.get(f"{ORDERS}/checkpoints/{ref.id}")["failure"]
    assert (failure["reason"], failure["missing"]) == ("timed-out", 1)
    (named,) = failure["named"]
    assert (named["name"], named["stage"], named["host"]) == ("totals/state/1", "copying", "executor-4")


def test_participants_are_searched_and_paged_on_the_server(ada: Client, store_url: str, tmp_path: Path) -> None:
    past = Past(store_url, tmp_path / "storage", "orders", hours=1, partitions=12)
    ref = past.completed()
    past.close()
    here = f"{ORDERS}/checkpoints/{ref.id}/participants"
    first = ada.get(here, limit=5)
    second = ada.get(here, limit=5, offset=first["next_offset"])
    last = ada.get(here, limit=5, offset=second["next_offset"])
    names = [each["name"] for part in (first, second, last) for each in part["participants"]]
    assert (len(names), len(set(names)), last["next_offset"]) == (13, 13, None)
    assert names[0] == scene.LATE
    curve = ada.get(f"{ORDERS}/checkpoints/{ref.id}")["arrivals"]
    assert [step["acked"] for step in curve] == list(range(1, 14))
    assert sorted(step["after_seconds"] for step in curve) == [step["after_seconds"] for step in curve]
    assert {each["name"] for each in ada.get(here, search="state/1")["participants"]} == {
        f"totals/state/{n}" for n in (1, 10, 11)
    }
    assert {each["host"] for each in ada.get(here, search="executor-3")["participants"]} == {"executor-3"}
    assert ada.get(here, search="100%_")["participants"] == []
    assert ada.get(here, query="other")["participants"] == []


def test_a_participant_shows_its_files_and_positions(ada: Client, past: Past) -> None:
    ref = past.completed()
    found = ada.get(f"{ORDERS}/checkpoints/{ref.id}/participants/totals/state/0")
    (file,) = found["files"]
    assert (file["name"], file["is_new"]) == ("totals/state/0", True)
    assert ada.get(f"{ORDERS}/checkpoints/{ref.id}/participants/totals/source")["positions"] == {"event": 9}
    assert ada.ask("GET", f"{ORDERS}/checkpoints/{ref.id}/participants/nobody").status_code == 404


def test_the_manifest_is_read_from_the_storage_and_checked(ada: Client, past: Past, tmp_path: Path) -> None:
    ref = past.completed()
    found = ada.get(f"{ORDERS}/checkpoints/{ref.id}/manifest", limit=1)
    assert (found["participants"], found["total_files"], found["next_offset"]) == (3, 2, 1)
    assert found["timeline"] == ["attempt 1 up to 1"]
    (tmp_path / "storage" / found["path"]).write_text("{}")
    broken = ada.ask("GET", f"{ORDERS}/checkpoints/{ref.id}/manifest")
    assert broken.status_code == 409
    assert "the decision says" in broken.json()["detail"]


def test_the_storage_tells_shared_bytes_from_own_ones(ada: Client, store_url: str, tmp_path: Path) -> None:
    past = Past(store_url, tmp_path / "storage", "orders", hours=1, partitions=30)  # nine of them change each time
    past.completed(), past.completed()
    past.store.pins.add(Ref("orders", 1), owner="ada", reason="mine")
    past.close()
    found = ada.get(f"{ORDERS}/storage")
    second, first = found["holdings"]
    assert 0 < first["unique_bytes"] < first["full_bytes"]
    on_disk = sum(file.stat().st_size for file in (tmp_path / "storage/orders/files").rglob("*") if file.is_file())
    assert found["bytes"] == on_disk
    shared = second["full_bytes"] - second["unique_bytes"]
    assert found["bytes"] == first["unique_bytes"] + second["unique_bytes"] + shared
    assert [each["reason"] for each in found["pins"]] == ["mine"]


def test_the_next_cleanup_is_worked_out_and_nothing_is_changed(ada: Client, past: Past, tmp_path: Path) -> None:
    for _ in range(10):
        past.completed()
    (tmp_path / "storage/orders/files/1/stray").write_text("who put me here?")
    before = past.store.events.position("orders")
    plan = ada.get(f"{ORDERS}/cleanup")
    assert [each["checkpoint"] for each in plan["fates"] if not each["is_kept"]] == [2, 1]
    assert plan["deleted_files"] > 0
    assert list(plan["quarantined"]) == ["orders/files/1/stray"]
    assert past.store.events.position("orders") == before


def test_trends_have_percentiles_ages_and_restores(ada: Client, past: Past) -> None:
    for _ in range(4):
        past.completed()
    past.timed_out("totals/state/1")
    past.died("killed", "second")
    past.completed()
    found = ada.get(f"{ORDERS}/trends")
    assert [each["phase"] for each in found["points"]] == ["COMPLETED"] * 4 + ["FAILED", "COMPLETED"]
    took = [each["duration_seconds"] for each in found["points"] if each["phase"] == "COMPLETED"]
    assert (found["duration_seconds"]["least"], found["duration_seconds"]["most"]) == (min(took), max(took))
    assert [each["attempt"] for each in found["restores"]] == [2]
    ages = [each["age_seconds"] for each in found["points"]]
    assert ages[0] is None  # nobody knows what was before
    assert ages[5] > ages[1]  # a failed one made it older
    assert len(ada.get(f"{ORDERS}/trends", last=2)["points"]) == 2


def test_the_tab_of_a_dag_opens_at_the_right_place(ada: Client, past: Past) -> None:
    ref = past.completed()
    key = past.store.checkpoints.get(ref).trigger_key
    assert key.startswith("airflow orders__checkpoint/")
    run_id = key.split("/")[1]

    def where(**asked: str) -> tuple[object, ...]:
        return tuple(ada.get("/api/where", **asked).values())

    assert where(dag_id="orders__sla") == ("orders", None, None)
    assert where(dag_id="orders__checkpoint", run_id=run_id) == ("orders", ref.id, None)
    assert where(dag_id="orders__checkpoint", run_id="manual__1") == ("orders", None, None)
    assert where(dag_id="orders__run", run_id="attempt-3") == ("orders", None, 3)
    assert where(dag_id="unknown__run") == (None, None, None)
    assert where(dag_id="some_other_dag") == (None, None, None)


def test_actions_are_events_with_the_persons_name(ada: Client, past: Past) -> None:
    ref = past.completed()
    past.until_now()
    past.store.attempts.heartbeat("orders", 1, "first")
    assert ada.post(f"{ORDERS}/checkpoints/{ref.id}/pin", {"reason": "the upgrade"}).status_code == 200
    assert ada.post(f"{ORDERS}/checkpoints/{ref.id}/unpin", {"owner": "ada"}).status_code == 200
    started = ada.post(f"{ORDERS}/checkpoints", {"savepoint": "before-upgrade", "reason": "tonight"}).json()
    assert ada.post(f"{ORDERS}/checkpoints/{started['checkpoint']}/abort", {"reason": "not now"}).status_code == 200
    kinds = {event.kind: (event.actor, event.reason) for event in past.store.events.newest("orders", limit=6)}
    assert kinds["checkpoint.pinned"] == ("ada", "the upgrade")
    assert kinds["checkpoint.unpinned"] == ("ada", "pin of ada")
    assert kinds["checkpoint.triggered"] == ("ada", "tonight")
    assert kinds["checkpoint.failed"][0] == "ada"
    aborted = past.store.checkpoints.get(Ref("orders", started["checkpoint"]))
    assert (aborted.phase, aborted.name, aborted.requested_by) == (Phase.FAILED, "before-upgrade", "ada")


def test_what_can_not_be_done_is_said_in_words(ada: Client, past: Past) -> None:
    ref = past.completed(savepoint="safe")
    past.until_now()
    past.store.attempts.heartbeat("orders", 1, "first")
    refusals = {
        "abort": ada.post(f"{ORDERS}/checkpoints/{ref.id}/abort", {}),
        "name": ada.post(f"{ORDERS}/checkpoints", {"savepoint": "17"}),
        "taken": ada.post(f"{ORDERS}/checkpoints", {"savepoint": "safe"}),
        "pin": ada.post(f"{ORDERS}/checkpoints/99/pin", {"reason": "x"}),
        "unpin": ada.post(f"{ORDERS}/checkpoints/{ref.id}/unpin", {"owner": "restore:1"}),
        "field": ada.post(f"{ORDERS}/checkpoints", {"name": "safe"}),
    }
    assert {name: answer.status_code for name, answer in refusals.items()} == {
        "abort": 409,
        "name": 400,
        "taken": 400,
        "pin": 404,
        "unpin": 400,
        "field": 422,
    }
    assert refusals["abort"].json()["detail"] == f"Checkpoint orders/{ref.id} can not be aborted: it has ended."
    past.store.attempts.end("orders", 1, AttemptStatus.FAILED, actor="tester")
    skipped = ada.post(f"{ORDERS}/checkpoints", {}).json()
    assert (skipped["checkpoint"], skipped["skipped"]) == (None, "no-attempt")


def test_the_price_of_a_restore_is_shown_before_anything_happens(ada: Client, past: Past) -> None:
    first = past.completed()
    past.completed()
    past.until_now()
    past.store.attempts.heartbeat("orders", 1, "first")
    before = past.store.events.position("orders")
    price = ada.get(f"{ORDERS}/restore", to=first.id)
    assert (price["is_possible"], price["rung"], price["checkpoint"]) == (True, "checkpoint", first.id)
    assert price["replay_seconds"] > 600
    assert (price["living_attempt"], price["left_behind"]) == (1, [2])
    gone = ada.get(f"{ORDERS}/restore", to=99)
    assert not gone["is_possible"]
    assert "There is no restorable checkpoint orders/99" in gone["why_not"]
    assert past.store.events.position("orders") == before


def test_a_restore_that_has_to_wait_says_for_what_and_a_storage_that_is_away_is_an_error(
    ada: Client, past: Past, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit of a living driver, which lasts a moment; tests/behaviours has the real one."""
    ref = past.completed()
    past.until_now()

    def answer(error: CkptError) -> httpx.Response:
        monkeypatch.setattr(actions, "plan_restore", Mock(side_effect=error))
        return ada.ask("GET", f"{ORDERS}/restore", params={"to": ref.id})

    waiting = answer(TryAgain("orders/2 is being committed: try again in a moment.")).json()
    assert not waiting["is_possible"]
    assert waiting["why_not"] == "orders/2 is being committed: try again in a moment."
    assert answer(Unreachable("The storage does not answer.")).status_code == 503


def test_every_operation_is_documented_and_typed(app: FastAPI, ada: Client) -> None:
    schema = ada.get("/openapi.json")
    operations = [(path, verb, each) for path, verbs in schema["paths"].items() for verb, each in verbs.items()]
    routes = [route for route in app.routes if isinstance(route, APIRoute) and route.include_in_schema]
    assert len(operations) == len(routes)
    for path, verb, operation in operations:
        assert operation["tags"], path
        answer = operation["responses"]["200"]["content"]["application/json"]["schema"]
        assert answer["$ref"].startswith("#/components/schemas/"), (path, verb)
        assert ("requestBody" in operation) == (verb == "post"), path


def test_the_modules_of_the_page_import_only_each_other() -> None:
    modules = list(STATIC.rglob("*.js"))
    assert len(modules) > 10
    for module in modules:
        for name in re.findall(r'from "([^"]+)"', module.read_text()):
            assert (module.parent / name).resolve() in modules, (module.name, name)


def test_the_page_names_only_files_that_are_there(ada: Client) -> None:
    names = re.findall(r'(?:href|src)="(static/[^"]+)"', ada.ask("GET", "/").text)
    assert len(names) == 3
    for name in names:
        assert ada.ask("GET", f"/{name}").status_code == 200
