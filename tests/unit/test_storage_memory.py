"""What is special about memory: going back to an earlier moment."""

from airflow_provider_ckpt.storage import MemoryStorage


def test_a_reset_goes_back_to_the_snapshot() -> None:
    storage = MemoryStorage()
    storage.create("kept", b"kept")
    snapshot = storage.snapshot()
    storage.create("new", b"new")
    storage.delete("kept")
    storage.reset(snapshot)
    assert storage.snapshot() == {"kept": b"kept"}


def test_a_snapshot_is_not_changed_by_what_follows() -> None:
    storage = MemoryStorage()
    before = storage.snapshot()
    storage.create("new", b"new")
    storage.reset(before)
    storage.create("newer", b"newer")
    assert before == {}
