"""Rows as PostgreSQL's COPY wants them: Spark makes the lines, a Python worker only passes them on."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame

_CSV = {
    "escape": '"',
    "nullValue": "",
    "emptyValue": '""',
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
    "ignoreLeadingWhiteSpace": "false",
    "ignoreTrailingWhiteSpace": "false",
}


def as_lines(rows: "DataFrame") -> "DataFrame":
    """One column with a line of CSV for each row, its line break included."""
    from pyspark.sql import functions as sql  # noqa: PLC0415 - the command line opens sinks without Spark

    columns = [_written(field.name, field.dataType.typeName()) for field in rows.schema.fields]
    return rows.select(sql.concat(sql.to_csv(sql.struct(*columns), _CSV), sql.lit("\n")).alias("line"))


def _written(name: str, kind: str) -> "Column":
    from pyspark.sql import functions as sql  # noqa: PLC0415

    column = sql.col(f"`{name.replace('`', '``')}`")
    if kind == "binary":
        return sql.when(column.isNotNull(), sql.concat(sql.lit("\\x"), sql.hex(column))).alias(name)
    if kind in ("array", "map", "struct", "variant"):
        return sql.to_json(column).alias(name)
    return column.alias(name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """Runs in a Spark task: one COPY, one transaction; says which transaction it was, and what it has copied."""

    url: str
    statement: str

    def __repr__(self) -> str:
        return "Copy()"  # the URL is a secret

    def __call__(self, batches: "Iterable[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        import psycopg  # noqa: PLC0415 - on executors
        import pyarrow as pa  # noqa: PLC0415

        rows = size = 0
        with psycopg.connect(self.url) as connection, connection.cursor() as cursor:
            with cursor.copy(self.statement) as copy:
                for batch in batches:
                    text = _text_of(batch.column(0))
                    copy.write(text)
                    rows, size = rows + batch.num_rows, size + len(text)
            part = cursor.execute("SELECT txid_current()").fetchone()
        if rows and part is not None:
            yield pa.RecordBatch.from_pydict({"part": [part[0]], "rows": [rows], "bytes": [size]})


def _text_of(lines: "pa.StringArray") -> memoryview:
    """All lines as they lie in memory, one after the other."""
    import pyarrow as pa  # noqa: PLC0415

    _, offsets, data = lines.buffers()
    if not len(lines):
        return memoryview(b"")
    ends = memoryview(offsets).cast("q" if pa.types.is_large_string(lines.type) else "i")
    return memoryview(data)[ends[lines.offset] : ends[lines.offset + len(lines)]]
