"""Columns: the role of each column of a node table and an edge table, one field each, hence a long file."""

from __future__ import annotations

import json
import math
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from fnmatch import fnmatchcase
from functools import partial
from typing import Any, Literal, get_args

from hushgraph._text import suggest
from hushgraph._validate import as_float
from hushgraph.errors import InputError
from hushgraph.graph import cell_rules
from hushgraph.graph.cell_rules import EVERY_COLUMN as EVERY_COLUMN
from hushgraph.graph.cell_rules import check_once, check_texts
from hushgraph.graph.records import PLACES, EdgeWeight, count_buckets, read_places

_NAMES = ("id", "split", "person", "source", "target", "delimiter", "separator")
# Names that may be left out.
_OPTIONAL = ("split", "person", "delimiter", "separator")
_LISTS = (
    *("features", "ignore", "classes", "missing", "indicators"),
    *("percent", "booleans", "looked_up"),
)
# In the name of a column of labels: whatever stands there.
_EVERY = "*"
_SCALE_KEYS = {"centre", "spread", "log"}

UnknownCategory = Literal["refuse", "zeros", "other"]
UnknownIds = Literal["refuse", "drop"]


@dataclass(frozen=True, kw_only=True)
class Scale:
    """What a column of numbers is scaled with: constants that are declared, or were released.

    A value x becomes (x - centre) / spread, cut at 4 in size.

    Attributes:
        centre: a usual value.
        spread: how far usual values are from it; above 0.
        log: x is asinh(x), which is nearly its logarithm, as is the centre; `spread` is then a difference of
            these: 1 is about a factor of 2.7.
    """

    centre: float
    spread: float
    log: bool = False


@dataclass(frozen=True, kw_only=True)
class Columns:
    """The roles of the columns of a node table and an edge table. Names are case-sensitive.

    Attributes:
        id: column of node ids: text or numbers, without repeats.
        label: column of classes, as numbers from 0 or as names in `classes`; an empty cell means no label.
            For several labels a node: a column of lists of labels, with `separator` between them; or a list
            of columns of 0 and 1, one a label, in which "genre_*" stands for all columns that begin so.
        features: numeric columns, in the order they have in `x`. By default every column without another
            role.
        ignore: columns that are not read.
        categorical: maps a column to its values, which become one-hot features in this order. The values are
            public: they are listed here and never collected from the data. A value that is not listed is
            refused; an empty cell becomes all zeros.
        hashed: maps a column to a number of buckets. A value becomes a one-hot feature. Its bucket is the
            first 15 hexadecimal digits of the MD5 of its UTF-8 text, modulo the number of buckets. An empty
            cell becomes all zeros.
        classes: names of the classes, in the order of their numbers. Required if labels are text, and for a
            column of lists. Columns of 0 and 1 are named by themselves.
        separator: what stands between the labels of a list, ";" unless given. To give it is to say that a
            node may have several labels.
        split: column that holds train, val or test; an empty cell means no split. By default the column
            `split`, if there is one.
        person: column that says whose a node is, where people have several nodes; what it holds is public. An
            empty cell is a person of one's own. All of a person's nodes are then protected together.
        source, target: columns of an edge; the target reads the source.
        delimiter: of CSV files. By default the first line of each file, its names of columns, says whether it
            is a comma, a semicolon, a tab or "|"; lines of data never do.
        missing: texts that count as an empty cell, such as "NA"; not in columns of ids.
        fill: maps a numeric column to the constant that replaces an empty cell or NaN; "*" stands for every
            other numeric column, and a number alone for {"*": number}. Without it, such a cell is refused.
        indicators: numeric columns with a constant in `fill` that get one more feature: 1 where the cell was
            filled, 0 elsewhere.
        scale: maps a numeric column to the constants that it is scaled with, as `Scale` or a mapping of its
            fields. The constants are public, and cost nothing.
        unknown_category: what becomes of a value that `categorical` does not list: "refuse", "zeros", or
            "other", which gives every categorical column one more feature.
        unknown_ids: "drop" leaves out edges with an empty end or an end that is not a node; "refuse" does not
            read such a table.
        group: maps one column to its values: figures are given for each of these groups too. The values are
            public. A row with another value, or an empty cell, is in no group and in no figure. The column is
            a feature only where it is given as one.
        decimal: what stands before decimals, "." or ","; for every column of numbers, or by column, with "*"
            for the others. By default a point.
        thousands: what may stand between groups of three digits, in the same form. By default nothing.
        percent: columns in which a cell that ends in % is divided by 100; "*" stands for all columns.
        booleans: columns of true and false, or yes and no, as 1 and 0, in any case.
        dates: maps a column of dates or times to the day, as 2000-01-01, from which its days are counted.
        date_format: how dates are written, as %d.%m.%Y; for all, or by column. By default year-month-day,
            with or without a time of day.
        cycles: maps a column of dates to parts of them, "weekday", "month", "day" or "hour". Each becomes two
            more features, sine and cosine; both are 0 where there is no date.
        edge_weight: a column of the edges whose numbers are the weights of records, alone or with what is
            done to each first, as "amount:log1p", "amount:sqrt" or "amount:none"; or "count", which counts
            the records of a pair. Weights of a pair are summed. What is not finite and above 0 counts as 0.
        edge_date: a column of the edges with the date of a record.
        since, until: the first and the last day of records that count, as 2024-01-31; others are dropped.
        half_life: days after which a record counts half, by its age on the day `until`.
        relation: maps one column of the edges to the names of relations. The names are public. A record
            between people of another relation is dropped.
        places: names of places that are not people, such as merchants and devices, which are public; or
            "hash:N", which hashes every name that is no node into one of N places. A record of a node and a
            place belongs to the node, whichever it names first; a place that is not declared is dropped.
        looked_up: what of these settings was read off rows rather than known: "classes", "id", "ends",
            "split", "person", "roles", "numbers", "dates", "missing", "task", "bounds", "rare", "records".
            The guarantee then assumes that it is public.

    Numeric features come first, among them booleans and dates, then categorical, then hashed columns, then
    indicators, then cycles; categorical and hashed columns and cycles are sorted by name.

    Guarantees:
        Nothing here is derived from the data, but for what `looked_up` names: no list of values, no scale and
        no mean. What becomes of a cell or an edge depends on that cell or edge, on the ids of the nodes and
        on these settings alone.

    Examples:
        >>> import hushgraph as hg
        >>> hg.Columns(id="person", label="school", hashed={"employer": 16}).features is None
        True
    """

    id: str = "id"
    label: str | Sequence[str] = "label"
    features: Sequence[str] | None = None
    ignore: Sequence[str] = ()
    categorical: Mapping[str, Sequence[str]] = field(default_factory=dict)
    hashed: Mapping[str, int] = field(default_factory=dict)
    classes: Sequence[str] | None = None
    separator: str | None = None
    split: str | None = None
    person: str | None = None
    source: str = "source"
    target: str = "target"
    delimiter: str | None = None
    missing: Sequence[str] = ()
    fill: Mapping[str, float] | float = field(default_factory=dict)
    indicators: Sequence[str] = ()
    scale: Mapping[str, Scale] = field(default_factory=dict)
    unknown_category: UnknownCategory = "refuse"
    unknown_ids: UnknownIds = "refuse"
    group: Mapping[str, Sequence[str]] = field(default_factory=dict)
    decimal: Mapping[str, str] | str = field(default_factory=dict)
    thousands: Mapping[str, str] | str = field(default_factory=dict)
    percent: Sequence[str] = ()
    booleans: Sequence[str] = ()
    dates: Mapping[str, str] = field(default_factory=dict)
    date_format: Mapping[str, str] | str = field(default_factory=dict)
    cycles: Mapping[str, Sequence[str]] = field(default_factory=dict)
    edge_weight: str | None = None
    edge_date: str | None = None
    since: str | None = None
    until: str | None = None
    half_life: float | None = None
    relation: Mapping[str, Sequence[str]] = field(default_factory=dict)
    places: Sequence[str] | str | None = None
    looked_up: Sequence[str] = ()

    def __post_init__(self) -> None:
        for name in _NAMES:
            value = getattr(self, name)
            if value is None and name in _OPTIONAL:
                continue
            if not isinstance(value, str) or not value:
                raise InputError(f"{name}={value!r}: expected the name of a column")
        for name in _LISTS:
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, check_texts(name, value))
        self._check_label()
        for name in _BY_COLUMN:
            object.__setattr__(self, name, _check_by_column(name, getattr(self, name)))
        for name in ("group", "relation"):
            if len(getattr(self, name)) > 1:
                raise InputError(f"{name} holds {len(getattr(self, name))} columns; expected one")
        if self.delimiter is not None:
            known = {"\\t": "\t", "tab": "\t"}
            object.__setattr__(self, "delimiter", known.get(self.delimiter, self.delimiter))
            if len(self.delimiter) != 1 or self.delimiter in '"\r\n':
                raise InputError(f"delimiter={self.delimiter!r}: expected one character, such as ';'")
        for name, allowed in (("unknown_category", UnknownCategory), ("unknown_ids", UnknownIds)):
            if getattr(self, name) not in get_args(allowed):
                known_values = ", ".join(map(repr, get_args(allowed)))
                near = suggest(str(getattr(self, name)), get_args(allowed))
                raise InputError(f"{name}={getattr(self, name)!r}: expected one of {known_values}{near}")
        self._check_clean_up()
        self._check_cell_rules()
        self._check_records()
        if self.source == self.target:
            raise InputError(f"source and target are both {self.source!r}; expected two columns")
        self._check_roles()

    @classmethod
    def of(cls, values: Mapping[str, Any], *, where: str = "columns") -> Columns:
        """Build from a mapping of fields; an unknown name raises InputError with the nearest known one."""
        known = [each.name for each in fields(cls)]
        for name in values:
            if name not in known:
                advice = suggest(name, known) or f"; expected {', '.join(known)}"
                raise InputError(f"{where}: unknown key {name!r}{advice}")
        try:
            return cls(**values)
        except InputError as error:
            raise InputError(f"{where}: {error}") from None

    def to_json(self) -> str:
        """Serialize to JSON."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Columns:
        """Build from the output of `to_json`."""
        return cls.of(json.loads(text))

    def resolve_names(self, names: Iterable[str]) -> Columns:
        """Return a copy with `features` and `split` filled in, for a node table with these column names."""
        names = list(names)
        split = self.split if self.split is not None or "split" not in names else "split"
        features = self.features
        labels = self._expand_label(names)
        if features is None:
            other = {
                self.id,
                *labels,
                split,
                self.person,
                *self.ignore,
                *self.categorical,
                *self.hashed,
                *self.group,
            }
            features = tuple(name for name in names if name not in other)
        elif self.booleans or self.dates:
            # Declared as numbers of another kind: to name them twice would say nothing more.
            features = (*features, *(each for each in (*self.booleans, *self.dates) if each not in features))
        constants = self.constants
        if EVERY_COLUMN in constants:
            usual = constants.pop(EVERY_COLUMN)
            constants |= {name: usual for name in features if name not in constants}
        label = labels[0] if labels == (self.label,) else labels
        fill = dict(sorted(constants.items()))
        return replace(self, label=label, split=split, features=features, fill=fill)

    @property
    def label_columns(self) -> tuple[str, ...]:
        """The column of labels, or all of them."""
        return (self.label,) if isinstance(self.label, str) else tuple(self.label)

    @property
    def has_sets(self) -> bool:
        """Whether it is declared that a node may have several labels."""
        return not isinstance(self.label, str) or self.separator is not None

    def without_records(self) -> Columns:
        """Return a copy in which nothing is declared about records but their ends."""
        forms = {name: cell_rules.rule_for(self.date_format, name) for name in self.dates}
        return replace(
            self,
            edge_weight=None,
            edge_date=None,
            since=None,
            until=None,
            half_life=None,
            relation={},
            places=None,
            date_format={name: form for name, form in forms.items() if form},
        )

    def _check_label(self) -> None:
        """Check the column of labels, or the columns, which name the labels."""
        if isinstance(self.label, str):
            if not self.label:
                raise InputError("label='': expected the name of a column")
            return
        if not isinstance(self.label, (list, tuple)):
            raise InputError(f"label={self.label!r}: expected the name of a column, or a list of names")
        columns = check_texts("label", self.label)
        object.__setattr__(self, "label", columns)
        if self.separator is not None:
            raise InputError(
                f"separator={self.separator!r} with {len(columns)} columns of labels: it is for one column "
                "of lists; leave out one"
            )
        if any(_EVERY in column for column in columns):
            return
        if self.classes not in (None, columns):
            raise InputError(
                f"classes with {len(columns)} columns of labels: the columns name the labels; leave out "
                "classes"
            )
        object.__setattr__(self, "classes", columns)

    def _expand_label(self, names: Sequence[str]) -> tuple[str, ...]:
        """The columns of labels in a table with these columns, whose names are public."""
        expanded: list[str] = []
        for column in self.label_columns:
            is_pattern = _EVERY in column and column not in names
            matches = [name for name in names if fnmatchcase(name, column)] if is_pattern else [column]
            if not matches:
                near = suggest(column, names) or f"; it has {', '.join(map(repr, names[:6]))}"
                raise InputError(f"label={column!r}: no column of the table matches{near}")
            expanded += [name for name in matches if name not in expanded]
        return tuple(expanded)

    @property
    def constants(self) -> dict[str, float]:
        """`fill` as a dictionary."""
        return dict(self.fill) if isinstance(self.fill, Mapping) else {EVERY_COLUMN: self.fill}

    @property
    def unscaled(self) -> tuple[str, ...]:
        """The numeric columns without declared constants, once `features` is filled in."""
        return tuple(name for name in self.features or () if name not in self.scale)

    def describe_clean_up(self) -> list[str]:
        """Return the declared rules for imperfect cells and edges, a sentence each; no counts."""
        rules = []
        if self.missing:
            rules.append(f"These texts count as an empty cell: {', '.join(map(repr, self.missing))}.")
        for constant in sorted(set(self.constants.values())):
            names = [repr(name) for name, each in self.constants.items() if each == constant]
            listed = "every numeric column" if names == [repr(EVERY_COLUMN)] else ", ".join(names)
            rules.append(f"An empty number is filled with {constant:g} in {listed}.")
        if self.indicators:
            names = [repr(name) for name in self.indicators]
            rules.append(f"One more feature says whether the number was filled: {', '.join(names)}.")
        if self.categorical and self.unknown_category != "refuse":
            code = "all zeros" if self.unknown_category == "zeros" else "one more feature, 'other'"
            rules.append(f"A category that is not listed becomes {code}.")
        if self.unknown_ids == "drop" and self.places is None:
            rules.append("Edges with an empty end, or with an end that is not a node, are dropped.")
        rules += self._describe_cell_rules()
        rules += self._describe_record_rules()
        if self.is_weighted:
            return [*rules, "Self-loops are dropped, and weights of a repeated edge are summed."]
        return [*rules, "Self-loops and repeats of an edge are dropped."]

    def _describe_record_rules(self) -> list[str]:
        rules = []
        if self.since or self.until:
            first, last = f" since {self.since}" * bool(self.since), f" until {self.until}" * bool(self.until)
            form = cell_rules.rule_for(self.date_format, str(self.edge_date))
            written = f", written as {form}" if form else ""
            rules.append(f"Records count{first}{last}, by {self.edge_date!r}{written}; others are dropped.")
        if self.weight is not None:
            rules.append(
                f"A record weighs {self.weight.describe()}; what is not finite and above 0 counts as 0."
            )
        if self.half_life is not None:
            rules.append(f"A record counts half after {self.half_life:g} days.")
        if self.relation:
            between = "" if self.places is None else "between people "
            names = ", ".join(self.relation_names)
            rules.append(f"Records {between}of other relations than {names} are dropped.")
        if self.places is not None:
            is_hashed = isinstance(self.places, str)
            rules.append(
                f"A name that is no node is a place, hashed into one of {count_buckets(str(self.places)):,}."
                if is_hashed
                else f"Records that name neither a node nor one of {len(self.places):,} places are dropped."
            )
        return rules

    @property
    def num_features(self) -> int:
        """The number of columns of `x`, once `features` is filled in."""
        one_hot = sum(map(len, self.categorical.values())) + sum(self.hashed.values())
        if self.unknown_category == "other":
            one_hot += len(self.categorical)
        return len(self.features or ()) + one_hot + len(self.indicators) + self.num_cycles

    @property
    def num_cycles(self) -> int:
        """The number of features that parts of dates become."""
        return 2 * sum(map(len, self.cycles.values()))

    def _check_cell_rules(self) -> None:
        """Check what rules for cells say together."""
        cell_rules.check_looked_up(self.looked_up)
        cell_rules.check_marks_differ(self.decimal, self.thousands)
        for name in ("cycles", "date_format"):
            known = {EVERY_COLUMN, *self.dates} | ({self.edge_date} if name == "date_format" else set())
            for column in getattr(self, name):
                if column not in known:
                    raise InputError(
                        f"{name} holds {column!r}, which is no date; declare it, as --date "
                        f"{shlex.quote(column)}=2000-01-01 (columns.dates){suggest(column, self.dates)}"
                    )

    def _describe_cell_rules(self) -> list[str]:
        rules = []
        for name, what in (("decimal", "before decimals"), ("thousands", "between groups of three digits")):
            for mark in sorted(set(getattr(self, name).values())):
                names = [column for column, each in getattr(self, name).items() if each == mark]
                rules.append(f"Numbers have {mark!r} {what} in {_list_columns(names)}.")
        if self.percent:
            rules.append(f"A cell that ends in % is divided by 100 in {_list_columns(self.percent)}.")
        if self.booleans:
            rules.append(f"True and yes are 1, false and no are 0 in {_list_columns(self.booleans)}.")
        for column, first in self.dates.items():
            form = cell_rules.rule_for(self.date_format, column)
            written = f", written as {form}" if form else ""
            parts = " and ".join(self.cycles.get(column, ()))
            more = f"; {parts} are features too" if parts else ""
            rules.append(f"{column!r} is a date{written}, as days since {first}{more}.")
        return rules

    @property
    def weight(self) -> EdgeWeight | None:
        """Where weights of records come from; None where they have none, or the half-life alone."""
        return None if self.edge_weight is None else EdgeWeight.of(self.edge_weight)

    @property
    def is_weighted(self) -> bool:
        """Whether records have weights."""
        return self.edge_weight is not None or self.half_life is not None

    @property
    def has_relations(self) -> bool:
        """Whether records are more than a list of nodes."""
        return self.is_weighted or bool(self.relation) or self.places is not None

    @property
    def relation_names(self) -> tuple[str, ...]:
        """Names of the declared relations; empty where there are none."""
        return tuple(name for values in self.relation.values() for name in values)

    @property
    def edge_columns(self) -> tuple[str, ...]:
        """The columns of the edges that are read."""
        weight = None if self.weight is None else self.weight.column
        named = (self.source, self.target, weight, self.edge_date, *self.relation)
        return tuple(name for name in named if name is not None)

    def _check_records(self) -> None:
        """Check what is declared about records."""
        put = object.__setattr__
        if self.edge_weight is not None:
            if not isinstance(self.edge_weight, str):
                raise InputError(f"edge_weight={self.edge_weight!r}: expected the name of a column")
            EdgeWeight.of(self.edge_weight)
        for name in ("since", "until"):
            cell_rules.check_day(name, getattr(self, name))
        dated = [name for name in ("since", "until", "half_life") if getattr(self, name) is not None]
        if dated and self.edge_date is None:
            raise InputError(
                f"{dated[0]}={getattr(self, dated[0])}: no column of dates; give --edge-date COLUMN"
            )
        if self.edge_date is not None and not dated:
            raise InputError(
                f"edge_date={self.edge_date!r}: a date alone has no effect; give --since, --until or "
                "--half-life"
            )
        if self.half_life is not None:
            days = as_float(self.half_life)
            if days is None or not (math.isfinite(days) and days > 0):
                raise InputError(f"half_life={self.half_life!r}: expected a number of days above 0")
            put(self, "half_life", days)
            if self.until is None:
                raise InputError(
                    f"half_life={days:g}: the age of a record needs a day to count from, which is declared "
                    "and never looked up; give --until YYYY-MM-DD"
                )
        if self.since is not None and self.until is not None and self.since > self.until:
            raise InputError(f"since={self.since} is after until={self.until}; give them in order")
        if PLACES in self.relation_names and self.places is not None:
            raise InputError(f"relation holds {PLACES!r}, a reserved name; rename that value")
        if self.places is not None:
            put(self, "places", read_places(self.places))

    def _check_clean_up(self) -> None:
        """Raise InputError if an indicator has no constant, or if a text is both missing and a value."""
        without = [name for name in self.indicators if not {name, EVERY_COLUMN} & self.constants.keys()]
        if without:
            raise InputError(
                f"indicators holds {without[0]!r}, which has no constant; give one, as --fill "
                f"{shlex.quote(without[0])}=0 (columns.fill)"
            )
        values = {
            "classes": self.classes or (),
            **{f"categorical {c}": v for c, v in self.categorical.items()},
        }
        for where, listed in values.items():
            both = [text for text in self.missing if text in listed]
            if both:
                raise InputError(f"missing holds {both[0]!r}, and {where} lists it; leave out one of the two")

    def _check_roles(self) -> None:
        """Raise InputError if a column of the node table has two roles."""
        optional = {"split": self.split, "person": self.person}
        roles: dict[str, Iterable[str]] = {"id": [self.id], "label": self.label_columns}
        roles |= {role: [name] for role, name in optional.items() if name is not None}
        roles |= {"ignore": self.ignore, "categorical": self.categorical, "hashed": self.hashed}
        kinds: dict[str, Iterable[str]] = {"boolean": self.booleans, "date": self.dates}
        check_once({"features": self.features or (), **roles})
        check_once({"percent": self.percent, **kinds})
        check_once(roles | kinds)


def looks_like_split(name: str) -> bool:
    """Return whether a column of this name is likely to hold train, val and test, or their numbers."""
    words = re.split(r"[^a-z0-9]+", name.casefold())
    return bool({"split", "fold", "partition"} & set(words)) or words in (["set"], ["part"], ["subset"])


def spread_rules(fields: Mapping[str, Any]) -> dict[str, Any]:
    """These fields, with marks and formats for all columns by column, as those for some columns are."""
    alone = [name for name in ("decimal", "thousands", "date_format") if isinstance(fields.get(name), str)]
    return {**fields, **{name: {EVERY_COLUMN: fields[name]} for name in alone}}


def merge_columns(file: Mapping[str, Any], flags: Mapping[str, Any]) -> dict[str, Any]:
    """Merge the values of a file with those of flags; a column named by a flag loses its role in the file."""
    file, flags = spread_rules(file), spread_rules(flags)
    merged = {**file, **flags}
    if "fill" in file and "fill" in flags:
        merged["fill"] = {**_check_by_column("fill", file["fill"]), **_check_by_column("fill", flags["fill"])}
    for name in ("categorical", "hashed", "scale", "decimal", "thousands", "dates", "date_format", "cycles"):
        if isinstance(file.get(name), Mapping) and isinstance(flags.get(name, {}), Mapping):
            merged[name] = {**file[name], **flags.get(name, {})}
    if "looked_up" in file:
        merged["looked_up"] = cell_rules.merge_looked_up(file, flags)
    kinds = ("ignore", "categorical", "hashed", "percent", "booleans", "dates")
    by_flag = {name: _columns_in(flags.get(name)) for name in ("features", *kinds)}
    named = {flags[role] for role in ("id", "label", "split", "person") if isinstance(flags.get(role), str)}
    named |= _columns_in(None if isinstance(flags.get("label"), str) else flags.get("label"))
    rules = ("percent", "booleans", "dates")
    for name in by_flag:
        # A feature may have a rule for its cells.
        apart = rules if name == "features" else ("features",) if name in rules else ()
        others = named.union(*(c for other, c in by_flag.items() if other != name and other not in apart))
        value = merged.get(name)
        if isinstance(value, Mapping):
            merged[name] = {c: each for c, each in value.items() if c not in others or c in by_flag[name]}
        elif isinstance(value, (list, tuple)):
            merged[name] = [c for c in value if c not in others or c in by_flag[name]]
    were, are = (_columns_in(each.get("dates")) | {each.get("edge_date")} for each in (file, merged))
    lost = were - are
    for name in ("cycles", "date_format"):
        if lost and isinstance(merged.get(name), Mapping):
            merged[name] = {c: each for c, each in merged[name].items() if c not in lost}
    return merged


def _list_columns(names: Iterable[str]) -> str:
    return ", ".join("every column of numbers" if name == EVERY_COLUMN else repr(name) for name in names)


def _columns_in(value: Any) -> set[str]:
    return {each for each in value if isinstance(each, str)} if value else set()


def _check_by_column(name: str, value: Any) -> dict[str, Any]:
    """Check a setting that is given by column.

    It is sorted by name: a file may list columns in any order, but the order of features is fixed.
    """
    given = value
    if not isinstance(value, Mapping):
        if name not in _FOR_ALL:
            raise InputError(f"{name}={value!r}: expected one entry per column")
        given = {EVERY_COLUMN: value}
    wrong = [column for column in given if not isinstance(column, str) or not column]
    if wrong:
        raise InputError(f"{name}: expected names of columns, got {wrong[0]!r}")
    check = _BY_COLUMN[name]
    return {
        column: check(name if column == EVERY_COLUMN else f"{name} {column}", each)
        for column, each in sorted(given.items())
    }


def _check_scale(name: str, value: Any) -> Scale:
    given = asdict(value) if isinstance(value, Scale) else value
    shown = repr(value)
    if isinstance(given, Mapping):
        shown = ",".join("log" if each is True else str(each) for each in given.values() if each is not False)
    expected = f"{name}={shown}: expected a centre, a spread above 0 and perhaps log"
    if not isinstance(given, Mapping) or {"centre", "spread"} - given.keys() or given.keys() - _SCALE_KEYS:
        raise InputError(f"{expected}, as {{centre = 40, spread = 15}}")
    centre, spread, log = as_float(given["centre"]), as_float(given["spread"]), given.get("log", False)
    numbers = [number for number in (centre, spread) if number is not None and math.isfinite(number)]
    if len(numbers) < 2 or numbers[1] <= 0 or not isinstance(log, bool):
        raise InputError(expected)
    return Scale(centre=numbers[0], spread=numbers[1], log=log)


# What is given by column, and how the value of one column is checked.
_BY_COLUMN: dict[str, Callable[[str, Any], Any]] = {
    "categorical": check_texts,
    "hashed": cell_rules.check_buckets,
    "group": check_texts,
    "relation": check_texts,
    "fill": cell_rules.check_constant,
    "scale": _check_scale,
    "decimal": partial(cell_rules.check_mark, allowed=cell_rules.DECIMALS),
    "thousands": partial(cell_rules.check_mark, allowed=cell_rules.THOUSANDS),
    "dates": cell_rules.check_first_day,
    "date_format": cell_rules.check_format,
    "cycles": cell_rules.check_cycles,
}
# Of these, what may be given for every column at once.
_FOR_ALL = ("fill", "decimal", "thousands", "date_format")
