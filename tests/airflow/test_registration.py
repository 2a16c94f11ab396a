"""Airflow finds the provider, and what it imports at parse time is light."""

import importlib
import json
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import airflow
import jsonschema
import pytest
from airflow.providers_manager import ProvidersManager
from airflow.sdk.providers_manager_runtime import ProvidersManagerTaskRuntime

from airflow_provider_ckpt import get_provider_info
from airflow_provider_ckpt.cli.exit_codes import ExitCode
from airflow_provider_ckpt.operators.complete import CompleteCheckpointOperator
from airflow_provider_ckpt.operators.restore import StartRunOperator
from airflow_provider_ckpt.plugin import CkptPlugin

PARSED = ("dag_factory", "operators.spark_submit", "sensors.pipeline", "triggers.events", "notifications.webhook")


def test_the_provider_info_is_valid_by_airflows_own_schema() -> None:
    schema = json.loads((Path(airflow.__file__).parent / "provider_info.schema.json").read_text())
    jsonschema.validate(get_provider_info(), schema)
    unknown = set(get_provider_info()) - set(schema["properties"])
    assert not unknown  # the schema itself lets a typing error pass


def test_every_module_and_class_that_is_named_exists() -> None:
    info = get_provider_info()
    modules = [
        name
        for kind in ("hooks", "operators", "sensors", "triggers")
        for each in info[kind]
        for name in each["python-modules"]
    ]
    for module in modules:
        importlib.import_module(module)
    named = [*info["notifications"], *info["cli"], *info["extra-links"], info["connection-types"][0]["hook-class-name"]]
    for path in named:
        module, _, name = path.rpartition(".")
        assert hasattr(importlib.import_module(module), name), path


def test_airflow_registers_hook_form_command_and_notifiers() -> None:
    manager = ProvidersManager()
    assert "airflow-provider-ckpt" in manager.providers
    hook = ProvidersManagerTaskRuntime().hooks["ckpt"]
    assert hook is not None
    assert (hook.connection_type, hook.hook_class_name.rpartition(".")[2]) == ("ckpt", "CkptHook")
    fields = {name for name in manager.connection_form_widgets if "ckpt" in name}
    assert fields == {f"extra__ckpt__{name}" for name in ("storage", "work", "aws_conn_id")}
    assert manager.field_behaviours["ckpt"]["relabeling"] == {"password": "Metastore URL"}
    told = {str(each) for each in manager.notification}
    assert "airflow_provider_ckpt.notifications.webhook.CheckpointFailedNotifier" in told
    assert any(path.endswith("airflow_cli.get_commands") for path in _names(manager.cli_command_functions))
    assert "ckpt" in dict(manager.provider_configs)["airflow-provider-ckpt"]


def _names(functions: object) -> list[str]:
    return [f"{each.__module__}.{each.__qualname__}" for each in functions]  # type: ignore[attr-defined]


@pytest.mark.slow
def test_parsing_a_dag_loads_neither_pyspark_nor_boto3_nor_alembic() -> None:
    bare = _loaded(
        "airflow.sdk.definitions.dag", "airflow.sdk.bases.operator", "airflow.sdk.bases.sensor", "airflow.triggers.base"
    )
    ours = _loaded(*(f"airflow_provider_ckpt.{name}" for name in PARSED))
    assert "airflow_provider_ckpt.operators.trigger" in ours
    heavy = {"pyspark", "boto3", "botocore", "alembic", "py4j", "pandas", "pyarrow"}
    assert not {name.partition(".")[0] for name in ours - bare} & heavy
    assert not [
        name for name in ours if name.startswith(("airflow_provider_ckpt.metastore", "airflow_provider_ckpt.storage"))
    ]


def _loaded(*modules: str) -> set[str]:
    code = f"import sys, {', '.join(modules)}; print(*sys.modules, sep='\\n')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_the_plugin_is_found_by_its_entry_point() -> None:
    (found,) = entry_points(group="airflow.plugins", name="ckpt")
    plugin = found.load()
    links = [link.name for link in plugin.operator_extra_links]
    assert (plugin.name, links) == ("ckpt", ["Run of the attempt", "Checkpoint"])
    start = StartRunOperator(task_id="start", run_dag_id="orders__run", attempt=3)
    assert start.operator_extra_links[0].get_link(start, ti_key=None).endswith("/dags/orders__run/runs/attempt-3")


def test_the_page_has_a_nav_entry_and_tabs_on_dags_and_runs() -> None:
    views = {view["destination"]: view["href"] for view in CkptPlugin.external_views}
    assert views == {
        "nav": "/ckpt/",
        "dag": "/ckpt/?dag_id={DAG_ID}",
        "dag_run": "/ckpt/?dag_id={DAG_ID}&run_id={RUN_ID}",
    }
    assert len({view["url_route"] for view in CkptPlugin.external_views}) == 3  # Airflow drops a route given twice


def test_a_task_links_to_its_checkpoint_on_the_page() -> None:
    complete = CompleteCheckpointOperator(task_id="complete", pipeline="orders", checkpoint="17")
    (link,) = complete.operator_extra_links
    assert link.get_link(complete, ti_key=None).endswith("/plugin/checkpoints/ckpt/#/orders/checkpoints/17")
    unknown = CompleteCheckpointOperator(task_id="complete", pipeline="orders", checkpoint="{{ later }}")
    assert link.get_link(unknown, ti_key=None).endswith("/plugin/checkpoints/ckpt/#/orders")


@pytest.mark.slow
def test_the_plugin_loads_neither_the_page_nor_the_store_before_somebody_looks() -> None:
    loaded = _loaded("airflow_provider_ckpt.plugin")
    ours = {name for name in loaded if name.startswith("airflow_provider_ckpt.")}
    assert "airflow_provider_ckpt.ui.lazy" in ours
    assert "airflow_provider_ckpt.ui.app" not in ours
    assert not [
        name for name in ours if name.startswith(("airflow_provider_ckpt.metastore", "airflow_provider_ckpt.cli"))
    ]


@pytest.mark.slow
def test_airflow_shows_providers_plugins_and_connections(tmp_path: Path) -> None:
    said = {words: _airflow(tmp_path, *words.split()) for words in ("providers list", "providers hooks", "plugins")}
    assert "airflow-provider-ckpt" in said["providers list"]
    assert "CkptHook" in said["providers hooks"]
    assert "ckpt" in said["plugins"]


def _airflow(home: Path, *words: str) -> str:
    done = _run(home, *words)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _run(home: Path, *words: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    binaries = Path(sys.executable).parent
    return subprocess.run(
        [str(binaries / "airflow"), *words],
        env={"PATH": str(binaries), "AIRFLOW_HOME": str(home), "COLUMNS": "400", **environment},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
def test_the_airflow_command_says_what_is_wrong_with_the_connection(tmp_path: Path) -> None:
    connection = json.dumps({"conn_type": "ckpt", "password": "sqlite:////x.db", "extra": {"storag": "/data"}})
    done = _run(tmp_path, "ckpt", "list", "orders", AIRFLOW_CONN_CKPT_DEFAULT=connection)
    assert done.returncode == ExitCode.MISUSED
    assert "has the extra 'storag'" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_the_airflow_command_has_ours(tmp_path: Path) -> None:
    assert "Pipeline orders was created" in _airflow(tmp_path, "ckpt", "--", "init", "orders")
    assert (tmp_path / "ckpt" / "metastore.db").exists()
