"""Who may see what and do what: as Airflow's auth manager says of the Dags that look after a pipeline.

=========  ============================================================================================
to read    may read any of the pipeline's Dags
to act     may read, and may trigger the checkpoint Dag: trigger, savepoint, pin, unpin, abort
to restore may read, and may trigger the restore Dag
=========  ============================================================================================

Whoever may not read a pipeline is told the same as for one that does not exist. What changes something asks for a
header that no form or image can send, and for the page's own origin: Airflow's cookie comes with cross-site requests.
"""

from collections import defaultdict
from collections.abc import Iterable
from http import HTTPStatus
from typing import Annotated
from urllib.parse import urlsplit

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity, DagDetails
from airflow.api_fastapi.core_api.security import GetUserDep
from airflow.configuration import conf
from airflow.models.dag import DagModel
from fastapi import Depends, HTTPException, Path, Request

from airflow_provider_ckpt.hooks.dags import LastWord, dag_id_of, dag_ids_of
from airflow_provider_ckpt.protocol.errors import Misused
from airflow_provider_ckpt.protocol.paths import check_name

HEADER = "X-Ckpt-Action"  # its value does not matter: that it is there shows that a script of this origin sent it


def authenticated(user: GetUserDep) -> BaseUser:
    """Anonymous requests end here, with 401."""
    return user


def readable(user: BaseUser, pipelines: Iterable[str]) -> set[str]:
    """Those of the pipelines of which the user may read a Dag; the auth manager is asked once per team."""
    owners = {dag_id: pipeline for pipeline in pipelines for dag_id in dag_ids_of(pipeline)}
    by_team: dict[str | None, set[str]] = defaultdict(set)
    for dag_id, team in _teams(owners).items():
        by_team[team].add(dag_id)
    manager = get_auth_manager()
    allowed = (
        manager.filter_authorized_dag_ids(dag_ids=dag_ids, user=user, method="GET", team_name=team)
        for team, dag_ids in by_team.items()
    )
    return {owners[dag_id] for dag_ids in allowed for dag_id in dag_ids}


def may_act(user: BaseUser, pipeline: str) -> bool:
    return _may_trigger(user, dag_id_of(pipeline, LastWord.CHECKPOINT))


def may_restore(user: BaseUser, pipeline: str) -> bool:
    return _may_trigger(user, dag_id_of(pipeline, LastWord.RESTORE))


def _reader(user: GetUserDep, pipeline: Annotated[str, Path(max_length=100)]) -> str:
    try:
        is_allowed = check_name("pipeline", pipeline) in readable(user, [pipeline])
    except Misused:
        is_allowed = False
    if not is_allowed:
        raise HTTPException(HTTPStatus.NOT_FOUND, f"There is no pipeline {pipeline!r:.80} that you may see.")
    return pipeline


def check_origin(request: Request) -> None:
    """:raises HTTPException: 403 for what another site may have made a browser send."""
    if HEADER not in request.headers:
        raise HTTPException(HTTPStatus.FORBIDDEN, f"Actions need the header {HEADER}.")
    origin, has_token = request.headers.get("origin"), "authorization" in request.headers
    if origin is None and has_token:
        return  # a program with a token: no browser added a cookie
    if origin is None or urlsplit(origin).netloc not in _own_hosts(request):
        raise HTTPException(HTTPStatus.FORBIDDEN, "Actions must come from Airflow's own page.")


def _own_hosts(request: Request) -> set[str]:
    base_url = conf.get("api", "base_url", fallback="") or ""
    return {request.headers.get("host", ""), urlsplit(base_url).netloc} - {""}


def _actor(user: GetUserDep, pipeline: "Readable", _: Annotated[None, Depends(check_origin)]) -> str:
    if not may_act(user, pipeline):
        dag_id = dag_id_of(pipeline, LastWord.CHECKPOINT)
        raise HTTPException(HTTPStatus.FORBIDDEN, f"You may not do this: it needs the right to trigger {dag_id}.")
    return user.get_name()


def _restorer(user: GetUserDep, pipeline: "Readable", _: Annotated[None, Depends(check_origin)]) -> str:
    if not may_restore(user, pipeline):
        dag_id = dag_id_of(pipeline, LastWord.RESTORE)
        raise HTTPException(HTTPStatus.FORBIDDEN, f"You may not do this: it needs the right to trigger {dag_id}.")
    return user.get_name()


def _may_trigger(user: BaseUser, dag_id: str) -> bool:
    details = DagDetails(id=dag_id, team_name=_teams([dag_id])[dag_id])
    return get_auth_manager().is_authorized_dag(
        method="POST", access_entity=DagAccessEntity.RUN, details=details, user=user
    )


def _teams(dag_ids: Iterable[str]) -> dict[str, str | None]:
    wanted = list(dag_ids)
    if not conf.getboolean("core", "multi_team", fallback=False):
        return dict.fromkeys(wanted)
    return dict.fromkeys(wanted) | DagModel.get_dag_id_to_team_name_mapping(wanted)


Readable = Annotated[str, Depends(_reader)]  # a pipeline that exists or not, and that the user may see
Actor = Annotated[str, Depends(_actor)]  # the name of a user who may act on it
Restorer = Annotated[str, Depends(_restorer)]  # the name of a user who may restore it
