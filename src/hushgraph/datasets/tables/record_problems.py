"""Problems of records: weights, dates, relations and places that are declared, and what could be declared."""

from __future__ import annotations

import shlex
from functools import partial
from typing import Any

from hushgraph._text import join_list, join_pair
from hushgraph.datasets.tables.cells import feature_sql, list_sql, time_sql
from hushgraph.datasets.tables.label_problems import LabelFinder
from hushgraph.datasets.tables.profile import Profile
from hushgraph.datasets.tables.records import check_type
from hushgraph.errors import InputError
from hushgraph.graph.cell_rules import rule_for
from hushgraph.graph.columns import Columns
from hushgraph.graph.records import EdgeWeight

# More different values than this in a column of edges are no kinds of records.
_MOST_KINDS = 12
PROPOSED_PLACES = "hash:65536"
"""Proposed where records name one node and one id that is not a node."""
_RECORDS = ("edge_weight", "edge_date", "since", "until", "half_life", "relation", "places")


class RecordFinder(LabelFinder):
    """Looks for problems of what is declared about records."""

    @property
    def declared_records(self) -> Columns:
        """What is declared about records."""
        return Columns(**{name: self.settings[name] for name in _RECORDS if name in self.settings})

    def check_records(self) -> None:
        """Weights that count as 0, records without a date, and relations that are not declared."""
        try:
            declared = self.declared_records
        except InputError as error:
            self._add(1, "", str(error), 1, "correct the setting", stops=True)
            return
        weight = declared.weight
        check = partial(check_type, self.tables[1], self.rules)
        self._check_type(1, None if weight is None else weight.column, "edge-weight", check)
        self._check_type(1, declared.edge_date, "edge-date", check)
        for name in declared.relation:
            self._check_type(1, name, "relation", check)
        if weight is not None and weight.column is not None:
            self._check_weights(weight)
        if declared.edge_date is not None:
            profile = self._find_declared(declared.edge_date, "edge_date")
            if profile is not None:
                time = time_sql(profile.sql, rule_for(self.rules.date_format, declared.edge_date))
                self._report_records(profile, f"{time} IS NULL", "without a date", "dropped")
        for name, values in declared.relation.items():
            profile = self._find_declared(name, "relation")
            if profile is not None:
                other = f"COALESCE(CAST({profile.sql} AS VARCHAR) NOT IN ({list_sql(values)}), true)"
                advice = "dropped; declare its relation (--relation) to read it"
                self._report_records(profile, other, "of a relation that is not declared", advice)

    def _check_weights(self, weight: EdgeWeight) -> None:
        name = str(weight.column)
        profile = self._find_declared(name, "edge_weight")
        if profile is None:
            return
        value = feature_sql(self.rules, name, profile.sql)
        not_number = f"{value} IS NULL OR NOT isfinite({value})"
        self._report_records(
            profile, not_number, "without a finite weight", "counted as 0: they cast nothing"
        )
        negative = f"{value} < 0 AND isfinite({value})"
        advice = "counted as 0: weights have no sign; a declared relation for each sign keeps both"
        self._report_records(profile, negative, "with a weight below 0", advice)

    def _find_declared(self, name: str, key: str) -> Profile | None:
        """Return the column that a setting names; report a problem if there is none."""
        profile = self._profile(1, name)
        if profile is None:
            self._add_unknown(1, name, key)
        return profile

    def _report_records(self, profile: Profile, condition: str, what: str, remedy: str) -> None:
        self._report(profile, condition, f"{{}} record{{s}} {what}", remedy, place=1)

    def propose_records(self) -> None:
        """Columns of edges that nothing reads: propose a weight and a relation, name the flags of others.

        What is proposed is marked as read off rows, since numbers and values of rows decide it.
        """
        read = {self.roles.source, self.roles.target, *self.declared_columns}
        for name, word in self.roles.edges.items():
            profile = self.profiles[1][name]
            if name in read or word in ("source", "target") or not profile.filled:
                continue
            if word == "weight" and profile.distinct > 1 and self.settings.get("edge_weight") is None:
                weight = f"{name}:log1p"
                what, flag = "says how much a record counts", f"--edge-weight {shlex.quote(weight)}"
                self._propose("edge_weight", weight, name, what, flag)
            elif word in ("weight", "number"):
                advice = f"not read; if it is how much a record counts, give --edge-weight {name}:log1p"
                self._add(1, name, "one more column", 1, advice)
            elif self._holds_dates(profile):
                advice = (
                    f"not read; --edge-date {shlex.quote(name)} with --since and --until YYYY-MM-DD, days "
                    "that you declare, drops older and later records; --half-life lets them fade"
                )
                self._add(1, name, "says when a record was made", 1, advice)
            elif 1 < profile.distinct <= _MOST_KINDS and not self.settings.get("relation"):
                kinds = self._values(profile, place=1)
                flag = f"--relation {shlex.quote(join_pair(name, join_list(kinds, '|')))}"
                what = f"says of which of {len(kinds)} kinds a record is"
                self._propose("relation", {name: kinds}, name, what, flag)
            else:
                advice = "not read: of edges, weights, dates, relations and places are"
                self._add(1, name, "one more column", 1, advice)

    def _propose(self, key: str, value: Any, column: str, what: str, flag: str) -> None:
        """Let the next command declare something about records."""
        self.listing.declared[key] = value
        # What follows looks for problems of it.
        self.settings[key] = value
        advice = f"read so by the next command ({flag}); leave the flag out to count every record alike"
        self._add(1, column, what, 1, advice)

    def _holds_dates(self, profile: Profile) -> bool:
        """Whether nine cells of ten that are not empty are dates, written as year, month and day."""
        time = time_sql(profile.sql, rule_for(self.rules.date_format, profile.name))
        (dates,) = self.connection.execute(f"SELECT count({time}) FROM raw_edges").fetchone()
        return int(dates) * 10 >= profile.filled * 9

    @property
    def declared_columns(self) -> tuple[str, ...]:
        """The columns of edges that settings name."""
        try:
            return self.declared_records.edge_columns
        except InputError:
            return ()
