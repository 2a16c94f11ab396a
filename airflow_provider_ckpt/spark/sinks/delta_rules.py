"""What a Delta table asks of its writers besides its columns: enforced, or refused by name before anything is staged.

Spark writes our Parquet beside the table, and the library only adds the files: no writer of Delta's sees the rows. So
NOT NULL and CHECK are put into Spark's plan, and what we do not write right is not written at all.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from deltalake import DeltaTable
from deltalake.schema import Field

from airflow_provider_ckpt.protocol.errors import Refused
from airflow_provider_ckpt.spark.sinks.base import Name

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_CHECK = "delta.constraints."
_INVARIANT = "delta.invariants"
_SAFE = frozenset(  # features of a table that an appended file can not break, or that are looked at one by one
    {
        "appendOnly",
        "changeDataFeed",
        "checkConstraints",
        "columnMapping",
        "generatedColumns",
        "invariants",
        "timestampNtz",
    }
)

_DROP_VECTORS = (
    "Drop the feature: set delta.enableDeletionVectors to false, REORG TABLE … APPLY (PURGE), and ALTER TABLE … DROP "
    "FEATURE deletionVectors."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What each row must fulfil."""

    not_null: tuple[str, ...] = ()
    checks: Mapping[str, str] = field(default_factory=dict)  # by name: an expression that must be true

    def enforced(self, rows: "DataFrame", path: str) -> "DataFrame":
        """The same rows; the first one that breaks a rule fails the batch, while it is written."""
        nullable = [name for name in self.not_null if rows.schema[name].nullable]
        if not nullable and not self.checks:
            return rows
        from pyspark.sql import functions as sql  # noqa: PLC0415 - the command line opens sinks without Spark

        rules = {f"column {name} is NOT NULL": sql.col(_quoted(name)).isNotNull() for name in nullable}
        rules |= {f"CHECK {name} ({check})": sql.expr(check) for name, check in self.checks.items()}
        for rule, holds in rules.items():
            rows = rows.where(_true_or_fail(holds, f"A row breaks a rule of the Delta table {path}: {rule}."))
        return rows


def read_rules(name: Name, path: str, table: DeltaTable) -> Rules:
    """:raises Refused: when the table asks for something that is not written here."""
    for what, instead in _unsupported(table):
        raise Refused(f"{name} can not write to the Delta table {path}: {what}. {instead}")
    configuration = table.metadata().configuration
    checks = {key.removeprefix(_CHECK): value for key, value in configuration.items() if key.startswith(_CHECK)}
    fields = table.schema().fields
    checks |= {f"of column {each.name}": _invariant(each) for each in fields if _INVARIANT in each.metadata}
    return Rules(not_null=tuple(each.name for each in fields if not each.nullable), checks=checks)


def is_append_only(table: DeltaTable) -> bool:
    """Whether nobody may take anything back."""
    return str(table.metadata().configuration.get("delta.appendOnly", "")).lower() == "true"


def _unsupported(table: DeltaTable) -> Iterator[tuple[str, str]]:
    """What it asks for, and what to do instead."""
    configuration = table.metadata().configuration
    if configuration.get("delta.columnMapping.mode", "none") != "none":
        yield "it has column mapping", "Write to a table without it: its files have other names for the columns."
    for column in table.schema().fields:
        if "delta.generationExpression" in column.metadata:
            yield f"its column {column.name} is generated", "Write to a table without it, and compute it in the query."
        if any(key.startswith("delta.identity.") for key in column.metadata):
            yield f"its column {column.name} is an identity", "Write to a table without it."
    features = set(table.protocol().writer_features or ())
    if "deletionVectors" in features or configuration.get("delta.enableDeletionVectors") == "true":
        yield "it has deletion vectors", _DROP_VECTORS
    for feature in sorted(features - _SAFE):
        yield f"it has the feature {feature}", "Drop the feature, or write to a table without it."


def _invariant(column: Field) -> str:
    """As Delta keeps it: a document in a text."""
    return str(json.loads(str(column.metadata[_INVARIANT]))["expression"]["expression"])


def _true_or_fail(holds: "Column", message: str) -> "Column":
    """Neither false nor unknown."""
    from pyspark.sql import functions as sql  # noqa: PLC0415

    return sql.when(holds, sql.lit(True)).otherwise(sql.raise_error(sql.lit(message)).cast("boolean"))  # noqa: FBT003


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"
