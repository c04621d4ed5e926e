"""Where a run on Spark keeps its board, its rows and what it works with."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hushgraph.engines.plan import board_folder, rows_folder, work_folder
from hushgraph.errors import InputError, RunError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Storage:
    """Folders of Parquet that all executors reach, through Hadoop's file systems.

    Args:
        session: of Spark.
        places: where the board is, and what is private: the rows, and what is worked with.
    """

    def __init__(self, session: Any, places: Mapping[str, str]) -> None:
        self.session, self.places = session, places
        jvm = session.sparkContext._jvm
        self._path = jvm.org.apache.hadoop.fs.Path
        settings = session.sparkContext._jsc.hadoopConfiguration()
        self._files = self._path(places["work"]).getFileSystem(settings)

    @classmethod
    def of(cls, session: Any, out: Path, storage: str | None) -> Storage:
        """The folders of a run: in its storage, or the board in its folder and what is private beside it."""
        if storage is not None:
            local = Path(storage.removeprefix("file://")).resolve()
            if local.is_relative_to(out.resolve()):
                raise InputError(
                    f"storage={storage}: it is in the folder of the run, and rows are private; choose "
                    "another folder"
                )
            root = storage.rstrip("/")
            return cls(session, {name: f"{root}/{name}" for name in ("board", "rows", "work")})
        places = {"board": board_folder(out), "rows": rows_folder(out), "work": work_folder(out)}
        return cls(session, {name: path.absolute().as_uri() for name, path in places.items()})

    def check_new(self, out: Path) -> None:
        """Refuse a storage that holds parts of another run."""
        held = [place for name, place in self.places.items() if self.exists(name)]
        if held:
            raise RunError(f"out={out}: {held[0]} holds parts of another run; choose another storage")

    def _place(self, name: str) -> str:
        first, _, rest = name.partition("/")
        return f"{self.places[first]}/{rest}" if rest else self.places[first]

    def write(self, table: DataFrame, name: str) -> None:
        """Write a table; whatever an interrupted call left there goes first."""
        table.write.mode("overwrite").parquet(self._place(name))

    def read(self, name: str) -> DataFrame:
        table: DataFrame = self.session.read.parquet(self._place(name))
        return table

    def exists(self, name: str) -> bool:
        """Whether a folder is there, which a rename gave its name."""
        return bool(self._files.exists(self._path(self._place(name))))

    def rename(self, old: str, new: str) -> None:
        """Release a folder: it is there as a whole or not at all."""
        paths = self._place(old), self._place(new)
        if not self._files.rename(*map(self._path, paths)):
            raise RunError(
                f"{paths[0]} cannot be renamed to {paths[1]}; check permissions, then resume the run"
            )

    def remove(self, name: str) -> None:
        self._files.delete(self._path(self._place(name)), True)
