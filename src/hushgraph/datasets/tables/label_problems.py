"""What labels ask for, and their problems: classes that have names, numbers, lists, columns of 0 and 1."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hushgraph.datasets.tables.cells import SEPARATOR, feature_sql, flag_sql, list_sql, quote
from hushgraph.datasets.tables.findings import EXAMPLES, Finder
from hushgraph.datasets.tables.profile import Profile
from hushgraph.datasets.tables.roles import MOST_CATEGORIES, Roles
from hushgraph.tasks.choose import choose_class_task, choose_other_task, read_class_weights

PRIVATE_BOUNDS = "private"
# What stands between the labels of a cell that lists several.
_BETWEEN = ("|", ";", ",")
# More different labels than this are not proposed as a list of labels.
_MOST_LABELS = 200


# Texts that say that a row has none of the labels; a text that is not declared says the same.
_NO_LABEL = ("none", "nothing")
# Of two classes, one that fewer labels than this share have is proposed as rare.
_RARE = 0.1
# What an example of the common class then counts. A constant: it must not follow from how many there are.
_COMMON_WEIGHT = 0.1


@dataclass(frozen=True, kw_only=True)
class Question:
    """What is asked of a node, as far as the caller or the form of the labels says.

    Attributes:
        given: the settings of the task that the caller gave.
        is_number: whether labels are numbers to predict.
    """

    given: Mapping[str, Any] = field(default_factory=dict)
    is_number: bool = False

    @classmethod
    def of(
        cls,
        asked: Mapping[str, Any],
        columns: Mapping[str, Any],
        roles: Roles,
        profiles: Mapping[str, Profile],
        words: Mapping[str, str],
    ) -> Question:
        """Decide whether labels are numbers.

        Args:
            asked: settings of the task, None or False where they are not given.
            columns: the fields of `Columns` that are given.
            roles: of the columns.
            profiles: of the columns of nodes.
            words: "number" for columns of numbers that are written in a special way.
        """
        given = {name: value for name, value in asked.items() if value not in (None, False)}
        others = {name: given.get(name) for name in ("positive", "rare", "class_weight")}
        is_asked = given.get("task") == "number" or "bounds" in given
        if not is_asked or "bounds" in given or any(others.values()):
            choose_other_task(given.get("task", "auto"), given.get("bounds"), others=others)
        name = roles.label if isinstance(roles.label, str) else ""
        profile = profiles.get(name)
        is_declared = any(columns.get(key) is not None for key in ("classes", "separator")) or bool(given)
        if profile is None or is_asked or is_declared:
            return cls(given=given, is_number=is_asked)
        is_spread = profile.is_number and (profile.distinct > MOST_CATEGORIES or profile.fractions > 0)
        is_numbered = profile.integers == profile.filled and profile.distinct == (profile.most or 0) + 1
        return cls(given=given, is_number=words.get(name) == "number" or (is_spread and not is_numbered))


class LabelFinder(Finder):
    """Looks at the column of labels, or at the columns."""

    question = Question()

    def check_label(self) -> None:
        """Labels that are text, numbers, lists or no class at all."""
        if isinstance(self.roles.label, tuple):
            self._check_flags(self.roles.label)
            return
        profile = self._profile(0, self.roles.label)
        if profile is None:
            return
        if self.question.is_number:
            self._check_numbers(profile)
            return
        separator = self.settings.get("separator")
        if separator is not None or self.question.given.get("task") == "labels":
            self._check_lists(profile, separator or self._find_separator(profile) or SEPARATOR)
            return
        classes = self.settings.get("classes")
        if classes is None and not profile.filled:
            advice = "label some rows, or list the classes (--classes a,b)"
            self._add(0, profile.name, "no row has a label", 1, advice, stops=True)
            return
        # Numbers from 0 without a gap are classes as they are.
        is_numbered = profile.integers == profile.filled and profile.distinct == (profile.most or 0) + 1
        if classes is None and not is_numbered:
            if self._find_other_task(profile):
                return
            classes = self._values(profile)
            self.listing.declared["classes"] = classes
            advice = "list them with --classes if they are public, as the next command does"
            if any(mark in name for mark in _BETWEEN for name in classes):
                advice += "; if a cell lists several labels, give --task labels"
            self._add(
                *(0, profile.name, f"classes have names, {len(classes)} of them", profile.filled),
                *(advice, tuple(map(repr, classes[:EXAMPLES]))),
            )
        elif classes is not None:
            outside = self._outside(profile, classes)
            if self._count(outside) and (mark := self._find_separator(profile)) is not None:
                self._check_lists(profile, mark)
                return
            advice = "list all classes (--classes), correct the cells, or empty them (--missing)"
            self._report(profile, outside, "{} label{s} {are} not listed in classes", advice, stops=True)
        names = list(classes or map(str, range(profile.distinct)))
        if len(names) == 1:
            advice = "expected two or more; list all of them (--classes a,b), or choose another --label"
            self._add(0, profile.name, f"{names[0]!r} is the only class", 1, advice, stops=True)
        elif names:
            self._check_rare(profile, names)
        self._add_unlabelled(profile)

    def _check_rare(self, profile: Profile, classes: list[str]) -> None:
        """Check the settings of classes; of two of which one is rare, propose them."""
        given = {name: value for name, value in self.question.given.items() if name != "bounds"}
        weights = given.pop("class_weight", None)
        choose_class_task(len(classes), classes, **given)
        read_class_weights(weights, len(classes), classes)
        if self.question.given or len(classes) != 2:
            return
        counts = [self._count(f"CAST({profile.sql} AS VARCHAR) = {quote(name)}") for name in classes]
        share = min(counts) / max(sum(counts), 1)
        if not 0 < share < _RARE:
            return
        place = counts.index(min(counts))
        name, other = classes[place], classes[1 - place]
        asked = {"positive": name, "rare": True, "class_weight": {other: _COMMON_WEIGHT}}
        self.listing.asked.update(asked)
        self.listing.looked_up.append("rare")
        what = f"{100 * share:.2g}% of the labels are {name!r}"
        advice = (
            "a rare class (--positive, --rare, --class-weight), as the next command says; judge it by "
            "ROC-AUC, since accuracy hides a model that finds nobody"
        )
        self._add(0, profile.name, what, min(counts), advice)

    def _check_numbers(self, profile: Profile) -> None:
        """Say that labels are numbers, and list cells that are none or lie outside declared bounds."""
        given = self.question.given
        filled, value = self._filled(profile), feature_sql(self.rules, profile.name, profile.sql)
        bounds = given.get("bounds")
        if bounds is None:
            least, most = self.connection.execute(
                f"SELECT min(v), max(v) FROM (SELECT {value} AS v FROM raw_nodes WHERE {filled}) WHERE "
                "isfinite(v)"
            ).fetchone()
            if least is None:
                advice = "expected numbers for --task number; choose another --label, or leave out --task"
                self._add(0, profile.name, "no cell is a number", profile.filled, advice, stops=True)
                return
            # Bounds that were read off rows would be an assumption; those that are paid for are none.
            self.listing.asked |= {"task": "number", "bounds": PRIVATE_BOUNDS}
            self.listing.looked_up += [] if "task" in given else ["task"]
            what = (
                f"{profile.distinct:,} different numbers from {least:.6g} to {most:.6g}: this looks like a "
                "number to predict"
            )
            advice = (
                "--task number --bounds private, as the next command says, which pays for bounds; or bounds "
                "that you know, as --bounds 0,100, which are free; or bin it"
            )
            self._add(0, profile.name, what, profile.filled, advice)
        elif bounds != PRIVATE_BOUNDS:
            outside = f"{filled} AND NOT {value} BETWEEN {float(bounds[0])!r} AND {float(bounds[1])!r}"
            advice = "they count as the nearer bound; give wider --bounds if these are numbers to predict"
            self._report(profile, outside, "{} number{s} lie{v} outside the bounds", advice)
        not_number = f"{filled} AND {value} IS NULL"
        advice = "correct them, or count them as empty (--missing): such a row has no label"
        self._report(profile, not_number, "{} label{s} {are} not {numbers}", advice, stops=True)
        self._add_unlabelled(profile)

    def _find_other_task(self, profile: Profile) -> bool:
        """Whether the label is no class but a list or free text; say so."""
        if (mark := self._find_separator(profile)) is not None:
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
            # Labels come back in other combinations or alone; names that happen to hold a comma do not.
            is_often = with_mark * 3 >= different and single < different
            is_alone = with_mark > 0 and single == different - with_mark
            if (is_often or is_alone) and single <= _MOST_LABELS:
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
        given = dict(self.question.given)
        given.pop("task", None)
        choose_other_task("labels", given.pop("bounds", None), others=given)
        if self.question.given.get("task") != "labels":
            self.listing.asked["task"] = "labels"
            self.listing.looked_up.append("task")
        if mark != (self.settings.get("separator") or SEPARATOR):
            self.listing.declared["separator"] = mark
        if classes is None:
            rows = self.connection.execute(
                f"SELECT DISTINCT label FROM {labels_sql} ORDER BY 1 LIMIT {_MOST_LABELS + 1}"
            ).fetchall()
            labels = [str(label) for (label,) in rows if str(label).casefold() not in _NO_LABEL]
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
            advice = "correct them, or empty them (--missing): such a row has no label"
            self._report(profile, wrong, "{} cell{s} {are} neither 0 nor 1", advice, stops=True)
            self._add_unlabelled(profile)

    def _add_unlabelled(self, profile: Profile) -> None:
        if profile.empty:
            what = "1 row has no label" if profile.empty == 1 else f"{profile.empty:,} rows have no label"
            self._add(0, profile.name, what, profile.empty, "fine: training skips them")
