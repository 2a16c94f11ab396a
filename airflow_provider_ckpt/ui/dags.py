"""The Dags of pipelines as Airflow's database knows them. This is the API server's own process: it may look there."""

from collections.abc import Iterable

from airflow.api.common.trigger_dag import trigger_dag
from airflow.exceptions import DagNotFound
from airflow.models.dag import DagModel
from airflow.utils.session import create_session
from airflow.utils.types import DagRunTriggeredByType
from sqlalchemy import select

from airflow_provider_ckpt.hooks.dags import LastWord, dag_id_of, dag_ids_of
from airflow_provider_ckpt.protocol.codec import Json
from airflow_provider_ckpt.protocol.errors import NotFound
from airflow_provider_ckpt.ui.answers import DagFacts


def facts_of(pipelines: Iterable[str]) -> dict[str, DagFacts]:
    """Of those of the pipelines' Dags that are there, by id; one query."""
    wanted = [dag_id for pipeline in pipelines for dag_id in dag_ids_of(pipeline)]
    columns = (DagModel.dag_id, DagModel.is_paused, DagModel.next_dagrun_create_after)
    with create_session(scoped=False) as session:
        rows = session.execute(select(*columns).where(DagModel.dag_id.in_(wanted), ~DagModel.is_stale)).all()
    return {
        dag_id: DagFacts(dag_id=dag_id, is_paused=bool(is_paused), next_run_at=None if is_paused else next_run_at)
        for dag_id, is_paused, next_run_at in rows
    }


def start_restore(pipeline: str, conf: dict[str, Json], *, user: str) -> tuple[str, str]:
    """Start the restore Dag as that person; gives back the Dag's id and the run's.

    :raises NotFound: when the pipeline has no restore Dag.
    """
    dag_id = dag_id_of(pipeline, LastWord.RESTORE)
    try:
        run = trigger_dag(
            dag_id=dag_id, triggered_by=DagRunTriggeredByType.UI, triggering_user_name=user, conf=dict(conf)
        )
    except DagNotFound as error:
        raise NotFound(f"Airflow has no Dag {dag_id}: `checkpoint_dags` declares it.") from error
    if run is None:
        raise NotFound(f"Airflow did not start {dag_id}.")
    return dag_id, run.run_id
