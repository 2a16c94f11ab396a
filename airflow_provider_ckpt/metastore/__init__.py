"""The database of record: pipelines, attempts, checkpoints, acknowledgements, leases, events.

Every public call is one transaction; every change is a compare-and-set; time is the store's clock.
"""

from airflow_provider_ckpt.metastore.acks import Acks, Group, Progress
from airflow_provider_ckpt.metastore.alerts import Alerts
from airflow_provider_ckpt.metastore.attempts import Attempts, Beat, Start
from airflow_provider_ckpt.metastore.barriers import Barriers
from airflow_provider_ckpt.metastore.checkpoints import Checkpoints, Measure, Page
from airflow_provider_ckpt.metastore.engine import Clock, Engine, open_engine
from airflow_provider_ckpt.metastore.events import Events
from airflow_provider_ckpt.metastore.files import Files
from airflow_provider_ckpt.metastore.history import History
from airflow_provider_ckpt.metastore.leases import Leases, Pins
from airflow_provider_ckpt.metastore.pipelines import Pipelines
from airflow_provider_ckpt.metastore.recovered import Recovered, Recovery
from airflow_provider_ckpt.metastore.sinks import Sinks
from airflow_provider_ckpt.metastore.views import Dossier, Inventory, Views
from airflow_provider_ckpt.metastore.watcher import Closeness, Pulse, Sight, Watcher, feel, look, look_closer

__all__ = [
    "Beat",
    "Clock",
    "Closeness",
    "Dossier",
    "Engine",
    "Group",
    "Inventory",
    "Measure",
    "Metastore",
    "Page",
    "Progress",
    "Pulse",
    "Recovered",
    "Sight",
    "Start",
    "Watcher",
    "feel",
    "look",
    "look_closer",
    "open_metastore",
]


class Metastore:
    """Everything the store can be asked, by noun."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.pipelines = Pipelines(engine)
        self.attempts = Attempts(engine)
        self.barriers = Barriers(engine)
        self.checkpoints = Checkpoints(engine)
        self.acks = Acks(engine)
        self.sinks = Sinks(engine)
        self.leases = Leases(engine)
        self.pins = Pins(engine)
        self.files = Files(engine)
        self.events = Events(engine)
        self.alerts = Alerts(engine)
        self.history = History(engine)
        self.recovery = Recovery(engine)
        self.views = Views(engine)

    def close(self) -> None:
        """Close the connections; a later call opens new ones."""
        self.engine.sa.dispose()


def open_metastore(url: str, clock: Clock | None = None) -> Metastore:
    """Connect to a store by its URL; nothing is reached before the first call."""
    return Metastore(open_engine(url, clock))
