"""A pipeline's driver: told by a file for its owner alone what it needs, and held while it runs beside the task."""

import os
import signal
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.sdk.exceptions import AirflowException

from airflow_provider_ckpt.hooks.ckpt import Access
from airflow_provider_ckpt.hooks.cluster import Application, ClusterKind
from airflow_provider_ckpt.metastore import feel
from airflow_provider_ckpt.protocol.errors import CkptError
from airflow_provider_ckpt.spark.conf import ATTEMPT, METASTORE, PIPELINE, STORAGE, WORK

_LOOK_EVERY = 2.0  # seconds
_GRACE = 20.0  # seconds that a driver which was replaced gets to end by itself
_LAST_WORDS = 500  # characters of a driver's output that are kept with its failure
_NOT_WAITING = {
    "spark.yarn.submit.waitAppCompletion": "false",
    "spark.kubernetes.submission.waitAppCompletion": "false",
    "spark.standalone.submit.waitAppCompletion": "false",
}
_ONCE = {"spark.yarn.maxAppAttempts": "1"}  # a second driver of the same attempt is refused: the restore Dag decides
_ENVIRONMENTS = ("spark.executorEnv", "spark.yarn.appMasterEnv", "spark.kubernetes.driverEnv")


class DriverHook(SparkSubmitHook):
    """As SparkSubmitHook; what is secret comes in a file and in the environment, not on the command line."""

    environ: Mapping[str, str]

    @classmethod
    def of(cls, hook: SparkSubmitHook) -> "DriverHook":
        """The operator's own hook with all that it was given, as one of these."""
        hook.__class__ = cls
        assert isinstance(hook, cls)  # noqa: S101 - for the type checker
        return hook

    @contextmanager
    def told(self, properties: Mapping[str, str], environ: Mapping[str, str]) -> Iterator[None]:
        """With a properties file that is there until the driver has read it; it contains the user's own as well."""
        given = f"{Path(self._properties_file).read_text()}\n" if self._properties_file else ""
        with tempfile.TemporaryDirectory(prefix="ckpt-") as folder:  # for its owner alone
            file = Path(folder) / "driver.conf"
            file.write_text(given + "".join(f"{key}={_escaped(value)}\n" for key, value in properties.items()))
            self._properties_file, self.environ = str(file), environ
            yield

    @property
    def is_cluster_mode(self) -> bool:
        return bool(self._connection["deploy_mode"] == "cluster")

    def _build_spark_common_args(self) -> list[str]:
        arguments: list[str] = super()._build_spark_common_args()
        self._env = {**(self._env or {}), **self.environ}
        return [*arguments, "--load-spark-defaults"]  # else a properties file would replace Spark's own

    @property
    def exit_code(self) -> int | None:
        return None if self._submit_sp is None else self._submit_sp.returncode

    def submit_and_leave(self, application: str) -> Application | None:
        """In cluster mode: spark-submit ends when the driver is accepted, and the metastore says what becomes of it.

        :return: what the cluster knows it by.
        """
        self._conf = {**_ONCE, **self._conf, **_NOT_WAITING}
        self.submit(application)
        return self.submitted

    @property
    def submitted(self) -> Application | None:
        """As far as spark-submit has said it by now."""
        if self._yarn_application_id:
            return Application(kind=ClusterKind.YARN, id=self._yarn_application_id, url=self._resource_manager())
        if self._kubernetes_driver_pod:
            namespace = self._connection.get("namespace") or "default"
            return Application(kind=ClusterKind.KUBERNETES, id=self._kubernetes_driver_pod, url=namespace)
        if self._driver_id:
            url = str(self._connection.get("rest_endpoint") or "").rstrip("/")
            return Application(kind=ClusterKind.STANDALONE, id=self._driver_id, url=url)
        return None

    def _resource_manager(self) -> str:
        try:
            return str(self._get_yarn_rm_base_url())
        except ValueError:
            self.log.warning(
                "The connection %s does not say where YARN's resource manager answers (extra "
                "yarn_resourcemanager_webapp_address): an application that dies in its queue is noticed after "
                "claim_timeout only, and none is ended through the cluster.",
                self._conn_id,
            )
            return ""

    def end(self) -> None:
        if self._submit_sp is not None and self._submit_sp.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(self._submit_sp.pid, signal.SIGKILL)


@contextmanager
def told(hook: SparkSubmitHook, access: Access, pipeline: str, attempt: int) -> Iterator[DriverHook]:
    """The hook of a driver that is told which attempt it is, and where the store and the storage are."""
    environ = {} if access.credentials is None else access.credentials.environ
    driver = DriverHook.of(hook)
    with driver.told(_properties(access, pipeline, attempt, environ), environ):
        yield driver


def hold(hook: DriverHook, access: Access, attempt: tuple[str, int], application: str) -> str:
    """Run the driver to its end, which comes early when a newer attempt takes over; its last words if it failed."""
    watch = _Watch(hook, access, attempt)
    watch.start()
    try:
        hook.submit(application, start_new_session=True)
    except AirflowException as error:
        return f"its driver ended with exit code {hook.exit_code}; it last said: {str(error)[-_LAST_WORDS:]}"
    except OSError as error:
        return f"its driver could not be started: {error}"
    finally:
        watch.stop()
    return ""


class _Watch:
    """Ends a driver whose attempt was replaced, when it does not end by itself."""

    def __init__(self, hook: DriverHook, access: Access, attempt: tuple[str, int]) -> None:
        self._hook = hook
        self._store = access.open_store()
        self._attempt = attempt
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ckpt-watch", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()
        self._store.close()

    def _run(self) -> None:
        while not self._stopped.wait(_LOOK_EVERY):
            if self._is_replaced() and not self._stopped.wait(_GRACE):
                self._hook.log.warning(
                    "Attempt %d of %s was replaced: its driver is ended.", self._attempt[1], self._attempt[0]
                )
                self._hook.end()
                return

    def _is_replaced(self) -> bool:
        try:
            pulse = feel(self._store.engine, [self._attempt]).get(self._attempt)
        except CkptError:
            return False
        return pulse is not None and not pulse.is_current


def _properties(access: Access, pipeline: str, attempt: int, environ: Mapping[str, str]) -> dict[str, str]:
    return {
        PIPELINE: pipeline,
        ATTEMPT: str(attempt),
        METASTORE: access.places.metastore_url,
        STORAGE: access.places.storage_url,
        WORK: str(access.places.work),
        **{f"{prefix}.{name}": value for prefix in _ENVIRONMENTS for name, value in environ.items()},
    }


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\")
