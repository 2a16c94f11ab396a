"""An application on a cluster: named from its submission on, asked for its state, and ended there.

The id goes into the metastore with its attempt, and into the trigger that waits for it. Whoever asks needs neither
`spark-submit` nor the connection: YARN's resource manager and a standalone master answer over HTTP, Kubernetes through
its own client, where Airflow's provider for it is installed.
"""

import importlib
import json
import logging
from collections.abc import Callable
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import Request, urlopen

from airflow_provider_ckpt.protocol.codec import Fields, JsonObject

_log = logging.getLogger(__name__)
_SECONDS = 10  # for one answer
_GONE = 404
_WORDS = 300  # characters of what a cluster says about an end


class ClusterKind(StrEnum):
    YARN = "yarn"
    STANDALONE = "standalone"
    KUBERNETES = "kubernetes"


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplicationState:
    """What a cluster says of an application."""

    state: str  # in the cluster's own word
    has_ended: bool
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.state}: {self.detail}" if self.detail else self.state


@dataclass(frozen=True, slots=True, kw_only=True)
class Application:
    """:param url: where the cluster answers; on Kubernetes the namespace; "" where nobody can be asked."""

    kind: ClusterKind
    id: str
    url: str = ""

    def to_json(self) -> JsonObject:
        return {**asdict(self), "kind": str(self.kind)}

    @classmethod
    def from_json(cls, document: JsonObject) -> "Application":
        fields = Fields("submission", document)
        return cls(kind=ClusterKind(fields.text("kind")), id=fields.text("id"), url=fields.text("url"))

    def __str__(self) -> str:
        return f"{self.kind} application {self.id}"

    def ask(self) -> ApplicationState | None:
        """What the cluster says now; None when it says nothing, which means nothing."""
        if not self.url:
            return None
        try:
            return _ASK[self.kind](self)
        except Exception as error:  # noqa: BLE001 - whatever a cluster answers: it is asked again
            _log.warning("The cluster does not say how %s is: %s", self, error)
            return None

    def kill(self) -> bool:
        """Whether it has ended, or the cluster was told to end it."""
        if not self.url:
            _log.warning("%s can not be ended from here: its connection does not say where the cluster answers.", self)
            return False
        found = self.ask()
        if found is not None and found.has_ended:
            return True
        try:
            _KILL[self.kind](self)
        except Exception as error:  # noqa: BLE001 - it is fenced in any case, and ends by itself
            _log.warning("%s could not be ended through the cluster: %s", self, error)
            return False
        _log.info("The cluster was told to end %s.", self)
        return True


def _ask_yarn(application: Application) -> ApplicationState:
    try:
        app = _answer(_of_yarn(application))["app"]
    except HTTPError as error:
        if error.code != _GONE:
            raise
        return ApplicationState(state="unknown to the resource manager", has_ended=True)
    has_ended = app["state"] in ("FINISHED", "FAILED", "KILLED")
    state = f"{app['state']}, {app['finalStatus']}" if has_ended else app["state"]
    return ApplicationState(state=state, has_ended=has_ended, detail=str(app.get("diagnostics") or "").strip()[:_WORDS])


def _kill_yarn(application: Application) -> None:
    _answer(f"{_of_yarn(application)}/state", method="PUT", document={"state": "KILLED"})


def _of_yarn(application: Application) -> str:
    return f"{application.url}/ws/v1/cluster/apps/{quote(application.id)}"


def _ask_standalone(application: Application) -> ApplicationState:
    found = _answer(f"{application.url}/v1/submissions/status/{quote(application.id)}")
    state = str(found.get("driverState") or "unknown to the master")
    return ApplicationState(state=state, has_ended=state not in ("SUBMITTED", "RUNNING", "RELAUNCHING", "UNKNOWN"))


def _kill_standalone(application: Application) -> None:
    _answer(f"{application.url}/v1/submissions/kill/{quote(application.id)}", method="POST", document={})


def _ask_kubernetes(application: Application) -> ApplicationState:
    module = _kubernetes()
    try:
        pod = module.get_kube_client().read_namespaced_pod(application.id, application.url)
    except module.ApiException as error:
        if error.status != _GONE:
            raise
        return ApplicationState(state="there is no such pod", has_ended=True)
    return ApplicationState(state=str(pod.status.phase), has_ended=pod.status.phase in ("Succeeded", "Failed"))


def _kill_kubernetes(application: Application) -> None:
    module = _kubernetes()
    try:
        module.get_kube_client().delete_namespaced_pod(application.id, application.url)
    except module.ApiException as error:
        if error.status != _GONE:
            raise


def _kubernetes() -> Any:
    return importlib.import_module("airflow.providers.cncf.kubernetes.kube_client")  # where it is installed


def _answer(url: str, *, method: str = "GET", document: JsonObject | None = None) -> Any:
    headers = {"Accept": "application/json", "Content-Type": "application/json"}
    data = None if document is None else json.dumps(document).encode()
    request = Request(url, data=data, headers=headers, method=method)  # noqa: S310 - the connection's own address
    with urlopen(request, timeout=_SECONDS) as answer:  # noqa: S310
        body = answer.read()
    return json.loads(body) if body else {}


_ASK: dict[ClusterKind, Callable[[Application], ApplicationState]] = {
    ClusterKind.YARN: _ask_yarn,
    ClusterKind.STANDALONE: _ask_standalone,
    ClusterKind.KUBERNETES: _ask_kubernetes,
}
_KILL: dict[ClusterKind, Callable[[Application], None]] = {
    ClusterKind.YARN: _kill_yarn,
    ClusterKind.STANDALONE: _kill_standalone,
    ClusterKind.KUBERNETES: _kill_kubernetes,
}
