"""The connection: where things are, what is secret, and what is wrong with it."""

import json
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from airflow_provider_ckpt.hooks.ckpt import CkptHook
from airflow_provider_ckpt.hooks.driver import DriverHook, told
from airflow_provider_ckpt.protocol.errors import Misused
from airflow_provider_ckpt.spark.conf import METASTORE
from tests.airflow.conftest import connect
from tests.house import House


def test_a_connection_from_the_environment_leads_to_both(house: House) -> None:
    house.pipeline()
    with CkptHook().open(actor="me") as ckpt:
        assert [each.name for each in ckpt.store.pipelines.all()] == ["orders"]
        assert ckpt.storage.url == house.storage.url
    assert CkptHook().test_connection() == (True, "The metastore and the storage were reached.")


def test_without_a_connection_everything_is_embedded_below_airflow_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path))
    monkeypatch.delenv("AIRFLOW_CONN_CKPT_DEFAULT", raising=False)
    assert CkptHook().test_connection()[0]
    assert stat.S_IMODE((tmp_path / "ckpt").stat().st_mode) == 0o700
    assert CkptHook().access().places.work == tmp_path / "ckpt" / "work"
    with pytest.raises(Misused, match="There is no connection 'other'"):
        CkptHook("other").access()


def test_an_extra_that_nobody_knows_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    connect(monkeypatch, extra={"storge": "/data"})
    with pytest.raises(Misused, match="has the extra 'storge'; it may have aws_conn_id, storage, work"):
        CkptHook().access()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"conn_type": "ckpt", "extra": {"storage": "/data"}', "Airflow can not read it"),
        ('{"conn_type": "ckpt", "extra": {"storage": "/data"}}', "has a storage and no metastore"),
        ('{"conn_type": "postgres", "password": "x"}', "is of type postgres; it must be ckpt"),
    ],
)
def test_a_connection_that_is_not_whole_is_refused_and_nothing_is_embedded(
    text: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_CKPT_DEFAULT", text)
    with pytest.raises(Misused, match=why):
        CkptHook().access()


def test_testing_the_connection_says_which_one_failed(
    tmp_path: Path, new_database: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    connect(monkeypatch, password="sqlite:////nowhere/at/all.db", extra={"storage": str(tmp_path)})
    is_fine, text = CkptHook().test_connection()
    assert not is_fine
    assert text.startswith("The metastore can not be used:")
    connect(monkeypatch, password=new_database("sqlite"), extra={"storage": "ftp://somewhere"})
    is_fine, text = CkptHook().test_connection()
    assert not is_fine
    assert text.startswith("The storage can not be used:")


def test_keys_come_from_an_aws_connection(monkeypatch: pytest.MonkeyPatch, new_database: Callable[[str], str]) -> None:
    keys = {"conn_type": "aws", "login": "AKIA", "password": "hush", "extra": {"region_name": "eu-north-1"}}
    monkeypatch.setenv("AIRFLOW_CONN_KEYS", json.dumps(keys))
    connect(monkeypatch, password=new_database("sqlite"), extra={"storage": "s3://bucket/x", "aws_conn_id": "keys"})
    access = CkptHook().access()
    assert access.credentials is not None
    assert access.credentials.environ == {
        "AWS_ACCESS_KEY_ID": "AKIA",
        "AWS_SECRET_ACCESS_KEY": "hush",
        "AWS_DEFAULT_REGION": "eu-north-1",
    }
    assert "hush" not in repr(access)
    assert access.open_storage().url == "s3://bucket/x"
    monkeypatch.setenv("AIRFLOW_CONN_KEYS", json.dumps({"conn_type": "aws"}))
    with pytest.raises(Misused, match="has no access key and secret"):
        CkptHook().access()


def test_a_driver_is_told_by_a_file_for_its_owner_and_nothing_is_on_the_command_line(
    house: House, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook  # noqa: PLC0415

    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps({"conn_type": "spark", "host": "local[1]"}))
    mine = tmp_path / "mine.conf"
    mine.write_text("spark.mine=1")
    with told(SparkSubmitHook(properties_file=str(mine)), CkptHook().access(), "orders", 3) as hook:
        assert isinstance(hook, DriverHook)
        command = hook._build_spark_submit_command("app.py")
        file = Path(command[command.index("--properties-file") + 1])
        assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
        assert {"spark.mine=1", f"{METASTORE}={house.url}", "spark.ckpt.attempt=3"} <= set(
            file.read_text().splitlines()
        )
        assert house.url not in " ".join(command)
        assert "--load-spark-defaults" in command
    assert not file.exists()
