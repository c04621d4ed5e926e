"""What columns are likely to be, by their names and by what they hold."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hushgraph.datasets.tables.profile import Profile
from hushgraph.graph.columns import Columns, looks_like_split

# The number of buckets of a proposal; it must not depend on how many values occur.
BUCKETS = 16
# A text column with more different values than this is free text rather than a category.
MOST_CATEGORIES = 50
_LABELS = (
    *("label", "class", "y", "labels", "classes", "outcome", "target"),
    *("is_fraud", "isfraud", "fraud", "churn", "churned"),
)
_SOURCES = ("source", "src", "from", "sender", "u", "start", "source_id", "from_id", "src_id")
_TARGETS = ("target", "dst", "to", "receiver", "v", "end", "target_id", "to_id", "dst_id", "dest")


def _words(text: str) -> set[str]:
    return set(text.split())


# Words in names such as `account_from`, `nameOrig` or `PayerID`.
_SOURCE_WORDS = _words(
    "source src from sender payer orig origin start caller debtor buyer follower giver von"
)
_TARGET_WORDS = _words(
    """
    target dst dest destination to receiver recipient payee end callee creditor seller
    beneficiary followee nach
    """
)
_IDS = ("id", "node", "node_id", "key", "uid")
_ID_NAME = re.compile(r"(^|[^a-z])(id|uuid|guid|key)$")
_ID_WORDS = {"id", "uuid", "guid", "key", "no", "nr", "number", "iban"}
# Words in names of columns of edges that say how much a record counts.
_WEIGHT_WORDS = _words(
    """
    weight weights w strength count counts amount amt value sum total price paid cost volume
    quantity qty times frequency freq duration seconds minutes hours messages betrag
    """
)
# Whole numbers under such a name are codes rather than amounts.
_CODE_WORDS = _words(
    """
    code type kind category zip zipcode postcode plz postal sector branch region country
    segment
    """
)
# Words in names such as `owner_id` or `CustomerNo`: several rows may be of one of them.
_PERSON_WORDS = _words(
    "person owner customer client holder cardholder user member patient household subscriber"
)
# Rows of one person, on average, up to which a column of few values is no category; and the part of values
# that may differ: a few people of one name are not one person.
_ROWS_OF_A_PERSON, _MOST_DIFFERENT = 20, 0.95
# What a column looks like that is proposed to be left out.
_LEFT_OUT = ("text", "empty", "structure", "another id", "another split")
# Columns tried as ids, columns of edges tried as ends, and edges that are looked at for it.
_TRIED, _SAMPLE = 12, 50_000
# Shares of matching ends that differ by less are equal.
_EQUAL = 0.02


@dataclass(frozen=True, kw_only=True)
class Roles:
    """The roles of the columns of both tables; None where no column is likely.

    Attributes:
        nodes, edges: the word for what a column looks like, by column.
        id, label, split, source, target: names of columns; of labels, perhaps several.
        person: the column that says whose a node is, where some have several.
        hashed, ignored: columns that are categories, and columns to leave out.
        looked_up: which of these follow from what columns hold rather than from their names.
    """

    nodes: Mapping[str, str]
    edges: Mapping[str, str]
    id: str | None
    label: str | tuple[str, ...] | None
    split: str | None
    source: str | None
    target: str | None
    hashed: tuple[str, ...]
    ignored: tuple[str, ...]
    person: str | None = None
    looked_up: tuple[str, ...] = ()

    @property
    def label_columns(self) -> tuple[str, ...]:
        """The columns of labels."""
        return (self.label,) if isinstance(self.label, str) else self.label or ()


class RoleGuess:
    """Guesses the roles of columns.

    Args:
        connection: a DuckDB connection with the copies `raw_nodes` and `raw_edges`.
        nodes, edges: the profiles of the columns.
        given: the roles that are given, which no guess replaces.
        formats: "number", "boolean" or "date" for columns that are written in a special way.
        amounts: columns of edges that are numbers written in a special way.
    """

    def __init__(
        self,
        connection: Any,
        nodes: Mapping[str, Profile],
        edges: Mapping[str, Profile],
        given: Mapping[str, Any],
        formats: Mapping[str, str],
        amounts: Collection[str],
    ) -> None:
        self.connection, self.nodes, self.edges = connection, nodes, edges
        self.given, self.formats, self.amounts = given, formats, amounts
        self.looked_up: list[str] = []

    def guess(self) -> Roles:
        """Return the role of every column."""
        label = self._find_label()
        labels: set[str | None] = {*label} if isinstance(label, tuple) else {label}
        node_id, source, target = self._find_ids(without=labels)
        split = self._find_split(without={node_id, *labels})
        person = self._find_person(without={node_id, split, *labels})
        taken = {node_id: "id", split: "split", person: "person"} | dict.fromkeys(labels, "label")
        words, hashed, ignored = {}, [], []
        for name, profile in self.nodes.items():
            word = taken.get(name) or self._name_feature(profile)
            words[name] = word
            if word == "category" and not self._is_given(name):
                hashed.append(name)
            if word in _LEFT_OUT and not self._is_given(name):
                ignored.append(name)
        if self.given.get("features") is not None:
            # Features that are named leave the other columns out anyway.
            hashed, ignored = [], []
        if hashed or any(words[name] != "another split" for name in ignored):
            self.looked_up.append("roles")
        ends = {source: "source", target: "target"}
        declared = self._name_declared()
        edge_words = {
            name: ends.get(name) or declared.get(name) or self._name_edge_column(profile)
            for name, profile in self.edges.items()
        }
        return Roles(
            nodes=words,
            edges=edge_words,
            id=node_id,
            label=label,
            split=split,
            source=source,
            target=target,
            hashed=tuple(hashed),
            ignored=tuple(ignored),
            person=person,
            looked_up=tuple(self.looked_up),
        )

    def _find_label(self) -> str | tuple[str, ...] | None:
        """Return the column of labels, or the columns that were given as such."""
        given = self.given.get("label")
        if given is None:
            return find_named(self.nodes, _LABELS)
        return Columns(label=given).resolve_names(self.nodes).label  # type: ignore[return-value]

    def _is_given(self, name: str) -> bool:
        """Whether a feature column has a role that was given."""
        keys = ("features", "ignore", "categorical", "hashed", "dates", "booleans", "percent")
        return any(name in (self.given.get(key) or ()) for key in keys)

    def _name_feature(self, profile: Profile) -> str:
        name = profile.name
        if name in (self.given.get("ignore") or ()):
            return "ignored"
        if name in (self.given.get("categorical") or ()) or name in (self.given.get("hashed") or ()):
            return "category"
        if profile.filled == 0:
            return "empty"
        if not profile.is_scalar:
            return "structure"
        if name in self.formats:
            return self.formats[name]
        if name in (self.given.get("features") or ()):
            return "number"
        if looks_like_split(name) or profile.holds_splits:
            return "another split"
        if profile.is_unique and profile.rows > 1 and _ID_NAME.search(name.casefold()):
            return "another id"
        if profile.is_number:
            is_code = profile.integers == profile.filled and profile.distinct <= MOST_CATEGORIES
            return "category" if is_code and _CODE_WORDS & _split_words(name) else "number"
        is_category = profile.distinct <= MOST_CATEGORIES and profile.distinct * 2 <= profile.filled
        return "category" if is_category else "text"

    def _name_declared(self) -> dict[str, str]:
        """What columns of the edge table are declared to be, beside ends."""
        declared = Columns.of(self.given)
        words = dict.fromkeys(declared.relation, "relation")
        if declared.edge_date is not None:
            words[declared.edge_date] = "date"
        if declared.weight is not None and declared.weight.column is not None:
            words[declared.weight.column] = "weight"
        return words

    def _name_edge_column(self, profile: Profile) -> str:
        """What another column of the edge table looks like."""
        if not (profile.is_number or profile.name in self.amounts):
            return "text"
        is_weight = is_amount(profile.name) and self.given.get("edge_weight") is None
        return "weight" if is_weight else "number"

    def _find_person(self, without: set[str | None]) -> str | None:
        """A column named like a person, in which values repeat: several nodes of one person."""
        if self.given.get("person") is not None:
            return str(self.given["person"])
        for name, profile in self.nodes.items():
            if name in without or self._is_given(name) or not _PERSON_WORDS & _split_words(name):
                continue
            repeats = 2 <= profile.distinct <= _MOST_DIFFERENT * profile.filled
            if repeats and profile.distinct * _ROWS_OF_A_PERSON >= profile.filled:
                self.looked_up.append("person")
                return name
        return None

    def _find_split(self, without: set[str | None]) -> str | None:
        if self.given.get("split") is not None:
            return str(self.given["split"])
        if "split" in self.nodes:
            return "split"
        free = [p for p in self.nodes.values() if p.name not in without and not self._is_given(p.name)]
        named = [p.name for p in free if p.holds_split_numbers and looks_like_split(p.name)]
        split = next(iter([*named, *(p.name for p in free if p.holds_splits)]), None)
        if split is not None:
            self.looked_up.append("split")
        return split

    def _find_ids(self, without: set[str | None]) -> tuple[str | None, str | None, str | None]:
        """Return the id column and the two columns of an edge's ends.

        Names decide where they are clear; else the columns of nodes and edges that hold the same texts do.
        """
        ends = self._name_ends()
        tried = [end for end in ends or list(self.edges)[:_TRIED] if end in self.edges]
        given = self.given.get("id")
        if given is not None:
            candidates = [str(given)] if given in self.nodes else []
        else:
            candidates = self._list_candidates(without)
        shares = {name: self._match(name, tried) for name in candidates}
        best = str(given) if given is not None else self._choose_id(candidates, shares)
        if not ends and best in shares:
            matches = shares[best]
            ends = sorted(tried, key=lambda end: -matches[end])[:2]
            ends.sort(key=list(self.edges).index)
            if len(self.edges) > 1 and any(matches.values()):
                self.looked_up.append("ends")
            else:
                ends = list(self.edges)[:2]
        source, target = [*(ends or list(self.edges)[:2]), None, None][:2]
        return best, source, target

    def _list_candidates(self, without: set[str | None]) -> list[str]:
        """Columns of nodes that may hold ids, the likeliest names first; ids may be repeated by mistake."""
        free = [p for p in self.nodes.values() if p.name not in without and p.filled]
        many = [p for p in free if p.distinct * 2 >= p.filled and not p.fractions]
        named = find_named(self.nodes, _IDS)

        def rank(profile: Profile) -> tuple[bool, bool, bool]:
            has_word = bool(_ID_WORDS & _split_words(profile.name))
            return profile.name != named, not has_word, not profile.is_unique

        return [p.name for p in sorted(many or free, key=rank)][:_TRIED]

    def _choose_id(self, candidates: list[str], shares: Mapping[str, Mapping[str, float]]) -> str | None:
        """Return the column that the ends of edges are found in; without a difference, by name."""
        if not candidates:
            return next(iter(self.nodes), None)

        def score(name: str) -> float:
            return sum(sorted(shares[name].values())[-2:])

        most = max(map(score, candidates))
        best = next(name for name in candidates if score(name) >= most - _EQUAL)
        if best != find_named(self.nodes, _IDS):
            self.looked_up.append("id")
        return best

    def _name_ends(self) -> list[str]:
        """Return the ends of an edge by what is given or by name; empty where names do not say."""
        source = self.given.get("source") or find_named(self.edges, _SOURCES)
        target = self.given.get("target") or find_named(self.edges, _TARGETS)
        source = source or _find_word(self.edges, _SOURCE_WORDS, without=target)
        target = target or _find_word(self.edges, _TARGET_WORDS, without=source)
        return [source, target] if source and target and source != target else []

    def _match(self, name: str, ends: Sequence[str]) -> dict[str, float]:
        """Return which share of the cells of these edge columns holds a value of this node column."""
        if not ends:
            return {}
        cells = [f"CAST({self.edges[end].sql} AS VARCHAR)" for end in ends]
        known = f"(SELECT CAST({self.nodes[name].sql} AS VARCHAR) FROM raw_nodes)"
        counts = ", ".join(f"avg(CASE WHEN {cell} IN {known} THEN 1.0 ELSE 0.0 END)" for cell in cells)
        shares = self.connection.execute(
            f"SELECT {counts} FROM (SELECT * FROM raw_edges LIMIT {_SAMPLE})"
        ).fetchone()
        return {end: float(share or 0) for end, share in zip(ends, shares, strict=True)}


def is_amount(name: str) -> bool:
    """Whether a column of edges is named like something that says how much a record counts."""
    return bool(_WEIGHT_WORDS & _split_words(name))


def find_named(columns: Iterable[str], names: tuple[str, ...]) -> str | None:
    """Return the column with the first of these names, whatever its case."""
    folded = {name.casefold(): name for name in reversed(list(columns))}
    return next((folded[name] for name in names if name in folded), None)


def _find_word(columns: Iterable[str], words: set[str], *, without: str | None) -> str | None:
    """Return the only column whose name has one of these words."""
    named = [name for name in columns if words & _split_words(name) and name != without]
    return named[0] if len(named) == 1 else None


def _split_words(name: str) -> set[str]:
    """Return the words of a name such as account_from, nameOrig or `Payer ID`, in lower case."""
    apart = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name)
    return {word for word in re.split(r"[\W_]+", apart.casefold()) if word}
