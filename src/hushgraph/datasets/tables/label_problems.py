"""Problems of labels: classes that have names, numbers, lists of labels, columns of 0 and 1."""

from __future__ import annotations

from hushgraph.datasets.tables.cells import flag_sql, quote
from hushgraph.datasets.tables.findings import EXAMPLES, Finder
from hushgraph.datasets.tables.node_table import SEPARATOR
from hushgraph.datasets.tables.profile import Profile, list_sql
from hushgraph.datasets.tables.roles import MOST_CATEGORIES

# What stands between the labels of a cell that lists several.
_BETWEEN = ("|", ";", ",")
# More different labels than this are not proposed as a list of labels.
_MOST_LABELS = 200


class LabelFinder(Finder):
    """Looks at the column of labels, or at the columns."""

    def check_label(self) -> None:
        """Labels that are text, and labels that are no class."""
        if isinstance(self.roles.label, tuple):
            self._check_flags(self.roles.label)
            return
        profile = self._profile(0, self.roles.label)
        if profile is None:
            return
        classes = self.settings.get("classes")
        if self.settings.get("separator") is not None:
            self._check_lists(profile, self.settings["separator"])
            return
        # Numbers from 0 without a gap are classes as they are.
        is_numbered = profile.integers == profile.filled and profile.distinct == (profile.most or 0) + 1
        if classes is None and not is_numbered:
            if self._find_other_task(profile):
                return
            names = self._values(profile)
            self.listing.declared["classes"] = names
            self._add(
                *(0, profile.name, f"classes have names, {len(names)} of them", profile.filled),
                "list them with --classes if they are public, as the next command does",
                tuple(map(repr, names[:EXAMPLES])),
            )
        elif classes is not None:
            outside = (
                self._filled(profile) + f" AND CAST({profile.sql} AS VARCHAR) NOT IN ({list_sql(classes)})"
            )
            count = self._count(outside)
            if count and (mark := self._find_separator(profile)) is not None:
                self._check_lists(profile, mark)
                return
            if count:
                advice = "list all classes (--classes), correct the cells, or empty them (--missing)"
                examples = self._examples(profile, outside)
                what = f"{count:,} labels are not listed in classes"
                self._add(0, profile.name, what, count, advice, examples, stops=True)
        self._add_unlabelled(profile)

    def _find_other_task(self, profile: Profile) -> bool:
        """Whether the label is no class but a number, a list or free text; say so."""
        is_number, is_whole = profile.numbers == profile.filled, profile.fractions == 0
        if is_number and (profile.distinct > MOST_CATEGORIES or not is_whole):
            what = f"{profile.distinct:,} different numbers: this looks like a number to predict"
            advice = (
                "bin it, or give --task number --bounds a,b with bounds that you know; for classes, expected "
                "whole numbers from 0 or names"
            )
            self._add(0, profile.name, what, profile.filled, advice, stops=True)
        elif (mark := self._find_separator(profile)) is not None:
            self._check_lists(profile, mark)
        elif profile.distinct > MOST_CATEGORIES:
            values = f"{profile.distinct:,} different values"
            advice = "expected whole numbers from 0, or names of a few classes; choose another --label"
            self._add(0, profile.name, values, profile.filled, advice, stops=True)
        else:
            return False
        return True

    def _find_separator(self, profile: Profile) -> str | None:
        """Return what stands between the labels of a cell; None if nothing does."""
        if self._has_lists(profile):
            return SEPARATOR
        cell = f"CAST({profile.sql} AS VARCHAR)"
        for mark in _BETWEEN:
            with_mark, different, single = self.connection.execute(
                f"SELECT count(*) FILTER (WHERE contains(v, '{mark}')), count(*), (SELECT count(DISTINCT "
                f"label) FROM {self._labels_sql(profile, mark)}) FROM (SELECT DISTINCT {cell} AS v FROM "
                f"raw_nodes WHERE {self._filled(profile)})"
            ).fetchone()
            # Labels come back in other combinations; names that happen to hold a comma do not.
            if with_mark * 3 >= different and single < different and single <= _MOST_LABELS:
                return mark
        return None

    def _has_lists(self, profile: Profile) -> bool:
        """Whether the type of the column is a list of texts."""
        return self.tables[0].type_of(profile.name) == "VARCHAR[]"

    def _labels_sql(self, profile: Profile, mark: str) -> str:
        """SQL of the single labels of all lists."""
        is_list = self._has_lists(profile)
        parts = profile.sql if is_list else f"string_split(CAST({profile.sql} AS VARCHAR), {quote(mark)})"
        return (
            f"(SELECT trim(part) AS label FROM (SELECT unnest({parts}) AS part FROM raw_nodes WHERE "
            f"{self._filled(profile)}) WHERE trim(part) <> '')"
        )

    def _check_lists(self, profile: Profile, mark: str) -> None:
        """Say that labels are lists, and which labels a next command would have to declare."""
        classes, labels_sql = self.settings.get("classes"), self._labels_sql(profile, mark)
        self.listing.task = "labels"
        if mark != (self.settings.get("separator") or SEPARATOR):
            self.listing.declared["separator"] = mark
        if classes is None:
            rows = self.connection.execute(
                f"SELECT DISTINCT label FROM {labels_sql} ORDER BY 1 LIMIT {_MOST_LABELS + 1}"
            ).fetchall()
            labels = [str(label) for (label,) in rows]
            is_long = len(labels) > _MOST_LABELS
            count = f"more than {_MOST_LABELS}" if is_long else str(len(labels))
            what = f"lists with {mark!r} between their labels, {count} different ones"
            advice = (
                "several labels a row (--task labels): list them with --classes if they are public, as the "
            )
            advice += "next command does"
            if is_long:
                advice = "several labels a row (--task labels): list those that you want with --classes a,b,c"
            else:
                self.listing.declared["classes"] = labels
            shown = tuple(map(repr, labels[:EXAMPLES]))
            self._add(0, profile.name, what, profile.filled, advice, shown, stops=is_long)
        else:
            (count,) = self.connection.execute(
                f"SELECT count(*) FROM {labels_sql} WHERE label NOT IN ({list_sql(classes)})"
            ).fetchone()
            if count:
                what = f"{count:,} labels of lists are not among the {len(classes)} declared"
                self._add(0, profile.name, what, count, "left out of their lists")
        self._add_unlabelled(profile)

    def _check_flags(self, names: tuple[str, ...]) -> None:
        """Cells of columns of labels that are neither 0 nor 1."""
        for name in names:
            profile = self._profile(0, name)
            if profile is None:
                continue
            wrong = f"{self._filled(profile)} AND {flag_sql(profile.sql)} IS NULL"
            count = self._count(wrong)
            if count:
                what = f"{count:,} cells are neither 0 nor 1"
                advice = "correct them, or empty them (--missing): such a row has no label"
                self._add(0, name, what, count, advice, self._examples(profile, wrong), stops=True)
            self._add_unlabelled(profile)

    def _add_unlabelled(self, profile: Profile) -> None:
        if profile.empty:
            what = f"{profile.empty:,} rows have no label"
            self._add(0, profile.name, what, profile.empty, "fine: they are not learnt from")
