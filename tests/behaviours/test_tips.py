"""Tips: what a dead attempt has left is only good to start from when it had started everything."""

import logging
from pathlib import Path

import pytest

from airflow_provider_ckpt.protocol.cut import Graph, Query
from airflow_provider_ckpt.spark.tips import tip_is_intact
from tests.house import NAME, House


def test_a_driver_that_died_before_it_had_started_all_its_queries_leaves_no_tip(
    house: House, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    house.checkpoint(house.pipeline())  # attempt 1 has the query totals
    planned = house.restore().attempt
    house.store.attempts.claim(NAME, planned.number, "second", Graph((Query(name="other"),)))
    with caplog.at_level(logging.INFO):
        assert not tip_is_intact(house.context, tmp_path, house.store.attempts.get(NAME, planned.number))
    assert "it died before it had started totals" in caplog.text
