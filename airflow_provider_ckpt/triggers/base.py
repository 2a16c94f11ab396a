"""What all triggers here have in common: the connection, and that they are made again from their arguments."""

from typing import TYPE_CHECKING, Any

from airflow.triggers.base import BaseTrigger

if TYPE_CHECKING:
    from airflow_provider_ckpt.hooks.ckpt import Access


class CkptTrigger(BaseTrigger):
    """:param ckpt_conn_id: the connection to the metastore and the storage."""

    def __init__(self, *, ckpt_conn_id: str, **kwargs: Any) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.ckpt_conn_id = ckpt_conn_id
        self.arguments = {"ckpt_conn_id": ckpt_conn_id, **kwargs}

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return f"{type(self).__module__}.{type(self).__qualname__}", self.arguments

    async def access(self) -> "Access":
        return await access_by(self.ckpt_conn_id)


async def access_by(ckpt_conn_id: str) -> "Access":
    """What the connection says, asked in the triggerer."""
    from airflow_provider_ckpt.hooks.ckpt import CkptHook

    return await CkptHook(ckpt_conn_id).aaccess()
