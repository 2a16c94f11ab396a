from tests.unit.spark.locations import text_of


def test_x() -> None:
    assert text_of(1) == "1"
