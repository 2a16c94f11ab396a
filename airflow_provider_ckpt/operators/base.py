"""What all operators here have in common: the connection, the pipeline, and who acts."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowException, AirflowFailException, DagRunTriggerException

from airflow_provider_ckpt.links.page import PageLink
from airflow_provider_ckpt.protocol.errors import CkptError, OutcomeUnknown, TryAgain
from airflow_provider_ckpt.protocol.records import Ref

if TYPE_CHECKING:
    from airflow.sdk import Context as TaskContext

    from airflow_provider_ckpt.coordinator.context import Context
    from airflow_provider_ckpt.hooks.ckpt import CkptHook

DEFAULT_CONN_ID = "ckpt_default"
WAITING = "Waiting %.0f s for the old attempt to end by itself."


class CkptOperator(BaseOperator):
    """What all operators take.

    :param pipeline: the pipeline's name. (templated)
    :param settings: declares the pipeline: it is made, or these settings are brought up to date, before the task does
        its work; as `ckpt pipelines NAME --set` takes them. None: it exists.
    :param ckpt_conn_id: the connection to the metastore and the storage. (templated)
    """

    template_fields: Sequence[str] = ("pipeline", "ckpt_conn_id")
    operator_extra_links = (PageLink(),)
    ui_color = "#d8e8f0"
    checkpoint: Any = None  # the one that it works on, once that is known: the link leads there

    def __init__(
        self,
        *,
        pipeline: str,
        settings: Mapping[str, str] | None = None,
        ckpt_conn_id: str = DEFAULT_CONN_ID,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.pipeline = pipeline
        self.settings = settings
        self.ckpt_conn_id = ckpt_conn_id

    @contextmanager
    def opened(self, context: "TaskContext") -> Iterator["Context"]:
        """The store and the storage, for a pipeline that exists."""
        from airflow_provider_ckpt.coordinator.declaring import declare

        with opened(self.ckpt_conn_id, context) as ckpt:
            if self.settings is not None:
                declare(ckpt.store, self.pipeline, self.settings, actor=ckpt.actor)
            yield ckpt


def hook_of(ckpt_conn_id: str) -> "CkptHook":
    from airflow_provider_ckpt.hooks.ckpt import CkptHook

    return CkptHook(ckpt_conn_id)


@contextmanager
def opened(ckpt_conn_id: str, context: "TaskContext") -> Iterator["Context"]:
    """The store and the storage, for this task; our errors as Airflow's.

    What may go away by itself lets Airflow try again; what will not, fails at once.
    """
    try:
        with hook_of(ckpt_conn_id).open(actor_of(context)) as ckpt:
            yield ckpt
    except (TryAgain, OutcomeUnknown) as error:
        raise AirflowException(str(error)) from error
    except CkptError as error:
        raise AirflowFailException(str(error)) from error


def actor_of(context: "TaskContext") -> str:
    """Who acts, for the events of the store."""
    return f"airflow {key_of(context)}"


def key_of(context: "TaskContext") -> str:
    """The task instance, the same at every try and after every clearing."""
    ti = context["ti"]
    map_index = "" if ti.map_index is None or ti.map_index < 0 else f"[{ti.map_index}]"
    return f"{ti.dag_id}/{ti.run_id}/{ti.task_id}{map_index}"


def start_dag(dag_id: str, run_id: str, conf: Mapping[str, Any]) -> NoReturn:
    """End this task by starting a Dag run; one that exists already skips the task."""
    raise DagRunTriggerException(
        trigger_dag_id=dag_id,
        dag_run_id=run_id,
        conf=dict(conf),
        reset_dag_run=False,
        skip_when_already_exists=True,
        wait_for_completion=False,
        allowed_states=["success"],
        failed_states=["failed"],
        poke_interval=60,
        deferrable=False,
    )


def ref_of(pipeline: str, checkpoint: object) -> Ref:
    """:raises AirflowFailException: for what is no checkpoint's id."""
    text = str(checkpoint).strip()
    if not (text.isascii() and text.isdecimal()):
        raise AirflowFailException(
            f"{text!r:.100} is no id of a checkpoint of {pipeline}: give the number that its trigger task has returned."
        )
    return Ref(pipeline, int(text))


def given(value: object) -> str | None:
    """A value that a template may have left empty."""
    text = "" if value is None else str(value).strip()
    return None if text in ("", "None") else text
