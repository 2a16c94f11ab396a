"""What this package adds to Airflow itself. Imported in every process of Airflow, so it stays light."""

from airflow.plugins_manager import AirflowPlugin

from airflow_provider_ckpt.links.page import PREFIX, ROUTE, PageLink, base_path
from airflow_provider_ckpt.links.run import RunLink
from airflow_provider_ckpt.ui.lazy import LazyApp

_PAGE = f"{base_path()}{PREFIX}/"
_ICON = {"icon": f"{_PAGE}static/icon.svg"}
_NAME = "Checkpoints"


class CkptPlugin(AirflowPlugin):
    """Registered by the entry point `airflow.plugins`."""

    name = "ckpt"
    operator_extra_links = [RunLink(), PageLink()]  # noqa: RUF012 - as Airflow wants it
    fastapi_apps = [{"app": LazyApp(), "url_prefix": PREFIX, "name": _NAME}]  # noqa: RUF012
    external_views = [  # noqa: RUF012
        {"name": _NAME, "href": _PAGE, "destination": "nav", "url_route": ROUTE, **_ICON},
        {
            "name": _NAME,
            "href": f"{_PAGE}?dag_id={{DAG_ID}}",
            "destination": "dag",
            "url_route": f"{ROUTE}-of-dag",
            **_ICON,
        },
        {
            "name": _NAME,
            "href": f"{_PAGE}?dag_id={{DAG_ID}}&run_id={{RUN_ID}}",
            "destination": "dag_run",
            "url_route": f"{ROUTE}-of-run",
            **_ICON,
        },
    ]
