"""What a person reads of a failed query, out of what Spark 4 really says."""

import pytest

from airflow_provider_ckpt.protocol.cut import Query
from airflow_provider_ckpt.spark.failure_cause import cause_of
from airflow_provider_ckpt.spark.queries import Started

PROXY = """An exception was raised by the Python Proxy. Return Message: Traceback (most recent call last):
  File "/site-packages/py4j/clientserver.py", line 644, in _call_proxy
    return_value = getattr(self.pool[obj_id], method)(*params)
                   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "/app/orders.py", line 5, in body
    raise ValueError("the disk is full")
"""
SPARK = """

=== Streaming Query ===
Identifier: [id = 97c21864, runId = 7dd45396]
Current Committed Offsets: {}

Current State: ACTIVE
"""
CHAINED = """An exception was raised by the Python Proxy. Return Message: Traceback (most recent call last):
  File "/app/orders.py", line 7, in body
    1/0
    ~^~
ZeroDivisionError: division by zero

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "/app/orders.py", line 8, in body
    raise RuntimeError("no target: 'x'") from error
RuntimeError: no target: 'x'"""
WORKER = """An exception was raised by the Python Proxy. Return Message: Traceback (most recent call last):
  File "/app/orders.py", line 13, in body
    df.rdd.mapPartitions(f).collect()
pyspark.errors.exceptions.captured.PythonException: An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "/app/orders.py", line 11, in f
    raise KeyError("row 7")
KeyError: 'row 7'"""
ANALYSIS = (
    "pyspark.errors.exceptions.captured.AnalysisException: [TABLE_OR_VIEW_NOT_FOUND] No `nobody`.\nSearch path: [].\n"
)


@pytest.mark.parametrize(
    ("said", "cause"),
    [
        (f"{PROXY}ValueError: the disk is full", "ValueError: the disk is full"),
        (f"{PROXY}ValueError: the disk is full\nand the other one", "ValueError: the disk is full and the other one"),
        (f"{PROXY}ValueError", "ValueError"),
        (CHAINED, "RuntimeError: no target: 'x'"),
        (WORKER, "KeyError: 'row 7'"),
        (f"{PROXY}{ANALYSIS}", ANALYSIS.replace("\n", " ").strip()),
        ("Job aborted.\nTask 3 failed\nOn host a\n\tat org.apache", "Job aborted. Task 3 failed On host a"),
        ("", ""),
    ],
)
@pytest.mark.parametrize("tail", ["", SPARK])
def test_the_cause_is_what_was_raised_and_not_the_way_there(said: str, cause: str, tail: str) -> None:
    if "Python Proxy" in said or not tail:
        assert cause_of(said + tail) == cause


def test_a_message_without_end_is_cut_where_it_says_so() -> None:
    assert cause_of(f"{PROXY}ValueError: {'x' * 600}") == f"ValueError: {'x' * 488} …"


def test_the_failure_of_an_attempt_says_it() -> None:
    class Ended:
        error = f"{PROXY}ValueError: the disk is full{SPARK}"

    query = Started(asked=Query(name="totals"), properties={}, start_again=None, ended=Ended())  # type: ignore[arg-type]
    assert query.failure == "Query totals failed: ValueError: the disk is full"
