"""`PrivacyPlan`: fields, figures and JSON of every plan; one class, so that no two disagree, hence long."""

from __future__ import annotations

import hashlib
import json
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, ClassVar, NamedTuple, Self

from hushgraph.accounting.events import Draw, Event, FixedSizeDraw, PoissonDraw
from hushgraph.errors import PlanError
from hushgraph.privacy import choices
from hushgraph.privacy.changes import (
    ONE_EDGE,
    ONE_LABEL,
    ONE_RECORD,
    TRAINING_ROW,
    Change,
    row_emptied,
    rows_emptied,
)
from hushgraph.privacy.charges import (
    BoardCharge,
    Charge,
    EvaluationCharge,
    ScalingCharge,
    Steps,
    epsilon,
    list_events,
)
from hushgraph.privacy.fields import check_fields, name_adjacency, refuse_noise_multiplier
from hushgraph.privacy.plans.calibration import add_evaluation, add_scaling, calibrate_steps, fit_steps
from hushgraph.privacy.plans.formats import FORMAT, read_plan
from hushgraph.privacy.statement import Wording

PREDICTIONS = {True: "covered towards everybody else", False: "not covered"}
FIGURES_ARE = {True: "covered", False: "not covered"}
_METHODS: dict[str, type[PrivacyPlan]] = {}


class Segment(NamedTuple):
    """Steps of a run with one view of the data.

    Attributes:
        opening: what is released before its first step; None where rows read nothing that is released.
        end: its last step.
    """

    opening: Charge | None
    end: int


@dataclass(frozen=True, kw_only=True)
class PrivacyPlan(ABC):
    """What a training run may see and spend, and the guarantee that follows.

    Sampler, batches, noise and report all ask this object, so that no two of them can disagree. A subclass is
    the plan of one method: `BillboardPlan`, `TreePlan` or `RowPlan`. A subclass with a `method` is registered
    when it is defined: `from_json` then reads it.

    Args:
        num_train_nodes: N, how many nodes are in the training split (public); how many persons have one,
            where `protects` is "person".
        num_layers: r, rounds of message passing.
        max_readers: K, how many training nodes read one node, at most. 0 reads no edge in training.
        batch_size: expected number of roots in a batch, 1 to N.
        steps: T, how many noisy steps are taken.
        max_reads: D, how many nodes one training node reads, at most; None is unlimited.
        edge_owner: "sender" or "reader", whose row holds an edge record.
        directed: whether an edge is one record. Otherwise it is two, one in the row of each end, and
            `epsilon_edge` prices both.
        clip: C, the largest norm of one root's gradient.
        sigma_over_clip: sigma / C, the noise on the sum of a step. 0: none, or not chosen yet.
        delta: 1 / (10 N) unless given.
        sampler: "stable" or "paper".
        accountant: "pair" or "paper".
        batches: "poisson" or "fixed"; follows the accountant unless given.
        clipping: "normalised", "flat", "groups", "percentile", or a rule that is registered.
        noise: "common" or "per-layer".
        num_tables: m, how many tables an evaluated row is counted in; 0 releases no figures.
        table_noise: the standard deviation of the noise on every count; `with_evaluation` chooses it.
        num_scaled: F, how many columns have noisy histograms: numbers that are scaled by them, and the number
            to predict where its bounds come from one; 0 releases none.
        has_target: whether the number to predict is one of these columns.
        scaling_noise: the standard deviation of the noise on every bin of them; it follows from epsilon, or
            `with_scaling` chooses it.
        protects: whose row is protected: that of a "node", or that of a "person", all of whose nodes are
            emptied together.
        is_weighted: whether records have weights.
        num_relations: how many relations records are of.

    Guarantees:
        A plan that exists is consistent: a batch the accountant does not price cannot be combined with it.
        `epsilon` is the largest over kinds of rows, infinite for a plan without noise, and never below what
        its accountant can prove.
        `guarantee` is "holds" only where sampler, clipping, noise and batches are all covered by a proof.

    Examples:
        >>> from hushgraph import TreePlan
        >>> plan = TreePlan(num_train_nodes=1000, num_layers=1, max_readers=3, batch_size=100, steps=10)
        >>> plan.changed_trees, plan.sampling_rate, plan.guarantee
        (4, 0.1, 'none')
        >>> private = plan.calibrated(epsilon=4.0)
        >>> private.epsilon <= 4.0, private.guarantee
        (True, 'holds')
    """

    num_train_nodes: int
    batch_size: int
    steps: int
    num_layers: int = 0
    max_readers: int = 0
    max_reads: int | None = None
    edge_owner: choices.EdgeOwner = "sender"
    clip: float = 1.0
    sigma_over_clip: float = 0.0
    # Both are filled in by __post_init__, so readers never meet None.
    delta: float = None  # type: ignore[assignment]
    sampler: choices.Sampler = "stable"
    accountant: choices.Accountant = "pair"
    batches: choices.Batches = None  # type: ignore[assignment]
    clipping: str = "normalised"
    noise: choices.Noise = "common"
    directed: bool = False
    num_tables: int = 0
    table_noise: float = 0.0
    num_scaled: int = 0
    scaling_noise: float = 0.0
    protects: choices.Unit = "node"
    has_target: bool = False
    is_weighted: bool = False
    num_relations: int = 1

    method: ClassVar[str] = ""
    # Whether sigma / C can be given; otherwise it follows from epsilon and steps.
    takes_noise: ClassVar[bool] = True
    # What `from_json` read in an older format: its ledger has the digest of that.
    _text: ClassVar[str | None] = None

    def __new__(cls, **given: Any) -> Self:
        """Refuse what earlier versions took: noise in other units, and a plan of no method."""
        if "noise_multiplier" in given:
            refuse_noise_multiplier(given["noise_multiplier"])
        if cls is PrivacyPlan:
            raise PlanError(
                "PrivacyPlan: expected the plan of a method; use BillboardPlan, TreePlan or RowPlan"
            )
        return object.__new__(cls)

    def __init_subclass__(cls, **others: Any) -> None:
        """Register the plan of a method."""
        super().__init_subclass__(**others)
        if "method" in cls.__dict__:
            _METHODS[cls.method] = cls

    def __post_init__(self) -> None:
        """Fill in the defaults that follow from other fields, then check everything at once."""
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        for name, value in check_fields(given).items():
            object.__setattr__(self, name, value)
        if self.protects == "person" and (self.reads_edges or self.unproven):
            raise PlanError(
                "person: trees with messages, and what the paper claims, are bounded for single nodes, not "
                "for people with several; use the billboard, model='mlp' or max_readers=0"
            )
        if self.num_tables and not self.can_evaluate:
            raise PlanError(
                f"num_tables={self.num_tables}: predictions of this plan are not covered, so that no noise "
                "covers figures about them; leave it out"
            )

    @property
    @abstractmethod
    def step_charge(self) -> Steps:
        """What all steps are charged as."""

    @property
    @abstractmethod
    def changed_trees(self) -> int:
        """n: a node's own tree and the trees of others that differ when its row is emptied, at most N + 1."""

    @property
    @abstractmethod
    def covers_predictions(self) -> bool:
        """Whether predictions for everybody else are covered together with the weights."""

    @property
    @abstractmethod
    def words(self) -> Wording:
        """What reports say of the method."""

    @property
    def adjacency(self) -> str:
        """The relation between neighbouring data sets."""
        return name_adjacency(self.protects)

    @property
    def reads_edges(self) -> bool:
        """Whether training reads any edge."""
        return False

    @property
    def unproven(self) -> tuple[str, ...]:
        """What the paper claims and no proof covers; empty for a plan whose guarantee holds."""
        parts = []
        if self.clipping == "percentile":
            parts.append("percentile thresholds")
        if self.noise == "per-layer":
            parts.append("per-layer noise")
        return tuple(parts)

    @property
    def is_private(self) -> bool:
        """Whether any noise is added."""
        return self.sigma_over_clip > 0

    @property
    def sampling_rate(self) -> float:
        """q, the chance that one training root is in a batch."""
        return self.batch_size / self.num_train_nodes

    @property
    def paper_noise_multiplier(self) -> float:
        """The paper's lambda = sigma / (2 C n)."""
        return self.sigma_over_clip / (2 * self.changed_trees)

    @property
    def sigma(self) -> float:
        """Standard deviation of the noise on the clipped sum."""
        return self.sigma_over_clip * self.clip

    @property
    def draw(self) -> Draw:
        """How the roots of one step are chosen."""
        if self.batches == "poisson":
            return PoissonDraw(rate=self.sampling_rate)
        return FixedSizeDraw(size=self.batch_size, population=self.num_train_nodes)

    def most_lines(self, num_nodes: int) -> int:
        """The most lines that all trees of a batch have together, those of all levels."""
        return num_nodes if self.protects == "person" else self.num_train_nodes

    def mean_lines_per_root(self, num_nodes: int) -> float:
        """The most lines that the deepest level of a tree has on average over all training nodes."""
        return 1.0

    @property
    def segments(self) -> tuple[Segment, ...]:
        """How a session carries the plan out: what it releases, then the steps that read it, in order."""
        return (Segment(None, self.steps),)

    @property
    def segment_ends(self) -> tuple[int, ...]:
        """The steps after which what roots see changes, and the last step."""
        return tuple(segment.end for segment in self.segments)

    @property
    def num_boards(self) -> int:
        """How many boards rows read."""
        return 0

    @property
    def board_noise(self) -> tuple[float, ...]:
        """s of every board."""
        return ()

    def board_charge(self, place: int) -> BoardCharge:
        """Return the charge of a board."""
        raise PlanError(f"board {place + 1}: a plan of method {self.method!r} has no boards")

    @property
    def charges(self) -> tuple[Charge, ...]:
        """What the run is charged for, in order."""
        return self.charges_until(self.steps)

    def charges_until(self, steps: int) -> tuple[Charge, ...]:
        """What a run that has taken this many steps has been charged for; figures follow the last one."""
        done = self.evaluation_charge if steps == self.steps else None
        taken = replace(self.step_charge, times=steps)
        in_order = (self.scaling_charge, *self._releases_until(steps), taken, done)
        return tuple(charge for charge in in_order if charge is not None)

    def _releases_until(self, steps: int) -> tuple[Charge, ...]:
        """What is released between scaling and the figures, apart from steps."""
        starts = (0, *self.segment_ends[:-1])
        begun = [part for part, start in zip(self.segments, starts, strict=True) if start <= steps]
        return tuple(part.opening for part in begun if part.opening is not None)

    @property
    def scaling_charge(self) -> ScalingCharge | None:
        """What the histograms of numeric columns are charged as; None where none are released."""
        if not self.num_scaled:
            return None
        return ScalingCharge(
            num_columns=self.num_scaled, noise_std=self.scaling_noise, has_target=self.has_target
        )

    def with_scaling(self, num_scaled: int) -> Self:
        """The same plan with histograms of this many columns; its epsilon grows by what they cost.

        The noise of steps and boards stays. Where epsilon is given, `calibrated` divides it instead.
        """
        return add_scaling(self, num_scaled)

    @property
    def evaluation_charge(self) -> EvaluationCharge | None:
        """What the figures are charged as; None where none are released."""
        if not self.num_tables:
            return None
        return EvaluationCharge(
            num_tables=self.num_tables, noise_std=self.table_noise, reads_lists=self.predictions_read_lists
        )

    @property
    def can_evaluate(self) -> bool:
        """Whether a prediction is a function of one row and of what was released, so that noise covers it."""
        return False

    @property
    def predictions_read_lists(self) -> bool:
        """Whether a prediction depends on the list of its row."""
        return True

    def with_evaluation(self, num_tables: int) -> Self:
        """The same plan with figures from tables of counts, or without, if `num_tables` is 0.

        Evaluated rows do not pay for training, so their tables may cost what training costs training rows.

        Guarantees:
            The epsilon of the new plan is that of this plan without figures: what a row of the validation or
            test split pays is at most that.
        """
        return add_evaluation(self, num_tables)

    @property
    def events(self) -> list[tuple[Event, int]]:
        """What an accountant composes for one emptied training row."""
        return list_events(self.charges)

    def price(self, changes: Iterable[Change], *, steps: int | None = None) -> float:
        """Epsilon, the largest over `changes`, after `steps` steps; all of them unless given.

        Infinite without noise.
        """
        if not self.is_private:
            return math.inf
        charges = self.charges_until(self.steps if steps is None else steps)
        return epsilon(charges, tuple(changes), delta=self.delta, accountant=self.accountant)

    def _price_or_infinity(self, changes: Iterable[Change]) -> float:
        """`price`, or infinity where the accountant refuses."""
        try:
            return self.price(changes)
        except PlanError:
            return math.inf

    @property
    def epsilon(self) -> float:
        """Epsilon at `delta` for one emptied row, the largest over kinds of rows."""
        return self.price(rows_emptied())

    def epsilon_after(self, steps: int) -> float:
        """Epsilon of a run that has taken `steps` steps."""
        return self.price(rows_emptied(), steps=steps)

    @property
    def epsilon_evaluated(self) -> float:
        """Epsilon for a row of the validation or test split."""
        return self.price(row_emptied("evaluated"))

    @property
    def epsilon_other(self) -> float:
        """Epsilon for a row of no split."""
        return self.price(row_emptied("other"))

    @property
    def epsilon_group_of_two(self) -> float:
        """Epsilon when two rows are emptied together. Infinite where the accountant refuses to price that."""
        return self._price_or_infinity(rows_emptied(2))

    @property
    def epsilon_edge(self) -> float:
        """Epsilon for one edge, the rest of both rows kept: both its records, or its one if `directed`.

        0 where training reads no edge; infinite where no bound is proven.
        """
        return self._price_or_infinity(ONE_RECORD if self.directed else ONE_EDGE)

    @property
    def edge_name(self) -> str:
        """What `epsilon_edge` is the figure of, in words."""
        return "directed record" if self.directed else "undirected edge"

    @property
    def record_figures(self) -> tuple[tuple[str, float], ...]:
        """Further figures about records: what each is of, in words, and epsilon."""
        return ()

    @property
    def record_sentences(self) -> tuple[str, ...]:
        """What records are, where they are more than a list of nodes and something reads them."""
        return ()

    def _tell_records(self, of_relations: str) -> tuple[str, ...]:
        """Whether records have weights, and how many relations there are, with what is said of them."""
        weighted = "A record has a weight, which belongs to the row as well."
        related = f"Records are of {self.num_relations} relations{of_relations}."
        is_true = (self.is_weighted, self.num_relations > 1)
        return tuple(each for each, holds in zip((weighted, related), is_true, strict=True) if holds)

    @property
    def epsilon_label(self) -> float:
        """Epsilon for one label changed into another."""
        return self._price_or_infinity(ONE_LABEL)

    @property
    def guarantee(self) -> str:
        """ "holds", "claimed by the paper" or "none"."""
        if math.isinf(self.epsilon):
            return "none"
        return "claimed by the paper" if self.unproven else "holds"

    def calibrated(self, *, epsilon: float) -> Self:
        """The same plan with the smallest safe noise for `epsilon`.

        Guarantees:
            The epsilon of the new plan, computed anew, is at most `epsilon`.
        """
        return calibrate_steps(self, epsilon)

    def with_paper_noise(self, multiplier: float) -> Self:
        """The same plan with the noise sigma = 2 C n `multiplier`, as the paper writes it."""
        return replace(self, sigma_over_clip=multiplier * 2 * self.changed_trees)

    def with_steps_for(self, *, epsilon: float) -> Self:
        """The same plan with as many steps as `epsilon` pays for at this noise.

        Guarantees:
            The epsilon of the new plan is at most `epsilon`.
        """
        return fit_steps(self, epsilon)

    def with_classes(self, num_classes: int) -> Self:
        """The same plan for data with this many classes, where that changes a charge."""
        return self

    def describe_model(self, model: str) -> str:
        """What is trained, in a few words, where the configuration names its model so."""
        return model.upper()

    def list_own_figures(self) -> list[tuple[str, str]]:
        """What only plans of this method have, for tables on the screen: names and values."""
        return []

    def list_figures(self) -> list[tuple[str, str]]:
        """Entries of the report's table: names and values."""
        figures = [row for charge in self.charges for row in charge.figures]
        return [
            *figures,
            ("training nodes, N", f"{self.num_train_nodes:,}"),
            ("accountant", self.accountant),
        ]

    def list_shares(self) -> list[float]:
        """The part of the budget that each charge gets, by squared shifts, which add up where q = 1."""
        squares = [
            charge.times * (charge.rate * event.largest_shift) ** 2 if event else 0.0
            for charge in self.charges
            for event in [charge.event(TRAINING_ROW)]
        ]
        return [square / math.fsum(squares) for square in squares]

    def summary(self) -> dict[str, Any]:
        """The keys that never change meaning; JSON has no infinity, so an infinite epsilon is "inf"."""
        predictions = PREDICTIONS[self.covers_predictions and self.guarantee == "holds"]
        return {
            "epsilon": json_number(self.epsilon),
            "delta": self.delta,
            "accountant": self.accountant,
            "sampler": self.sampler,
            "adjacency": self.adjacency,
            "unit": self.protects,
            "guarantee": self.guarantee,
            "changed_trees": self.changed_trees,
            "epsilon_group_of_two": json_number(self.epsilon_group_of_two),
            "epsilon_evaluated": json_number(self.epsilon_evaluated),
            "epsilon_other": json_number(self.epsilon_other),
            "epsilon_edge": json_number(self.epsilon_edge),
            "epsilon_label": json_number(self.epsilon_label),
            "method": self.method,
            "predictions": predictions,
            "figures": FIGURES_ARE[self.num_tables > 0],
            "sigma_over_clip": self.sigma_over_clip,
            "paper_noise_multiplier": self.paper_noise_multiplier,
            "steps": self.steps,
            "sampling_rate": self.sampling_rate,
            "max_readers": self.max_readers,
            "max_reads": self.max_reads,
            "edge_owner": self.edge_owner,
            "directed": self.directed,
        }

    def to_json(self) -> str:
        """The plan as one line of JSON with sorted keys; `from_json` gives the same plan back."""
        tags = {"format": FORMAT, "method": self.method, "adjacency": self.adjacency}
        fields = asdict(self)
        for name in self._list_unwritten():
            del fields[name]
        return json.dumps(tags | fields, sort_keys=True, allow_nan=False)

    def _list_unwritten(self) -> tuple[str, ...]:
        """Fields that are not used: fingerprints of plans that were made before they existed stay."""
        tables = () if self.num_tables else ("num_tables", "table_noise")
        scaled = () if self.num_scaled else ("num_scaled", "scaling_noise")
        target = () if self.has_target else ("has_target",)
        unit = ("protects",) if self.protects == "node" else ()
        weights = () if self.is_weighted else ("is_weighted",)
        relations = () if self.num_relations > 1 else ("num_relations",)
        return (*tables, *scaled, *target, *unit, *weights, *relations)

    @staticmethod
    def from_json(text: str) -> PrivacyPlan:
        """The plan that `to_json` wrote, in any format; unknown, missing and repeated keys are refused."""
        return read_plan(text, PrivacyPlan.of_method)

    @staticmethod
    def of_method(method: str | None) -> type[PrivacyPlan]:
        """The class of the plans of a method; PlanError where no such method is known."""
        if method not in _METHODS:
            raise PlanError(f"plan: method={method!r}: expected {' or '.join(map(repr, sorted(_METHODS)))}")
        return _METHODS[method]

    def fingerprint(self) -> str:
        """SHA-256 of `to_json`; of the text itself for a plan that was read in an older format."""
        return hashlib.sha256((self._text or self.to_json()).encode()).hexdigest()


def json_number(value: float) -> float | str:
    """JSON has no infinity."""
    return "inf" if math.isinf(value) else value
