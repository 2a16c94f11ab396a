"""What a schema of compose files does not see: names that lead nowhere, misplaced secrets, versions left open."""

import json
import re
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import yaml

from airflow_provider_ckpt.coordinator.places import places
from airflow_provider_ckpt.storage.opening import open_storage

_DOCKER = Path(__file__).parents[2] / "docker"
_TEXT = (_DOCKER / "compose.yaml").read_text()
_COMPOSE: dict[str, Any] = yaml.safe_load(_TEXT)
_SERVICES: dict[str, dict[str, Any]] = _COMPOSE["services"]
_VARIABLE = re.compile(r"(?<!\$)\$\{(\w+)(:[?-][^}]*)?\}")
_ASKED = set(re.findall(r"^(\w+)=", (_DOCKER / ".env.example").read_text(), re.MULTILINE))
_each_service = pytest.mark.parametrize("service", _SERVICES)


def test_the_example_asks_for_exactly_what_the_compose_file_needs() -> None:
    assert {name for name, _ in _VARIABLE.findall(_TEXT)} == _ASKED


def test_the_example_contains_no_secret() -> None:
    given = re.findall(r"^(\w+)=.+$", (_DOCKER / ".env.example").read_text(), re.MULTILINE)
    assert set(given) == {"AIRFLOW_PORT", "SPARK_PORT"}


def test_what_is_secret_has_no_default() -> None:
    assert {name for name, rest in _VARIABLE.findall(_TEXT) if not rest.startswith(":?")} == {
        "AIRFLOW_PORT",
        "SPARK_PORT",
    }


@_each_service
def test_a_service_has_a_health_check_unless_it_ends_by_itself(service: str) -> None:
    ends = _SERVICES[service]["restart"] == "no"
    assert ends != ("healthcheck" in _SERVICES[service])


@_each_service
def test_a_service_waits_only_for_services_that_exist_and_can_be_waited_for(service: str) -> None:
    for other, how in _SERVICES[service].get("depends_on", {}).items():
        expected = "service_completed_successfully" if _SERVICES[other]["restart"] == "no" else "service_healthy"
        assert how["condition"] == expected


@_each_service
def test_an_image_has_one_version(service: str) -> None:
    image = _SERVICES[service]["image"]
    assert re.fullmatch(r"[a-z/-]+:(local|\d+\.\d+[\w.-]*)", image)
    assert image.endswith(":local") == ("build" in _SERVICES[service])


@_each_service
def test_no_secret_is_on_a_command_line(service: str) -> None:
    shown = json.dumps([_SERVICES[service].get("command"), _SERVICES[service].get("healthcheck")])
    assert not _VARIABLE.search(shown)


@_each_service
def test_only_this_host_reaches_a_published_port(service: str) -> None:
    assert all(port.startswith("127.0.0.1:") for port in _SERVICES[service].get("ports", []))


@_each_service
def test_volumes_and_configs_are_declared(service: str) -> None:
    volumes = {volume.split(":")[0] for volume in _SERVICES[service].get("volumes", [])}
    assert {name for name in volumes if not name.startswith(".")} <= set(_COMPOSE["volumes"])
    assert {config["source"] for config in _SERVICES[service].get("configs", [])} <= set(_COMPOSE["configs"])


@_each_service
def test_what_is_built_is_a_target_of_the_dockerfile(service: str) -> None:
    targets = re.findall(r"^FROM \S+ AS (\S+)$", (_DOCKER / "Dockerfile").read_text(), re.MULTILINE)
    assert _SERVICES[service].get("build", {"target": "base"})["target"] in targets


def test_drivers_and_executors_see_the_work_folder_at_the_same_path() -> None:
    work = _connection("AIRFLOW_CONN_CKPT_DEFAULT")["extra"]["work"]
    for service in ("scheduler", "spark-worker-1", "spark-worker-2"):
        assert f"work:{work}" in _SERVICES[service]["volumes"]
    assert f" {work} " in (_DOCKER / "Dockerfile").read_text()


def test_the_connections_can_be_read() -> None:
    ckpt = _connection("AIRFLOW_CONN_CKPT_DEFAULT")
    found = places(ckpt["password"], ckpt["extra"]["storage"], ckpt["extra"]["work"], environ={})
    open_storage(found.storage_url)  # which refuses what it can not read
    assert found.metastore_url.startswith("postgresql+psycopg://")
    assert set(_connection(f"AIRFLOW_CONN_{ckpt['extra']['aws_conn_id'].upper()}")) == {
        "conn_type",
        "login",
        "password",
    }
    assert _connection("AIRFLOW_CONN_SPARK_DEFAULT")["host"].removeprefix("spark://") in _SERVICES


def test_a_process_is_as_healthy_as_airflow_says() -> None:
    said = {"triggerer": {"status": "healthy"}, "dag_processor": {"status": None}}
    is_healthy = _script("healthy").is_healthy
    with HTTPServer(("localhost", 0), _answering(said)) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://localhost:{server.server_port}/health"
        found = [is_healthy(url), *(is_healthy(url, each) for each in ("triggerer", "dag_processor", "nobody"))]
        server.shutdown()
    assert found == [True, True, False, False]
    assert not is_healthy(url)


def _connection(name: str) -> dict[str, Any]:
    text = _VARIABLE.sub("abc123", _SERVICES["scheduler"]["environment"][name])
    found: dict[str, Any] = json.loads(text)
    return found


def _script(name: str) -> Any:
    spec = spec_from_file_location(name, _DOCKER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _answering(document: object) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps(document).encode())

        def log_message(self, *_: object) -> None:
            pass

    return Handler
