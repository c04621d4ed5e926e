"""What the columns of a table hold: counts per column, from a copy in DuckDB that was read once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hushgraph.datasets.tables.node_table import SPLIT_WORDS
from hushgraph.datasets.tables.table import Table

# Columns per query, so that a wide table does not make one query of a million words.
_COLUMNS = 100
_WORDS = [word for words in SPLIT_WORDS for word in words]
_NUMBERS = [word for word in _WORDS if word[0].isdigit()]
_COUNTS = (
    *("empty", "distinct", "numbers", "integers", "infinite"),
    *("splits", "split_words", "trains", "least", "most"),
)


@dataclass(frozen=True, kw_only=True)
class Profile:
    """Counts of one column. They are private: they go to the owner of the data alone.

    Attributes:
        name: of the column.
        sql: its name in the copy.
        rows: of the table.
        empty: cells that are empty, blank, NaN or a text that counts as missing.
        distinct: different values among the others.
        numbers: cells that are finite numbers.
        integers: of these, integers that are at least 0.
        infinite: cells that are numbers but not finite.
        splits: cells that name a split, by a word or by 0, 1, 2.
        split_words: of these, words.
        trains: of `splits`, training.
        least, most: the range of the numbers.
        can_be_numeric: whether the type of the column allows numbers to be read from it.
    """

    name: str
    sql: str
    rows: int
    empty: int
    distinct: int
    numbers: int
    integers: int
    infinite: int
    splits: int
    split_words: int
    trains: int
    least: float | None
    most: float | None
    can_be_numeric: bool

    @property
    def filled(self) -> int:
        """Cells that are not empty."""
        return self.rows - self.empty

    @property
    def is_unique(self) -> bool:
        """Whether every cell holds a value that no other cell holds."""
        return self.rows > 0 and self.empty == 0 and self.distinct == self.rows

    @property
    def is_number(self) -> bool:
        """Whether nine cells of ten that are not empty hold numbers."""
        numeric = self.numbers + self.infinite
        return self.can_be_numeric and self.filled > 0 and numeric * 10 >= self.filled * 9

    @property
    def holds_splits(self) -> bool:
        """Whether it holds nothing but words for splits."""
        return self.filled > 0 and self.splits == self.split_words == self.filled and self.trains > 0

    @property
    def holds_split_numbers(self) -> bool:
        """Whether it holds nothing but words for splits or 0, 1, 2."""
        return self.filled > 0 and self.splits == self.filled and self.trains > 0


def copy_table(connection: Any, table: Table, name: str) -> Table:
    """Copy a table into DuckDB under a name, with `row_no`; return it with the options that read it."""
    return table.execute(
        connection, lambda each: f"CREATE OR REPLACE TABLE {name} AS SELECT * FROM {each.rows}"
    )


def profile_table(connection: Any, table: Table, name: str, missing: tuple[str, ...]) -> dict[str, Profile]:
    """Count what the columns of a copied table hold; return the counts by column."""
    (rows,) = connection.execute(f"SELECT count(*) FROM {name}").fetchone()
    profiles: dict[str, Profile] = {}
    for begin in range(0, len(table.names), _COLUMNS):
        names = table.names[begin : begin + _COLUMNS]
        cells = [expression for each in names for expression in _count_sql(table.sql_name(each), missing)]
        values = list(connection.execute(f"SELECT {', '.join(cells)} FROM {name}").fetchone())
        for column in names:
            counts, values = values[: len(_COUNTS)], values[len(_COUNTS) :]
            profiles[column] = Profile(
                name=column,
                sql=table.sql_name(column),
                rows=rows,
                can_be_numeric=table.delimiter is not None or table.is_numeric(column),
                **dict(zip(_COUNTS, counts, strict=True)),
            )
    return profiles


def empty_sql(cell: str, missing: tuple[str, ...]) -> str:
    """Return SQL that says whether a cell is empty, blank, NaN or a text that counts as missing."""
    text = f"trim(CAST({cell} AS VARCHAR))"
    return f"({cell} IS NULL OR {text} IN ({list_sql(('', 'nan', 'NaN', *missing))}))"


def list_sql(texts: tuple[str, ...] | list[str]) -> str:
    """Return texts as SQL strings between commas."""
    return ", ".join("'" + text.replace("'", "''") + "'" for text in texts)


def _count_sql(cell: str, missing: tuple[str, ...]) -> list[str]:
    """Return the SQL of the counts of a column, in the order of `_COUNTS`."""
    empty, number = empty_sql(cell, missing), f"TRY_CAST({cell} AS DOUBLE)"
    word = f"lower(trim(CAST({cell} AS VARCHAR)))"
    is_number = f"NOT {empty} AND {number} IS NOT NULL AND isfinite({number})"
    split = f"NOT {empty} AND {word} IN ({list_sql(_WORDS)})"
    return [
        f"count(*) FILTER (WHERE {empty})",
        f"count(DISTINCT CASE WHEN NOT {empty} THEN CAST({cell} AS VARCHAR) END)",
        f"count(*) FILTER (WHERE {is_number})",
        f"count(*) FILTER (WHERE {is_number} AND {number} >= 0 AND {number} = floor({number}))",
        f"count(*) FILTER (WHERE NOT {empty} AND isinf({number}))",
        f"count(*) FILTER (WHERE {split})",
        f"count(*) FILTER (WHERE {split} AND {word} NOT IN ({list_sql(_NUMBERS)}))",
        f"count(*) FILTER (WHERE {word} IN ({list_sql(SPLIT_WORDS[0])}))",
        f"min(CASE WHEN {is_number} THEN {number} END)",
        f"max(CASE WHEN {is_number} THEN {number} END)",
    ]
