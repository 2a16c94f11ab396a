"""What a query is made of, read off Spark's analysed plan before it starts: sources, stateful operators, settings.

Recorded with every checkpoint, and compared before a query starts again from one: Spark itself notices some changes
late and others never.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from pyspark.sql.streaming.readwriter import DataStreamWriter

from airflow_provider_ckpt.protocol.codec import Json, JsonObject
from airflow_provider_ckpt.protocol.errors import Refused

_STATEFUL = frozenset({"Aggregate", "Deduplicate", "DeduplicateWithinWatermark", "Distinct"})
_PROVIDER = "spark.sql.streaming.stateStore.providerClass"
_PARTITIONS = "spark.sql.shuffle.partitions"
_HARMLESS = frozenset({"MemorySink", "ConsoleTable", "NoopTable"})


def describe(writer: DataStreamWriter) -> dict[str, Json]:
    """Sources, stateful operators and the settings that Spark pins for them."""
    plan = writer._df._jdf.queryExecution().analyzed()  # noqa: SLF001 - there is no public way to the plan
    nodes = [node for node in _walk(plan) if node.isStreaming()]
    conf = writer._spark.conf  # noqa: SLF001
    operators = [_operator(node) for node in nodes if _is_stateful(node)]
    return {
        "sources": [_source(node) for node in nodes if node.children().isEmpty()],
        "operators": operators,
        "provider": (conf.get(_PROVIDER, "") or "").rpartition(".")[2] if operators else None,
        "partitions": int(conf.get(_PARTITIONS, "200") or 200) if operators else None,
    }


def refuse_deleted_input(name: str, writer: DataStreamWriter) -> None:
    """A source that clears away what it has read can not be replayed."""
    for node in _walk(writer._df._jdf.queryExecution().analyzed()):  # noqa: SLF001
        for key, value in _options(node).items():
            if key.lower() == "cleansource" and value.lower() != "off":
                raise Refused(
                    f"Query {name} reads with cleanSource={value}: after a rewind its input would be gone. Remove the "
                    "option, and let something else clear up what no kept checkpoint needs."
                )


def paths_of(writer: DataStreamWriter) -> list[str]:
    """The folders that a query reads as a stream."""
    nodes = _walk(writer._df._jdf.queryExecution().analyzed())  # noqa: SLF001
    return [options["path"] for node in nodes if "path" in (options := _options(node))]


def sink_of(query: Any) -> tuple[str, str]:
    """The kind of a started query's sink, and how it describes itself."""
    sink = query._jsq.streamingQuery().sink()  # noqa: SLF001
    return sink.getClass().getSimpleName().removesuffix("$"), sink.toString()


def execution_of(query: Any) -> str:
    execution = query._jsq.streamingQuery()  # noqa: SLF001
    return f"{execution.getClass().getSimpleName()} {execution.trigger().toString()}"


def is_bounded(query: Any) -> bool:
    """Whether it ends by itself."""
    return execution_of(query).endswith(("AvailableNowTrigger", "OneTimeTrigger"))


def output_mode_of(query: Any) -> str:
    return str(query._jsq.streamingQuery().outputMode().toString())  # noqa: SLF001


def is_harmless(sink: str) -> bool:
    """Whether nobody is misled when such a sink sees rows again."""
    return sink in _HARMLESS


def find_difference(name: str, was: JsonObject, now: Mapping[str, Json]) -> str | None:
    """The first thing that has changed and that the kept state does not fit, with both sides; None when it fits."""
    for key, noun, remedy in _COMPARED:
        if was.get(key) is not None and was[key] != now.get(key):
            return (
                f"Query {name} has changed: the checkpoint has {noun} {_text(was[key])}, the program has "
                f"{_text(now.get(key))}. {remedy}"
            )
    return None


_COMPARED = (
    (
        "sources",
        "the sources",
        "Offsets belong to the sources in this order: put them back.",
    ),
    (
        "operators",
        "the stateful operators",
        "Their state can not be read by others: put them back.",
    ),
    ("provider", "the state store", f"Set {_PROVIDER} as it was: Spark would go on with the old one, and not say so."),
    (
        "partitions",
        "the state partitions",
        f"Set {_PARTITIONS} as it was: Spark would go on with the old number, and not say so.",
    ),
)


def _walk(node: Any) -> Iterator[Any]:
    yield node
    children = node.children().iterator()
    while children.hasNext():
        yield from _walk(children.next())


def _is_stateful(node: Any) -> bool:
    kind = node.getClass().getSimpleName()
    if kind == "Join":
        return bool(node.left().isStreaming() and node.right().isStreaming())
    return kind in _STATEFUL or "WithState" in kind


def _operator(node: Any) -> Json:
    fields = json.loads(node.schema().json())["fields"]
    return {"kind": node.getClass().getSimpleName(), "types": [_type(field["type"]) for field in fields]}


def _type(document: Any) -> str:
    return document if isinstance(document, str) else json.dumps(document, sort_keys=True)


def _source(node: Any) -> str:
    if node.getClass().getSimpleName() == "StreamingRelation":
        return str(node.dataSource().className())
    return str(node.sourceName() if hasattr(node, "sourceName") else node.toString()).partition("[")[0]


def _options(node: Any) -> dict[str, str]:
    if node.getClass().getSimpleName() != "StreamingRelation":
        return {}
    pairs = node.dataSource().options().iterator()
    found = {}
    while pairs.hasNext():
        pair = pairs.next()
        found[str(pair._1())] = str(pair._2())  # noqa: SLF001 - that is how Scala's pairs are read
    return found


def _text(value: Json) -> str:
    return json.dumps(value, ensure_ascii=False)
