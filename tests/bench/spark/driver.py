"""`python -m tests.bench.spark.driver SECTION JSON`: the process in which a section runs, with one Spark session."""

import json
import os
import sys
import traceback

from tests.bench.spark import copies, partitions, sinks, throughput
from tests.bench.spark.stage import Stage, open_stage

SECTIONS = {"throughput": throughput.run, "copies": copies.run, "partitions": partitions.run, "sinks": sinks.run}


def main(section: str, given: str) -> None:
    stage: Stage = open_stage(json.loads(given))
    SECTIONS[section](stage)
    stage.tell({"end": True})


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except BaseException:
        traceback.print_exc()
    sys.stderr.flush()
    os._exit(0)  # agents' threads and the JVM are killed with the process group: nothing of them is needed any more
