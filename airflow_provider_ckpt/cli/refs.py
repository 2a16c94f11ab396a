"""How people name checkpoints: `orders/17`, or `orders/before-upgrade` for a savepoint."""

from airflow_provider_ckpt.coordinator.targets import id_or_name
from airflow_provider_ckpt.metastore import Metastore
from airflow_provider_ckpt.protocol.errors import Misused, NotFound
from airflow_provider_ckpt.protocol.paths import check_name
from airflow_provider_ckpt.protocol.records import Ref


def find_ref(store: Metastore, text: str) -> Ref:
    """:raises NotFound: when there is no such pipeline, checkpoint or savepoint."""
    pipeline, slash, name = text.partition("/")
    if not slash:
        raise Misused(f"{text!r:.80} names no checkpoint: write PIPELINE/ID or PIPELINE/SAVEPOINT-NAME.")
    return find_in(store, check_name("pipeline", pipeline), name)


def find_in(store: Metastore, pipeline: str, name: str) -> Ref:
    """A checkpoint of a pipeline by id, savepoint name or full name."""
    store.pipelines.get(check_name("pipeline", pipeline))
    wanted = id_or_name(pipeline, name)
    if isinstance(wanted, int):
        return store.checkpoints.get(Ref(pipeline, wanted)).ref
    found = store.checkpoints.find_savepoint(pipeline, wanted)
    if found is None:
        raise NotFound(f"Pipeline {pipeline} has no savepoint {wanted!r}. `ckpt list {pipeline}` lists what there is.")
    return found.ref
