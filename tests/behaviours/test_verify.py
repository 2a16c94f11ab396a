"""A flipped bit, a truncated file, a missing file, a forged path: found by verify, refused by restore, by name."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from airflow_provider_ckpt.coordinator.cleanup import cleanup, plan_cleanup
from airflow_provider_ckpt.coordinator.rebuild import rebuild
from airflow_provider_ckpt.coordinator.verify import verify
from airflow_provider_ckpt.protocol.errors import Refused, Unreachable
from airflow_provider_ckpt.protocol.manifest import decided_marker, digest
from airflow_provider_ckpt.protocol.phases import Phase
from airflow_provider_ckpt.protocol.records import Kind, Ref, Verdict
from airflow_provider_ckpt.storage.local import LocalStorage
from airflow_provider_ckpt.testing import FailEvery, watch_storage
from tests.house import NAME, House


def _flip(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)


def _truncate(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-1])


_DAMAGES: dict[str, tuple[Callable[[Path], None], str]] = {
    "a flipped bit": (_flip, "SHA-256"),
    "a truncated file": (_truncate, "bytes, its manifest says"),
    "a missing file": (Path.unlink, "is missing"),
}


def _state_file(house: House, ref: Ref) -> Path:
    return house.folder / NAME / f"files/1/{ref.id}/totals/state/0"


@pytest.mark.parametrize("damage", _DAMAGES)
def test_damage_is_found_by_verify_and_refused_by_restore_by_name(house: House, damage: str) -> None:
    do, sign = _DAMAGES[damage]
    driver = house.pipeline()
    good = house.checkpoint(driver, events=2)
    bad = house.checkpoint(driver, events=2)
    do(_state_file(house, bad))
    found = verify(house.context, bad)
    assert not found.is_intact
    (problem,) = found.problems
    assert f"{NAME}/files/1/{bad.id}/totals/state/0" in problem
    assert sign in problem
    with pytest.raises(Refused, match=rf"{bad} can not be restored: .*state/0 .*--to {good.id}"):
        house.restore(to=bad.id)
    assert verify(house.context, good).is_intact
    assert (house.get(good).verdict, house.get(bad).verdict) == (Verdict.VALIDATED, Verdict.CORRUPT)


@pytest.mark.parametrize("damage", _DAMAGES)
def test_a_damaged_manifest_is_found_too(house: House, damage: str) -> None:
    do, _ = _DAMAGES[damage]
    driver = house.pipeline()
    ref = house.checkpoint(driver)
    do(house.folder / NAME / f"checkpoints/{ref.id}/manifest")
    found = verify(house.context, ref)
    assert f"The manifest of {ref}" in found.problems[0]
    with pytest.raises(Refused):
        house.restore(to=ref.id)


@pytest.mark.parametrize("path", ["../../etc/passwd", "/etc/passwd", "files/../../other/files/x"])
def test_a_manifest_that_names_a_path_outside_the_root_is_refused_by_name(house: House, path: str) -> None:
    """Even when whoever forged it could write the database and the marker as well."""
    driver = house.pipeline()
    ref = house.checkpoint(driver)
    home = house.folder / NAME / f"checkpoints/{ref.id}"
    forged = (home / "manifest").read_bytes().replace(f"files/1/{ref.id}/totals/state/0".encode(), path.encode(), 1)
    (home / "manifest").write_bytes(forged)
    (home / "decided").write_bytes(decided_marker(digest(forged)))
    with house.store.engine.write() as tx:
        tx.connection.exec_driver_sql(f"UPDATE ckpt_checkpoints SET manifest_sha256 = '{digest(forged)}'")
    found = verify(house.context, ref)
    assert path in found.problems[0]
    assert "never leaves its root" in found.problems[0]
    with pytest.raises(Refused, match="can not be restored"):
        house.restore(to=ref.id)
    assert path in rebuild(house.context, dry_run=True).damaged[0]


def test_an_unreachable_storage_is_no_verdict(house: House) -> None:
    driver = house.pipeline()
    ref = house.checkpoint(driver)
    flaky = watch_storage(house.storage, FailEvery(3, lambda: Unreachable("the network is down")))
    with pytest.raises(Unreachable):
        verify(replace(house.context, storage=flaky, workers=1), ref)
    assert house.get(ref).verdict is None


def test_a_wrong_storage_is_refused_before_anything_is_judged(house: House, tmp_path: Path) -> None:
    driver = house.pipeline()
    ref = house.checkpoint(driver)
    wrong = replace(house.context, storage=LocalStorage(tmp_path / "elsewhere"))
    for act in (lambda: verify(wrong, ref), lambda: cleanup(wrong, NAME), lambda: plan_cleanup(wrong, NAME)):
        with pytest.raises(Refused, match="knows nothing of pipeline orders"):
            act()
    assert house.get(ref).verdict is None
    assert cleanup(house.context, NAME).missing == {}


def test_a_second_store_on_the_same_storage_is_refused(house: House, new_database: Callable[[str], str]) -> None:
    driver = house.pipeline()
    house.checkpoint(driver)
    other = House(new_database("sqlite"), house.folder)
    other.store.pipelines.create(NAME, house.store.pipelines.get(NAME).settings, identity="another", actor="tester")
    with pytest.raises(Refused, match="belongs to a pipeline of another metastore"):
        other.restore()
    other.store.close()


def test_a_lost_store_is_rebuilt_from_the_manifests_alone(house: House, new_database: Callable[[str], str]) -> None:
    driver = house.pipeline(with_sink=True)
    house.checkpoint(driver, events=3)
    savepoint = house.checkpoint(driver, events=3, savepoint="before-upgrade")
    newest = house.checkpoint(driver, events=3)
    rebuilt = House(new_database("sqlite"), house.folder)
    planned = rebuild(rebuilt.context, dry_run=True)
    assert rebuilt.store.pipelines.all() == []
    report = rebuild(rebuilt.context)
    assert report.added == planned.added
    assert rebuild(rebuilt.context).added == ()
    assert rebuilt.get(savepoint).kind is Kind.SAVEPOINT
    rebuilt.restore(with_sink=True)
    assert rebuilt.get(newest).phase is Phase.COMPLETED
    again = rebuilt.driver(with_sink=True)
    attempt = again.start()
    assert attempt.restored_from == newest.id
    assert attempt.number > 1000, "numbers go on after those that may have been given out"
    following = rebuilt.checkpoint(again, events=3)
    assert following.id > newest.id
    assert rebuilt.sink.read(NAME) == house.sink.read(NAME)
    assert len(rebuilt.sink.read(NAME)) == 12
    rebuilt.store.close()


def test_a_pipeline_that_was_made_and_never_used_takes_a_storage_over(
    house: House, new_database: Callable[[str], str]
) -> None:
    driver = house.pipeline()
    ref = house.checkpoint(driver)
    rebuilt = House(new_database("sqlite"), house.folder)
    rebuilt.store.pipelines.create(NAME, house.store.pipelines.get(NAME).settings, identity="new", actor="tester")
    assert rebuild(rebuilt.context).added == (ref,)
    assert rebuilt.restore().attempt.restored_from == ref.id
    rebuilt.store.close()


def test_a_savepoint_stands_alone_and_outlives_every_cleanup(house: House) -> None:
    driver = house.pipeline()
    house.checkpoint(driver, events=2)
    savepoint = house.checkpoint(driver, events=1, savepoint="before-upgrade")
    for _ in range(4):
        house.checkpoint(driver, events=2)
    house.pass_time(hours=2)
    cleanup(house.context, NAME)
    home = house.folder / NAME / f"savepoints/before-upgrade.{savepoint.id}"
    assert {path.name for path in home.iterdir()} == {"manifest", "decided", "files"}
    assert verify(house.context, savepoint).is_intact
    restored = house.restore(to=savepoint.id)
    assert restored.manifest is not None
    assert all((home / file.path).exists() for file in restored.manifest.files.values())
    again = house.driver(claim="second")
    again.start()
    assert (again.position, again.totals) == (3, [2, 4])
    house.checkpoint(again, events=1)
    cleanup(house.context, NAME, discard=[savepoint.id])
    assert not home.exists(), "it goes when somebody wants it to go"
