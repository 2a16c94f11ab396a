"""What a query is made of, read off Spark's analysed plan before it starts: sources, stateful operators, settings.

Recorded with every checkpoint, and compared before a query starts again from one: Spark itself notices some changes
late and others never.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql.streaming.readwriter import DataStreamWriter

from airflow_provider_ckpt.protocol.codec import Json, JsonObject
from airflow_provider_ckpt.protocol.errors import Refused
from airflow_provider_ckpt.spark.streaming.location import source_names

_STATEFUL = frozenset({"Aggregate", "Deduplicate", "DeduplicateWithinWatermark", "Distinct"})
_PROVIDER = "spark.sql.streaming.stateStore.providerClass"
_PARTITIONS = "spark.sql.shuffle.partitions"
_BY_NAME = 2  # the version of the offset log that keeps offsets by name
_OFFSET_LOG = "spark.sql.streaming.offsetLog.formatVersion"
_HARMLESS = frozenset({"MemorySink", "ConsoleTable", "NoopTable"})


def describe(writer: DataStreamWriter) -> dict[str, Json]:
    """Sources, stateful operators and the settings that Spark pins for them."""
    plan = writer._df._jdf.queryExecution().analyzed()  # noqa: SLF001 - there is no public way to the plan
    nodes = [node for node in _walk(plan) if node.isStreaming()]
    conf = writer._spark.conf  # noqa: SLF001
    operators = [_operator(node) for node in nodes if _is_stateful(node)]
    leaves = [node for node in nodes if node.children().isEmpty()]
    return {
        "sources": [_source(node) for node in leaves],
        "source_names": _names_of(leaves),
        "offset_log": int(conf.get(_OFFSET_LOG, "1") or 1),
        "operators": operators,
        "provider": (conf.get(_PROVIDER) or "").rpartition(".")[2] if operators else None,
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


def follow_pinned(
    name: str, described: Mapping[str, Json], conf: Mapping[str, str]
) -> tuple[dict[str, Json], list[str]]:
    """What a query will be made of where Spark has pinned settings for it, and what of the program's it ignores."""
    if described["operators"] == []:
        return dict(described), []
    pinned: dict[str, Json] = {}
    if _PROVIDER in conf:
        pinned["provider"] = conf[_PROVIDER].rpartition(".")[2]
    if _PARTITIONS in conf:
        pinned["partitions"] = int(conf[_PARTITIONS])
    ignored = [
        f"Query {name} goes on with {_NOUNS[key]} {_text(value)}, which Spark has pinned with its first batch. The "
        f"program has {_text(described[key])}, which changes nothing."
        for key, value in pinned.items()
        if described[key] != value
    ]
    return {**described, **pinned}, ignored


def find_difference(name: str, was: JsonObject, now: Mapping[str, Json]) -> str | None:
    """The first thing that has changed and that Spark could not go on with, with both sides; None when it fits."""
    for key, remedy in _COMPARED:
        before, after = _sources_of(was, now) if key == "sources" else (was.get(key), now.get(key))
        if before not in (None, "") and before != after:
            return (
                f"Query {name} has changed: the checkpoint has {_NOUNS[key]} {_text(before)}, the program has "
                f"{_text(after)}. {remedy}"
            )
    return None


_NOUNS = {
    "sources": "the sources",
    "operators": "the stateful operators",
    "provider": "the state store",
    "partitions": "the state partitions",
}
_COMPARED = (
    ("sources", "Offsets belong to the sources in this order: put them back."),
    ("operators", "Their state can not be read by others: put them back."),
    ("provider", f"Set {_PROVIDER} as it was."),
    ("partitions", f"Set {_PARTITIONS} as it was: this version of Spark's log does not keep it."),
)


def _sources_of(was: Mapping[str, Json], now: Mapping[str, Json]) -> tuple[Json, Json]:
    """What has to be the same. Where offsets are kept by name, sources may come, go and change places."""
    before, after = source_names(was), source_names(now)
    if not before or not after:
        return was.get("sources"), now.get("sources")
    kinds_before, kinds_after = _kinds(was), _kinds(now)
    if was.get("offset_log") != _BY_NAME:
        return [[name, kinds_before[name]] for name in before], [[name, kinds_after[name]] for name in after]
    both = [name for name in before if name in after]
    return {name: kinds_before[name] for name in both}, {name: kinds_after[name] for name in both}


def _kinds(described: Mapping[str, Json]) -> dict[str, Json]:
    names, kinds = described.get("source_names"), described.get("sources")
    return dict(zip(map(str, names), kinds, strict=True)) if isinstance(names, list) and isinstance(kinds, list) else {}


def _walk(node: Any) -> Iterator[Any]:
    yield node
    for child in _each(node.children()):
        yield from _walk(child)


def _each(sequence: Any) -> Iterator[Any]:
    """Of Scala's."""
    iterator = sequence.iterator()
    while iterator.hasNext():
        yield iterator.next()


def _is_stateful(node: Any) -> bool:
    kind = node.getClass().getSimpleName()
    if kind == "Join":
        return bool(node.left().isStreaming() and node.right().isStreaming())
    return kind in _STATEFUL or "WithState" in kind


def _operator(node: Any) -> Json:
    kind = node.getClass().getSimpleName()
    return {"kind": kind, "types": _state_types(kind, node)}


def _state_types(kind: str, node: Any) -> list[Json]:
    """The types that its state depends on; of states with a schema of their own Spark judges by itself."""
    if "WithState" in kind:
        return []
    if kind.startswith("Deduplicate"):
        return [_type(json.loads(key.dataType().json())) for key in _each(node.keys())]
    return [_type(field["type"]) for field in json.loads(node.schema().json())["fields"]]


def _type(document: Any) -> str:
    return document if isinstance(document, str) else json.dumps(document, sort_keys=True)


def _source(node: Any) -> str:
    if node.getClass().getSimpleName() == "StreamingRelation":
        return str(node.dataSource().className())
    return str(node.sourceName() if hasattr(node, "sourceName") else node.toString()).partition("[")[0]


def _names_of(sources: Sequence[Any]) -> Json:
    """The names that the program has given to all of its sources; None where it has not."""
    names = [_name_of(node) for node in sources]
    return None if None in names else [str(name) for name in names]


def _name_of(node: Any) -> str | None:
    try:
        name = node.sourceIdentifyingName()
        return str(name.name()) if name.getClass().getSimpleName() == "UserProvided" else None
    except Py4JError:  # before Spark 4.2 there are no names
        return None


def _options(node: Any) -> dict[str, str]:
    if node.getClass().getSimpleName() != "StreamingRelation":
        return {}
    pairs = _each(node.dataSource().options())
    return {str(pair._1()): str(pair._2()) for pair in pairs}  # noqa: SLF001 - that is how Scala's pairs are read


def _text(value: Json) -> str:
    return json.dumps(value, ensure_ascii=False)
