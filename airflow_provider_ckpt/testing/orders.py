"""Orders for the example pipeline, and an outside reader of what it publishes: for demos and tests."""

import json
import threading
from collections import Counter
from pathlib import Path
from types import TracebackType

_ROWS_OF_FILE = 25
_PAUSE = 0.4  # seconds between two files, if nobody says otherwise

Order = tuple[int, int]  # id, amount


class Orders:
    """Orders that come into a folder, a file at a time, until somebody stops them.

    :param pause: seconds between two files.
    """

    def __init__(self, folder: Path, pause: float = _PAUSE) -> None:
        self._folder = folder
        self._pause = pause
        self._count = 0
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._come_in, name="orders", daemon=True)

    def __enter__(self) -> "Orders":
        self._folder.mkdir(parents=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> Counter[Order]:
        """All that came in, each once."""
        self._stopped.set()
        self._thread.join()
        return Counter((id_, _amount(id_)) for id_ in range(self._count))

    def _come_in(self) -> None:
        while not self._stopped.wait(self._pause):
            ids = range(self._count, self._count + _ROWS_OF_FILE)
            partial = self._folder / f".{self._count}"
            partial.write_text("\n".join(json.dumps(_order(id_)) for id_ in ids))
            partial.rename(self._folder / f"{self._count:08}.json")
            self._count += len(ids)


class Reader:
    """An outside reader of the published Delta table, who looks at it all the time."""

    def __init__(self, table: Path) -> None:
        self._table = str(table)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._look, name="reader", daemon=True)
        self.looks = 0
        self.twice = 0  # rows that were seen more than once in one look
        self.sizes: set[int] = {0}  # how many rows there were

    def __enter__(self) -> "Reader":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()

    def read(self) -> list[Order]:
        from deltalake import DeltaTable  # noqa: PLC0415 - a library that only readers of the example need

        if not DeltaTable.is_deltatable(self._table):
            return []
        columns = DeltaTable(self._table).to_pyarrow_table(columns=["id", "amount"]).to_pydict()
        return list(zip(columns["id"], columns["amount"], strict=True))

    def _look(self) -> None:
        while not self._stopped.wait(0.2):
            rows = self.read()
            self.looks += 1
            self.twice += len(rows) - len(set(rows))
            self.sizes.add(len(rows))


def _order(id_: int) -> dict[str, int]:
    return {"id": id_, "shop": id_ % 5, "amount": _amount(id_)}


def _amount(order: int) -> int:
    return order * 7 % 1000
