"""Columns: the role of each column of a node table and an edge table."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from hushgraph.errors import InputError

LARGEST_BUCKETS = 1 << 20
_NAMES = ("id", "label", "split", "source", "target", "delimiter")
_LISTS = ("features", "ignore", "classes")
# The least similarity of a suggested name: `north` must not suggest `south`, which has 3 of 5 letters.
_ALIKE = 0.7


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

    Numeric features come first, then categorical, then hashed columns; the last two are sorted by name.

    Guarantees:
        Nothing here is derived from the data: no list of values, no scale and no mean.

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
        for name in ("categorical", "hashed"):
            if not isinstance(getattr(self, name), Mapping):
                raise InputError(f"{name}={getattr(self, name)!r}: expected one entry per column")
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
        if self.features is not None:
            return replace(self, split=split)
        other = {self.id, self.label, split, *self.ignore, *self.categorical, *self.hashed}
        return replace(self, split=split, features=tuple(name for name in names if name not in other))

    @property
    def num_features(self) -> int:
        """The number of columns of `x`, once `features` is filled in."""
        one_hot = sum(map(len, self.categorical.values())) + sum(self.hashed.values())
        return len(self.features or ()) + one_hot

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


def merge_columns(file: Mapping[str, Any], flags: Mapping[str, Any]) -> dict[str, Any]:
    """Merge the values of a file with those of flags; a column named by a flag loses its role in the file."""
    merged = {**file, **flags}
    for name in ("categorical", "hashed"):
        if isinstance(file.get(name), Mapping):
            merged[name] = {**file[name], **flags.get(name, {})}
    by_flag = {name: _columns_in(flags.get(name)) for name in ("features", "ignore", "categorical", "hashed")}
    for name in by_flag:
        others = set().union(*(columns for other, columns in by_flag.items() if other != name))
        value = merged.get(name)
        if isinstance(value, Mapping):
            merged[name] = {c: each for c, each in value.items() if c not in others or c in by_flag[name]}
        elif isinstance(value, (list, tuple)):
            merged[name] = [c for c in value if c not in others or c in by_flag[name]]
    return merged


def suggest(name: str, known: Iterable[str]) -> str:
    """Return "; did you mean ...?" with the nearest known name, or an empty string if none is near."""
    names = list(known)
    folded = {each.casefold(): each for each in names}
    near = difflib.get_close_matches(name, names, n=1, cutoff=_ALIKE) or difflib.get_close_matches(
        name.casefold(), folded, n=1, cutoff=_ALIKE
    )
    return f"; did you mean {folded.get(near[0], near[0])!r}?" if near else ""


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
    if not texts and name not in ("features", "ignore"):
        raise InputError(f"{name} is empty; expected at least one value")
    return texts
