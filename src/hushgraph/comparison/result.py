"""What a comparison of five models says: an entry a run, what publishing them costs, and its JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from hushgraph._text import digits_up, rounded_up
from hushgraph.errors import RunError
from hushgraph.privacy.guarantee import (
    Assumption,
    judge_size,
    name_assumed,
    write_assumptions,
)
from hushgraph.privacy.plans import FIGURES_ARE, PREDICTIONS, json_number

if TYPE_CHECKING:
    from hushgraph.training.run import Run

FORMAT = 2
BILLBOARD, TREES = "DP-Billboard", "DP-GNN (trees)"
# The runs in their order, each with the name of its folder.
FOLDERS = {"GNN": "gnn", "MLP": "mlp", BILLBOARD: "dp-billboard", TREES: "dp-gnn", "DP-MLP": "dp-mlp"}
NAMES = tuple(FOLDERS)
_NUMBERS = ("epsilon", "delta", "validation", "test", "macro_f1", "seconds")


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One of the runs.

    Attributes:
        name: "GNN", "MLP", "DP-Billboard", "DP-GNN (trees)" or "DP-MLP".
        model: the architecture.
        method: "billboard" or "trees".
        private: whether it was trained with noise.
        predictions: "covered towards everybody else" or "not covered".
        epsilon, delta, guarantee: of this run by itself; epsilon is infinite without privacy.
        figure: what the task is judged by, as results call it: "accuracy", "auc" or "r2".
        validation, test: that figure on these splits; None without labelled nodes, or where noise hides it.
        macro_f1: on the test split; None for other tasks than classes.
        seconds: how long training took.
        plan: fingerprint of the run's plan.
        figures: "covered" or "not covered".
    """

    name: str
    model: str
    method: str
    private: bool
    predictions: str
    epsilon: float
    delta: float
    guarantee: str
    validation: float | None
    test: float | None
    macro_f1: float | None
    seconds: float
    plan: str
    figures: str = FIGURES_ARE[False]
    figure: str = "accuracy"

    def to_json(self) -> dict[str, Any]:
        """The fields as JSON values; the figure stands under its own name, as val_auc and test_auc."""
        values = {**asdict(self), "epsilon": json_number(self.epsilon)}
        own = {f"val_{self.figure}": values.pop("validation"), f"test_{self.figure}": values.pop("test")}
        return values | own

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Entry:
        """The entry that `to_json` wrote."""
        given = dict(values)
        figure = given["figure"]
        given["validation"], given["test"] = given.pop(f"val_{figure}"), given.pop(f"test_{figure}")
        return cls(**given | {key: _number(given[key]) for key in _NUMBERS})


class Total(NamedTuple):
    """What all private runs cost together, and how it was computed, in words."""

    epsilon: float
    delta: float
    composition: str


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Five runs on one split.

    Attributes:
        data: what the data was called.
        seeded: whether a fixed seed made all of them reproducible, not private.
        entries: GNN, MLP, DP-Billboard, DP-GNN (trees), DP-MLP.
        total: of all private runs.
        assumptions: what the guarantees of all of them take as public although nobody declared it.
        notices: whether the graph helps, from covered figures and their intervals; empty where it does.
        runs: by name; empty for a comparison that was read from a file.

    Guarantees:
        `release_all` is infinite unless the guarantee of every private model holds.

    Examples:
        >>> import hushgraph as hg
        >>> data = hg.datasets.synthetic(num_nodes=300, num_classes=3, seed=1)
        >>> comparison = hg.compare(data, epsilon=2.0, steps=3, hidden=8, device="cpu")
        >>> [entry.name for entry in comparison.entries if entry.private]
        ['DP-Billboard', 'DP-GNN (trees)', 'DP-MLP']
        >>> epsilon, delta = comparison.release_all
        >>> 2.0 < epsilon < 6.0, delta == comparison.entries[2].delta
        (True, True)
    """

    data: str
    seeded: bool
    entries: tuple[Entry, ...]
    total: Total
    assumptions: tuple[Assumption, ...] = ()
    notices: tuple[str, ...] = ()
    runs: Mapping[str, Run] = field(default_factory=dict, compare=False, repr=False)

    @property
    def figure(self) -> str:
        """What the models are judged by, as results call it; see `Entry.figure`."""
        return self.entries[0].figure if self.entries else "accuracy"

    @property
    def release_all(self) -> tuple[float, float]:
        """Epsilon and delta of publishing all private models together."""
        if self.seeded or any(entry.guarantee != "holds" for entry in self._private):
            return math.inf, 1.0
        return self.total.epsilon, self.total.delta

    @property
    def composition(self) -> str:
        """How `release_all` was computed, in words."""
        return self.total.composition

    @property
    def warnings(self) -> list[str]:
        """What is unusual about the comparison; public."""
        name = f"epsilon of all {len(self._private)} private models together"
        size = judge_size(*self.release_all, name=name)
        return [] if size is None else [size.sentence]

    @property
    def cost(self) -> str:
        """What the runs cost and what may be published, in words."""
        others = _join(entry.name for entry in self.entries if not entry.private)
        unsafe = (
            f"{others} are trained without privacy: they have no guarantee at all and must not be released. "
            f"{self._figures}"
        )
        if self.seeded:
            names = _join(entry.name for entry in self._private)
            fixed = f"The seed is fixed, so {names} are reproducible, not private: nothing is guaranteed."
            return f"{fixed} {unsafe}"
        unproven = [entry for entry in self._private if entry.guarantee != "holds"]
        if unproven:
            words = "; ".join(f"the guarantee of {entry.name}: {entry.guarantee}" for entry in unproven)
            return f"Publishing all private models has no proven cost ({words}). {unsafe}"
        epsilon = max(entry.epsilon for entry in self._private)
        delta = max(entry.delta for entry in self._private)
        total = self.release_all
        return (
            f"Each private model is ({rounded_up(epsilon)}, {digits_up(delta)})-differentially private by "
            f"itself{name_assumed(self.assumptions)}; publishing all {len(self._private)} together costs up "
            f"to ({rounded_up(total[0])}, {digits_up(total[1])}) by composition ({self.composition}). "
            f"{self._predictions} {unsafe}"
        )

    @property
    def _private(self) -> list[Entry]:
        return [entry for entry in self.entries if entry.private]

    @property
    def _predictions(self) -> str:
        """Name the models whose epsilon also covers their predictions."""
        covered = [entry.name for entry in self._private if entry.predictions != PREDICTIONS[False]]
        others = [entry.name for entry in self._private if entry.predictions == PREDICTIONS[False]]
        words = f"Predictions of {_join(covered)} are covered towards everybody else. " if covered else ""
        return words + (f"Predictions of {_join(others)} are not covered." if others else "")

    @property
    def _figures(self) -> str:
        """Which figures are covered."""
        covered = [entry.name for entry in self.entries if entry.figures == FIGURES_ARE[True]]
        others = [entry.name for entry in self.entries if entry.figures != FIGURES_ARE[True]]
        clear = (
            f"Figures of {_join(others)} read the private graph and its labels in the clear, so neither they "
            "nor a choice made by them is covered."
        )
        if not covered:
            return clear
        return f"Figures of {_join(covered)} are covered, from noisy counts. {clear}"

    def to_json(self) -> str:
        """One line of JSON; `from_json` gives the same comparison back, without its runs."""
        epsilon, delta = self.release_all
        about = {
            "comparison": FORMAT,
            "data": self.data,
            "seeded": self.seeded,
            "rows": [entry.to_json() for entry in self.entries],
            "assumptions": write_assumptions(self.assumptions),
            "release_all": {
                "epsilon": json_number(epsilon),
                "delta": delta,
                "models": len(self._private),
                "composition": self.composition,
            },
            "cost": self.cost,
            "warnings": self.warnings,
            "notices": list(self.notices),
        }
        return json.dumps(about, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Comparison:
        """The comparison that `to_json` wrote."""
        try:
            about = json.loads(text)
            if about["comparison"] != FORMAT:
                raise RunError(
                    f"the comparison has format {about['comparison']!r}, and this version reads format "
                    f"{FORMAT}; compare again, or move the file away"
                )
            entries = tuple(Entry.from_json(entry) for entry in about["rows"])
            if tuple(entry.name for entry in entries) != NAMES:
                raise ValueError(f"expected entries {', '.join(NAMES)}")
            total = about["release_all"]
            return cls(
                data=str(about["data"]),
                seeded=bool(about["seeded"]),
                entries=entries,
                total=Total(float(total["epsilon"]), float(total["delta"]), str(total["composition"])),
                assumptions=tuple(Assumption(**each) for each in about["assumptions"]),
                notices=tuple(map(str, about["notices"])),
            )
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            raise RunError(f"the comparison is damaged ({error}); restore it or compare again") from None


def _join(names: Iterable[str]) -> str:
    """Names as a list in words."""
    *firsts, last = names
    return f"{', '.join(firsts)} and {last}" if firsts else last


def _number(value: Any) -> Any:
    return None if value is None else float(value)
