"""Every problem of two tables at once, with counts, examples and what takes care of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hushgraph._text import suggest
from hushgraph.datasets.tables.cells import feature_sql, list_sql
from hushgraph.datasets.tables.findings import EXAMPLES, Listing
from hushgraph.datasets.tables.findings import Problem as Problem
from hushgraph.datasets.tables.label_problems import Question
from hushgraph.datasets.tables.node_table import SPLIT_WORDS
from hushgraph.datasets.tables.profile import Profile, empty_sql
from hushgraph.datasets.tables.record_problems import PROPOSED_PLACES, RecordFinder
from hushgraph.datasets.tables.roles import MOST_CATEGORIES, Roles
from hushgraph.datasets.tables.table import Table
from hushgraph.errors import HushgraphError
from hushgraph.graph.cell_rules import LARGEST_FLOAT, LOOKED_UP
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
_LEFT_OUT = "left out (ignore) until they are corrected"
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
    finder.check_types()
    finder.check_ids()
    finder.check_label()
    finder.check_split()
    finder.check_person()
    for name, word in roles.nodes.items():
        if word in NUMERIC and name in profiles[0]:
            finder.check_number(profiles[0][name])
    finder.check_categories()
    finder.check_features()
    finder.check_edges()
    return finder.listing


class _Finder(RecordFinder):
    """Looks for one kind of problem after the other."""

    def check_names(self) -> None:
        """Report given columns that do not exist, and roles that no column has."""
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

    def check_types(self) -> None:
        """Report columns of lists and other structures, and types that a single cell can change."""
        nodes, edges = self.tables
        self._check_type(0, self.roles.id, "id", nodes.check_scalar)
        self._check_type(0, self.roles.person, "person", nodes.check_scalar)
        for role in ("group", "categorical", "hashed"):
            for name in self.settings.get(role) or ():
                self._check_type(0, name, role, nodes.check_scalar)
                self._check_type(0, name, role, nodes.check_exact)
        self._check_type(1, self.roles.source, "source", edges.check_scalar)
        self._check_type(1, self.roles.target, "target", edges.check_scalar)

    def _add_missing_role(self, place: int, role: str, name: str | None) -> None:
        what = f"no column {name!r}" if name else "none looks like it"
        likely = [repr(each) for each in self._list_likely(role)]
        near = suggest(name or "", self.profiles[place])
        flag = "split-column" if role == "split" else role
        advice = f"name it with --{flag}" + (near or (f": {', '.join(likely)}?" if likely else ""))
        self._add(place, role, what, 1, advice, stops=True)

    def _list_likely(self, role: str) -> list[str]:
        """List the columns that are likely to have a role that is still missing."""
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
        """Report empty and repeated ids."""
        profile = self._profile(0, self.roles.id)
        if profile is None:
            return
        name, cell = profile.name, profile.sql
        if profile.rows == 0:
            self._add(0, name, "the table has no rows", 1, "expected one node per row", stops=True)
        remedy = "give each row an id"
        self._report(profile, f"{cell} IS NULL", "{} id{s} {are} empty", remedy, show="rows", stops=True)
        if not profile.is_unique:
            first = f"SELECT min(row_no) FROM raw_nodes GROUP BY {cell}"
            again = f"{cell} IS NOT NULL AND row_no NOT IN ({first})"
            remedy = "keep one row for each id"
            self._report(profile, again, "{} row{s} repeat{v} an id", remedy, show="values", stops=True)

    def check_person(self) -> None:
        """Report a missing column of persons, and nodes that have no person."""
        name = self.roles.person
        profile = self._profile(0, name)
        if name is not None and profile is None:
            self._add_unknown(0, name, "person")
        if profile is not None and profile.empty:
            remedy = "fine: each is a person of its own"
            empty = empty_sql(profile.sql, self.missing)
            self._report(profile, empty, "{} node{s} {have} no person", remedy, show="rows")

    def check_split(self) -> None:
        """Report cells that name no split, and a split without training nodes."""
        profile = self._profile(0, self.roles.split)
        if self.roles.split is None:
            self._add(0, "split", "no column is a split", 1, "fine: train draws 0.6/0.2/0.2 from the ids")
        if profile is None:
            return
        if profile.filled > profile.splits:
            text = f"lower(trim(CAST({profile.sql} AS VARCHAR)))"
            known = [word for words in SPLIT_WORDS for word in words]
            wrong = f"{self._filled(profile)} AND {text} NOT IN ({list_sql(known)})"
            what = "{} cell{s} {are} none of train, val, test, 0, 1, 2"
            advice = "correct them, or draw a split (--split 0.6/0.2/0.2)"
            self._report(profile, wrong, what, advice, show="values", stops=True)
        elif profile.trains == 0:
            advice = "expected train in some rows"
            self._add(0, profile.name, "no row is in the training split", profile.rows, advice, stops=True)

    def check_number(self, profile: Profile) -> None:
        """Report empty cells, infinite numbers and text in a numeric column."""
        name = profile.name
        constants = Columns(fill=self.settings.get("fill", {})).constants
        constant = constants.get(name, constants.get("*"))
        if profile.empty:
            how = f"fill them (--fill {name}=0)" if constant is None else f"filled with {constant:g} (fill)"
            empty, stops = empty_sql(profile.sql, self.missing), constant is None
            self._report(profile, empty, "{} cell{s} {are} empty", how, show="rows", stops=stops)
        value = feature_sql(self.rules, name, profile.sql)
        is_small = all(abs(each or 0.0) <= LARGEST_FLOAT for each in (profile.least, profile.most))
        if profile.filled == profile.numbers and is_small and not self._has_rule(name):
            return
        not_number = f"{self._filled(profile)} AND {value} IS NULL"
        if self._count(not_number):
            self._add_texts(profile, not_number)
        infinite = f"{self._filled(profile)} AND abs({value}) > {LARGEST_FLOAT!r} AND NOT isnan({value})"
        if self._report(profile, infinite, "{} number{s} {are} infinite or too large", _LEFT_OUT):
            self._leave_out(name)

    def _has_rule(self, name: str) -> bool:
        return name in self.rules.dates or self.rules.name_text_rule(name) is not None

    def _add_texts(self, profile: Profile, condition: str) -> None:
        values = self._values(profile, condition, most=_MOST_TEXTS + 1)
        advice = "counted as empty (--missing) by the next command, or correct them"
        if len(values) > _MOST_TEXTS:
            self._leave_out(profile.name)
            advice = _LEFT_OUT
        else:
            listed = self.listing.declared.setdefault("missing", list(self.missing))
            listed += [text for text in values if text not in listed]
        self._report(profile, condition, "{} cell{s} {are} not {numbers}", advice, show="values")

    def _leave_out(self, name: str) -> None:
        ignored = self.listing.changes.setdefault("ignore", list(self.settings.get("ignore", ())))
        ignored.append(name)

    def check_categories(self) -> None:
        """Report values that are not in the list of categories of their column."""
        for name, values in (self.settings.get("categorical") or {}).items():
            profile = self._profile(0, name)
            if profile is None:
                continue
            outside = self._outside(profile, values)
            rule = self.settings.get("unknown_category", "refuse")
            advice = f"they become {rule} (unknown_category)"
            if rule == "refuse":
                advice = "list them, or give --unknown-category zeros"
            what = "{} cell{s} hold{v} a value that is not listed"
            self._report(profile, outside, what, advice, stops=rule == "refuse")

    def check_features(self) -> None:
        """Report that no column is left for a model to learn from."""
        try:
            columns = Columns.of({**self.settings, **self.listing.changes})
            resolved = columns.resolve_names(self.tables[0].names)
        except HushgraphError:
            # Told by then.
            return
        if not resolved.num_features:
            advice = "expected numbers, or columns given as categorical or hashed (--categorical, --hash)"
            self._add(0, "", "no column is a feature", 1, advice, stops=True)

    def check_edges(self) -> None:
        """Report ends that are not nodes, self-loops, repeats, directions, and columns that are not read."""
        self.propose_records()
        self.check_records()
        ends = [self._profile(1, name) for name in (self.roles.source, self.roles.target)]
        node_id = self._profile(0, self.roles.id)
        if node_id is None or ends[0] is None or ends[1] is None:
            return
        kind = self.tables[0].type_of(node_id.name)
        source, target = (self.tables[1].id_sql(each.name, like=kind) for each in ends if each is not None)
        self._link(source, target, node_id.sql)
        # A pair of row numbers as one integer, in its direction and in either.
        width = f"{max(node_id.rows, 1)}::BIGINT"
        pair = f"CASE WHEN u <> w THEN u * {width} + w END"
        either = f"CASE WHEN u <> w THEN least(u, w) * {width} + greatest(u, w) END"
        count, different, undirected = self.connection.execute(
            f"SELECT count({pair}), count(DISTINCT {pair}), count(DISTINCT {either}) FROM linked"
        ).fetchone()
        if not self._explain_by_places(ends[0].rows):
            self._add_unknown_ids(ends[0].rows)
        loops = self._count("is_loop", "linked")
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
            what = f"{mutual:,} of {undirected:,} pairs have both directions" if mutual else ""
            self._add(1, "", what or "no edge has its reverse", int(different), advice)

    def _link(self, source: str, target: str, node_id: str) -> None:
        """Create the table `linked`: rows of nodes that edges name, and the id of an end that is no node."""
        self.connection.execute(
            f"CREATE OR REPLACE TABLE ids AS SELECT CAST({node_id} AS VARCHAR) AS id, min(row_no) AS n "
            f"FROM raw_nodes WHERE {node_id} IS NOT NULL GROUP BY 1"
        )
        self.connection.execute(
            "CREATE OR REPLACE TABLE linked AS SELECT row_no, a.n AS u, b.n AS w, "
            "u_text = w_text AS is_loop, CASE WHEN u IS NULL THEN u_text WHEN w IS NULL THEN w_text END "
            f"AS name FROM (SELECT rowid AS row_no, CAST({source} AS VARCHAR) AS u_text, CAST({target} AS "
            "VARCHAR) AS w_text FROM raw_edges) LEFT JOIN ids AS a ON u_text = a.id LEFT JOIN ids AS b ON "
            "w_text = b.id"
        )

    def _explain_by_places(self, total: int) -> bool:
        """Report records of undeclared places; return whether places explain the ends that are not nodes."""
        places = self.settings.get("places")
        one_node = "(u IS NULL) <> (w IS NULL)"
        if places is None:
            with_node, different = self.connection.execute(
                f"SELECT count(*), count(DISTINCT name) FROM linked WHERE {one_node}"
            ).fetchone()
            # Names that several records share are places; single ones are more likely misspelt ids.
            is_shared = with_node >= _PLACES * total and with_node >= _MENTIONS * different
            if not with_node or (with_node < total and not is_shared):
                return False
            self.listing.declared["places"] = PROPOSED_PLACES
            what = f"{with_node:,} of {total:,} records name one node and one id that is not a node"
            advice = (
                f"read as places that are not people by the next command (--places {PROPOSED_PLACES}); a "
                "file of their names is better where you have a public list"
            )
            self._add(1, "", what, with_node, advice)
            self.settings["places"] = places = PROPOSED_PLACES
        known = "name IS NOT NULL" if isinstance(places, str) else f"name IN ({list_sql(places)})"
        unknown = f"(u IS NULL OR w IS NULL) AND NOT COALESCE({one_node} AND {known}, false)"
        advice = "dropped: one end has to be a node"
        if not isinstance(places, str):
            advice += ", and the other a place of the list (--places)"
        self._report(None, unknown, "{} edge{s} that name no declared place", advice, place=1)
        return True

    def _add_unknown_ids(self, total: int) -> None:
        unknown = "u IS NULL OR w IS NULL"
        is_dropped, is_every = (
            self.settings.get("unknown_ids") == "drop",
            self._count(unknown, "linked") == total,
        )
        advice = (
            "dropped (unknown_ids)"
            if is_dropped
            else "drop them (--unknown-ids drop), or declare places that are not people (--places)"
        )
        if is_every:
            first = self._values(self.profiles[0][str(self.roles.id)])[:EXAMPLES]
            advice = f"expected ids of the nodes, such as {', '.join(map(repr, first))}"
        what, stops = "{} edge{s} with an end that is not a node", not is_dropped or is_every
        self._report(None, unknown, what, advice, place=1, stops=stops)


def _edges(count: int) -> str:
    return "1 edge" if count == 1 else f"{count:,} edges"
