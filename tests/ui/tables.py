"""Airflow's own tables and auth manager in this process, as far as the page asks them."""

import secrets

from airflow import settings
from airflow.api_fastapi.app import init_auth_manager
from airflow.configuration import conf
from airflow.models import import_all_models
from airflow.models.base import Base


def make_tables() -> None:
    conf.set("core", "auth_manager", "tests.ui.people.People")
    conf.set("core", "simple_auth_manager_users", "ada:admin,vera:viewer,paul:viewer")
    conf.set("api_auth", "jwt_secret", secrets.token_hex(64))
    settings.configure_vars()
    settings.configure_orm()
    import_all_models()
    Base.metadata.create_all(settings.engine)
    init_auth_manager()
