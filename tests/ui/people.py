"""Who may log in: ada may do everything, vera may read everything, paul may read the Dags of payments and no others."""

from typing import Any

from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import SimpleAuthManager
from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser

ADA = SimpleAuthManagerUser(username="ada", role="admin")
VERA = SimpleAuthManagerUser(username="vera", role="viewer")
PAUL = SimpleAuthManagerUser(username="paul", role="viewer")


class People(SimpleAuthManager):
    """Airflow's own simple auth manager, with one person whose rights end at a Dag."""

    def is_authorized_dag(self, *, method: Any, user: Any, access_entity: Any = None, details: Any = None) -> bool:
        if user.username == PAUL.username and not (details and str(details.id).startswith("payments__")):
            return False
        return super().is_authorized_dag(method=method, user=user, access_entity=access_entity, details=details)
