"""`check`: what the columns of tables look like, every problem at once, and a graph.toml to go on from."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import Any

from hushgraph._files import write_whole
from hushgraph.datasets.catalog import registry as catalog
from hushgraph.datasets.paths import format_path, path_exists
from hushgraph.datasets.tables.files import MAPPING, TableFiles, find_tables, is_tables
from hushgraph.datasets.tables.findings import Listing
from hushgraph.datasets.tables.formats import guess_formats
from hushgraph.datasets.tables.label_problems import Question
from hushgraph.datasets.tables.problems import NUMERIC, Problem, list_problems
from hushgraph.datasets.tables.profile import Profile, copy_table, profile_table
from hushgraph.datasets.tables.reading import open_database, open_pair
from hushgraph.datasets.tables.roles import BUCKETS, RoleGuess, Roles
from hushgraph.errors import GraphError, InputError
from hushgraph.graph.cell_rules import LOOKED_UP
from hushgraph.graph.columns import Columns, merge_columns

PRIVATE = "This shows private data. It is for the owner of the data alone: do not share it."
# Texts that usually mean an empty cell. A fixed list: collecting such texts from the data would publish them.
MISSING = ("NA", "N/A", "n/a", "NULL", "null", "None", "?", "-")
_ROLES = ("id", "label", "split", "person", "source", "target")


@dataclass(frozen=True, kw_only=True)
class ColumnCheck:
    """One column.

    Attributes:
        table: "nodes" or "edges".
        name: of the column.
        looks_like: "id", "label", "split", "person", "number", "boolean", "date", "category", "text",
            "weight", "relation", "source", "target" or a reason to leave it out.
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
        settings: the fields of `Columns` to go on with; names of columns and fixed rules alone. What rows
            decided of them is named in `looked_up`.
        declared: more fields, which list values of the data; to use them is to declare these values public.
        looked_up: the kinds of things in `declared`, as in `Columns.looked_up`.
        asked: settings of the task, such as `task`, `bounds` or `rare`: those given, and what labels ask for.
        source: DATA and the edges as they were given; None for DataFrames.
        files: names, folders or patterns of the files of nodes and of edges; None for DataFrames.
        mapping: the TOML file that was read, if there is one.
        in_file: the fields of `Columns` in that file.
        relations: the files of edges by relation, where that file names relations.

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
    looked_up: tuple[str, ...] = ()
    asked: Mapping[str, Any] = field(default_factory=dict)
    source: tuple[str, tuple[str, ...]] | None = None
    files: tuple[tuple[Path, ...], tuple[Path, ...]] | None = None
    mapping: Path | None = None
    in_file: Mapping[str, Any] = field(default_factory=dict)
    relations: Mapping[str, tuple[Path, ...]] = field(default_factory=dict)

    @property
    def data(self) -> str | None:
        """DATA of the next command, once `write` has written the file of the tables; None for DataFrames."""
        if self.source is None:
            return None
        data = self.source[0]
        return data if Path(data).is_dir() else str(self.target())

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
        return Columns.of({**self.settings, **self.declared, "looked_up": self._all_looked_up})

    @property
    def _all_looked_up(self) -> list[str]:
        in_settings = self.settings.get("looked_up", ())
        return [*in_settings, *(kind for kind in self.looked_up if kind not in in_settings)]

    def next_command(self, written: Path | None = None) -> str:
        """Return the command, or the Python call, that trains with these settings.

        Args:
            written: the file that `write` returned. Without one, the command has those settings as flags that
                the file of the tables has not.
        """
        if self.source is None:
            asked = "".join(f"{name}={value!r}, " for name, value in self.asked.items())
            return f"hg.train(data, epsilon=4.0, {asked}columns=checked.to_columns())"
        from hushgraph.datasets.tables.proposal import format_flags

        more: dict[str, Any] = dict(self.declared)
        data, edges = self.source
        if written is None:
            more = {name: value for name, value in self.settings.items() if value != self.in_file.get(name)}
            more = {**more, **self.declared}
            kinds = self._all_looked_up
        else:
            is_found = Path(data).is_dir() and written == Path(data) / MAPPING
            data, edges, kinds = data if is_found else str(written), (), list(self.looked_up)
        if kinds and kinds != self.in_file.get("looked_up"):
            more["looked_up"] = kinds
        words = ["hushgraph train", shlex.quote(data), *(f"--edges {shlex.quote(each)}" for each in edges)]
        return " ".join([*words, "--epsilon 4", *format_flags(self.asked), *format_flags(more)])

    def to_toml(self, folder: Path | None = None) -> str:
        """Return graph.toml: names of columns and rules, with a comment each, and no value of the data.

        Args:
            folder: where the file will be; the folder of the nodes unless given.
        """
        from hushgraph.datasets.tables.proposal import format_proposal

        return format_proposal(self, folder)

    def target(self) -> Path:
        """Return the path of the TOML file that belongs to these tables, whether or not it exists."""
        if self.files is None:
            raise InputError("path: DataFrames have no folder; give the path of the file to write")
        if self.mapping is not None:
            return self.mapping
        first = self.files[0][0]
        return (first if first.is_dir() else first.parent) / MAPPING

    def write(self, path: str | PathLike[str] | None = None, *, force: bool = False) -> Path:
        """Write graph.toml beside the tables, or to `path`; a file that is there is kept unless `force`.

        Returns:
            The path that was written.
        """
        target = self.target() if path is None else Path(path)
        if target.suffix != ".toml":
            raise InputError(f"{format_path(target)}: expected a name that ends in .toml, such as graph.toml")
        if target.exists() and not force:
            raise InputError(f"{format_path(target)}: the file exists; give force (--force) to replace it")
        if not target.parent.is_dir():
            raise InputError(
                f"{format_path(target)}: no folder {format_path(target.parent)}; create it first"
            )
        write_whole(target, self.to_toml(target.parent).encode())
        return target

    def to_json(self, written: Path | None = None) -> dict[str, Any]:
        """Return everything as JSON values, the private figures included; `written` as in `next_command`."""
        return {
            "private": PRIVATE,
            "can_train": self.can_train,
            "tables": dict(zip(("nodes", "edges"), self.tables, strict=True)),
            "rows": dict(zip(("nodes", "edges"), self.rows, strict=True)),
            "columns": [asdict(column) for column in self.columns],
            "problems": [asdict(problem) for problem in self.problems],
            "settings": json.loads(json.dumps(dict(self.settings))),
            "declared": json.loads(json.dumps(dict(self.declared))),
            "asked": json.loads(json.dumps(dict(self.asked))),
            "looked_up": self._all_looked_up,
            "next": self.next_command(written),
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


def check(
    data: Any,
    *,
    columns: Columns | Mapping[str, Any] | None = None,
    task: str = "auto",
    bounds: Sequence[float] | None = None,
    positive: str | int | None = None,
    rare: bool = False,
    class_weight: Mapping[str, float] | str | None = None,
) -> Check:
    """Read tables once and say what their columns look like, what is wrong, and how to go on.

    Nothing is charged and nothing is written: the result shows private data to the owner of the data.

    Args:
        data: a folder, a pair of files or DataFrames, or a TOML file, as `hushgraph.train` takes tables.
        columns: the roles that are known; the others are guessed.
        task, bounds, positive, rare, class_weight: what is asked of a node, as `hushgraph.train` takes them;
            what is not given is proposed.

    Returns:
        The columns, the problems and a proposal. Print it; `write` keeps the proposal as graph.toml.

    Raises:
        GraphError: where the files are no tables.
        InputError: where settings of the task contradict each other.

    Guarantees:
        `settings`, and so the file that `write` keeps, holds names of columns and fixed rules, and no value,
        count or statistic of the data. What rows decided, such as which column is the id, is named in
        `looked_up`, and the guarantee of a run with it assumes that it is public.

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
    asked: dict[str, Any] = {"task": None if task == "auto" else task, "bounds": bounds, "positive": positive}
    asked |= {"rare": rare, "class_weight": class_weight}
    if not is_tables(data):
        named = os.fspath(data) if isinstance(data, (str, os.PathLike)) else None
        if named is not None and named not in catalog.names() and not path_exists(Path(named)):
            raise GraphError(
                f"{format_path(named)}: no such file or folder; give a folder of tables, or the table of "
                "nodes and --edges"
            )
        raise GraphError(
            "check reads tables: a folder with nodes and edges, or a pair of files; other data is checked by "
            "hushgraph plan DATA --epsilon 4"
        )
    with open_database() as (connection, folder):
        files = find_tables(data, connection, folder)
        given = _collect_given(files, columns)
        # Wrong names are listed with the other problems, so only the form of the settings is checked here.
        known = Columns.of(given)
        # Tables of several relations are looked at together.
        nodes, (edges,) = open_pair(connection, replace(files, relations={}), known, is_fixed=False)
        nodes = copy_table(connection, nodes, "raw_nodes")
        edges = copy_table(connection, edges, "raw_edges", is_numbered=False)
        missing = tuple(known.missing) if "missing" in given else _choose_missing(known)
        profiles = profile_table(connection, nodes, "raw_nodes", missing)
        edge_profiles = profile_table(connection, edges, "raw_edges", (), are_nodes=False)
        formats = guess_formats(connection, profiles, edge_profiles, given, missing)
        roles = RoleGuess(connection, profiles, edge_profiles, given, formats.words, formats.amounts).guess()
        question = Question.of(asked, given, roles, profiles, formats.words)
        settings = _propose(given, roles, missing, _keep_numbers(formats.settings, roles, question))
        listing = list_problems(
            connection, (nodes, edges), (profiles, edge_profiles), roles, settings, question, missing=missing
        )
        is_frames = bool(files.titles)
        return Check(
            tables=(nodes.short_name, edges.short_name),
            rows=(_count_rows(profiles), _count_rows(edge_profiles)),
            columns=(
                *_describe_columns("nodes", profiles, roles.nodes),
                *_describe_columns("edges", edge_profiles, roles.edges),
            ),
            problems=tuple(listing.problems),
            settings=settings | listing.changes,
            declared=listing.declared,
            looked_up=_list_looked_up(listing),
            asked=listing.asked,
            source=None if is_frames else _name_source(data),
            files=None if is_frames else (files.given["nodes"], files.given["edges"]),
            mapping=files.mapping,
            in_file=files.columns,
            relations=files.relations,
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


def _keep_numbers(formats: Mapping[str, Any], roles: Roles, question: Question) -> dict[str, Any]:
    """Return the rules for cells of the columns that are numbers in the end."""
    numeric = {*(name for name, word in roles.nodes.items() if word in NUMERIC), "*"}
    numeric |= {name for name, word in roles.edges.items() if word == "weight"}
    if question.is_number:
        numeric |= {*roles.label_columns}
    kept: dict[str, Any] = {}
    for key, value in formats.items():
        if isinstance(value, Mapping):
            kept[key] = {name: each for name, each in value.items() if name in numeric}
        else:
            kept[key] = [name for name in value if name in numeric] if isinstance(value, list) else value
    return {key: value for key, value in kept.items() if value}


def _propose(
    given: Mapping[str, Any], roles: Roles, missing: tuple[str, ...], formats: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the settings to go on with: what is given, what was guessed, and the usual rules."""
    guessed = {name: getattr(roles, name) for name in _ROLES}
    usual = asdict(Columns())
    settings = {name: value for name, value in guessed.items() if value not in (None, usual[name])}
    settings |= {name: value for name, value in given.items() if name not in _ROLES}
    if roles.ignored:
        settings["ignore"] = [*settings.get("ignore", ()), *roles.ignored]
    if roles.hashed:
        settings["hashed"] = {**settings.get("hashed", {}), **dict.fromkeys(roles.hashed, BUCKETS)}
    settings |= formats
    read_off = [kind for kind in ("numbers", "dates") if _differs(kind, formats, given)]
    kinds = [*given.get("looked_up", ()), *roles.looked_up, *read_off]
    if kinds:
        settings["looked_up"] = [kind for kind in LOOKED_UP if kind in kinds]
    # Proposed whether or not a row needs them, so that the file does not tell whether one does.
    rules = {"missing": list(missing), "fill": 0.0, "unknown_category": "zeros", "unknown_ids": "drop"}
    return {**rules, **settings}


def _list_looked_up(listing: Listing) -> tuple[str, ...]:
    """The kinds of what rows decided beside the settings: values to declare, and the task."""
    kinds = {kind for kind, names in LOOKED_UP.items() if any(name in listing.declared for name in names)}
    return tuple(kind for kind in LOOKED_UP if kind in kinds or kind in listing.looked_up)


def _differs(kind: str, formats: Mapping[str, Any], given: Mapping[str, Any]) -> bool:
    """Whether rules of a kind were found that nobody gave."""
    return any(formats.get(name) and formats.get(name) != given.get(name) for name in LOOKED_UP[kind])


def _describe_columns(
    table: str, profiles: Mapping[str, Profile], words: Mapping[str, str]
) -> list[ColumnCheck]:
    return [
        ColumnCheck(table=table, name=name, looks_like=words[name], holds=_describe(profile, words[name]))
        for name, profile in profiles.items()
    ]


def _describe(profile: Profile, word: str) -> str:
    parts = []
    if word in ("number", "weight") and profile.is_number and None not in (profile.least, profile.most):
        parts.append(f"{profile.least:g} to {profile.most:g}")
    elif profile.filled:
        about = "" if profile.is_exact or profile.distinct < 2 else "about "
        parts.append(f"{about}{profile.distinct:,} different")
    if profile.empty:
        parts.append(f"{profile.empty:,} empty")
    notes = {
        "category": f"hashed to {BUCKETS} buckets unless its values are listed",
        "text": "left out",
        "structure": "left out: lists and the like are no features",
        "person": "several nodes of one: all of them are protected together",
        "another split": "left out: only one column is the split",
        "another id": "left out: different in every row",
        "empty": "left out",
    }
    return "; ".join([*parts, *([notes[word]] if word in notes else [])])


def _count_rows(profiles: Mapping[str, Profile]) -> int:
    return next(iter(profiles.values())).rows


def _name_source(data: Any) -> tuple[str, tuple[str, ...]]:
    """Return DATA and the edges as they were given."""
    if not isinstance(data, (tuple, list)):
        return os.fspath(data), ()
    nodes, edges = (
        tuple(map(os.fspath, each)) if isinstance(each, (tuple, list)) else (os.fspath(each),)
        for each in data
    )
    # A command names the nodes once; several names for them are in the file that is written.
    return nodes[0], edges
