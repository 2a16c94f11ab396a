"""Everybody is dead; a day later others come: they restore, go on, checkpoint and clean up.

Afterwards nothing may be lost, doubled, stuck or left over. The model checker does this in every state it finds, the
tests with `kill -9` after every kill.
"""

from airflow_provider_ckpt.coordinator.cleanup import cleanup
from airflow_provider_ckpt.coordinator.complete import complete
from airflow_provider_ckpt.coordinator.context import Context
from airflow_provider_ckpt.coordinator.restore import RestoreOptions, restore
from airflow_provider_ckpt.coordinator.survey import survey, take_stock
from airflow_provider_ckpt.coordinator.verify import inspect
from airflow_provider_ckpt.protocol.phases import Phase
from airflow_provider_ckpt.protocol.reasons import SkipReason
from airflow_provider_ckpt.protocol.records import Ref, TriggerRequest
from airflow_provider_ckpt.testing import ManualClock, ScriptedPipeline, ScriptedSink, truth
from airflow_provider_ckpt.testing.scripted import SINK


def rescue(context: Context, clock: ManualClock, pipeline: str, *, partitions: int, with_sink: bool) -> None:
    clock.advance(days=1)
    sink = ScriptedSink(context.storage)
    committers = {SINK: sink} if with_sink else {}
    restore(context, pipeline, RestoreOptions(is_proven_dead=True, committers=committers))
    driver = ScriptedPipeline(
        context, pipeline, partitions=partitions, sink=sink if with_sink else None, claim="rescue"
    )
    driver.start()
    driver.process(2)
    newest = checkpoint_now(context, driver, "rescue")
    expected = truth(driver.position, partitions)
    assert driver.totals == [sum(n for n, _ in expected if n % partitions == p) for p in range(partitions)]
    for _ in range(2):
        clock.advance(days=1)
        cleanup(context, pipeline)
    check_tidy(context, newest)
    if with_sink:
        assert sink.read(pipeline) == expected, "published rows differ from the truth"


def checkpoint_now(context: Context, driver: ScriptedPipeline, key: str) -> Ref:
    """Take a checkpoint from trigger to COMPLETED; a cleanup that had waited for too long goes first."""
    request = TriggerRequest(pipeline=driver.name, key=key, requested_by=key)
    triggered = context.store.barriers.trigger(request)
    if triggered.skipped is SkipReason.CLEANUP_DUE:
        cleanup(context, driver.name)
        triggered = context.store.barriers.trigger(request)
    assert triggered.checkpoint is not None, triggered
    ref = triggered.checkpoint.ref
    driver.capture(ref)
    driver.acknowledge(ref)
    complete(context, ref)
    driver.commit(ref)
    driver.completed(ref)
    return ref


def check_tidy(context: Context, newest: Ref) -> None:
    """What a kept manifest names is there and intact; what nobody names is gone; nothing is stuck."""
    holdings = take_stock(context, newest.pipeline)
    found = survey(context, holdings)
    assert not found.garbage, f"left over: {dict(found.garbage)}"
    assert not found.orphans, f"unexplained: {dict(found.orphans)}"
    assert not found.missing, f"missing: {dict(found.missing)}"
    assert not list(context.storage.partials("")), "a half-written file was left"
    assert not context.store.files.condemned(newest.pipeline)
    assert newest.id in holdings.named
    for each in holdings.retained:
        assert each.phase is Phase.COMPLETED, f"{each.ref} is stuck in {each.phase}"
        assert inspect(context, each).is_intact, f"{each.ref} is damaged"
