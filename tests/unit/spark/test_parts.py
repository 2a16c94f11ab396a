"""The small parts of the agent that need no Spark: its configuration, folders, paths that move, what it holds."""

import os
import struct
import threading
import time
import zlib
from dataclasses import replace
from pathlib import Path

import pytest

from airflow_provider_ckpt.metastore import Beat
from airflow_provider_ckpt.protocol.codec import Json
from airflow_provider_ckpt.protocol.errors import Misused, Unreachable
from airflow_provider_ckpt.protocol.records import DesiredState, FileRef, Ref
from airflow_provider_ckpt.spark import holding
from airflow_provider_ckpt.spark.agent import _refuse_distant_sqlite as refuse_distant_sqlite
from airflow_provider_ckpt.spark.capturing import _read_by_all
from airflow_provider_ckpt.spark.conf import METASTORE, margin_of, read_conf
from airflow_provider_ckpt.spark.folders import AttemptFolder, check_plain
from airflow_provider_ckpt.spark.heart import Heart
from airflow_provider_ckpt.spark.holding import Holder, Known
from airflow_provider_ckpt.spark.jobs import divide
from airflow_provider_ckpt.spark.packing import NewFile
from airflow_provider_ckpt.spark.persisting import Order, Share, patiently
from airflow_provider_ckpt.spark.plan import find_difference, follow_pinned
from airflow_provider_ckpt.spark.relocating import has_paths, relocate
from airflow_provider_ckpt.spark.streaming.hadoop_crc import find_damage, has_checksums
from airflow_provider_ckpt.spark.streaming.identity import identify
from airflow_provider_ckpt.spark.streaming.location import Piece
from airflow_provider_ckpt.spark.streaming.logs import Vanished
from airflow_provider_ckpt.storage.local_files import link_or_copy

# configuration


def test_without_a_pipeline_it_is_plain_spark(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CKPT_HOME", str(tmp_path))
    nothing: dict[str, str] = {}
    assert read_conf(nothing.get).pipeline is None


def test_sparks_configuration_wins_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CKPT_METASTORE", "sqlite:////other.db")
    given = {
        "spark.ckpt.pipeline": "orders",
        METASTORE: "sqlite:////mine.db",
        "spark.ckpt.storage": "/s",
        "spark.ckpt.work": "/w",
        "spark.ckpt.attempt": "7",
    }
    conf = read_conf(given.get, frozenset(given))
    assert (conf.places.metastore_url, conf.places.storage_url) == ("sqlite:////mine.db", "/s")
    assert (conf.places.work, conf.attempt, conf.poll) == (Path("/w"), 7, 0.5)


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("spark.ckpt.pipelin", "orders", "There is no spark.ckpt.pipelin"),
        ("spark.ckpt.attempt", "x", "spark.ckpt.attempt is 'x'"),
        ("spark.ckpt.poll", "0", "at least 0.05"),
        ("spark.ckpt.tasks", "nan", "at least 1"),
        ("spark.ckpt.pipeline", "../etc", "can not name a pipeline"),
    ],
)
def test_a_wrong_setting_is_named(key: str, value: str, text: str) -> None:
    given = {key: value}
    with pytest.raises(Misused, match=text):
        read_conf(given.get, frozenset(given))


def test_the_margin_is_a_fifth_of_the_time_to_live_unless_it_is_set_and_leaves_something_of_it() -> None:
    nothing: dict[str, str] = {}
    assert margin_of(read_conf(nothing.get), 60.0) == 12.0
    conf = read_conf({"spark.ckpt.margin": "40", "spark.ckpt.pipeline": "orders"}.get)
    assert margin_of(conf, 60.0) == 40.0
    with pytest.raises(Misused, match=r"a driver would pause at once.*`ckpt pipelines orders --set attempt_ttl=…`"):
        margin_of(conf, 40.0)


def test_the_key_of_the_stores_url_is_one_that_spark_redacts() -> None:
    assert "secret" in METASTORE  # spark.redaction.regex: (?i)secret|password|token|access[.]?key


def test_an_order_that_is_printed_shows_no_url() -> None:
    order = Order(ref=Ref("orders", 1), attempt=1, metastore_url="postgresql://u:hidden@h/d", storage_url="/s")
    assert "hidden" not in repr(order)


# folders


@pytest.mark.parametrize("work", ["hdfs://namenode:8020/work", "s3a://bucket/work", "file://host/work", "abfs:x"])
def test_a_work_folder_that_is_not_supported_is_refused_when_the_configuration_is_read(work: str) -> None:
    with pytest.raises(Misused, match="POSIX") as refused:
        read_conf({"spark.ckpt.pipeline": "orders", "spark.ckpt.work": work}.get)
    assert work in str(refused.value)


@pytest.mark.parametrize("work", ["/data/work", "file:///data/work", "file:/data/work", "file://localhost/data/work"])
def test_a_work_folder_is_a_path_or_the_uri_of_one(work: str) -> None:
    assert read_conf({"spark.ckpt.work": work}.get).places.work == Path("/data/work")


def test_a_work_folder_that_spark_would_write_otherwise_is_refused_when_the_configuration_is_read() -> None:
    with pytest.raises(Misused, match="can not be used"):
        read_conf({"spark.ckpt.work": "/data/my work"}.get)


def test_a_folder_whose_name_spark_would_write_otherwise_is_refused() -> None:
    for path in (Path("/data/a b"), Path("relative"), Path("/data/größe")):
        with pytest.raises(Misused, match="can not be used"):
            check_plain(path)


def test_only_older_attempts_are_forgotten(tmp_path: Path) -> None:
    for name in ("1", "2", "10", "note"):
        (tmp_path / "orders" / name).mkdir(parents=True)
    AttemptFolder(work=tmp_path, pipeline="orders", attempt=2).forget_older()
    assert sorted(each.name for each in (tmp_path / "orders").iterdir()) == ["10", "2", "note"]


# paths that move


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("queries/a/sources/0/3.compact", True),
        ("queries/a/sources/0/12", True),
        ("channels/ab/_spark_metadata/9.compact", True),
        ("queries/a/state/0/_metadata/v2/0", True),
        ("queries/a/state/0/0/4.delta", False),
        ("queries/a/offsets/4", False),
        ("channels/ab/part-0.parquet", False),
    ],
)
def test_files_in_which_spark_writes_paths_are_known(name: str, expected: bool) -> None:
    assert has_paths(name) is expected


def test_only_whole_folder_names_are_replaced() -> None:
    data = b'{"path":"file:///w/orders/1/c/x"}\n{"path":"file:/w/orders/12/c/x"}'
    moved = relocate(data, [(Path("/w/orders/1"), Path("/n/2"))])
    assert moved == b'{"path":"file:///n/2/c/x"}\n{"path":"file:/w/orders/12/c/x"}'


# a changed query


WAS: dict[str, Json] = {
    "sources": ["json", "kafka"],
    "source_names": None,
    "offset_log": 1,
    "operators": ["Aggregate"],
    "provider": "RocksDBStateStoreProvider",
    "partitions": 4,
}
NAMED: dict[str, Json] = {**WAS, "source_names": ["orders", "returns"], "offset_log": 2}


def test_another_state_store_is_named_with_both_sides_and_a_stateless_query_may_have_any() -> None:
    now: dict[str, Json] = {**WAS, "provider": "HDFSBackedStateStoreProvider"}
    said = find_difference("totals", WAS, now) or ""
    assert "RocksDBStateStoreProvider" in said
    assert "HDFSBackedStateStoreProvider" in said
    assert find_difference("totals", WAS, WAS) is None
    assert find_difference("copy", {**WAS, "provider": None, "partitions": None}, now) is None


def test_what_spark_has_pinned_is_what_a_query_goes_on_with_and_is_said() -> None:
    pinned = {
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.streaming.stateStore.providerClass": "org.apache.RocksDBStateStoreProvider",
    }
    described, ignored = follow_pinned("totals", WAS, pinned)
    assert described == {**WAS, "partitions": 2}
    assert len(ignored) == 1
    assert "goes on with the state partitions 2, which Spark has pinned" in ignored[0]
    assert follow_pinned("totals", WAS, {}) == (WAS, [])
    stateless: dict[str, Json] = {**WAS, "operators": [], "partitions": None}
    assert follow_pinned("copy", stateless, pinned) == (stateless, [])


@pytest.mark.parametrize(
    ("names", "kinds", "expected"),
    [
        (["returns", "orders"], ["kafka", "json"], None),  # reordered
        (["orders"], ["json"], None),  # removed
        (["more", "orders", "returns"], ["rate", "json", "kafka"], None),  # added
        (["orders", "returns"], ["json", "json"], '{"orders": "json", "returns": "kafka"}'),
    ],
)
def test_sources_with_names_may_come_go_and_change_places_but_not_become_others(
    names: list[Json], kinds: list[Json], expected: str | None
) -> None:
    said = find_difference("totals", NAMED, {**NAMED, "source_names": names, "sources": kinds})
    assert said is None if expected is None else expected in (said or "")


def test_where_offsets_are_kept_by_position_sources_with_names_may_not_change_places() -> None:
    was: dict[str, Json] = {**NAMED, "offset_log": 1, "sources": ["json", "json"]}
    said = find_difference("totals", was, {**was, "source_names": ["returns", "orders"]}) or ""
    assert '[["orders", "json"], ["returns", "json"]]' in said


def test_a_sqlite_file_is_refused_where_executors_may_be_on_other_hosts(tmp_path: Path) -> None:
    conf = read_conf({"spark.ckpt.pipeline": "orders", METASTORE: f"sqlite:///{tmp_path}/m.db"}.get)
    for master in ("local", "local[4]", "local-cluster[2,1,1024]"):
        refuse_distant_sqlite(master, conf)
    with pytest.raises(Misused, match="Use PostgreSQL"):
        refuse_distant_sqlite("spark://host:7077", conf)


# channels


def test_a_file_of_a_channel_is_read_when_every_source_that_reads_the_channel_has_read_it() -> None:
    """A self-join reads it by two sources; one that has read nothing yet may read it; others have other folders."""
    first, second, other = frozenset({"c/1", "c/2"}), frozenset({"c/1"}), frozenset({"x/1"})
    assert _read_by_all([first, other], "c/") == first
    assert _read_by_all([first, second], "c/") == second
    assert _read_by_all([first, frozenset()], "c/") == frozenset()
    assert _read_by_all([], "c/") == frozenset()


# holding


def _piece(tmp_path: Path, text: str = "x") -> Piece:
    file = tmp_path / "location" / "1.delta"
    file.parent.mkdir(exist_ok=True)
    file.unlink(missing_ok=True)
    file.write_text(text)
    return Piece(name="1.delta", source=file)


def test_what_is_held_outlives_its_own_name(tmp_path: Path) -> None:
    piece = _piece(tmp_path)
    (held,) = Holder(tmp_path / "held", Known()).hold("queries/a", [piece])
    piece.source.unlink()
    assert held.source.read_text() == "x"
    assert held.stored is None


def test_what_is_stored_already_is_not_held_again_and_a_rewritten_file_is_another_one(tmp_path: Path) -> None:
    piece = _piece(tmp_path)
    stored = FileRef(path="files/1/1/1.delta", name="queries/a/1.delta", size=1, sha256="0" * 64)
    known = Known(base=1, files={"queries/a/1.delta": (identify(piece.source), stored)})
    (held,) = Holder(tmp_path / "held", known).hold("queries/a", [piece])
    assert held.stored == stored
    assert not (tmp_path / "held").exists()
    _piece(tmp_path, "y")
    (again,) = Holder(tmp_path / "held", known).hold("queries/a", [piece])
    assert again.stored is None
    assert again.source.read_text() == "y"


def test_a_file_that_is_gone_has_vanished(tmp_path: Path) -> None:
    with pytest.raises(Vanished):
        Holder(tmp_path / "held", Known()).hold("queries/a", [Piece(name="x", source=tmp_path / "x")])


def test_a_file_that_is_replaced_while_it_is_held_is_captured_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    piece = _piece(tmp_path)

    def replaced_before(source: Path, target: Path) -> None:
        _piece(tmp_path, "other")
        link_or_copy(source, target)

    monkeypatch.setattr(holding, "link_or_copy", replaced_before)
    with pytest.raises(Vanished, match="was replaced"):
        Holder(tmp_path / "held", Known()).hold("queries/a", [piece])


def test_a_snapshot_that_was_replaced_after_it_was_read_is_captured_anew(tmp_path: Path) -> None:
    """Also where the new one lies in the storage: what was listed belongs to the old one."""
    read = replace(_piece(tmp_path, "names 1.sst"), identity=identify(tmp_path / "location" / "1.delta"))
    _piece(tmp_path, "names 2.sst")
    name = "queries/a/1.delta"
    stored = FileRef(path="files/1/1/1.delta", name=name, size=11, sha256="0" * 64)
    for known in (Known(), Known(base=1, files={name: (identify(read.source), stored)})):
        with pytest.raises(Vanished, match="names other files"):
            Holder(tmp_path / "held", known).hold("queries/a", [read])


# checksums


def test_a_flipped_bit_is_found_by_hadoops_checksums(tmp_path: Path) -> None:
    data = os.urandom(1300)
    sums = [zlib.crc32(data[start : start + 512]) for start in range(0, 1300, 512)]
    file = tmp_path / "4.delta"
    file.write_bytes(data)
    assert not has_checksums(file)
    (tmp_path / ".4.delta.crc").write_bytes(b"crc\x00" + struct.pack(">I3I", 512, *sums))
    assert has_checksums(file)
    assert find_damage(file) is None
    file.write_bytes(data[:700] + bytes([data[700] ^ 1]) + data[701:])
    assert "does not match its checksums" in (find_damage(file) or "")
    file.write_bytes(data[:-1])
    assert "does not match its checksums" in (find_damage(file) or "")


# patience


def test_a_call_is_tried_again_while_nothing_answers_and_given_up_in_the_end() -> None:
    tries = []

    def call() -> str:
        tries.append(1)
        if len(tries) < 3:
            raise Unreachable("not now")
        return "done"

    assert patiently(call) == "done"
    with pytest.raises(Unreachable):
        patiently(lambda: _raise(Unreachable("never")), patience=0.1)


def _raise(error: Exception) -> None:
    raise error


# the heart


class _Attempts:
    """A store's attempts that can be made silent."""

    def __init__(self) -> None:
        self.is_reachable = True
        self.beats = 0
        self.looks = 0

    def look(self, *_: object) -> Beat:
        self.looks += 1
        return self._answer()

    def heartbeat(self, *_: object) -> Beat:
        beat = self._answer()
        self.beats += 1
        return beat

    def _answer(self) -> Beat:
        if not self.is_reachable:
            raise Unreachable("the store is away")
        return Beat(is_current=True, desired_state=DesiredState.RUNNING, in_flight=None)


class _Store:
    def __init__(self) -> None:
        self.attempts = _Attempts()


def test_the_heart_looks_often_beats_seldom_and_says_once_when_it_was_silent_too_long() -> None:
    store = _Store()
    silent = threading.Event()
    calls: list[str] = []

    def on_silence() -> None:
        calls.append("silence")
        silent.set()

    heart = Heart(
        store,  # type: ignore[arg-type]
        ("orders", 1, "claim"),
        poll=0.01,
        ttl=0.6,
        margin=0.12,
        on_beat=lambda beat: calls.append("beat"),
        on_silence=on_silence,
    )
    heart.start()
    time.sleep(0.4)
    assert 0 < store.attempts.beats < store.attempts.looks
    assert "silence" not in calls
    store.attempts.is_reachable = False
    assert silent.wait(5)
    time.sleep(0.1)
    assert calls.count("silence") == 1
    store.attempts.is_reachable = True
    before = store.attempts.beats
    time.sleep(0.3)
    heart.stop()
    assert store.attempts.beats > before


def _share(name: str, *sizes: int) -> Share:
    files = tuple(NewFile(name=f"{name}/{number}", source="/x", size=size) for number, size in enumerate(sizes))
    return Share(participant=name, stored=(), new=files, positions={}, timings={})


def test_a_small_checkpoint_is_one_task_and_a_large_one_is_divided_about_equally() -> None:
    small = [_share(f"p{number}", 1000) for number in range(8)]
    assert [len(group) for group in divide(small, 4)] == [8]
    large = [_share(f"p{number}", (number + 1) * 50_000_000) for number in range(8)]
    groups = divide(large, 4)
    assert sorted(share.participant for group in groups for share in group) == [f"p{number}" for number in range(8)]
    weights = [sum(share.weight for share in group) for group in groups]
    assert len(weights) == 4
    assert max(weights) < 2 * min(weights)
    assert len(divide(large, 2)) == 2
    assert divide([], 4) == [[]]
