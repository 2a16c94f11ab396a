"""A data frame without Spark, as far as sinks use one: pyarrow writes the files that Spark would write.

So the sinks of files and tables go through the conformance kit, and into corners, within seconds.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

_TYPES = {"int64": "long", "int32": "integer", "string": "string", "double": "double", "date32[day]": "date"}


class Frame:
    def __init__(self, table: pa.Table) -> None:
        self._table = table

    @property
    def columns(self) -> list[str]:
        return list(self._table.column_names)

    @property
    def schema(self) -> "_Schema":
        return _Schema(self._table.schema)

    @property
    def write(self) -> "_Writer":
        return _Writer(self._table)

    @property
    def sparkSession(self) -> "_Session":  # noqa: N802 - as Spark calls it
        return _Session()

    def limit(self, rows: int) -> "Frame":
        return Frame(self._table.slice(0, rows))

    def toArrow(self) -> pa.Table:  # noqa: N802
        return self._table


def numbers(values: Sequence[int]) -> Any:
    """A batch with a row for each number, as the conformance kit asks for it."""
    return Frame(pa.table({"n": pa.array(values, pa.int64())}))


class _Schema:
    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema

    def __getitem__(self, name: str) -> pa.Field:
        return self._schema.field(name)

    def json(self) -> str:
        fields = [
            {"name": each.name, "type": _TYPES[str(each.type)], "nullable": each.nullable, "metadata": {}}
            for each in self._schema
        ]
        return json.dumps({"type": "struct", "fields": fields})


class _Writer:
    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def format(self, name: str) -> "_Writer":
        assert name == "parquet"
        return self

    def options(self, **_: str) -> "_Writer":
        return self

    def partitionBy(self, *columns: str) -> "_Writer":  # noqa: N802
        assert not columns
        return self

    def save(self, uri: str) -> None:
        folder = Path(unquote(urlsplit(uri).path))
        folder.mkdir(parents=True)
        pq.write_table(self._table, folder / f"part-00000-{uuid4().hex}.parquet")


class _Session:
    """Of a Spark that runs its tasks here and now; one whose answer is lost runs again, as Spark's tasks do."""

    lost = 0  # how many tasks run twice

    @property
    def conf(self) -> "_Session":
        return self

    @property
    def sparkContext(self) -> "_Session":  # noqa: N802
        return self

    def set(self, key: str, value: str) -> None:
        pass

    def parallelize(self, values: Iterable[Any], tasks: int) -> "_Tasks":
        assert tasks
        return _Tasks(list(values))


class _Tasks:
    def __init__(self, values: list[Any]) -> None:
        self._values = values

    def map(self, work: Callable[[Any], Any]) -> "_Tasks":
        for value in self._values[: _Session.lost]:
            work(value)
        return _Tasks([work(value) for value in self._values])

    def collect(self) -> list[Any]:
        return self._values
