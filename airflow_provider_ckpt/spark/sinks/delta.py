"""A Delta table: Spark writes Parquet beside it, and one log entry publishes all of it, with its marker.

The marker is an application transaction (`ckpt/<pipeline>/<query>/sink`, checkpoint id); a second one holds the newest
attempt. Both are checked and written against one version of the table, with the library's own retries off: where
somebody else was faster the table is loaded anew, the marker is looked at again, and only then it is tried again.
"""

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, unquote, urlsplit

from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import CommitFailedError, TableNotFoundError
from deltalake.transaction import AddAction

from airflow_provider_ckpt.protocol.codec import JsonObject
from airflow_provider_ckpt.protocol.errors import CkptError, Misused, OutcomeUnknown, Refused, TryAgain
from airflow_provider_ckpt.protocol.recovery import SinkMarker
from airflow_provider_ckpt.spark.sinks.base import (
    Leftover,
    Name,
    Publication,
    Published,
    Sink,
    Slot,
    Staged,
    may_take_over,
    must_commit,
)
from airflow_provider_ckpt.spark.sinks.delta_rules import Rules, is_append_only, read_rules
from airflow_provider_ckpt.spark.sinks.footers import Footer, read_footers
from airflow_provider_ckpt.spark.sinks.landing import StagedFile, read_batches
from airflow_provider_ckpt.spark.sinks.landings import open_table_landing
from airflow_provider_ckpt.spark.sinks.writing import Format, write_micros

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_TRIES = 20
_LOOK_BACK = 1000  # log entries
_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    """One of our own log entries: the checkpoint that the table was at after it."""

    version: int
    checkpoint: int


class DeltaSink(Sink):
    """Appends to a Delta table, which others may write to as well.

    ::

        ckpt.start("orders", orders.writeStream, sink=DeltaSink("/lake/orders", partition_by=["day"]))

    Readers see a checkpoint whole or not at all. A restore behind what is published takes the table back to the version
    of that checkpoint, if nobody else has committed to it since; else it is refused.

    :param path: of the table: an absolute path that driver and executors share, or `s3://bucket/prefix?…`.
    :param partition_by: for a table that is made with the first batch; one that is there knows its own.
    :param evolve: whether new columns of the query are added to the table; else they are refused.
    """

    def __init__(self, path: str, *, partition_by: Iterable[str] = (), evolve: bool = False) -> None:
        self._path = path
        self._partition_by = tuple(partition_by)
        self._evolve = evolve
        self._landing = open_table_landing(path)
        self._uri, self._options = self._landing.root, _storage_options(path)
        self._fitting = ""  # the schema that the table was found to have room for
        self._rules = Rules()

    def stage(self, rows: "DataFrame", slot: Slot) -> Staged:
        if (schema := rows.schema.json()) != self._fitting:
            self._rules = self._fit(slot.name, Schema.from_json(schema))
            self._fitting = schema
        write_micros(rows)
        checked = self._rules.enforced(rows, self._path)
        return self._landing.stage(checked, slot, Format(partition_by=self._partition_by))

    def commit(self, publication: Publication) -> Published:
        batches = read_batches(publication.name, publication.staged)
        files = [file for batch in batches for file in batch.files]

        def publish(table: DeltaTable) -> None:
            self._landing.publish(publication.name, batches)
            self._write(table, self._actions(table, files), _properties(publication))

        version = self._until_written(publication.name, partial(must_commit, publication), publish)
        self._fitting = ""  # others may have changed the table: look at it again with the next batch
        return Published(
            rows=sum(batch.rows for batch in batches),
            bytes=sum(file.size for file in files),
            files=len(files),
            version=f"version {version}",
        )

    def recover(self, name: Name, attempt: int) -> SinkMarker:
        if self._load() is not None:

            def fence(table: DeltaTable) -> None:
                if _attempt(table, name) < attempt:
                    self._write(table, [], _marking(name, attempt, _checkpoint(table, name)))

            self._until_written(name, may_take_over(name, attempt), fence)
        return self.marker(name)

    def marker(self, name: Name) -> SinkMarker:
        table = self._load()
        return SinkMarker(committed=None) if table is None else _marker(table, name)

    def history(self, name: Name) -> frozenset[int]:
        table = self._load()
        if table is None or is_append_only(table):
            return frozenset()
        return frozenset(entry.checkpoint for entry in _own_entries(table, name))

    def roll_back(self, name: Name, attempt: int, to: int) -> None:
        def restore(table: DeltaTable) -> None:
            versions = [entry.version for entry in _own_entries(table, name) if entry.checkpoint == to]
            if not versions:
                raise Refused(
                    f"{name} can not go back to checkpoint {to}: somebody else has written to {self._path} since, or "
                    "its log has forgotten that version."
                )
            table.restore(versions[0], commit_properties=_marking(name, attempt, to))

        self._until_written(name, may_take_over(name, attempt), restore)

    def discard(self, name: Name, attempt: int, keep: Sequence[JsonObject]) -> None:
        self._landing.discard(name, attempt, keep)

    def leftovers(self, name: Name) -> Iterable[Leftover]:
        return self._landing.leftovers(name)

    def describe(self) -> JsonObject:
        return {"kind": "delta", "path": self._path}

    # inside

    def _load(self) -> DeltaTable | None:
        try:
            return DeltaTable(self._uri, storage_options=self._options)
        except TableNotFoundError:
            return None

    def _fit(self, name: Name, schema: Schema) -> Rules:
        """Make the table with the first batch, make room for new columns or refuse them; says what rows must fulfil."""
        table = self._load()
        if table is None:
            DeltaTable.create(
                self._uri,
                schema,
                storage_options=self._options,
                mode="ignore",
                partition_by=list(self._partition_by),
                commit_properties=_marking(name, 0, 0),
            )
            return Rules()
        rules = read_rules(name, self._path, table)
        self._partition_by = self._check_partitions(tuple(table.metadata().partition_columns))
        known = {field.name: field.type for field in table.schema().fields}
        new = [field for field in schema.fields if field.name not in known]
        changed = [field.name for field in schema.fields if known.get(field.name, field.type) != field.type]
        if changed or (new and not self._evolve):
            what = changed[0] if changed else new[0].name
            raise Refused(
                f"{name} can not write to {self._path}: its column {what} is not in the table with that type. Change "
                "the query, or add new columns with evolve=True."
            )
        missing = [each for each in rules.not_null if each not in {field.name for field in schema.fields}]
        if missing:
            raise Refused(
                f"{name} can not write to {self._path}: its column {missing[0]} is NOT NULL, and the query does not "
                "give it. Add it to the query."
            )
        if new:
            table.alter.add_columns(new)
        return rules

    def _check_partitions(self, found: tuple[str, ...]) -> tuple[str, ...]:
        if self._partition_by not in ((), found):
            raise Misused(f"{self._path} is partitioned by {', '.join(found) or 'nothing'}: leave partition_by out.")
        return found

    def _until_written(self, name: Name, may: Callable[[SinkMarker], bool], work: Callable[[DeltaTable], None]) -> int:
        """Check and write against one version; where somebody else was faster, look again. Says the version."""
        refusal = ""
        for _ in range(_TRIES):
            table = self._load()
            if table is None:
                raise Refused(f"There is no Delta table at {self._path} any more, and {name} has staged for it.")
            if not may(_marker(table, name)):
                return table.version()
            try:
                work(table)
            except CommitFailedError as error:
                refusal = str(error)
                continue
            return table.version() + 1
        raise TryAgain(f"{name}: {self._path} did not take the commit in {_TRIES} tries, the last time: {refusal}")

    def _write(self, table: DeltaTable, actions: list[AddAction], properties: CommitProperties) -> None:
        try:
            table.create_write_transaction(
                actions,  # type: ignore[arg-type] # it is invariant in what it takes
                mode="append",
                schema=table.schema(),
                partition_by=list(table.metadata().partition_columns),
                commit_properties=properties,
            )
        except (CommitFailedError, CkptError):
            raise
        except Exception as error:
            raise OutcomeUnknown(f"{self._path} did not say whether the entry is written: {error}") from error

    def _actions(self, table: DeltaTable, files: Sequence[StagedFile]) -> list[AddAction]:
        columns = tuple(table.metadata().partition_columns)
        footers = read_footers([file.name for file in files], self._landing.source)
        return [_action(file, footer, columns) for file, footer in zip(files, footers, strict=True)]


def _action(file: StagedFile, footer: Footer, columns: tuple[str, ...]) -> AddAction:
    stats = {
        "numRecords": footer.rows,
        "minValues": footer.least,
        "maxValues": footer.most,
        "nullCount": footer.nulls,
    }
    return AddAction(
        path=file.name,
        size=file.size,
        partition_values=_partition_values(file.name, columns),
        modification_time=int(time.time() * 1000),
        data_change=True,
        stats=json.dumps(stats),
    )


def _partition_values(path: str, columns: tuple[str, ...]) -> Mapping[str, str | None]:
    found = dict(part.split("=", 1) for part in path.split("/")[:-1])
    values = {unquote(name): unquote(value) for name, value in found.items()}
    return {name: None if values[name] == _NO_VALUE else values[name] for name in columns}


def _storage_options(path: str) -> dict[str, str] | None:
    """What an S3 URL says of its server, in the words of the library."""
    settings = dict(parse_qsl(urlsplit(path).query))
    if not settings:
        return None
    options = {"AWS_ALLOW_HTTP": "true", "AWS_VIRTUAL_HOSTED_STYLE_REQUEST": "false"}
    names = {"endpoint": "AWS_ENDPOINT_URL", "region": "AWS_REGION"}
    return options | {names[key]: value for key, value in settings.items() if key in names}


def _properties(publication: Publication) -> CommitProperties:
    return _marking(publication.name, publication.attempt, publication.ref.id)


def _marking(name: Name, attempt: int, checkpoint: int) -> CommitProperties:
    """The marker, the fence, and the same in words for whoever reads the history."""
    return CommitProperties(
        custom_metadata={"ckpt": str(name), "ckpt.checkpoint": str(checkpoint), "ckpt.attempt": str(attempt)},
        max_commit_retries=0,
        app_transactions=[Transaction(_app(name), checkpoint), Transaction(f"{_app(name)}/attempt", attempt)],
    )


def _app(name: Name) -> str:
    return f"ckpt/{name}"


def _marker(table: DeltaTable, name: Name) -> SinkMarker:
    return SinkMarker(committed=_checkpoint(table, name) or None, attempt=_attempt(table, name))


def _checkpoint(table: DeltaTable, name: Name) -> int:
    return table.transaction_version(_app(name)) or 0


def _attempt(table: DeltaTable, name: Name) -> int:
    return table.transaction_version(f"{_app(name)}/attempt") or 0


def _own_entries(table: DeltaTable, name: Name) -> Iterable[_Entry]:
    """Newest first, as far back as nobody else has written."""
    for entry in table.history(_LOOK_BACK):
        if entry.get("ckpt") != str(name):
            return
        yield _Entry(version=int(entry["version"]), checkpoint=int(entry["ckpt.checkpoint"]))
