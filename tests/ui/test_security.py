"""Every route is authenticated, authorised by Dag and action, and safe against other sites; nothing secret gets out."""

import json
from collections.abc import Iterator

import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute

from airflow_provider_ckpt.protocol.records import AttemptStatus, Verdict
from tests.ui.client import HOST, Client, browser_of, program
from tests.ui.people import ADA, PAUL, VERA
from tests.ui.scene import Past

ORDERS = "/api/pipelines/orders"
SECRET = "hunter2"
BODIES: dict[str, dict[str, object]] = {
    "trigger": {},
    "abort": {},
    "pin": {"reason": "why"},
    "unpin": {"owner": "ada"},
    "restore": {"to": 1},
}


def _routes(app: FastAPI) -> Iterator[tuple[str, str, APIRoute]]:
    """Every route of the app, with something in place of its parameters."""
    for route in app.routes:
        assert isinstance(route, APIRoute), f"{route} is of a kind that this test can not ask"
        path = route.path.replace("{pipeline}", "orders").replace("{id}", "1").replace("{name:path}", "page.css")
        for method in route.methods:
            yield method, path, route


def _changing(app: FastAPI) -> list[tuple[str, dict[str, object]]]:
    found = [(path, BODIES[route.name]) for method, path, route in _routes(app) if method == "POST"]
    assert len(found) == len(BODIES)
    return found


def test_an_anonymous_request_gets_401_from_every_route(app: FastAPI) -> None:
    routes = list(_routes(app))
    assert len(routes) > 15
    for method, path, _ in routes:
        assert Client(app).ask(method, path).status_code == 401, (method, path)
        headers = {"X-Ckpt-Action": "test", "Origin": HOST}
        assert Client(app, headers).ask(method, path, json={}).status_code == 401, (method, path)


def test_a_forged_token_is_refused_by_every_route(app: FastAPI) -> None:
    for method, path, _ in _routes(app):
        answer = Client(app, {"Authorization": "Bearer forged"}).ask(method, path)
        assert answer.status_code == 403, (method, path)


def test_whoever_may_not_read_a_pipeline_learns_nothing_of_it(app: FastAPI, past: Past) -> None:
    past.completed()
    paul = program(app, PAUL)
    for method, path, route in _routes(app):
        if "{pipeline}" not in route.path:
            continue
        body = BODIES.get(route.name)
        seen = paul.ask(method, path, params={"to": 1}, json=body)
        unknown = paul.ask(method, path.replace("orders", "nobody"), params={"to": 1}, json=body)
        assert (seen.status_code, unknown.status_code) == (404, 404), path
        assert seen.text.replace("orders", "nobody") == unknown.text
    assert paul.get("/api/pipelines")["pipelines"] == []
    assert paul.get("/api/where", dag_id="orders__run")["pipeline"] is None


def test_a_viewer_reads_everything_and_changes_nothing(app: FastAPI, past: Past) -> None:
    past.completed()
    vera = program(app, VERA)
    assert [each["name"] for each in vera.get("/api/pipelines")["pipelines"]] == ["orders"]
    assert vera.get(ORDERS)["rights"] == {"may_act": False, "may_restore": False}
    before = past.store.events.position("orders")
    for path, body in _changing(app):
        answer = vera.post(path, body)
        assert answer.status_code == 403, (path, answer.text)
        assert "needs the right to trigger orders__" in answer.json()["detail"]
    assert past.store.events.position("orders") == before


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param({"Origin": HOST}, id="without the header"),
        pytest.param({"X-Ckpt-Action": "page"}, id="without an origin"),
        pytest.param({"X-Ckpt-Action": "page", "Origin": "https://evil.test"}, id="from another site"),
        pytest.param({"X-Ckpt-Action": "page", "Origin": "null"}, id="from a sandboxed page"),
        pytest.param({"X-Ckpt-Action": "page", "Origin": f"{HOST}.evil.test"}, id="from a site with a similar name"),
    ],
)
def test_what_another_site_may_have_sent_is_refused(app: FastAPI, past: Past, headers: dict[str, str]) -> None:
    before = past.store.events.position("orders")
    for path, body in _changing(app):
        assert browser_of(app, ADA, **headers).post(path, body).status_code == 403, path
    assert past.store.events.position("orders") == before


def test_the_pages_own_requests_and_those_of_programs_pass(app: FastAPI, past: Past) -> None:
    past.until_now()
    ref = past.completed()
    page = browser_of(app, ADA, **{"X-Ckpt-Action": "page", "Origin": HOST})
    assert page.post(f"{ORDERS}/checkpoints/{ref.id}/pin", {"reason": "mine"}).status_code == 200
    assert program(app, ADA).post(f"{ORDERS}/checkpoints/{ref.id}/unpin", {"owner": "ada"}).status_code == 200


def test_a_password_in_a_stored_text_leaves_nowhere(app: FastAPI, past: Past, ada: Client) -> None:
    url = f"postgresql://ckpt:{SECRET}@db/ckpt"
    ref = past.completed(reason=f"see {url}")
    past.store.checkpoints.judge(ref, Verdict.CORRUPT, f"see {url}", actor=url)
    past.store.attempts.end("orders", 1, AttemptStatus.FAILED, actor=url, failure=f"could not reach {url}")
    texts = []
    for method, path, route in _routes(app):
        if method == "GET" and "static" not in path:
            texts.append(ada.ask(method, path, params={"to": ref.id, "dag_id": "orders__run"}).text)
            assert SECRET not in texts[-1], route.path
    assert sum("***" in text for text in texts) >= 3


def test_only_files_of_the_page_are_served(ada: Client) -> None:
    for name in (
        "../app.py",
        "..%2fapp.py",
        "%2e%2e/app.py",
        "/etc/passwd",
        "views",
        "nothing.js",
    ):
        assert ada.ask("GET", f"/static/{name}").status_code == 404, name


def test_the_page_allows_no_script_but_its_own(ada: Client) -> None:
    page = ada.ask("GET", "/")
    assert "script-src 'self'" in page.headers["content-security-policy"]
    assert "unsafe" not in page.headers["content-security-policy"]
    assert "<script>" not in page.text
    assert "style=" not in page.text


def test_a_missing_restore_dag_is_said_and_nothing_is_recorded(ada: Client, past: Past) -> None:
    ref = past.completed()
    before = past.store.events.position("orders")
    answer = ada.post(f"{ORDERS}/restore", {"to": ref.id})
    assert (answer.status_code, json.loads(answer.text)["detail"]) == (
        404,
        "Airflow has no Dag orders__restore: `checkpoint_dags` declares it.",
    )
    assert past.store.events.position("orders") == before
