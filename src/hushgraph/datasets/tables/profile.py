"""What the columns of a table hold: counts per column, from a copy in DuckDB that was read once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from hushgraph.datasets.tables.cells import list_sql
from hushgraph.datasets.tables.node_table import SPLIT_WORDS
from hushgraph.datasets.tables.table import Table

# Columns per query, so that a wide table does not make one query of a million words.
_COLUMNS = 100
_WORDS = [word for words in SPLIT_WORDS for word in words]
_NUMBERS = [word for word in _WORDS if word[0].isdigit()]
# Counts that only columns of nodes need.
_OF_NODES = ("integers", "fractions", "splits", "split_words", "trains")
# Different values are counted exactly where they are few, or where they may be different in every row.
_FEW, _NEARLY_ALL = 2_000, 0.8
# Rows of a table of edges up to which the same holds for it.
_SMALL = 100_000


@dataclass(frozen=True, kw_only=True)
class Profile:
    """Counts of one column. They are private: they go to the owner of the data alone.

    Attributes:
        name: of the column.
        sql: its name in the copy.
        rows: of the table.
        empty: cells that are empty, blank, NaN or a text that counts as missing.
        distinct: different values among the others; an estimate where they are neither few nor nearly as many
            as rows.
        numbers: cells that are finite numbers.
        integers: of these, integers that are at least 0.
        fractions: of these, those that are no integers.
        infinite: cells that are numbers but not finite.
        splits: cells that name a split, by a word or by 0, 1, 2.
        split_words: of these, words.
        trains: of `splits`, training.
        least, most: the range of the numbers.
        can_be_numeric: whether the type of the column allows numbers to be read from it.
        is_scalar: whether its cells are texts, numbers or times, and no lists or other structures.
        is_exact: whether `distinct` is no estimate.
    """

    name: str
    sql: str
    rows: int
    empty: int
    distinct: int
    numbers: int
    integers: int
    fractions: int
    infinite: int
    splits: int
    split_words: int
    trains: int
    least: float | None
    most: float | None
    can_be_numeric: bool
    is_scalar: bool = True
    is_exact: bool = False

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


def copy_table(connection: Any, table: Table, name: str, *, is_numbered: bool = True) -> Table:
    """Copy a table into DuckDB under a name; return it with the options that read it.

    Args:
        connection: a DuckDB connection.
        table: the table.
        name: of the copy.
        is_numbered: whether rows get `row_no`, which takes longer than to read them.
    """
    return table.execute(
        connection,
        lambda each: (
            f"CREATE OR REPLACE TABLE {name} AS SELECT * FROM {each.rows if is_numbered else each.cells}"
        ),
    )


def profile_table(
    connection: Any, table: Table, name: str, missing: tuple[str, ...], *, are_nodes: bool = True
) -> dict[str, Profile]:
    """Count what the columns of a copied table hold; return the counts by column.

    Args:
        connection: a DuckDB connection with the copy.
        table: the table.
        name: of the copy.
        missing: texts that count as an empty cell.
        are_nodes: whether different values are counted exactly where it matters. Otherwise the counts that
            only nodes need are 0.
    """
    (rows,) = connection.execute(f"SELECT count(*) FROM {name}").fetchone()
    profiles: dict[str, Profile] = {}
    kinds = [kind for kind in _count_sql(0, missing) if are_nodes or kind not in _OF_NODES]
    for begin in range(0, len(table.names), _COLUMNS):
        names = table.names[begin : begin + _COLUMNS]
        cells: list[str] = []
        parts: list[str] = []
        numeric: dict[str, bool] = {}
        for number, each in enumerate(names):
            numeric[each] = table.delimiter is not None or table.is_numeric(each)
            parts += _part_sql(table.sql_name(each), number, is_numeric=numeric[each])
            counted = _count_sql(number, missing)
            cells += [counted[kind] for kind in kinds]
        inner = f"(SELECT {', '.join(parts)} FROM {name})"
        values = list(connection.execute(f"SELECT {', '.join(cells)} FROM {inner}").fetchone())
        for column in names:
            counts, values = values[: len(kinds)], values[len(kinds) :]
            profiles[column] = Profile(
                name=column,
                sql=table.sql_name(column),
                rows=rows,
                can_be_numeric=numeric[column],
                is_scalar=table.is_scalar(column),
                **dict.fromkeys(_OF_NODES, 0) | dict(zip(kinds, counts, strict=True)),
            )
    is_exact = are_nodes or rows <= _SMALL
    return _count_exactly(connection, profiles, name, missing) if is_exact else profiles


def _count_exactly(
    connection: Any, profiles: dict[str, Profile], name: str, missing: tuple[str, ...]
) -> dict[str, Profile]:
    """Return profiles with exact counts of different values where they are few or nearly as many as cells."""
    exact = dict(profiles)
    for column, each in profiles.items():
        if each.distinct <= _FEW or each.distinct >= _NEARLY_ALL * each.filled:
            (distinct,) = connection.execute(
                f"SELECT count(DISTINCT CAST({each.sql} AS VARCHAR)) FROM {name} "
                f"WHERE NOT {empty_sql(each.sql, missing)}"
            ).fetchone()
            exact[column] = replace(each, distinct=int(distinct), is_exact=True)
    return exact


def empty_sql(cell: str, missing: tuple[str, ...]) -> str:
    """Return SQL that says whether a cell is empty, blank, NaN or a text that counts as missing."""
    text = f"trim(CAST({cell} AS VARCHAR))"
    return f"({cell} IS NULL OR {text} IN ({list_sql(('', 'nan', 'NaN', *missing))}))"


def _part_sql(cell: str, number: int, *, is_numeric: bool) -> tuple[str, str]:
    """Return the SQL of a cell as trimmed text and as a number, which are computed once."""
    # A date, for example, cannot be cast to a number at all.
    value = f"TRY_CAST({cell} AS DOUBLE)" if is_numeric else "NULL::DOUBLE"
    return f"trim(CAST({cell} AS VARCHAR)) AS t{number}", f"{value} AS n{number}"


def _count_sql(number: int, missing: tuple[str, ...]) -> dict[str, str]:
    """Return the SQL of the counts of a column, by the attribute of `Profile`."""
    text, value = f"t{number}", f"n{number}"
    filled = f"({text} IS NOT NULL AND {text} NOT IN ({list_sql(('', 'nan', 'NaN', *missing))}))"
    is_number = f"{filled} AND {value} IS NOT NULL AND isfinite({value})"
    split = f"{filled} AND length({text}) < 12 AND lower({text}) IN ({list_sql(_WORDS)})"
    counted = {
        "empty": f"NOT {filled}",
        "numbers": is_number,
        "integers": f"{is_number} AND {value} >= 0 AND {value} = floor({value})",
        "fractions": f"{is_number} AND {value} <> floor({value})",
        "infinite": f"{filled} AND isinf({value})",
        "splits": split,
        "split_words": f"{split} AND lower({text}) NOT IN ({list_sql(_NUMBERS)})",
        "trains": f"{filled} AND lower({text}) IN ({list_sql(SPLIT_WORDS[0])})",
    }
    return {name: f"count(*) FILTER (WHERE {condition})" for name, condition in counted.items()} | {
        "distinct": f"approx_count_distinct({text}) FILTER (WHERE {filled})",
        "least": f"min({value}) FILTER (WHERE {is_number})",
        "most": f"max({value}) FILTER (WHERE {is_number})",
    }
