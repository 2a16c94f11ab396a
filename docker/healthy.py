"""Whether an address answers, or what Airflow's API says of one of its processes: `healthy.py URL [COMPONENT]`.

Costs a container next to nothing; `airflow jobs check` would import Airflow every time.
"""

import json
import sys
from urllib.request import urlopen

_PATIENCE = 5.0  # seconds


def is_healthy(url: str, component: str | None = None) -> bool:
    try:
        with urlopen(url, timeout=_PATIENCE) as answer:  # noqa: S310 - the compose file says which
            return component is None or json.load(answer)[component]["status"] == "healthy"
    except (OSError, ValueError, KeyError, TypeError):
        return False


if __name__ == "__main__":
    sys.exit(0 if is_healthy(*sys.argv[1:]) else 1)
