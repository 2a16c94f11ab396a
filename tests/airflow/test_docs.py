"""What docs/airflow.md shows is true."""

import inspect
import re
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_ckpt.dag_factory import checkpoint_dags
from airflow_provider_ckpt.provider_info import get_provider_info
from tests.airflow.parsing import dags_in

_TEXT = (Path(__file__).parents[2] / "docs" / "airflow.md").read_text()
_ALERTS = (Path(__file__).parents[2] / "docs" / "alerts.md").read_text()
_ROWS = re.findall(r"^\| `((?:operators|sensors|triggers|notifications)\.[\w.]+)` \| (.*?) \|", _TEXT, re.MULTILINE)
_each_row = pytest.mark.parametrize(("path", "parameters"), _ROWS, ids=[path.split(".")[-1] for path, _ in _ROWS])


@pytest.mark.parametrize("snippet", re.findall(r"```python\n(.*?)```", _TEXT + _ALERTS, re.DOTALL))
def test_a_snippet_is_a_dag_file(snippet: str, tmp_path: Path) -> None:
    (tmp_path / "snippet.py").write_text(snippet)
    assert dags_in(tmp_path / "snippet.py")


@_each_row
def test_a_parameter_of_the_table_exists(path: str, parameters: str) -> None:
    shown = set(re.findall(r"`([a-z_]+)`", parameters))
    assert shown <= _parameters(_class(path))


@_each_row
def test_a_parameter_is_in_italics_where_it_is_templated(path: str, parameters: str) -> None:
    templated = set(getattr(_class(path), "template_fields", ())) if not path.startswith("triggers.") else set()
    shown = set(re.findall(r"`([a-z_]+)`", parameters))
    assert set(re.findall(r"\*`([a-z_]+)`\*", parameters)) == shown & templated


def test_everything_that_is_registered_is_in_the_table() -> None:
    info = get_provider_info()
    modules = {
        m for kind in ("operators", "sensors", "triggers") for each in info[kind] for m in each["python-modules"]
    }
    shown = {f"airflow_provider_ckpt.{path.rpartition('.')[0]}" for path, _ in _ROWS}
    assert modules <= shown


def test_every_argument_of_the_declaration_is_named() -> None:
    assert all(
        f"`{name}`" in _TEXT or f"{name}=" in _TEXT
        for name in inspect.signature(checkpoint_dags).parameters
        if name != "pipeline"
    )


def _class(path: str) -> Any:
    module, _, name = path.rpartition(".")
    return getattr(import_module(f"airflow_provider_ckpt.{module}"), name)


def _parameters(kind: type) -> set[str]:
    """Also those that it hands on to what it is made from."""
    made = [vars(each)["__init__"] for each in kind.__mro__[:-1] if "__init__" in vars(each)]
    return {name for init in made for name in inspect.signature(init).parameters}
