"""A billboard run on Spark: DataFrames in, a released board and rows of readings out.

    nodes, edges -> charge -> records -> tallies on disk -> board, released once -> readings -> rows

Tasks may fail, be repeated, or run twice at the same time. Integer tallies are therefore written before any
noise is drawn, and noise is drawn within tasks from a key that the driver draws for this one release: whoever
repeats a task adds the same noise to the same tally. The key is in no file, configuration or plan of ours.

Parts of the board are files while tasks still run. So the ledger says that the release has begun before the
first task does, and no driver ever draws a second key under that charge: one that starts again takes over a
complete board, and anything else ends the run.

Spark keeps the key, like the records themselves, in its own memory and scratch space while the job runs.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hushgraph.billboard.ballots import Int64Array
from hushgraph.billboard.board import release
from hushgraph.engines.plan import (
    BOARD,
    SPLITS,
    begin_run,
    board_noise,
    check_engine_settings,
    check_new,
    check_same_nodes,
    describe_run,
    open_begun,
    released_std,
    resolve_columns,
    with_engine_settings,
)
from hushgraph.engines.spark_storage import Storage
from hushgraph.engines.sums import add_entries, read_rows, weigh_places
from hushgraph.errors import GraphError
from hushgraph.graph.columns import Columns
from hushgraph.noise import normal
from hushgraph.noise.normal import KEY_BYTES, seeded_keys
from hushgraph.noise.rounded import Draws
from hushgraph.privacy import choices
from hushgraph.privacy.ledger import Ledger
from hushgraph.runs.folder import RunFolder
from hushgraph.training.source import check_release, incomplete_error, release_board

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import Column, DataFrame

DrawsOfPart = Callable[[bytes, int], Draws]
"""From the key of a release and the number of a part to the draws of that part."""

_ENGINE = "spark"
# Places whose noise is drawn together.
_PLACES_PER_PART = 1 << 16
_INTEGERS = ("tinyint", "smallint", "int", "bigint")


def draws_of_part(key: bytes, part: int) -> Draws:
    """Draws that depend on the key and the part alone, so that a repeated task repeats them."""
    return partial(normal.draw, keys=seeded_keys(f"part {part} of {key.hex()}"))


@dataclass(frozen=True, kw_only=True)
class SparkRows:
    """What a run on Spark leaves.

    Attributes:
        folder: of the run: plan, configuration and ledger.
        board: identifier and one number per class; released.
        rows: identifier, features, reading, label, split; private, for training.
    """

    folder: RunFolder
    board: DataFrame
    rows: DataFrame


@with_engine_settings
def make_rows(
    nodes: DataFrame,
    edges: DataFrame,
    out: str | os.PathLike[str],
    *,
    storage: str | None = None,
    draws: DrawsOfPart = draws_of_part,
    **settings: Any,
) -> SparkRows:
    """Cast and read the board of a run on Spark; training can begin after it.

    After a failure `resume_rows` goes on. A call that is refused leaves nothing behind.

    Args:
        nodes, edges: the two tables.
        out: the folder of the run, on the driver's disk, which must be new or empty: plan and ledger.
        storage: a folder that all executors reach and that renames folders at once, such as one of HDFS, for
            `board`, `rows` and, meanwhile, `work`. Unless given, the board is in `out`, and `OUT.rows` and
            `OUT.work` are beside it.
        draws: the randomness of a part of the board.
        settings: listed below, as in `hushgraph.engines.make_rows`.

    Guarantees:
        The tally is the sum of integer ballots, exactly that of `hushgraph.billboard.board.cast`. The
        charge is in the ledger before noise is drawn, and once. Every cell of a release has one draw, however
        often its task is run; no key is used for two tallies, and no second key under one charge. A board
        whose release has begun is never made again: one that is missing, not complete or another ends the
        run.
    """
    check_new(Path(out))
    full = check_engine_settings(settings)
    maker = _Maker.of(
        nodes,
        edges,
        full["edge_owner"],
        **{name: full[name] for name in ("symmetrize", "columns", "num_classes")},
    )
    folder = describe_run(Path(out), maker, full, data="DataFrame")
    place = Storage.of(nodes.sparkSession, folder.path, storage)
    place.check_new(folder.path)
    with begin_run(folder, engine=_ENGINE, storage=storage) as ledger:
        return maker.run(folder, ledger, place, draws)


def resume_rows(path: str | os.PathLike[str], nodes: DataFrame, edges: DataFrame) -> SparkRows:
    """Go on with `make_rows` in the folder that it began, with the settings and the storage of that run.

    Args:
        path: the folder of the run.
        nodes, edges: the same tables as before. Other training nodes, or numbers of nodes or features, are
            refused; values are not compared.

    Guarantees:
        Those of `make_rows`: one charge, one release.
    """
    folder, storage = open_begun(path, engine=_ENGINE)
    maker = _Maker.of(
        nodes,
        edges,
        folder.plan.edge_owner,
        symmetrize=folder.config.symmetrize,
        columns=folder.columns,
        num_classes=folder.num_classes,
    )
    check_same_nodes(folder, split_id=maker.split_id(), num_features=len(maker.features))
    with folder.go_on() as ledger:
        return maker.run(folder, ledger, Storage.of(nodes.sparkSession, folder.path, storage), draws_of_part)


@dataclass(frozen=True, kw_only=True)
class _Maker:
    """The tables, and the phases of a run on them."""

    nodes: DataFrame
    edges: DataFrame
    edge_owner: choices.EdgeOwner
    symmetrize: bool
    columns: Columns
    num_classes: int

    @classmethod
    def of(
        cls,
        nodes: DataFrame,
        edges: DataFrame,
        edge_owner: choices.EdgeOwner,
        *,
        symmetrize: bool,
        columns: Columns | Mapping[str, Any] | None,
        num_classes: int | None,
    ) -> _Maker:
        """Check the columns and what can be checked of their cells."""
        given, num_classes = resolve_columns(columns, num_classes)
        given = given.resolve_names(nodes.columns)
        roles = [(nodes, given.id), (nodes, given.label), (nodes, given.split or "split")]
        roles += [(nodes, name) for name in given.features or ()]
        for table, name in [*roles, (edges, given.source), (edges, given.target)]:
            if name not in table.columns:
                raise GraphError(f"no column {name!r}; the table has {', '.join(table.columns[:8])}")
        maker = cls(
            nodes=nodes,
            edges=edges,
            edge_owner=edge_owner,
            symmetrize=symmetrize,
            columns=given,
            num_classes=num_classes,
        )
        maker._check_cells()
        return maker

    @property
    def features(self) -> tuple[str, ...]:
        """The names of the feature columns, in order."""
        return tuple(self.columns.features or ())

    @property
    def num_nodes(self) -> int:
        """N, the number of rows of the node table."""
        return int(self.nodes.count())

    @property
    def _kind(self) -> str:
        """Identifiers are compared as integers where all three columns hold some, else as text."""
        types = (
            dict(self.nodes.dtypes)[self.columns.id],
            *(dict(self.edges.dtypes)[name] for name in (self.columns.source, self.columns.target)),
        )
        return "bigint" if all(kind in _INTEGERS for kind in types) else "string"

    def _id(self, name: str) -> Column:
        from pyspark.sql import functions as f

        return f.col(f"`{name}`").cast(self._kind)

    @property
    def _split(self) -> Column:
        from pyspark.sql import functions as f

        return f.col(f"`{self.columns.split}`").cast("string")

    @property
    def _label(self) -> Column:
        """The class of a node: its number, -1 for an empty cell, NULL for anything else."""
        from pyspark.sql import functions as f

        cell = f.col(f"`{self.columns.label}`")
        if self.columns.classes is not None:
            names = f.array(*(f.lit(name) for name in self.columns.classes))
            at = f.array_position(names, cell.cast("string")).cast("int") - 1
            number = f.when(at >= 0, at)
        else:
            text = f.expr(f"try_cast(`{self.columns.label}` AS int)")
            number = f.when((text >= 0) & (text < self.num_classes), text)
        return f.when(cell.isNull(), f.lit(-1)).otherwise(number)

    def _check_cells(self) -> None:
        """Refuse identifiers that are empty or repeated, cells that cannot be used, and unknown ends."""
        from pyspark.sql import functions as f

        checks = {
            "rows without an identifier": f.count(f.when(self._id(self.columns.id).isNull(), 1)),
            "rows whose split is not train, val or test": f.count(f.when(~self._split.isin(*SPLITS), 1)),
            "training labels that are no class": f.count(
                f.when((self._split == "train") & self._label.isNull(), 1)
            ),
            "rows that repeat an identifier": f.count("*") - f.countDistinct(self._id(self.columns.id)),
        }
        for name in self.features:
            number = f.expr(f"try_cast(`{name}` AS float)")
            wrong = number.isNull() | f.isnan(number) | (f.abs(number) == float("inf"))
            checks[f"cells of {name!r} that are not finite numbers"] = f.count(f.when(wrong, 1))
        [counts] = self.nodes.agg(*checks.values()).collect()
        problems = [f"{count} {what}" for what, count in zip(checks, counts, strict=True) if count]
        ids = self.nodes.select(self._id(self.columns.id).alias("id"))
        for end in (self.columns.source, self.columns.target):
            ends = self.edges.select(self._id(end).alias("id"))
            unknown = ends.join(ids, "id", "left_anti").count()
            if unknown:
                problems.append(f"{unknown} edges whose {end!r} is not in the node table")
        if problems:
            raise GraphError(f"{'; '.join(problems)}; correct them")

    def run(self, folder: RunFolder, ledger: Ledger, place: Storage, draws: DrawsOfPart) -> SparkRows:
        """Charge and release the board, write the rows; what is there is used as it is.

        The ledger is locked: nobody else overwrites the tallies that the key is for.
        """
        release_board(folder, _Boards(self, folder, place, draws), ledger, 0)
        if not place.exists("rows"):
            self.sort_out_records(place)
            self.write_rows(place, folder)
            place.rename("work/rows", "rows")
        place.remove("work")
        return SparkRows(folder=folder, board=place.read("board"), rows=place.read("rows"))

    def digest_board(self, board: DataFrame, noise_std: float) -> str:
        """Tell boards apart, whatever order their rows are in.

        The digest of the digests of parts: in each, identifiers are in order.
        """
        from pyspark.sql import functions as f

        name, parts = self.columns.id, self._num_parts(board)
        part = f.pmod(f.xxhash64(f"`{name}`"), f.lit(parts)).cast("int").alias("part")
        digests = (
            board.select("*", part)
            .groupBy("part")
            .applyInPandas(lambda table: _digest_part(table, name), "part int, digest string")
        )
        rows = sorted((row["part"], row["digest"]) for row in digests.collect())
        return sha256(f"{released_std(noise_std).hex()} {rows}".encode()).hexdigest()

    @staticmethod
    def _num_parts(nodes: DataFrame) -> int:
        """How many parts the places of these nodes are cut into."""
        return max(1, -(-int(nodes.count()) // _PLACES_PER_PART))

    def count_training_nodes(self) -> int:
        """How many nodes are in the training split, which is public."""
        count = self.nodes.where(self._split == "train").count()
        if not count:
            raise GraphError("no node is in the training split; expected 'train' in the split column")
        return int(count)

    def split_id(self) -> str:
        """A digest of which nodes are in the training split, in any order."""
        from pyspark.sql import functions as f

        hashed = f.xxhash64(self._id(self.columns.id), self._split == "train").cast("decimal(38,0)")
        [row] = self.nodes.agg(f.count("*"), f.sum(hashed)).collect()
        return sha256(f"{row[0]} {row[1]}".encode()).hexdigest()[:32]

    def sort_out_records(self, place: Storage) -> None:
        """Write (owner, place) without repeats and self-loops, unless they are there. Private."""
        from pyspark.sql import functions as f

        if place.exists("work/records/_SUCCESS"):
            return
        ends = (self.columns.source, self.columns.target)
        owner, listed = ends if self.edge_owner == "sender" else ends[::-1]
        records = self.edges.select(self._id(owner).alias("owner"), self._id(listed).alias("place"))
        if self.symmetrize:
            records = records.union(records.select("place", "owner"))
        place.write(records.where(f.col("owner") != f.col("place")).distinct(), "work/records")

    def _lists(self, place: Storage) -> DataFrame:
        """(id, size, label) of every node: how many places it lists, and its training label or -1."""
        from pyspark.sql import functions as f

        sizes = place.read("work/records").groupBy(f.col("owner").alias("id")).agg(f.count("*").alias("size"))
        label = f.when(self._split == "train", self._label).otherwise(f.lit(-1)).alias("label")
        nodes = self.nodes.select(self._id(self.columns.id).alias("id"), label)
        return nodes.join(sizes, "id", "left").fillna(0, ["size"]).select("id", "size", "label")

    def write_tallies(self, place: Storage) -> None:
        """Write the tally of every place, in integers. Private; noise is added to what is on disk."""
        from pyspark.sql import functions as f

        c = self.num_classes
        voters = self._lists(place).where("label >= 0 AND size > 0")
        entries = partial(add_entries, num_classes=c)
        ballots = voters.mapInPandas(entries, f"owner {self._kind}, label int, gain bigint, rest bigint")
        by_class = (
            place.read("work/records")
            .join(ballots, "owner")
            .groupBy("place", "label")
            .agg(f.sum("gain").alias("gain"), f.sum("rest").alias("rest"))
        )
        gains = [f.sum(f.when(f.col("label") == k, f.col("gain")).otherwise(0)) for k in range(c)]
        cells = [(gain - f.sum("rest")).alias(f"tally_{k}") for k, gain in enumerate(gains)]
        tallies = by_class.groupBy(f.col("place").alias("id")).agg(*cells)
        ids = self.nodes.select(self._id(self.columns.id).alias("id"))
        part = f.pmod(f.xxhash64("id"), f.lit(self._num_parts(ids))).cast("int").alias("part")
        place.write(
            ids.join(tallies, "id", "left").fillna(0).select("id", part, *self._tallies), "work/tallies"
        )

    @property
    def _tallies(self) -> list[str]:
        return [f"tally_{k}" for k in range(self.num_classes)]

    def write_board(self, place: Storage, noise_std: float, draws: DrawsOfPart, *, key: bytes) -> None:
        """Write tallies with noise; `key` is for this one release."""
        name = self.columns.id
        schema = f"`{name}` {self._kind}, " + ", ".join(f"class_{k} float" for k in range(self.num_classes))
        parts = place.read("work/tallies").groupBy("part")
        # A lambda shows nothing of the key; a partial would, in warnings of Spark's.
        noisy = parts.applyInPandas(lambda table: _release_part(table, name, noise_std, draws, key), schema)
        place.write(noisy, "work/board")

    def write_rows(self, place: Storage, folder: RunFolder) -> None:
        """Write identifier, features, reading, label and split of every node. Private."""
        from pyspark.sql import functions as f

        c, config = self.num_classes, folder.config
        std = released_std(board_noise(folder))
        values = [f"value_{k}" for k in range(c)]
        weigh = partial(weigh_places, name=self.columns.id, noise_std=std)
        columns = ", ".join(f"{value} double" for value in values)
        board = place.read("board").mapInPandas(weigh, f"place {self._kind}, weight double, {columns}")
        weight = f.col("weight")
        sums = [f.sum(weight * f.col(value)).alias(value) for value in values]
        seen = (
            place.read("work/records")
            .join(board, "place")
            .groupBy(f.col("owner").alias("id"))
            .agg(f.sum(weight * weight).alias("square"), f.sum(weight).alias("own_weight"), *sums)
        )
        lists = self._lists(place).join(seen, "id", "left").fillna(0)
        read = partial(
            read_rows,
            num_classes=c,
            noise_std=std,
            scale=config.reading_scale,
            radius=config.reading_radius,
        )
        readings = ", ".join(f"reading_{k} float" for k in range(c))
        finished = lists.mapInPandas(read, f"id {self._kind}, {readings}")
        own = [
            self._id(self.columns.id).alias("id"),
            *(f.col(f"`{name}`").cast("float").alias(name) for name in self.features),
            f.coalesce(self._label, f.lit(-1)).alias("label"),
            self._split.alias("split"),
        ]
        names = [*self.features, *(f"reading_{k}" for k in range(c)), "label", "split"]
        rows = self.nodes.select(*own).join(finished, "id")
        place.write(rows.select(f.col("id").alias(self.columns.id), *names), "work/rows")


@dataclass(frozen=True)
class _Boards:
    """The board of a run on Spark, in its storage."""

    maker: _Maker
    folder: RunFolder
    storage: Storage
    draws: DrawsOfPart

    def find_board(self, place: int, ledger: Ledger) -> bool:
        """See `BoardSource`; a complete board that a kill kept from its name gets it."""
        if self.storage.exists("board"):
            self._check("board", ledger)
            return True
        if self.storage.exists("work/board/_SUCCESS"):
            self._publish(ledger)
            return True
        if self.storage.exists("work/board"):
            raise incomplete_error(self.storage.places["work"], BOARD)
        ledger.check_unreleased(BOARD)
        return False

    def make_board(self, place: int, ledger: Ledger) -> None:
        """See `BoardSource`; parts are files while tasks run, so the ledger says it before they begin."""
        self.maker.sort_out_records(self.storage)
        self.maker.write_tallies(self.storage)
        ledger.record_release(BOARD, None)
        key = secrets.token_bytes(KEY_BYTES)
        self.maker.write_board(self.storage, board_noise(self.folder), self.draws, key=key)
        self._publish(ledger)

    def _publish(self, ledger: Ledger) -> None:
        self._check("work/board", ledger)
        self.storage.rename("work/board", "board")

    def _check(self, name: str, ledger: Ledger) -> None:
        digest = self.maker.digest_board(self.storage.read(name), board_noise(self.folder))
        check_release(ledger, BOARD, digest)


def _release_part(
    table: pd.DataFrame, name: str, noise_std: float, draws: DrawsOfPart, key: bytes
) -> pd.DataFrame:
    """The noisy numbers of one part. Cells are in the order of identifiers, whatever order rows came in."""
    table = table.sort_values("id", ignore_index=True)
    names = [column for column in table.columns if column.startswith("tally_")]
    tally: Int64Array = np.ascontiguousarray(table[names].to_numpy(np.int64))
    board = release(tally, noise_std=noise_std, draws=draws(key, int(table["part"].iloc[0])))
    cells = {f"class_{k}": board.values[:, k] for k in range(board.width)}
    return table[["id"]].rename(columns={"id": name}).assign(**cells)


def _digest_part(table: pd.DataFrame, name: str) -> pd.DataFrame:
    """The digest of one part of a board."""
    table = table.sort_values(name, ignore_index=True)
    names = sorted(column for column in table.columns if column.startswith("class_"))
    digest = sha256("\n".join(map(str, table[name])).encode())
    for column in names:
        digest.update(np.ascontiguousarray(table[column].to_numpy(np.float32), "<f4").data)
    return table[["part"]][:1].assign(digest=digest.hexdigest())
