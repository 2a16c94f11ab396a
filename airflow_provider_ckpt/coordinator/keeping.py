"""Keeping a lease while long work goes on."""

import time

from airflow_provider_ckpt.coordinator.context import Context
from airflow_provider_ckpt.protocol.records import Lease


class Keeper:
    """Renews a lease now and then; call `touch` as often as you like.

    :raises LeaseLost: from `touch`, when the lease expired or was taken back.
    """

    def __init__(self, context: Context, lease: Lease) -> None:
        self._store = context.store
        self._lease = lease
        self._every = (lease.expires_at - lease.acquired_at).total_seconds() / 4
        self._renewed = time.monotonic()

    def touch(self) -> None:
        if time.monotonic() - self._renewed >= self._every:
            self._renewed = time.monotonic()
            self._store.leases.renew(self._lease)
