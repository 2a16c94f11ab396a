"""The connection as Airflow's own processes read it: its secrets backends and its database, no supervisor to ask."""

from airflow.models.connection import Connection
from airflow.sdk.exceptions import AirflowNotFoundException

from airflow_provider_ckpt.hooks.ckpt import DEFAULT_CONN_ID, Access, access_of, aws_conn_id, embedded_access


def server_access() -> Access:
    try:
        connection = Connection.get_connection_from_secrets(DEFAULT_CONN_ID)
    except AirflowNotFoundException:
        return embedded_access()
    aws = aws_conn_id(connection)
    return access_of(connection, None if aws is None else Connection.get_connection_from_secrets(aws))
