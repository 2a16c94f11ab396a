"""All bugs that are planted, in the order in which they are tried."""

from tests.mutants.bug import Bug
from tests.mutants.core import CUT, GUARDS, RESTORE, TIP
from tests.mutants.stored import MANIFEST, PATHS, RETENTION, SINKS
from tests.mutants.stuck import STUCK
from tests.mutants.surface import OPERATORS, PAGE, SENSORS, TRIGGERS

BUGS: tuple[Bug, ...] = (
    *GUARDS,
    *CUT,
    *TIP,
    *RESTORE,
    *RETENTION,
    *MANIFEST,
    *PATHS,
    *OPERATORS,
    *SENSORS,
    *TRIGGERS,
    *PAGE,
    *SINKS,
    *STUCK,
)
