"""That a store and a storage belong together: the pipeline's identity is in both.

With the wrong storage everything would seem to be missing, and a second store on the same storage would give out the
same ids again: both are refused before anything happens.
"""

from airflow_provider_ckpt.coordinator.context import Context
from airflow_provider_ckpt.protocol.codec import canonical, parse
from airflow_provider_ckpt.protocol.errors import AlreadyExists, NotFound, Refused
from airflow_provider_ckpt.protocol.paths import identity_path


def own_storage(context: Context, pipeline: str) -> None:
    """Write the pipeline's identity into the storage, or find it there, which is cheaper.

    :raises Refused: when the storage's folder belongs to a pipeline of another store.
    """
    identity = context.store.pipelines.get(pipeline).identity
    if read_identity(context, pipeline) == identity:
        return
    try:
        context.storage.create(identity_path(pipeline), canonical({"identity": identity}))
    except AlreadyExists as error:
        raise Refused(_foreign(context, pipeline)) from error


def check_storage(context: Context, pipeline: str) -> None:
    """Before anything is judged or deleted by what the storage holds.

    :raises Refused: when it is not the pipeline's storage.
    """
    inventory = context.store.views.inventory(pipeline)
    found = read_identity(context, pipeline)
    if found is None and inventory.retained:
        raise Refused(
            f"The storage {context.storage.url} knows nothing of pipeline {pipeline}, which has "
            f"{len(inventory.retained)} checkpoints: it is another storage, or it was emptied. Set CKPT_STORAGE to the "
            "pipeline's own. Nothing was changed."
        )
    if found not in (None, inventory.pipeline.identity):
        raise Refused(_foreign(context, pipeline))


def read_identity(context: Context, pipeline: str) -> str | None:
    path = identity_path(pipeline)
    try:
        data = context.storage.read(path)
    except NotFound:
        return None
    return parse(path, data).text("identity")


def _foreign(context: Context, pipeline: str) -> str:
    return (
        f"The folder {pipeline} in the storage {context.storage.url} belongs to a pipeline of another metastore. "
        f"Use that metastore, or another storage; if it is lost, an empty metastore takes over with "
        f"`ckpt rebuild {pipeline}`."
    )
