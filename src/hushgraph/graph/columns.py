"""Columns: the role of each column of a node table and an edge table."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Literal, get_args

from hushgraph._text import find_nearest
from hushgraph._validate import as_float
from hushgraph.errors import InputError

LARGEST_BUCKETS = 1 << 20
_NAMES = ("id", "label", "split", "source", "target", "delimiter")
_LISTS = ("features", "ignore", "classes", "missing", "indicators")
# These lists may be empty.
_MAY_BE_EMPTY = ("features", "ignore", "missing", "indicators")
EVERY_NUMBER = "*"
"""The key of `fill` for every column of numbers without a constant of its own."""
_LARGEST_FLOAT = 3.4e38
_SCALE_KEYS = {"centre", "spread", "log"}

UnknownCategory = Literal["refuse", "zeros", "other"]
UnknownIds = Literal["refuse", "drop"]
# The least similarity of a suggested name: `north` must not suggest `south`, which has 3 of 5 letters.
_ALIKE = 0.7


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
        features: numeric columns, in the order they have in `x`. By default every column without another
            role.
        ignore: columns that are not read.
        categorical: maps a column to its values, which become one-hot features in this order. The values are
            public: they are listed here and never collected from the data. A value that is not listed is
            refused; an empty cell becomes all zeros.
        hashed: maps a column to a number of buckets. A value becomes a one-hot feature. Its bucket is the
            first 15 hexadecimal digits of the MD5 of its UTF-8 text, modulo the number of buckets. An empty
            cell becomes all zeros.
        classes: names of the classes, in the order of their numbers. Required if labels are text.
        split: column that holds train, val or test; an empty cell means no split. By default the column
            `split`, if there is one.
        source, target: columns of an edge; the target reads the source.
        delimiter: of CSV files. By default a comma, and a tab in .tsv files.
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

    Numeric features come first, then categorical, then hashed columns, then indicators; categorical and
    hashed columns are sorted by name.

    Guarantees:
        Nothing here is derived from the data: no list of values, no scale and no mean. What becomes of a cell
        or an edge depends on that cell or edge, on the ids of the nodes and on these settings alone.

    Examples:
        >>> import hushgraph as hg
        >>> hg.Columns(id="person", label="school", hashed={"employer": 16}).features is None
        True
    """

    id: str = "id"
    label: str = "label"
    features: Sequence[str] | None = None
    ignore: Sequence[str] = ()
    categorical: Mapping[str, Sequence[str]] = field(default_factory=dict)
    hashed: Mapping[str, int] = field(default_factory=dict)
    classes: Sequence[str] | None = None
    split: str | None = None
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

    def __post_init__(self) -> None:
        for name in _NAMES:
            value = getattr(self, name)
            if value is None and name in ("split", "delimiter"):
                continue
            if not isinstance(value, str) or not value:
                raise InputError(f"{name}={value!r}: expected the name of a column")
        for name in _LISTS:
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, _check_texts(name, value))
        for name in ("categorical", "hashed", "group"):
            if not isinstance(getattr(self, name), Mapping):
                raise InputError(f"{name}={getattr(self, name)!r}: expected one entry per column")
        grouped = {column: _check_texts(f"group {column}", values) for column, values in self.group.items()}
        if len(grouped) > 1:
            raise InputError(
                f"group holds {len(grouped)} columns; expected one: figures are given by one column of groups"
            )
        object.__setattr__(self, "group", grouped)
        listed = {
            column: _check_texts(f"categorical {column}", values)
            for column, values in self.categorical.items()
        }
        # Sorted by name: a file may list its entries in any order, but the order of features is fixed.
        object.__setattr__(self, "categorical", dict(sorted(listed.items())))
        object.__setattr__(self, "hashed", dict(sorted(self.hashed.items())))
        for column, buckets in self.hashed.items():
            if (
                isinstance(buckets, bool)
                or not isinstance(buckets, int)
                or not 1 < buckets <= LARGEST_BUCKETS
            ):
                raise InputError(f"hashed {column}={buckets!r}: expected 2..{LARGEST_BUCKETS} buckets")
        if self.delimiter is not None:
            known = {"\\t": "\t", "tab": "\t"}
            object.__setattr__(self, "delimiter", known.get(self.delimiter, self.delimiter))
            if len(self.delimiter) != 1 or self.delimiter in '"\r\n':
                raise InputError(f"delimiter={self.delimiter!r}: expected one character, such as ';'")
        for name, allowed in (("unknown_category", UnknownCategory), ("unknown_ids", UnknownIds)):
            if getattr(self, name) not in get_args(allowed):
                known_values = ", ".join(map(repr, get_args(allowed)))
                raise InputError(f"{name}={getattr(self, name)!r}: expected one of {known_values}")
        object.__setattr__(self, "fill", _check_fill(self.fill))
        object.__setattr__(self, "scale", _check_scales(self.scale))
        self._check_clean_up()
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
        if features is None:
            other = {self.id, self.label, split, *self.ignore, *self.categorical, *self.hashed, *self.group}
            features = tuple(name for name in names if name not in other)
        constants = self.constants
        if EVERY_NUMBER in constants:
            usual = constants.pop(EVERY_NUMBER)
            constants |= {name: usual for name in features if name not in constants}
        return replace(self, split=split, features=features, fill=dict(sorted(constants.items())))

    @property
    def constants(self) -> dict[str, float]:
        """`fill` as a dictionary."""
        return dict(self.fill) if isinstance(self.fill, Mapping) else {EVERY_NUMBER: self.fill}

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
            listed = "every numeric column" if names == [repr(EVERY_NUMBER)] else ", ".join(names)
            rules.append(f"An empty number is filled with {constant:g} in {listed}.")
        if self.indicators:
            names = [repr(name) for name in self.indicators]
            rules.append(f"One more feature says whether the number was filled: {', '.join(names)}.")
        if self.categorical and self.unknown_category != "refuse":
            code = "all zeros" if self.unknown_category == "zeros" else "one more feature, 'other'"
            rules.append(f"A category that is not listed becomes {code}.")
        if self.unknown_ids == "drop":
            rules.append("Edges with an empty end, or with an end that is not a node, are dropped.")
        return [*rules, "Self-loops and repeats of an edge are dropped."]

    @property
    def num_features(self) -> int:
        """The number of columns of `x`, once `features` is filled in."""
        one_hot = sum(map(len, self.categorical.values())) + sum(self.hashed.values())
        if self.unknown_category == "other":
            one_hot += len(self.categorical)
        return len(self.features or ()) + one_hot + len(self.indicators)

    def _check_clean_up(self) -> None:
        """Raise InputError if an indicator has no constant, or if a text is both missing and a value."""
        without = [name for name in self.indicators if not {name, EVERY_NUMBER} & self.constants.keys()]
        if without:
            raise InputError(
                f"indicators holds {without[0]!r}, which has no constant; give one, as --fill {without[0]}=0 "
                "(columns.fill)"
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
        roles: dict[str, str] = {}
        named = {"id": [self.id], "label": [self.label], "split": [self.split] if self.split else []}
        lists = {"features": self.features or (), "ignore": self.ignore}
        for role, columns in (
            named | lists | {"categorical": self.categorical, "hashed": self.hashed}
        ).items():
            for column in columns:
                if column in roles:
                    raise InputError(
                        f"column {column!r} is given as {roles[column]} and as {role}; give it once"
                    )
                roles[column] = role


def looks_like_split(name: str) -> bool:
    """Return whether a column of this name is likely to hold train, val and test, or their numbers."""
    words = re.split(r"[^a-z0-9]+", name.casefold())
    return bool({"split", "fold", "partition"} & set(words)) or words in (["set"], ["part"], ["subset"])


def merge_columns(file: Mapping[str, Any], flags: Mapping[str, Any]) -> dict[str, Any]:
    """Merge the values of a file with those of flags; a column named by a flag loses its role in the file."""
    merged = {**file, **flags}
    if "fill" in file and "fill" in flags:
        merged["fill"] = {**_check_fill(file["fill"]), **_check_fill(flags["fill"])}
    for name in ("categorical", "hashed", "scale"):
        if isinstance(file.get(name), Mapping):
            merged[name] = {**file[name], **flags.get(name, {})}
    by_flag = {name: _columns_in(flags.get(name)) for name in ("features", "ignore", "categorical", "hashed")}
    named = {flags[role] for role in ("id", "label", "split") if isinstance(flags.get(role), str)}
    for name in by_flag:
        others = named.union(*(columns for other, columns in by_flag.items() if other != name))
        value = merged.get(name)
        if isinstance(value, Mapping):
            merged[name] = {c: each for c, each in value.items() if c not in others or c in by_flag[name]}
        elif isinstance(value, (list, tuple)):
            merged[name] = [c for c in value if c not in others or c in by_flag[name]]
    return merged


def suggest(name: str, known: Iterable[str]) -> str:
    """Return "; did you mean ...?" with the nearest known name, or an empty string if none is near."""
    near = find_nearest(name, known, cutoff=_ALIKE)
    return f"; did you mean {near!r}?" if near else ""


def _columns_in(value: Any) -> set[str]:
    return {each for each in value if isinstance(each, str)} if value else set()


def _check_texts(name: str, values: Any) -> tuple[str, ...]:
    """Check a list of distinct names; numbers become text, because cells are compared as text."""
    if isinstance(values, (str, bytes, Mapping)) or not isinstance(values, Iterable):
        raise InputError(f"{name}={values!r}: expected a list")
    given = list(values)
    odd = [each for each in given if isinstance(each, bool) or not isinstance(each, (str, int)) or each == ""]
    if odd:
        raise InputError(f"{name} holds {odd[0]!r}; expected names")
    texts = tuple(str(each) for each in given)
    if len(set(texts)) < len(texts):
        repeated = next(each for position, each in enumerate(texts) if each in texts[:position])
        raise InputError(f"{name} holds {repeated!r} more than once")
    if not texts and name not in _MAY_BE_EMPTY:
        raise InputError(f"{name} is empty; expected at least one value")
    return texts


def _check_fill(value: Any) -> dict[str, float]:
    """Check the constants for empty numbers; return them by column."""
    given = dict(value) if isinstance(value, Mapping) else {EVERY_NUMBER: value}
    for column, constant in given.items():
        number = as_float(constant)
        if number is None or not math.isfinite(number) or abs(number) > _LARGEST_FLOAT:
            name = "fill" if column == EVERY_NUMBER else f"fill {column}"
            raise InputError(f"{name}={constant!r}: expected a finite number, such as 0")
        given[column] = number
    return given


def _check_scales(values: Any) -> dict[str, Scale]:
    """Check the declared constants of scaling; return them by column."""
    if not isinstance(values, Mapping):
        raise InputError(f"scale={values!r}: expected one entry per column")
    return {column: _check_scale(column, value) for column, value in sorted(values.items())}


def _check_scale(column: str, value: Any) -> Scale:
    given = asdict(value) if isinstance(value, Scale) else value
    expected = f"scale {column}={value!r}: expected a centre, a spread above 0 and perhaps log"
    if not isinstance(given, Mapping) or {"centre", "spread"} - given.keys() or given.keys() - _SCALE_KEYS:
        raise InputError(f"{expected}, as {{centre = 40, spread = 15}}")
    centre, spread, log = as_float(given["centre"]), as_float(given["spread"]), given.get("log", False)
    numbers = [number for number in (centre, spread) if number is not None and math.isfinite(number)]
    if len(numbers) < 2 or numbers[1] <= 0 or not isinstance(log, bool):
        raise InputError(expected)
    return Scale(centre=numbers[0], spread=numbers[1], log=log)
