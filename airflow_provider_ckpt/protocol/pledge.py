"""What a sink says in its ack about the commit to come, as far as others than the sink understand it.

`after` is the checkpoint that the target was at when the cut was taken: the commit continues it, and nothing else.
`rows` says how much is staged. A checkpoint in which a sink has staged no row has nothing to commit: its target stays
where it was, marker included.
"""

from airflow_provider_ckpt.protocol.codec import JsonObject
from airflow_provider_ckpt.protocol.records import SinkStatus


def has_nothing(staged: JsonObject) -> bool:
    """Whether there is nothing to commit."""
    return staged.get("rows") == 0


def expected_marker(staged: JsonObject) -> int | None:
    """The checkpoint that the target must be at for this commit; None: at nothing."""
    after = staged.get("after")
    return after if isinstance(after, int) else None


def stands_at(checkpoint: int, staged: JsonObject, status: SinkStatus | None = None) -> int:
    """Where the target of a sink stands once a checkpoint is completed; 0: at nothing."""
    if has_nothing(staged) or status is SinkStatus.ABANDONED:
        return expected_marker(staged) or 0
    return checkpoint
