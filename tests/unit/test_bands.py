"""The bands in a clean interpreter: what an import loads, seen from outside."""

import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import airflow_provider_ckpt
from airflow_provider_ckpt import coordinator, metastore, protocol

ROOT = Path(airflow_provider_ckpt.__file__).parent.parent
HEAVY = {"sqlalchemy", "alembic", "boto3", "botocore", "rich", "pendulum", "psycopg"}
SURFACES = {"airflow", "pyspark", "rich"}
NETWORK = {"socket", "_socket", "ssl", "selectors", "asyncio", "http", "urllib.request", "socketserver", "ftplib"}


def _modules_of(package: str, paths: list[str]) -> list[str]:
    found = [package, *(each.name for each in pkgutil.walk_packages(paths, f"{package}."))]
    return [name for name in found if ".migrations" not in name]  # Alembic runs those, nobody imports them


PROTOCOL = _modules_of(protocol.__name__, list(protocol.__path__))
STORE_AND_USE_CASES = [
    *_modules_of(metastore.__name__, list(metastore.__path__)),
    *_modules_of(coordinator.__name__, list(coordinator.__path__)),
]


def _loaded_by(modules: list[str]) -> set[str]:
    """What a new interpreter has loaded after importing these modules and nothing else."""
    code = f"import sys, {', '.join(modules)}; print(*sys.modules, sep='\\n')"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def _roots(modules: set[str]) -> set[str]:
    return {name.partition(".")[0] for name in modules}


@pytest.fixture(scope="module")
def plain() -> set[str]:
    """What Python loads for itself, with whatever this environment hooks into it."""
    return _loaded_by(["os"])


def test_importing_the_package_loads_nothing_heavy(plain: set[str]) -> None:
    loaded = _loaded_by(["airflow_provider_ckpt"]) - plain
    assert "airflow_provider_ckpt" in loaded
    assert not _roots(loaded) & (HEAVY | SURFACES)
    assert not loaded & NETWORK


def test_the_protocol_loads_no_library_and_no_network(plain: set[str]) -> None:
    loaded = _loaded_by(PROTOCOL) - plain
    assert set(PROTOCOL) <= loaded
    assert not loaded & NETWORK
    assert _roots(loaded) - {"airflow_provider_ckpt"} <= sys.stdlib_module_names


def test_the_protocol_loads_no_other_band() -> None:
    ours = {name for name in _loaded_by(PROTOCOL) if name.startswith("airflow_provider_ckpt")}
    assert ours == {"airflow_provider_ckpt", "airflow_provider_ckpt.version", *PROTOCOL}


def test_the_store_and_the_use_cases_load_no_surface_and_no_cloud(plain: set[str]) -> None:
    loaded = _loaded_by(STORE_AND_USE_CASES) - plain
    assert set(STORE_AND_USE_CASES) <= loaded
    assert "sqlalchemy" in loaded
    assert not _roots(loaded) & (SURFACES | {"boto3", "botocore", "s3transfer", "fsspec", "requests"})


def test_the_store_loads_no_use_case_and_no_storage() -> None:
    loaded = _loaded_by(_modules_of(metastore.__name__, list(metastore.__path__)))
    others = ("coordinator", "storage", "cli", "testing")
    assert not [name for name in loaded if name.startswith(tuple(f"airflow_provider_ckpt.{each}" for each in others))]


def test_there_are_as_many_modules_here_as_files_in_the_protocol() -> None:
    folder = Path(next(iter(protocol.__path__)))
    assert len(PROTOCOL) == len(list(folder.glob("*.py")))
