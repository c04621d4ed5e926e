"""Every problem of two tables at once, with counts, examples and what takes care of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hushgraph.datasets.tables.cells import feature_sql
from hushgraph.datasets.tables.findings import EXAMPLES, Listing, show_cell
from hushgraph.datasets.tables.findings import Problem as Problem
from hushgraph.datasets.tables.label_problems import Question
from hushgraph.datasets.tables.profile import Profile, empty_sql, list_sql
from hushgraph.datasets.tables.record_problems import PROPOSED_PLACES, RecordFinder
from hushgraph.datasets.tables.roles import MOST_CATEGORIES, Roles
from hushgraph.datasets.tables.table import Table
from hushgraph.graph.cell_rules import LOOKED_UP, suggest
from hushgraph.graph.columns import Columns

# More different texts than this in a column of numbers are not ways to write an empty cell.
_MOST_TEXTS = 8
# Pairs of nodes with edges in both directions are few below this share.
_MUTUAL = 0.1
# Ends of edges that are no node are proposed as places from this share of records on, where a name is in so
# many of them on average.
_PLACES, _MENTIONS = 0.1, 2
# Words for a column whose cells become numbers.
NUMERIC = ("number", "boolean", "date")
_LISTED = ("features", "ignore", "categorical", "hashed")


def list_problems(
    connection: Any,
    tables: tuple[Table, Table],
    profiles: tuple[Mapping[str, Profile], Mapping[str, Profile]],
    roles: Roles,
    settings: Mapping[str, Any],
    question: Question,
    *,
    missing: tuple[str, ...],
) -> Listing:
    """List the problems of tables that were copied as `raw_nodes` and `raw_edges`."""
    finder = _Finder(connection, tables, profiles, roles, dict(settings), missing)
    finder.question = question
    finder.listing.asked.update(question.given)
    finder.check_names()
    finder.check_ids()
    finder.check_label()
    finder.check_split()
    finder.check_person()
    for name, word in roles.nodes.items():
        if word in NUMERIC and name in profiles[0]:
            finder.check_number(profiles[0][name])
    finder.check_categories()
    finder.check_edges()
    return finder.listing


class _Finder(RecordFinder):
    """Looks for one kind of problem after the other."""

    def check_names(self) -> None:
        """Columns that are given and do not exist, and roles that no column has."""
        labels = [("label", name) for name in self.roles.label_columns or (None,)]
        of_nodes = [("id", self.roles.id), *labels, ("split", self.roles.split)]
        of_edges = [("source", self.roles.source), ("target", self.roles.target)]
        for place, wanted in enumerate((of_nodes, of_edges)):
            for role, name in wanted:
                if name is None and role == "split":
                    continue
                if name is None or name not in self.profiles[place]:
                    self._add_missing_role(place, role, name)
        for key in (*_LISTED, *LOOKED_UP["numbers"], *LOOKED_UP["dates"]):
            known = {*self.profiles[0], "*"} | (set() if key in _LISTED else {*self.profiles[1]})
            for name in self.settings.get(key) or ():
                if name not in known:
                    self._add_unknown(0, name, key)

    def _add_missing_role(self, place: int, role: str, name: str | None) -> None:
        what = f"no column {name!r}" if name else "none looks like it"
        likely = [repr(each) for each in self._list_likely(role)]
        near = suggest(name or "", self.profiles[place])
        flag = "split-column" if role == "split" else role
        advice = f"name it with --{flag}" + (near or (f": {', '.join(likely)}?" if likely else ""))
        self._add(place, role, what, 1, advice, stops=True)

    def _list_likely(self, role: str) -> list[str]:
        """Columns that could have a role that none was given."""
        if role == "label":
            words = self.roles.nodes
            few = [p for p in self.profiles[0].values() if 2 <= p.distinct <= MOST_CATEGORIES]
            few = [p for p in few if words[p.name] == "category" or p.integers == p.filled]
            # Names are likelier than numbers.
            few.sort(key=lambda profile: words[profile.name] != "category")
            return [p.name for p in few if p.name not in (self.roles.id, self.roles.split)][:6]
        if role in ("source", "target"):
            return list(self.profiles[1])[:6]
        return [p.name for p in self.profiles[0].values() if p.is_unique][:6]

    def check_ids(self) -> None:
        """Empty and repeated ids."""
        profile = self._profile(0, self.roles.id)
        if profile is None:
            return
        name, cell = profile.name, profile.sql
        if profile.rows == 0:
            self._add(0, name, "the table has no rows", 1, "expected one node per row", stops=True)
        count = self._count(f"{cell} IS NULL")
        if count:
            rows = self._rows(f"{cell} IS NULL")
            self._add(0, name, f"{count:,} ids are empty", count, "give each row an id", rows, stops=True)
        (extra,) = self.connection.execute(
            f"SELECT count({cell}) - count(DISTINCT CAST({cell} AS VARCHAR)) FROM raw_nodes"
        ).fetchone()
        if extra:
            twice = self.connection.execute(
                f"SELECT CAST({cell} AS VARCHAR) FROM raw_nodes WHERE {cell} IS NOT NULL "
                f"GROUP BY 1 HAVING count(*) > 1 ORDER BY 1 LIMIT {EXAMPLES}"
            ).fetchall()
            examples = tuple(repr(text[:40]) for (text,) in twice)
            what = f"{extra:,} rows repeat an id"
            self._add(0, name, what, extra, "keep one row for each id", examples, stops=True)

    def check_person(self) -> None:
        """No such column, and nodes of nobody."""
        name = self.roles.person
        profile = self._profile(0, name)
        if name is not None and profile is None:
            self._add_unknown(0, name, "person")
        if profile is None or not profile.empty:
            return
        rows = self._rows(f"NOT ({self._filled(profile)})")
        what = f"{profile.empty:,} nodes are of nobody"
        self._add(0, profile.name, what, profile.empty, "fine: each is a person of its own", rows)

    def check_split(self) -> None:
        """Cells that name no split, and no training node."""
        profile = self._profile(0, self.roles.split)
        if self.roles.split is None:
            self._add(0, "split", "no column is a split", 1, "fine: train draws 0.6/0.2/0.2 from the ids")
        if profile is None:
            return
        wrong = profile.filled - profile.splits
        if wrong:
            examples = tuple(repr(text) for text in self._values(profile)[:EXAMPLES])
            what = f"{wrong:,} cells are none of train, val, test, 0, 1, 2"
            advice = "correct them, or draw a split (--split 0.6/0.2/0.2)"
            self._add(0, profile.name, what, wrong, advice, examples, stops=True)
        elif profile.trains == 0:
            advice = "expected train in some rows"
            self._add(0, profile.name, "no row is in the training split", profile.rows, advice, stops=True)

    def check_number(self, profile: Profile) -> None:
        """Empty cells, infinite numbers and text in a column of numbers."""
        name = profile.name
        constants = Columns(fill=self.settings.get("fill", {})).constants
        constant = constants.get(name, constants.get("*"))
        if profile.empty:
            how = (
                f"filled with {constant:g} (fill)" if constant is not None else f"fill them (--fill {name}=0)"
            )
            what, rows = (
                f"{profile.empty:,} cells are empty",
                self._rows(empty_sql(profile.sql, self.missing)),
            )
            self._add(0, name, what, profile.empty, how, rows, stops=constant is None)
        value = feature_sql(self.rules, name, profile.sql)
        texts, infinite = profile.filled - profile.numbers - profile.infinite, profile.infinite
        not_number = f"{self._filled(profile)} AND {value} IS NULL"
        if texts or self._has_rule(name):
            texts = self._count(not_number)
            infinite = self._count(f"{self._filled(profile)} AND isinf({value})")
        if texts:
            self._add_texts(profile, texts, not_number)
        if infinite:
            what = f"{infinite:,} numbers are infinite"
            self._leave_out(name)
            advice = "left out (ignore) until they are corrected"
            self._add(0, name, what, infinite, advice)

    def _has_rule(self, name: str) -> bool:
        rules = (self.rules.decimal, self.rules.thousands, self.rules.percent, self.rules.booleans)
        return any(name in rule or "*" in rule for rule in (*rules, self.rules.dates))

    def _add_texts(self, profile: Profile, count: int, condition: str) -> None:
        values = self._values(profile, condition, most=_MOST_TEXTS + 1)
        examples = tuple(repr(text[:40]) for text in values[:EXAMPLES])
        what = f"{count:,} cells are not numbers"
        if len(values) > _MOST_TEXTS:
            self._leave_out(profile.name)
            self._add(0, profile.name, what, count, "left out (ignore) until they are corrected", examples)
            return
        listed = self.listing.declared.setdefault("missing", list(self.missing))
        listed += [text for text in values if text not in listed]
        advice = "counted as empty (--missing) by the next command, or correct them"
        self._add(0, profile.name, what, count, advice, examples)

    def _leave_out(self, name: str) -> None:
        ignored = self.listing.changes.setdefault("ignore", list(self.settings.get("ignore", ())))
        ignored.append(name)

    def check_categories(self) -> None:
        """Values that a list of categories does not have."""
        for name, values in (self.settings.get("categorical") or {}).items():
            profile = self._profile(0, name)
            if profile is None:
                continue
            outside = (
                self._filled(profile) + f" AND CAST({profile.sql} AS VARCHAR) NOT IN ({list_sql(values)})"
            )
            rule = self.settings.get("unknown_category", "refuse")
            advice = f"they become {rule} (unknown_category)"
            if rule == "refuse":
                advice = "list them, or give --unknown-category zeros"
            what = "{} cells hold a value that is not listed"
            self._report(profile, outside, what, advice, stops=rule == "refuse")

    def check_edges(self) -> None:
        """Ends that are no node, self-loops, repeats, directions, and columns that are not read."""
        self.propose_records()
        self.check_records()
        ends = [self._profile(1, name) for name in (self.roles.source, self.roles.target)]
        node_id = self._profile(0, self.roles.id)
        if node_id is None or ends[0] is None or ends[1] is None:
            return
        linked = self._link(ends[0].sql, ends[1].sql, node_id.sql)
        # A pair of row numbers as one integer, in its direction and in either.
        width = f"{max(node_id.rows, 1)}::BIGINT"
        pair = f"CASE WHEN u <> w THEN u * {width} + w END"
        either = f"CASE WHEN u <> w THEN least(u, w) * {width} + greatest(u, w) END"
        unknown, loops, count, different, undirected = self.connection.execute(
            f"SELECT count(*) FILTER (WHERE u IS NULL OR w IS NULL), count(*) FILTER (WHERE is_loop), "
            f"count({pair}), count(DISTINCT {pair}), count(DISTINCT {either}) FROM {linked}"
        ).fetchone()
        if unknown and not self._add_unknown_places(int(unknown), int(ends[0].rows), linked):
            self._add_unknown_ids(unknown, linked)
        if loops:
            self._add(1, "", f"{_edges(loops)} between a node and itself", loops, "dropped")
        if different < count:
            is_weighted = any(self.settings.get(name) is not None for name in ("edge_weight", "half_life"))
            advice = "their weights are summed" if is_weighted else "dropped; --edge-weight count counts them"
            what = f"{_edges(count - different)} given more than once"
            self._add(1, "", what, count - different, advice)
        mutual = int(different) - int(undirected)
        if different and mutual < _MUTUAL * undirected:
            advice = "give --symmetrize to train if an edge has no direction"
            what = f"{mutual:,} of {undirected:,} pairs" if mutual else "no edge"
            self._add(
                1,
                "",
                f"{what} {'have both directions' if mutual else 'has its reverse'}",
                int(different),
                advice,
            )

    def _link(self, source: str, target: str, node_id: str) -> str:
        """Return SQL of the ends of every edge as text and as rows of nodes, NULL where they are none."""
        self.connection.execute(
            f"CREATE OR REPLACE TABLE ids AS SELECT CAST({node_id} AS VARCHAR) AS id, min(row_no) AS n "
            f"FROM raw_nodes WHERE {node_id} IS NOT NULL GROUP BY 1"
        )
        return (
            "(SELECT row_no, u_text, w_text, a.n AS u, b.n AS w, u_text = w_text AS is_loop FROM (SELECT "
            f"rowid AS row_no, CAST({source} AS VARCHAR) AS u_text, CAST({target} AS VARCHAR) AS w_text FROM "
            "raw_edges) LEFT JOIN ids AS a ON u_text = a.id LEFT JOIN ids AS b ON w_text = b.id)"
        )

    def _add_unknown_places(self, count: int, total: int, linked: str) -> bool:
        """Records that name places; return whether ends that are no node are explained by that."""
        places = self.settings.get("places")
        one_node, names = (
            "(u IS NULL) <> (w IS NULL)",
            "CASE WHEN u IS NULL THEN u_text ELSE w_text END",
        )
        with_node = self.connection.execute(f"SELECT count(*) FROM {linked} WHERE {one_node}").fetchone()[0]
        if places is None:
            (different,) = self.connection.execute(
                f"SELECT count(DISTINCT {names}) FROM {linked} WHERE {one_node}"
            ).fetchone()
            # Names that several records share are places; single ones are more likely misspelt ids.
            is_shared = with_node >= _PLACES * total and with_node >= _MENTIONS * different
            if not total or (with_node < total and not is_shared):
                return False
            self.listing.declared["places"] = PROPOSED_PLACES
            what = f"{with_node:,} of {total:,} records name a node and something that is none"
            advice = (
                f"read as places that are not people by the next command (--places {PROPOSED_PLACES}); a "
                "file of their names is better where you have a public list"
            )
            self._add(1, "", what, with_node, advice)
            self.settings["places"] = places = PROPOSED_PLACES
        unknown = f"(u IS NULL AND w IS NULL) OR ({one_node} AND {names} IS NULL)"
        if not isinstance(places, str):
            unknown += f" OR ({one_node} AND {names} NOT IN ({list_sql(places)}))"
        rows = self.connection.execute(
            f"SELECT {names}, count(*) OVER () FROM {linked} WHERE {unknown} ORDER BY row_no LIMIT {EXAMPLES}"
        ).fetchall()
        if rows:
            examples = tuple(show_cell(text) for text, _ in rows)
            what = f"{_edges(rows[0][1])} that name no declared place"
            self._add(1, "", what, int(rows[0][1]), "dropped; add the place to the list (--places)", examples)
        return True

    def _add_unknown_ids(self, count: int, linked: str) -> None:
        total = self.profiles[1][str(self.roles.source)].rows
        texts = self.connection.execute(
            f"SELECT CASE WHEN u IS NULL THEN u_text ELSE w_text END FROM {linked} WHERE u IS NULL OR w IS "
            f"NULL ORDER BY row_no LIMIT {EXAMPLES}"
        ).fetchall()
        examples = tuple(show_cell(text) for (text,) in texts)
        is_dropped = self.settings.get("unknown_ids") == "drop"
        advice = (
            "dropped (unknown_ids)"
            if is_dropped
            else "drop them (--unknown-ids drop), or declare places that are not people (--places)"
        )
        what = f"{_edges(count)} with an end that is not a node"
        if count == total:
            first = self._values(self.profiles[0][str(self.roles.id)])[:EXAMPLES]
            advice = f"expected ids of the nodes, such as {', '.join(map(repr, first))}"
        self._add(1, "", what, count, advice, examples, stops=not is_dropped or count == total)


def _edges(count: int) -> str:
    return "1 edge" if count == 1 else f"{count:,} edges"
