"""Columns: what each column of a node table and an edge table is for."""

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
# How alike a name must be to be suggested; north and south have three letters of five in common.
_ALIKE = 0.7


@dataclass(frozen=True, kw_only=True)
class Columns:
    """What the columns of a node table and an edge table mean. Names are matched case and all.

    Attributes:
        id: of the nodes: text or numbers, each once.
        label: classes, as numbers from 0 or as names in `classes`; an empty cell is no label.
        features: columns of numbers, in the order they get in `x`. Unless given: every column that has no
            other purpose here.
        ignore: columns not to be read.
        categorical: column to its values, which become one-hot features in this order. They are public, so
            they are listed here and never collected from the data. A value that is not listed is refused; an
            empty cell is all zeros.
        hashed: column to a number of buckets. A value becomes a one-hot feature, its bucket being the first
            15 hexadecimal digits of the MD5 of its UTF-8 text, modulo the number of buckets. An empty cell is
            all zeros.
        classes: names of the classes, in the order of their numbers. Needed where labels are text.
        split: column that says train, val or test; an empty cell is in no split. Unless given: `split`, if
            there is such a column.
        source, target: of an edge; the target reads the source.
        delimiter: of CSV; unless given a comma, in a .tsv a tab.

    Features are numbers first, then categorical and hashed columns, each group by name.

    Guarantees:
        Nothing here is read off the data: no list of values, no scale and no mean.

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
                object.__setattr__(self, name, _texts(name, value))
        for name in ("categorical", "hashed"):
            if not isinstance(getattr(self, name), Mapping):
                raise InputError(f"{name}={getattr(self, name)!r}: expected one entry a column")
        listed = {
            column: _texts(f"categorical {column}", values) for column, values in self.categorical.items()
        }
        # In order of names, since files need not keep the order of their entries and features must.
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
        self._check_purposes()

    @classmethod
    def of(cls, values: Mapping[str, Any], *, where: str = "columns") -> Columns:
        """From values by name; an unknown name is refused with the nearest known one."""
        known = [each.name for each in fields(cls)]
        for name in values:
            if name not in known:
                advice = hint(name, known) or f"; expected {', '.join(known)}"
                raise InputError(f"{where}: unknown key {name!r}{advice}")
        try:
            return cls(**values)
        except InputError as error:
            raise InputError(f"{where}: {error}") from None

    def to_json(self) -> str:
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Columns:
        """The columns `to_json` wrote."""
        return cls.of(json.loads(text))

    def named_for(self, names: Iterable[str]) -> Columns:
        """These columns with features and split by name, for a node table whose columns have these names."""
        there = list(names)
        split = self.split if self.split is not None or "split" not in there else "split"
        if self.features is not None:
            return replace(self, split=split)
        other = {self.id, self.label, split, *self.ignore, *self.categorical, *self.hashed}
        return replace(self, split=split, features=tuple(name for name in there if name not in other))

    @property
    def num_features(self) -> int:
        """Columns of `x`, once features have names."""
        one_hot = sum(map(len, self.categorical.values())) + sum(self.hashed.values())
        return len(self.features or ()) + one_hot

    def _check_purposes(self) -> None:
        """Refuse a column of the node table that has two purposes."""
        purposes: dict[str, str] = {}
        named = {"id": [self.id], "label": [self.label], "split": [self.split] if self.split else []}
        lists = {"features": self.features or (), "ignore": self.ignore}
        for purpose, columns in (
            named | lists | {"categorical": self.categorical, "hashed": self.hashed}
        ).items():
            for column in columns:
                if column in purposes:
                    raise InputError(
                        f"column {column!r} is given as {purposes[column]} and as {purpose}; give it once"
                    )
                purposes[column] = purpose


def merged(file: Mapping[str, Any], flags: Mapping[str, Any]) -> dict[str, Any]:
    """Values of a file with those of flags put over them; a column that a flag names serves that alone."""
    found = {**file, **flags}
    for name in ("categorical", "hashed"):
        if isinstance(file.get(name), Mapping):
            found[name] = {**file[name], **flags.get(name, {})}
    taken = {name: _columns_in(flags.get(name)) for name in ("features", "ignore", "categorical", "hashed")}
    for name in taken:
        others = set().union(*(columns for other, columns in taken.items() if other != name))
        value = found.get(name)
        if isinstance(value, Mapping):
            found[name] = {c: each for c, each in value.items() if c not in others or c in taken[name]}
        elif isinstance(value, (list, tuple)):
            found[name] = [c for c in value if c not in others or c in taken[name]]
    return found


def hint(name: str, known: Iterable[str]) -> str:
    """A question that names the nearest known name; nothing where none is near."""
    there = list(known)
    folded = {each.casefold(): each for each in there}
    near = difflib.get_close_matches(name, there, n=1, cutoff=_ALIKE) or difflib.get_close_matches(
        name.casefold(), folded, n=1, cutoff=_ALIKE
    )
    return f"; did you mean {folded.get(near[0], near[0])!r}?" if near else ""


def _columns_in(value: Any) -> set[str]:
    return {each for each in value if isinstance(each, str)} if value else set()


def _texts(name: str, values: Any) -> tuple[str, ...]:
    """A list of different texts; numbers become text, as cells are compared as text."""
    if isinstance(values, (str, bytes, Mapping)) or not isinstance(values, Iterable):
        raise InputError(f"{name}={values!r}: expected a list")
    given = list(values)
    odd = [each for each in given if isinstance(each, bool) or not isinstance(each, (str, int)) or each == ""]
    if odd:
        raise InputError(f"{name} holds {odd[0]!r}; expected names")
    found = tuple(str(each) for each in given)
    if len(set(found)) < len(found):
        repeated = next(each for place, each in enumerate(found) if each in found[:place])
        raise InputError(f"{name} holds {repeated!r} more than once")
    if not found and name not in ("features", "ignore"):
        raise InputError(f"{name} is empty; expected at least one value")
    return found
