"""Small files that are stored together: what goes into a pack, what comes out, and when one is given up."""

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest

from airflow_provider_ckpt.protocol.errors import Corrupt, NotFound
from airflow_provider_ckpt.protocol.manifest import Part
from airflow_provider_ckpt.protocol.records import FileRef, Kind, Member, ParticipantKind
from airflow_provider_ckpt.spark.holding import Known
from airflow_provider_ckpt.spark.packing import NewFile, pack, plan_packs, unpack
from airflow_provider_ckpt.spark.streaming.identity import Identity
from tests.unit.test_manifest import CHECKPOINT

_MIB = 1024 * 1024
IDENTITY: Identity = (1, 2, 3)


def _new(name: str, size: int) -> NewFile:
    return NewFile(name=name, source=f"/held/{name}", size=size)


def _names(files: list[NewFile]) -> list[str]:
    return [file.name for file in files]


def test_small_files_go_together_and_others_alone() -> None:
    alone, packs = plan_packs([_new("c", 5), _new("big", _MIB + 1), _new("a", _MIB), _new("b", 0)])
    assert _names(alone) == ["big"]
    assert list(map(_names, packs)) == [["a", "b", "c"]]


def test_one_small_file_needs_no_pack() -> None:
    alone, packs = plan_packs([_new("a", 5), _new("big", 2 * _MIB)])
    assert (sorted(_names(alone)), packs) == (["a", "big"], [])
    assert plan_packs([]) == ([], [])


def test_a_pack_has_a_greatest_size() -> None:
    files = [_new(f"{number:02}", _MIB) for number in range(17)]
    alone, packs = plan_packs(files)
    assert [len(each) for each in packs] == [8, 8]
    assert _names(alone) == ["16"]
    assert plan_packs(reversed(files)) == (alone, packs), "a task that runs again packs the same"


def test_what_is_packed_comes_out_again_and_only_what_is_needed(tmp_path: Path) -> None:
    contents = {"x/1": b"one", "x/2": b"", "x/3": b"three"}
    files = []
    for name, data in contents.items():
        (tmp_path / name.replace("/", "-")).write_bytes(data)
        files.append(NewFile(name=name, source=str(tmp_path / name.replace("/", "-")), size=len(data)))
    data, members = pack(files)
    stored = _stored(data, *members)
    assert stored.names == tuple(contents)
    assert dict(unpack(stored, data)) == contents
    assert dict(unpack(replace(stored, members=members[2:]), data)) == {"x/3": b"three"}
    with pytest.raises(Corrupt, match=r"files/1/1/packs/a.0 has 7 bytes, its manifest says 8"):
        list(unpack(stored, data[:-1]))
    Path(files[1].source).unlink()
    with pytest.raises(NotFound, match="it was deleted since"):
        pack(files)


def _stored(data: bytes, *members: Member) -> FileRef:
    return FileRef(
        path="files/1/1/packs/a.0",
        name="packs/a.0",
        size=len(data),
        sha256=hashlib.sha256(data).hexdigest(),
        members=members,
    )


def _part(participant: str, *files: FileRef) -> Part:
    return Part(
        participant=participant, query="totals", kind=ParticipantKind.STATE, files=files, positions={}, staged={}
    )


def test_what_lies_in_a_pack_is_known_by_its_name_whichever_part_needs_it() -> None:
    first, second = Member(name="x/1", offset=0, size=30), Member(name="x/2", offset=30, size=20)
    data = bytes(100)
    parts = (_part("totals/0", _stored(data, first)), _part("totals/1", _stored(data, second)))
    known = Known()
    known.learn(replace(CHECKPOINT, parts=parts), {"x/1": IDENTITY, "x/2": IDENTITY, "x/3": IDENTITY})
    assert known.find("x/1", IDENTITY) == known.find("x/2", IDENTITY) == _stored(data, first, second)
    assert known.find("x/3", IDENTITY) is None
    assert known.find("x/1", (9, 9, 9)) is None


@pytest.mark.parametrize(("needed", "is_built_on"), [(25, True), (24, False)])
def test_a_pack_of_which_little_is_needed_is_given_up(needed: int, is_built_on: bool) -> None:
    stored = _stored(bytes(100), Member(name="x/1", offset=50, size=needed))
    known = Known()
    known.learn(replace(CHECKPOINT, parts=(_part("totals/0", stored),)), {"x/1": IDENTITY})
    assert (known.find("x/1", IDENTITY) is not None) == is_built_on


def test_a_savepoints_packs_are_not_built_on() -> None:
    stored = _stored(bytes(10), Member(name="x/1", offset=0, size=10))
    known = Known()
    savepoint = replace(CHECKPOINT, kind=Kind.SAVEPOINT, name="mine", parts=(_part("totals/0", stored),))
    known.learn(savepoint, {"x/1": IDENTITY})
    assert known.find("x/1", IDENTITY) is None
