"""What an attempt has staged and no checkpoint has published: one small file per batch, in the attempt's folder.

A batch is entered before Spark logs it as committed. So whatever is committed is in the ledger, and a batch that runs
again replaces its own entry. Entries up to the *floor* belong to a checkpoint that is decided.
"""

from collections.abc import Iterator
from pathlib import Path

from airflow_provider_ckpt.protocol.codec import canonical, parse
from airflow_provider_ckpt.protocol.errors import Refused
from airflow_provider_ckpt.spark.sinks.base import Staged

NOTHING = -1  # the floor before the first batch


class Ledger:
    def __init__(self, folder: Path, floor: int = NOTHING) -> None:
        self._folder = folder
        self._floor = floor

    def enter(self, batch: int, staged: Staged) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        partial = self._folder / f".{batch}"
        partial.write_bytes(canonical(staged.to_json()))
        partial.replace(self._file(batch))

    def upto(self, batch: int | None) -> dict[int, Staged]:
        """Every batch after the floor up to this one.

        :raises Refused: when one is missing: publishing the others would lose its rows.
        """
        wanted = range(self._floor + 1, (NOTHING if batch is None else batch) + 1)
        missing = [each for each in wanted if not self._file(each).exists()]
        if missing:
            raise Refused(
                f"Batch {missing[0]} is committed and {self._folder} does not know what was staged of it. Was the "
                "query started before with another sink? Let it start from nothing in a pipeline of its own."
            )
        return {each: self._read(each) for each in wanted}

    def forget(self, batch: int | None) -> None:
        """Everything up to this batch belongs to a decided checkpoint."""
        self._floor = max(self._floor, NOTHING if batch is None else batch)
        for each in self._entries():
            if each <= self._floor:
                self._file(each).unlink(missing_ok=True)

    def forget_after(self, batch: int | None) -> None:
        """A batch after this one is not committed: it runs again, and is staged again."""
        for each in self._entries():
            if each > (NOTHING if batch is None else batch):
                self._file(each).unlink(missing_ok=True)

    def adopt(self, dead: Path, upto: int | None) -> None:
        """Take over what a dead attempt had staged up to its tip."""
        for batch, staged in Ledger(dead, self._floor).upto(upto).items():
            self.enter(batch, staged)

    def _entries(self) -> Iterator[int]:
        names = [file.stem for file in self._folder.glob("*.json")]
        return map(int, filter(str.isdecimal, names))

    def _read(self, batch: int) -> Staged:
        file = self._file(batch)
        fields = parse(str(file), file.read_bytes())
        staged = Staged(
            rows=fields.whole("rows"),
            bytes=fields.whole("bytes"),
            files=fields.whole("files"),
            document=fields.object("document"),
        )
        fields.done()
        return staged

    def _file(self, batch: int) -> Path:
        return self._folder / f"{batch}.json"
