"""Problems of tables, and what every search for them uses."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from hushgraph._text import suggest
from hushgraph.datasets.tables.cells import list_sql
from hushgraph.datasets.tables.profile import Profile, empty_sql
from hushgraph.datasets.tables.roles import MOST_CATEGORIES, Roles
from hushgraph.datasets.tables.table import Table
from hushgraph.errors import GraphError
from hushgraph.graph.cell_rules import LOOKED_UP
from hushgraph.graph.columns import Columns

EXAMPLES = 3
"""How many examples a problem shows."""


# The copies of both tables, and the edges by the numbers of their ends.
_COPIES = ("raw_nodes", "raw_edges", "linked")


def show_cell(text: str | None) -> str:
    """A cell as an example."""
    return "empty" if text is None else repr(text[:40])


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One problem.

    Attributes:
        where: table and column.
        what: in words, with the count.
        count: of cells, rows or edges.
        examples: a few of them.
        remedy: what takes care of it, or what to do.
        stops: whether training is refused until the tables, or a flag, are changed.
    """

    where: str
    what: str
    count: int
    examples: tuple[str, ...] = ()
    remedy: str
    stops: bool = False

    def to_text(self) -> str:
        """Return the problem in one line."""
        is_cut = len(self.examples) == EXAMPLES < self.count
        shown = f" ({', '.join(self.examples)}{', ...' if is_cut else ''})"
        mark = "STOPS TRAINING: " if self.stops else ""
        return f"{mark}{self.where}: {self.what}{shown if self.examples else ''}; {self.remedy}"


@dataclass
class Listing:
    """Problems, and what a proposal needs because of them.

    Attributes:
        problems: in the order of the tables.
        changes: settings that differ from the first proposal.
        declared: settings that list values of the data, for the owner to declare.
        asked: settings of the task, those given and those that labels ask for.
        looked_up: what of `asked` was read off rows: "task", "bounds" or "rare".
    """

    problems: list[Problem] = field(default_factory=list)
    changes: dict[str, Any] = field(default_factory=dict)
    declared: dict[str, Any] = field(default_factory=dict)
    asked: dict[str, Any] = field(default_factory=dict)
    looked_up: list[str] = field(default_factory=list)


class Finder:
    """Tables, their profiles and roles, and the problems found so far."""

    def __init__(
        self,
        connection: Any,
        tables: tuple[Table, Table],
        profiles: tuple[Mapping[str, Profile], Mapping[str, Profile]],
        roles: Roles,
        settings: dict[str, Any],
        missing: tuple[str, ...],
    ) -> None:
        self.connection, self.roles, self.settings, self.missing = connection, roles, settings, missing
        self.tables, self.profiles = tables, profiles
        self.listing = Listing()
        rules = ("numbers", "dates")
        names = [name for kind in rules for name in LOOKED_UP[kind]]
        # A format may be that of the dates of edges.
        names += ["edge_date", "since", "until", "half_life"]
        self.rules = Columns(**{name: settings[name] for name in names if name in settings})

    def _profile(self, place: int, name: str | None) -> Profile | None:
        return None if name is None else self.profiles[place].get(name)

    def _filled(self, profile: Profile) -> str:
        return f"NOT {empty_sql(profile.sql, self.missing)}"

    def _outside(self, profile: Profile, values: Iterable[str]) -> str:
        """SQL that says whether a cell holds something else than these values."""
        return f"{self._filled(profile)} AND CAST({profile.sql} AS VARCHAR) NOT IN ({list_sql(values)})"

    def _count(self, condition: str, source: str = _COPIES[0]) -> int:
        (count,) = self.connection.execute(f"SELECT count(*) FROM {source} WHERE {condition}").fetchone()
        return int(count)

    def _values(
        self, profile: Profile, condition: str = "", *, most: int = MOST_CATEGORIES, place: int = 0
    ) -> list[str]:
        """Return the different values of a column in order, where a condition holds; of many, the first."""
        texts = self.connection.execute(
            f"SELECT DISTINCT CAST({profile.sql} AS VARCHAR) FROM {_COPIES[place]} WHERE "
            f"{condition or self._filled(profile)} ORDER BY 1 LIMIT {most}"
        ).fetchall()
        return [str(text) for (text,) in texts]

    def _report(
        self,
        profile: Profile | None,
        condition: str,
        what: str,
        remedy: str,
        *,
        place: int = 0,
        show: Literal["cells", "rows", "values"] = "cells",
        stops: bool = False,
    ) -> int:
        """Add a problem with the first cells where a condition holds; return how many there are.

        Args:
            profile: of the column; None for the names of ends in the table `linked`.
            condition: in SQL.
            what, remedy, stops: as in `Problem`; `what` has places for how many, a plural and its verb.
            place: 0 for nodes, 1 for edges.
            show: what examples are: cells, the rows of nodes that they are in, or different values in order.
        """
        source = _COPIES[place] if profile else _COPIES[2]
        count = self._count(condition, source)
        if not count:
            return 0
        if profile and show == "values":
            examples = tuple(map(repr, self._values(profile, condition, most=EXAMPLES)))
        else:
            order = "rowid" if profile else "row_no"
            shown = "row_no" if show == "rows" else f"CAST({profile.sql if profile else 'name'} AS VARCHAR)"
            first = self.connection.execute(
                f"SELECT {shown} FROM {source} WHERE {condition} ORDER BY {order} LIMIT {EXAMPLES}"
            ).fetchall()
            name = self.tables[0].row_name if show == "rows" else show_cell
            examples = tuple(name(each) for (each,) in first)
        # Of one, `{s}` of a noun is empty and that of a verb, `{v}`, is not.
        one = {"s": "", "v": "s", "are": "is", "have": "has", "numbers": "a number"}
        many = {"s": "s", "v": "", "are": "are", "have": "have", "numbers": "numbers"}
        what = what.format(f"{count:,}", **(one if count == 1 else many))
        self._add(place, profile.name if profile else "", what, count, remedy, examples, stops=stops)
        return count

    def _check_type(self, place: int, name: str | None, role: str, check: Callable[[str, str], None]) -> None:
        """Add the problem that a column has a type that its role does not allow."""
        if name is None or name not in self.profiles[place]:
            return
        try:
            check(name, role)
        except GraphError as error:
            told = str(error).removeprefix(f"{self.tables[place].shown}: column {name!r}, ")
            what, _, remedy = told.partition("; ")
            self._add(place, name, what, 1, remedy, stops=True)

    def _add_unknown(self, place: int, name: str, key: str) -> None:
        """Add the problem that a setting names a column that is not there."""
        near = suggest(name, self.profiles[place])
        self._add(place, name, f"no such column, given as {key}", 1, f"correct the name{near}", stops=True)

    def _add(
        self,
        place: int,
        column: str,
        what: str,
        count: int,
        remedy: str,
        examples: tuple[str, ...] = (),
        *,
        stops: bool = False,
    ) -> None:
        table = self.tables[place].short_name
        where = f"{table}, column {column!r}" if column else table
        self.listing.problems.append(
            Problem(where=where, what=what, count=count, remedy=remedy, examples=examples, stops=stops)
        )
