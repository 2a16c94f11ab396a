"""A real Airflow in which people log in, and a real browser."""

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.request import Request, urlopen

from playwright.sync_api import Browser, Frame, Page, sync_playwright

from tests.airflow.stage import Stage

PEOPLE = {"ada": "admin", "vera": "viewer"}  # their passwords are their names


SUB_PATH = "/airflow"


class OpenHouse(Stage):
    """An Airflow below a sub-path, whose users have names and roles."""

    def __init__(self, folder: Path, dags: Path, metastore_url: str, *, environment: Mapping[str, str]) -> None:
        passwords = folder / "passwords.json"
        users = {
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "False",
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": ",".join(f"{name}:{role}" for name, role in PEOPLE.items()),
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(passwords),
        }
        super().__init__(folder, dags, metastore_url, environment={**users, **environment})
        passwords.write_text(json.dumps({name: name for name in PEOPLE}))
        self.url += SUB_PATH
        self.environment["AIRFLOW__API__BASE_URL"] = self.url
        self.environment["AIRFLOW__CORE__EXECUTION_API_SERVER_URL"] = f"{self.url}/execution/"

    def _token(self) -> str:
        return self.token_of("ada")

    def token_of(self, name: str) -> str:
        body = json.dumps({"username": name, "password": name}).encode()
        request = Request(f"{self.url}/auth/token", body, {"Content-Type": "application/json"}, method="POST")
        with urlopen(request, timeout=30) as answer:
            token: str = json.loads(answer.read())["access_token"]
            return token


def find_chromium() -> str | None:
    """Debian's, or whatever is named in CHROMIUM."""
    names = (os.environ.get("CHROMIUM", ""), "chromium", "chromium-browser", "google-chrome")
    return next((found for name in names if name and (found := shutil.which(name))), None)


@contextmanager
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=find_chromium(), args=["--no-sandbox"])
        yield chromium
        chromium.close()


def log_in(page: Page, airflow: OpenHouse, name: str) -> None:
    """As a person does, with name and password."""
    page.goto(f"{airflow.url}/auth/login")
    page.get_by_label("Username").fill(name)
    page.get_by_label("Password").fill(name)
    page.get_by_role("button", name="Sign in").click()
    page.get_by_role("link", name="Checkpoints").first.wait_for(timeout=60_000)


def inside(page: Page, title: str = "Checkpoints") -> Frame:
    """The page in its frame."""
    handle = page.locator(f"iframe[title={title!r}]").element_handle(timeout=30_000)
    frame = handle.content_frame()
    assert frame is not None
    return frame
