"""What columns are likely to be, by their names and by what they hold."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from hushgraph.datasets.tables.profile import Profile
from hushgraph.graph.columns import looks_like_split

# The number of buckets of a proposal; it must not depend on how many values occur.
BUCKETS = 16
# A text column with more different values than this is free text rather than a category.
MOST_CATEGORIES = 50
_LABELS = ("label", "class", "y", "labels", "classes", "outcome", "target")
_SOURCES = ("source", "src", "from", "sender", "u", "start", "source_id", "from_id", "src_id")
_TARGETS = ("target", "dst", "to", "receiver", "v", "end", "target_id", "to_id", "dst_id", "dest")
_IDS = ("id", "node", "node_id", "name", "key", "uid")
_ID_NAME = re.compile(r"(^|[^a-z])(id|uuid|guid|key)$")
_WEIGHTS = re.compile(r"weight|strength|count|score|^w$")
# Columns tried as ids, and columns of edges tried as ends.
_TRIED = 6


@dataclass(frozen=True, kw_only=True)
class Roles:
    """The roles of the columns of both tables; None where no column is likely.

    Attributes:
        nodes, edges: the word for what a column looks like, by column.
        id, label, split, source, target: names of columns.
        hashed, ignored: columns that are categories, and columns to leave out.
    """

    nodes: Mapping[str, str]
    edges: Mapping[str, str]
    id: str | None
    label: str | None
    split: str | None
    source: str | None
    target: str | None
    hashed: tuple[str, ...]
    ignored: tuple[str, ...]


class RoleGuess:
    """Guesses the roles of columns.

    Args:
        connection: a DuckDB connection with the copies `raw_nodes` and `raw_edges`.
        nodes, edges: the profiles of the columns.
        given: the roles that are given, which no guess replaces.
    """

    def __init__(
        self,
        connection: Any,
        nodes: Mapping[str, Profile],
        edges: Mapping[str, Profile],
        given: Mapping[str, Any],
    ) -> None:
        self.connection, self.nodes, self.edges, self.given = connection, nodes, edges, given

    def guess(self) -> Roles:
        """Return the role of every column."""
        label = self.given.get("label") or _named(self.nodes, _LABELS)
        node_id, source, target = self._find_ids(without={label})
        split = self._find_split(without={node_id, label})
        taken = {node_id: "id", label: "label", split: "split"}
        words, hashed, ignored = {}, [], []
        for name, profile in self.nodes.items():
            word = taken.get(name) or self._name_feature(profile)
            words[name] = word
            if word == "category" and not self._is_given(name):
                hashed.append(name)
            if word in ("text", "empty", "another id", "another split") and not self._is_given(name):
                ignored.append(name)
        if self.given.get("features") is not None:
            # Features that are named leave the other columns out anyway.
            hashed, ignored = [], []
        ends = {source: "source", target: "target"}
        edge_words = {name: ends.get(name) or _name_edge_column(self.edges[name]) for name in self.edges}
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
        )

    def _is_given(self, name: str) -> bool:
        """Whether a feature column has a role that was given."""
        return any(
            name in (self.given.get(key) or ()) for key in ("features", "ignore", "categorical", "hashed")
        )

    def _name_feature(self, profile: Profile) -> str:
        name = profile.name
        if name in (self.given.get("ignore") or ()):
            return "ignored"
        if name in (self.given.get("categorical") or ()) or name in (self.given.get("hashed") or ()):
            return "category"
        if profile.filled == 0:
            return "empty"
        if name in (self.given.get("features") or ()):
            return "number"
        if looks_like_split(name) or profile.holds_splits:
            return "another split"
        if profile.is_unique and profile.rows > 1 and _ID_NAME.search(name.casefold()):
            return "another id"
        if profile.is_number:
            return "number"
        is_category = profile.distinct <= MOST_CATEGORIES and profile.distinct * 2 <= profile.filled
        return "category" if is_category else "text"

    def _find_split(self, without: set[str | None]) -> str | None:
        if self.given.get("split") is not None:
            return str(self.given["split"])
        if "split" in self.nodes:
            return "split"
        free = [p for p in self.nodes.values() if p.name not in without and not self._is_given(p.name)]
        named = [p.name for p in free if p.holds_split_numbers and looks_like_split(p.name)]
        return next(iter([*named, *(p.name for p in free if p.holds_splits)]), None)

    def _find_ids(self, without: set[str | None]) -> tuple[str | None, str | None, str | None]:
        """Return the id column and the two columns of an edge's ends."""
        ends = self._find_ends()
        if self.given.get("id") is not None:
            candidates = [str(self.given["id"])]
        elif "id" in self.nodes:
            candidates = ["id"]
        else:
            unique = [p.name for p in self.nodes.values() if p.is_unique and p.name not in without]
            named = _named(self.nodes, _IDS)
            # Repeated ids are a problem to report, not a reason to look elsewhere.
            candidates = unique[:_TRIED] or ([named] if named else list(self.nodes)[:1])
        best = max(candidates, key=lambda name: self._count_matches(name, ends), default=None)
        if best in self.nodes and len(ends) > 2:
            ends = sorted(ends, key=lambda end: -self._count_matches(str(best), [end]))[:2]
            ends.sort(key=list(self.edges).index)
        source, target = [*ends, None, None][:2]
        return best, source, target

    def _find_ends(self) -> list[str]:
        """Return the ends of an edge by what is given or by name; else every column they may be in."""
        source = self.given.get("source") or _named(self.edges, _SOURCES)
        target = self.given.get("target") or _named(self.edges, _TARGETS)
        if source and target and source != target:
            return [source, target]
        return list(self.edges)[:_TRIED]

    def _count_matches(self, name: str, ends: Iterable[str]) -> int:
        """Return how many cells of these edge columns hold an id of this node column."""
        if name not in self.nodes:
            return 0
        total = 0
        for end in ends:
            if end in self.edges:
                (count,) = self.connection.execute(
                    f"SELECT count(*) FROM raw_edges WHERE CAST({self.edges[end].sql} AS VARCHAR) IN "
                    f"(SELECT CAST({self.nodes[name].sql} AS VARCHAR) FROM raw_nodes)"
                ).fetchone()
                total += int(count)
        return total


def _name_edge_column(profile: Profile) -> str:
    """Return what another column of the edge table looks like; none of them is read."""
    if profile.is_number and _WEIGHTS.search(profile.name.casefold()):
        return "weight"
    return "number" if profile.is_number else "text"


def _named(columns: Iterable[str], names: tuple[str, ...]) -> str | None:
    """Return the column with the first of these names, whatever its case."""
    folded = {name.casefold(): name for name in reversed(list(columns))}
    return next((folded[name] for name in names if name in folded), None)
