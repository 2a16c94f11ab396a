"""The connection `ckpt`: where the metastore and the storage of checkpoints are.

================  =====================================================================================================
password          the metastore's URL, which is a secret: `postgresql+psycopg://user:pw@host/db`, `sqlite:////path`
extra.storage     where the bytes are: `s3://bucket/prefix`, `hdfs://namenode:8020/path`, an absolute path
extra.work        where running pipelines have their checkpointLocations; a POSIX path
extra.aws_conn_id an Airflow AWS connection with the keys to the storage
================  =====================================================================================================

Without a connection `ckpt_default` everything is embedded below AIRFLOW_HOME: SQLite and a local folder.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from airflow.sdk import BaseHook
from airflow.sdk.exceptions import AirflowNotFoundException
from airflow.sdk.log import mask_secret

from airflow_provider_ckpt.coordinator.context import Context
from airflow_provider_ckpt.coordinator.places import Places, places
from airflow_provider_ckpt.metastore import Metastore, open_metastore
from airflow_provider_ckpt.metastore.migrating import upgrade
from airflow_provider_ckpt.protocol.errors import CkptError, Misused
from airflow_provider_ckpt.storage.base import Storage
from airflow_provider_ckpt.storage.credentials import Credentials
from airflow_provider_ckpt.storage.opening import open_storage

if TYPE_CHECKING:
    from airflow.sdk import Connection

DEFAULT_CONN_ID = "ckpt_default"
EXTRAS = frozenset({"storage", "work", "aws_conn_id"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """What a connection says: where things are, and the keys to the storage."""

    places: Places
    credentials: Credentials | None = None

    @property
    def has_store(self) -> bool:
        """Whether there is one: an embedded one is made when it is first needed."""
        return self.places.metastore is not None or (self.places.home / "metastore.db").exists()

    def open_store(self) -> Metastore:
        """The store; one that is embedded is made when it is not there yet."""
        store = open_metastore(self.places.metastore_url)
        if not self.has_store:
            self.places.home.mkdir(mode=0o700, parents=True, exist_ok=True)
            upgrade(store.engine)
        return store

    def open_storage(self) -> Storage:
        return open_storage(self.places.storage_url, self.credentials)


class CkptHook(BaseHook):
    """Opens what the coordinator works with.

    ::

        with CkptHook("ckpt_default").open(actor="me") as ckpt:
            print(ckpt.store.pipelines.all())

    :param ckpt_conn_id: the connection; the default one may be missing.
    """

    conn_name_attr = "ckpt_conn_id"
    default_conn_name = DEFAULT_CONN_ID
    conn_type = "ckpt"
    hook_name = "Checkpoints"

    def __init__(self, ckpt_conn_id: str = DEFAULT_CONN_ID, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.ckpt_conn_id = ckpt_conn_id

    def get_conn(self) -> Metastore:
        return self.access().open_store()

    def access(self) -> Access:
        try:
            connection = self.get_connection(self.ckpt_conn_id)
        except AirflowNotFoundException:
            return self._embedded()
        aws = aws_conn_id(connection)
        return access_of(connection, None if aws is None else self.get_connection(aws))

    async def aaccess(self) -> Access:
        """As `access`, in a trigger."""
        try:
            connection = await self.aget_connection(self.ckpt_conn_id)
        except AirflowNotFoundException:
            return self._embedded()
        aws = aws_conn_id(connection)
        return access_of(connection, None if aws is None else await self.aget_connection(aws))

    @contextmanager
    def open(self, actor: str) -> Iterator[Context]:
        """The store and the storage, closed again at the end.

        :param actor: who acts, for the events.
        """
        access = self.access()
        store = access.open_store()
        try:
            yield Context(store=store, storage=access.open_storage(), actor=actor)
        finally:
            store.close()

    def test_connection(self) -> tuple[bool, str]:
        """Really reach both, and say which one failed."""
        for what, reach in (("metastore", _reach_store), ("storage", _reach_storage)):
            try:
                reach(self.access())
            except CkptError as error:
                return False, f"The {what} can not be used: {error}"
        return True, "The metastore and the storage were reached."

    def _embedded(self) -> Access:
        if self.ckpt_conn_id != DEFAULT_CONN_ID:
            raise Misused(
                f"There is no connection {self.ckpt_conn_id!r}. Make it with `airflow connections add "
                f"{self.ckpt_conn_id} --conn-type ckpt …`, or use {DEFAULT_CONN_ID}, which may be missing."
            )
        return embedded_access()


def embedded_access() -> Access:
    """SQLite and a local folder below AIRFLOW_HOME.

    :raises Misused: when there is a connection after all, which Airflow can not read and passes over.
    """
    variable = f"AIRFLOW_CONN_{DEFAULT_CONN_ID.upper()}"
    if os.environ.get(variable):
        raise Misused(f"{variable} is set, and Airflow can not read it: is it a whole JSON document?")
    return Access(places=Places(home=_embedded_home(), metastore=None, storage=None, work_folder=None))


def access_of(connection: "Connection", aws: "Connection | None") -> Access:
    """:raises Misused: for what nobody knows or what lacks its other half: it would look like a lost setting."""
    extra = connection.extra_dejson
    if connection.conn_type != CkptHook.conn_type:
        raise Misused(f"The connection {connection.conn_id} is of type {connection.conn_type}; it must be ckpt.")
    if extra.get("storage") and not connection.password:
        raise Misused(f"The connection {connection.conn_id} has a storage and no metastore, whose URL is its password.")
    if unknown := sorted(set(extra) - EXTRAS):
        known = ", ".join(sorted(EXTRAS))
        raise Misused(f"The connection {connection.conn_id} has the extra {unknown[0]!r}; it may have {known}.")
    if connection.password:
        mask_secret(connection.password)
    found = places(connection.password or None, extra.get("storage"), extra.get("work"), environ={})
    embedded = Places(
        home=_embedded_home(), metastore=found.metastore, storage=found.storage, work_folder=found.work_folder
    )
    _mask_password(embedded)
    return Access(places=embedded, credentials=None if aws is None else _credentials_of(aws))


def _embedded_home() -> Path:
    return Path(os.environ.get("AIRFLOW_HOME", "~/airflow")).expanduser() / "ckpt"


def _mask_password(found: Places) -> None:
    """An error of a driver may show a part of the URL only."""
    try:
        password = sa.make_url(found.metastore_url).password
    except sa.exc.ArgumentError:
        return  # opening it says what is wrong
    if password:
        mask_secret(password)


def aws_conn_id(connection: "Connection") -> str | None:
    return connection.extra_dejson.get("aws_conn_id") or None


def _credentials_of(aws: "Connection") -> Credentials:
    extra = aws.extra_dejson
    if not aws.login or not aws.password:
        raise Misused(
            f"The connection {aws.conn_id} has no access key and secret: only those can be handed to Spark. Leave "
            "aws_conn_id out where hosts have a role of their own."
        )
    return Credentials(
        key=aws.login,
        secret=aws.password,
        token=extra.get("aws_session_token") or None,
        region=extra.get("region_name") or None,
    )


def _reach_store(access: Access) -> None:
    store = access.open_store()
    try:
        store.pipelines.all()
    finally:
        store.close()


def _reach_storage(access: Access) -> None:
    next(iter(access.open_storage().list("")), None)
