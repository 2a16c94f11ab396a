"""What a Delta table asks of its writers: refused by name before anything is staged, where it is not enforced."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from airflow_provider_ckpt.protocol.errors import Refused
from airflow_provider_ckpt.spark.sinks import DeltaSink, Name, Slot
from airflow_provider_ckpt.spark.sinks.delta_rules import Rules, read_rules
from tests import frames

NAME = Name(pipeline="orders", sink="totals/sink")


def _table(
    folder: Path, *, features: Sequence[str] = (), configuration: Any = None, column: Any = None, version: int = 7
) -> str:
    """As Delta's own writer leaves it: nobody here can make one with these."""
    fields = [{"name": "n", "type": "long", "nullable": True, "metadata": {}, **(column or {})}]
    readers = [each for each in features if each in ("columnMapping", "deletionVectors", "typeWidening")]
    protocol: Any = {"minReaderVersion": 1, "minWriterVersion": version}
    if version == 7:
        protocol = {
            "minReaderVersion": 3,
            "minWriterVersion": 7,
            "readerFeatures": readers,
            "writerFeatures": list(features),
        }
    metadata: Any = {
        "id": "a",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": fields}),
        "partitionColumns": [],
        "configuration": configuration or {},
        "createdTime": 1,
    }
    log = folder / "table" / "_delta_log"
    log.mkdir(parents=True)
    actions = [{"protocol": protocol}, {"metaData": metadata}]
    (log / f"{0:020}.json").write_text("\n".join(map(json.dumps, actions)))
    return str(folder / "table")


def _stage(path: str, folder: Path, rows: Any = None) -> Any:
    slot = Slot(name=NAME, attempt=1, batch=0, run="a", scratch=folder / "scratch")
    return DeltaSink(path).stage(frames.numbers([1]) if rows is None else rows, slot)


MAPPED = {"metadata": {"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "col-1"}}
IDENTITY = {"metadata": {"delta.identity.start": 1, "delta.identity.step": 1}}
GENERATED = {"metadata": {"delta.generationExpression": "1"}}
WITH_MODE = {"delta.columnMapping.mode": "name"}
REFUSED: list[tuple[Any, str]] = [
    ({"features": ["columnMapping"], "configuration": WITH_MODE, "column": MAPPED}, "it has column mapping"),
    ({"version": 5, "configuration": WITH_MODE, "column": MAPPED}, "it has column mapping"),
    ({"features": ["generatedColumns"], "column": GENERATED}, "its column n is generated"),
    ({"version": 4, "column": GENERATED}, "its column n is generated"),
    ({"features": ["identityColumns"], "column": IDENTITY}, "its column n is an identity"),
    ({"features": ["deletionVectors"]}, "it has deletion vectors.*DROP FEATURE deletionVectors"),
    ({"features": ["rowTracking", "domainMetadata"]}, "it has the feature domainMetadata"),
    ({"features": ["typeWidening"]}, "it has the feature typeWidening"),
    ({"features": ["aFeatureOfTheFuture"]}, "it has the feature aFeatureOfTheFuture|Unsupported|unknown"),
]


@pytest.mark.parametrize(("made", "why"), REFUSED)
def test_what_is_not_enforced_is_refused_by_name_and_nothing_is_staged(made: Any, why: str, tmp_path: Path) -> None:
    path = _table(tmp_path, **made)
    with pytest.raises(Refused, match=rf"orders/totals/sink can not write to the Delta table .*{why}"):
        _stage(path, tmp_path)
    assert not (Path(path) / ".ckpt").exists()


@pytest.mark.parametrize(
    "made",
    [
        {"features": ["generatedColumns", "columnMapping"]},  # it may, and does not
        {"features": ["appendOnly", "changeDataFeed"], "configuration": {"delta.enableChangeDataFeed": "true"}},
        {"version": 2},
    ],
)
def test_what_an_appended_file_can_not_break_is_written(made: Any, tmp_path: Path) -> None:
    assert _stage(_table(tmp_path, **made), tmp_path).rows == 1


def test_constraints_are_read_with_their_names(tmp_path: Path) -> None:
    invariant = json.dumps({"expression": {"expression": "n < 9"}})
    path = _table(
        tmp_path,
        features=["checkConstraints", "invariants"],
        configuration={"delta.constraints.positive": "n > 0"},
        column={"nullable": False, "metadata": {"delta.invariants": invariant}},
    )
    found = read_rules(NAME, path, DeltaTable(path))
    assert found == Rules(not_null=("n",), checks={"positive": "n > 0", "of column n": "n < 9"})


def test_a_query_that_lacks_a_column_that_is_not_null_is_refused(tmp_path: Path) -> None:
    path = _table(tmp_path, version=2, column={"nullable": False})
    other = frames.Frame(pa.table({"m": pa.array([1], pa.int64())}))
    with pytest.raises(Refused, match=r"column m is not in the table"):
        _stage(path, tmp_path, other)
    slot = Slot(name=NAME, attempt=1, batch=0, run="a", scratch=tmp_path / "scratch")
    with pytest.raises(Refused, match=r"its column n is NOT NULL, and the query does not give it"):
        DeltaSink(path, evolve=True).stage(other, slot)  # type: ignore[arg-type]


def test_a_table_that_nothing_may_be_taken_from_has_no_history(tmp_path: Path) -> None:
    path = _table(tmp_path, version=2, configuration={"delta.appendOnly": "true"})
    sink = DeltaSink(path)
    sink.recover(NAME, 1)
    assert sink.history(NAME) == frozenset()
