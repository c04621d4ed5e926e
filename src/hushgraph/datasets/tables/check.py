"""`check`: what the columns of tables look like, every problem at once, and a graph.toml to go on from."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

from hushgraph._files import write_whole
from hushgraph.datasets.paths import format_path
from hushgraph.datasets.tables.files import MAPPING, TableFiles, find_tables, is_tables, sniff_delimiter
from hushgraph.datasets.tables.problems import Problem, list_problems
from hushgraph.datasets.tables.profile import Profile, copy_table, profile_table
from hushgraph.datasets.tables.reading import open_database, open_pair
from hushgraph.datasets.tables.roles import BUCKETS, RoleGuess, Roles
from hushgraph.errors import GraphError, InputError
from hushgraph.graph.columns import Columns, merge_columns

PRIVATE = "This shows private data. It is for the owner of the data alone: do not share it."
# Texts that usually mean an empty cell. A fixed list: collecting such texts from the data would publish them.
MISSING = ("NA", "N/A", "n/a", "NULL", "null", "None", "?", "-")
_ROLES = ("id", "label", "split", "source", "target")


@dataclass(frozen=True, kw_only=True)
class ColumnCheck:
    """One column.

    Attributes:
        table: "nodes" or "edges".
        name: of the column.
        looks_like: "id", "label", "split", "number", "category", "text", "weight", "source", "target" or a
            reason to leave it out.
        holds: its range or its number of values, and how many cells are empty; private.
    """

    table: str
    name: str
    looks_like: str
    holds: str


@dataclass(frozen=True, kw_only=True)
class Check:
    """The result of `check`. All but `settings` is private: it shows what single rows hold.

    Attributes:
        tables: the names of the two tables, nodes first.
        rows: their numbers of rows.
        columns: their columns.
        problems: everything that stands in the way, or that a rule of `settings` takes care of.
        settings: the fields of `Columns` to go on with; names of columns and fixed rules alone.
        declared: more fields, which list values of the data; to use them is to declare these values public.
        data: DATA of the next command; None for DataFrames.
        files: the two files; None for DataFrames.
        mapping: the TOML file that was read, if there is one.

    Examples:
        >>> from pathlib import Path
        >>> import hushgraph as hg
        >>> Path("people").mkdir()
        >>> _ = Path("people/nodes.csv").write_text("id,age,label\\na,1,0\\nb,2,1\\n")
        >>> _ = Path("people/edges.csv").write_text("source,target\\na,b\\n")
        >>> hg.check("people").to_columns().unknown_ids
        'drop'
    """

    tables: tuple[str, str]
    rows: tuple[int, int]
    columns: tuple[ColumnCheck, ...]
    problems: tuple[Problem, ...]
    settings: Mapping[str, Any]
    declared: Mapping[str, Any] = field(default_factory=dict)
    data: str | None = None
    files: tuple[Path, Path] | None = None
    mapping: Path | None = None

    @property
    def missing_roles(self) -> tuple[str, ...]:
        """Roles that no column has and that training needs."""
        words = {column.looks_like for column in self.columns}
        return tuple(role for role in ("id", "label", "source", "target") if role not in words)

    @property
    def can_train(self) -> bool:
        """Whether nothing has to be corrected in the tables before training."""
        return not any(problem.stops for problem in self.problems)

    def to_columns(self) -> Columns:
        """Return the columns to train with, as `hushgraph.train` takes them."""
        return Columns.of({**self.settings, **self.declared})

    def next_command(self) -> str:
        """Return the command, or the Python call, that trains with these settings."""
        if self.data is None:
            return "hg.train(data, epsilon=4.0, columns=checked.to_columns())"
        flags = [f"--{name} {shlex.quote(','.join(values))}" for name, values in self.declared.items()]
        return " ".join(["hushgraph train", shlex.quote(self.data), "--epsilon 4", *flags])

    def to_toml(self) -> str:
        """Return graph.toml: names of columns and rules, with a comment each, and no value of the data."""
        from hushgraph.datasets.tables.proposal import format_proposal

        return format_proposal(self)

    def target(self) -> Path:
        """Return the path of the TOML file that belongs to these tables, whether or not it exists."""
        if self.files is None:
            raise InputError("path: DataFrames have no folder; name the file to write")
        return self.mapping or self.files[0].parent / MAPPING

    def write(self, path: str | PathLike[str] | None = None, *, force: bool = False) -> Path:
        """Write graph.toml beside the tables, or to `path`; a file that is there is kept unless `force`.

        Returns:
            The path that was written.
        """
        target = self.target() if path is None else Path(path)
        if target.exists() and not force:
            raise InputError(
                f"{format_path(target)}: it is there already; give force (--force) to replace it"
            )
        write_whole(target, self.to_toml().encode())
        return target

    def to_json(self) -> dict[str, Any]:
        """Return everything as JSON values, the private figures included."""
        return {
            "private": PRIVATE,
            "can_train": self.can_train,
            "tables": dict(zip(("nodes", "edges"), self.tables, strict=True)),
            "rows": dict(zip(("nodes", "edges"), self.rows, strict=True)),
            "columns": [asdict(column) for column in self.columns],
            "problems": [asdict(problem) for problem in self.problems],
            "settings": json.loads(json.dumps(dict(self.settings))),
            "declared": {name: list(values) for name, values in self.declared.items()},
            "next": self.next_command(),
        }

    def to_text(self) -> str:
        """Return everything as text for the owner's terminal."""
        lines = [PRIVATE]
        width = max(len(column.name) for column in self.columns)
        for place, table in enumerate(("nodes", "edges")):
            lines += ["", f"{self.tables[place]}: {self.rows[place]:,} rows"]
            for each in self.columns:
                if each.table == table:
                    lines.append(f"  {each.name:<{width}}  {each.looks_like:<13}  {each.holds}".rstrip())
        lines += ["", "Problems:" if self.problems else "No problems."]
        lines += [f"  {number}. {each.to_text()}" for number, each in enumerate(self.problems, start=1)]
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.to_text()

    def __repr__(self) -> str:
        # What a notebook shows at the end of a cell, and saves: no private figure.
        return f"Check({self.tables[0]}, {self.tables[1]}, can_train={self.can_train}); print it to see it"


def check(data: Any, *, columns: Columns | Mapping[str, Any] | None = None) -> Check:
    """Read tables once and say what their columns look like, what is wrong, and how to go on.

    Nothing is charged and nothing is written: the result shows private data to the owner of the data.

    Args:
        data: a folder, a pair of files or DataFrames, or a TOML file, as `hushgraph.train` takes tables.
        columns: the roles that are known; the others are guessed.

    Returns:
        The columns, the problems and a proposal. Print it; `write` keeps the proposal as graph.toml.

    Raises:
        GraphError: where the files are no tables.

    Guarantees:
        `settings`, and so the file that `write` keeps, holds names of columns and fixed rules, and no value,
        count or statistic of the data. Which role a column was given may depend on what it holds, as it does
        where a person looks at a table and decides.

    Examples:
        >>> from pathlib import Path
        >>> import hushgraph as hg
        >>> Path("people").mkdir()
        >>> _ = Path("people/nodes.csv").write_text("id,age,label,part\\na,1,0,train\\nb,,1,test\\n")
        >>> _ = Path("people/edges.csv").write_text("source,target\\na,b\\nb,z\\n")
        >>> checked = hg.check("people")
        >>> [column.looks_like for column in checked.columns]
        ['id', 'number', 'label', 'split', 'source', 'target']
        >>> checked.write().name, checked.can_train
        ('graph.toml', True)
    """
    if not is_tables(data):
        raise GraphError(
            "check reads tables: a folder with nodes and edges, or a pair of files; other data is checked by "
            "hushgraph plan DATA --epsilon 4"
        )
    with open_database() as (connection, folder):
        files = find_tables(data, connection, folder)
        given = _collect_given(files, columns)
        if "delimiter" not in given and (sniffed := sniff_delimiter(files.nodes)):
            given["delimiter"] = sniffed
        # Wrong names are listed with the other problems, so only the form of the settings is checked here.
        known = Columns.of(given)
        nodes, edges = open_pair(connection, files, known, is_fixed=False)
        nodes, edges = copy_table(connection, nodes, "raw_nodes"), copy_table(connection, edges, "raw_edges")
        missing = tuple(known.missing) if "missing" in given else _choose_missing(known)
        profiles = profile_table(connection, nodes, "raw_nodes", missing)
        edge_profiles = profile_table(connection, edges, "raw_edges", ())
        roles = RoleGuess(connection, profiles, edge_profiles, given).guess()
        settings = _propose(given, roles, missing)
        listing = list_problems(
            connection, (nodes, edges), (profiles, edge_profiles), roles, settings, missing=missing
        )
        is_frames = bool(files.titles)
        return Check(
            tables=(nodes.title or nodes.path.name, edges.title or edges.path.name),
            rows=(_count_rows(profiles), _count_rows(edge_profiles)),
            columns=(
                *_describe_columns("nodes", profiles, roles.nodes),
                *_describe_columns("edges", edge_profiles, roles.edges),
            ),
            problems=tuple(listing.problems),
            settings=settings | listing.changes,
            declared=listing.declared,
            data=None if is_frames else _name_next(data, files),
            files=None if is_frames else (files.nodes, files.edges),
            mapping=files.mapping,
        )


def _collect_given(files: TableFiles, columns: Columns | Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the fields that the file or the caller gives."""
    files.columns_with(columns)
    if isinstance(columns, Columns):
        usual = asdict(Columns())
        return {name: value for name, value in asdict(columns).items() if value != usual[name]}
    return merge_columns(files.columns, columns or {})


def _choose_missing(columns: Columns) -> tuple[str, ...]:
    """Return the usual texts for an empty cell, without those that are declared as values."""
    values = {*(columns.classes or ()), *(value for each in columns.categorical.values() for value in each)}
    return tuple(text for text in MISSING if text not in values)


def _propose(given: Mapping[str, Any], roles: Roles, missing: tuple[str, ...]) -> dict[str, Any]:
    """Return the settings to go on with: what is given, what was guessed, and the usual rules."""
    guessed = {name: getattr(roles, name) for name in _ROLES}
    usual = asdict(Columns())
    settings = {name: value for name, value in guessed.items() if value not in (None, usual[name])}
    settings |= {name: value for name, value in given.items() if name not in _ROLES}
    if roles.ignored:
        settings["ignore"] = [*settings.get("ignore", ()), *roles.ignored]
    if roles.hashed:
        settings["hashed"] = {**settings.get("hashed", {}), **dict.fromkeys(roles.hashed, BUCKETS)}
    # Proposed whether or not a row needs them, so that the file does not tell whether one does.
    rules = {"missing": list(missing), "fill": 0.0, "unknown_category": "zeros", "unknown_ids": "drop"}
    return {**rules, **settings}


def _describe_columns(
    table: str, profiles: Mapping[str, Profile], words: Mapping[str, str]
) -> list[ColumnCheck]:
    return [
        ColumnCheck(table=table, name=name, looks_like=words[name], holds=_describe(profile, words[name]))
        for name, profile in profiles.items()
    ]


def _describe(profile: Profile, word: str) -> str:
    parts = []
    if word in ("number", "weight") and profile.least is not None and profile.most is not None:
        parts.append(f"{profile.least:g} to {profile.most:g}")
    elif profile.filled:
        parts.append(f"{profile.distinct:,} different")
    if profile.empty:
        parts.append(f"{profile.empty:,} empty")
    notes = {
        "category": f"hashed to {BUCKETS} buckets unless its values are listed",
        "text": "left out",
        "another split": "left out: only one column is the split",
        "another id": "left out: different in every row",
        "empty": "left out",
        "weight": "not read: edges have no weights",
    }
    return "; ".join([*parts, *([notes[word]] if word in notes else [])])


def _count_rows(profiles: Mapping[str, Profile]) -> int:
    return next(iter(profiles.values())).rows


def _name_next(data: Any, files: TableFiles) -> str:
    """Return DATA for the next command; of a pair, the TOML file beside the nodes."""
    if isinstance(data, (tuple, list)):
        return str(files.mapping or files.nodes.parent / MAPPING)
    return str(data)
