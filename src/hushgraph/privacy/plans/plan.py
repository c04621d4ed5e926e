"""`PrivacyPlan`: what every plan has: the fields, the figures that follow from its charges, and its JSON."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields, replace
from functools import lru_cache
from typing import Any, ClassVar, Self

from hushgraph._validate import as_float, show_value
from hushgraph.accounting.events import Draw, Event, FixedSizeDraw, PoissonDraw
from hushgraph.errors import BudgetExceededError, PlanError
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
    Charge,
    EvaluationCharge,
    ScalingCharge,
    Steps,
    epsilon,
    list_events,
)
from hushgraph.privacy.charges.gaussian import LARGEST_NOISE, LEAST_NOISE
from hushgraph.privacy.fields import check_fields, check_keys, parse_fields, refuse_noise_multiplier
from hushgraph.privacy.statement import Wording

ADJACENCY = "node-level, zero-out"
ADJACENCIES: dict[str, str] = {"node": ADJACENCY, "person": "person-level, zero-out"}
# Plans of format 1 have no format number; their noise is sigma / (2 C n).
FORMAT = 2
PREDICTIONS = {True: "covered towards everybody else", False: "not covered"}
FIGURES_ARE = {True: "covered", False: "not covered"}
# The part of mu^2 that scaling gets, by rule: a tenth of it would do for tens of thousands of training rows.
SCALING_SHARE = 0.05
_REQUIRED = ("num_train_nodes", "batch_size", "steps")
_METHODS: dict[str, type[PrivacyPlan]] = {}


@dataclass(frozen=True, kw_only=True)
class PrivacyPlan:
    """What a training run may see and spend, and the guarantee that follows.

    Sampler, batches, noise and report all ask this object, so that no two of them can disagree. A subclass is
    the plan of one method, and calling `PrivacyPlan` itself makes a `TreePlan`, or a `RowPlan` where there
    are no layers. A subclass with a `method` is registered when it is defined: `from_json` then reads it.

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
        num_scaled: F, how many numeric columns are scaled by noisy histograms; 0 releases none.
        scaling_noise: the standard deviation of the noise on every bin of them; it follows from epsilon, or
            `with_scaling` chooses it.
        protects: whose row is protected: that of a "node", or that of a "person", all of whose nodes are
            emptied together.

    Guarantees:
        A plan that exists is consistent: a batch the accountant does not price cannot be combined with it.
        `epsilon` is the largest over kinds of rows, infinite for a plan without noise, and never below what
        its accountant can prove.
        `guarantee` is "holds" only where sampler, clipping, noise and batches are all covered by a proof.

    Examples:
        >>> from hushgraph import PrivacyPlan
        >>> plan = PrivacyPlan(num_train_nodes=1000, num_layers=1, max_readers=3, batch_size=100, steps=10)
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

    method: ClassVar[str] = ""
    words: ClassVar[Wording]
    # What `from_json` read in an older format: its ledger has the digest of that.
    _text: ClassVar[str | None] = None

    def __new__(cls, **given: Any) -> PrivacyPlan:
        """Choose the class of a plan that names none."""
        if "noise_multiplier" in given:
            refuse_noise_multiplier(given["noise_multiplier"])
        chosen: type[PrivacyPlan] = cls
        if cls is PrivacyPlan:
            chosen = _METHODS["trees" if given.get("num_layers") else "rows"]
        return object.__new__(chosen)

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

    @classmethod
    def non_private(cls, **others: Any) -> PrivacyPlan:
        """The same training without noise: epsilon is infinite and nothing is guaranteed."""
        return cls(**{**others, "sigma_over_clip": 0.0})

    @property
    def step_charge(self) -> Steps:
        """What all steps are charged as."""
        raise NotImplementedError

    @property
    def changed_trees(self) -> int:
        """n: a node's own tree and the trees of others that differ when its row is emptied, at most N + 1."""
        raise NotImplementedError

    @property
    def covers_predictions(self) -> bool:
        """Whether predictions for everybody else are covered together with the weights."""
        raise NotImplementedError

    @property
    def adjacency(self) -> str:
        """The relation between neighbouring data sets."""
        return ADJACENCIES[self.protects]

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

    @property
    def rows_per_root(self) -> int:
        """The most rows that one tree has, those of all levels together; larger trees contribute zero."""
        return 1

    def most_rows(self, num_nodes: int) -> int:
        """The most rows that all trees of a batch have together, those of all levels."""
        return num_nodes if self.protects == "person" else self.num_train_nodes

    def mean_rows_per_root(self, num_nodes: int) -> float:
        """The most rows that the deepest level of a tree has on average over all training nodes."""
        return 1.0

    @property
    def segment_ends(self) -> tuple[int, ...]:
        """The steps after which what roots see changes, and the last step."""
        return (self.steps,)

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
        return ()

    @property
    def scaling_charge(self) -> ScalingCharge | None:
        """What the histograms of numeric columns are charged as; None where none are released."""
        if not self.num_scaled:
            return None
        return ScalingCharge(num_columns=self.num_scaled, noise_std=self.scaling_noise)

    def with_scaling(self, num_scaled: int) -> Self:
        """The same plan with histograms of this many columns; its epsilon grows by what they cost.

        The noise of steps and boards stays. Where epsilon is given, `calibrated` divides it instead.
        """
        bare = replace(self, num_scaled=0, scaling_noise=0.0, num_tables=0, table_noise=0.0)
        if not num_scaled or not bare.is_private:
            return replace(self, num_scaled=num_scaled, scaling_noise=0.0)
        from hushgraph.accounting.accountants import gaussian_shift

        mu = gaussian_shift(bare.epsilon, bare.delta)
        shift = mu * math.sqrt(SCALING_SHARE / (1 - SCALING_SHARE))
        return replace(bare, **_choose_scaling(num_scaled, shift, bare.epsilon)).with_evaluation(
            self.num_tables
        )

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
        bare = replace(self, num_tables=0, table_noise=0.0)
        if not num_tables or bare.guarantee != "holds" or not bare.can_evaluate:
            return bare
        from hushgraph.accounting.accountants import compose_shifts, gaussian_shift

        (change,) = row_emptied("evaluated")
        # Nothing that an evaluated row pays for is sampled, so that all of it is one Gaussian.
        paid = compose_shifts(list_events(bare.charges, change))
        total = gaussian_shift(bare.epsilon, bare.delta)
        noise = math.sqrt(num_tables / max(total**2 - paid**2, 1e-300))
        for margin in (0.0, 1e-12, 1e-9, 1e-6, 1e-4, 1e-3):
            plan = replace(bare, num_tables=num_tables, table_noise=noise * (1 + margin))
            if plan.epsilon_evaluated <= bare.epsilon:
                return plan if LEAST_NOISE <= plan.table_noise <= LARGEST_NOISE else bare
        raise PlanError(
            f"epsilon={bare.epsilon}: no noise near {noise:.6g} is confirmed to cover figures; take another"
        )

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
        return _price(charges, tuple(changes), self.delta, self.accountant)

    def _price_or_infinity(self, changes: Iterable[Change]) -> float:
        """The same; infinite where the accountant refuses to price it."""
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
        epsilon = check_epsilon(epsilon)
        if self.num_tables:
            return self.with_evaluation(0).calibrated(epsilon=epsilon).with_evaluation(self.num_tables)
        if self.steps == 0:
            raise PlanError("steps=0: expected at least one step to calibrate noise for; give steps")
        if self.scaling_charge is not None:
            return self._calibrate_with_scaling(self.scaling_charge, epsilon)
        n = self.changed_trees
        wanted = _find_noise(self.draw, n, self.steps, epsilon, self.delta, self.accountant)
        # The noise is chosen as a multiple of 2n, which may lose the last bits: err upwards until it is safe.
        for margin in (0.0, 1e-12, 1e-9, 1e-6, 1e-4, 1e-3):
            plan = self.with_paper_noise(wanted / (2 * n) * (1.0 + margin))
            if plan.epsilon <= epsilon:
                return plan
        raise PlanError(
            f"epsilon={epsilon}: no noise near sigma/C={wanted:.6g} is confirmed to meet it; "
            "give sigma_over_clip instead"
        )

    def _calibrate_with_scaling(self, scaling: ScalingCharge, epsilon: float) -> Self:
        """Scaling gets its share of mu^2, and steps the smallest noise that what is left pays for."""
        from hushgraph.accounting.accountants import gaussian_shift
        from hushgraph.accounting.calibrate import smallest_scale

        self._check_can_scale()
        mu = gaussian_shift(epsilon, self.delta)
        plan = replace(self, **_choose_scaling(self.num_scaled, mu * math.sqrt(SCALING_SHARE), epsilon))
        bare = replace(self, num_scaled=0).calibrated(epsilon=epsilon)
        noise = smallest_scale(
            spent=lambda sigma: replace(plan, sigma_over_clip=sigma).epsilon,
            start=1.05 * bare.sigma_over_clip,
            epsilon=epsilon,
            delta=self.delta,
        )
        return replace(plan, sigma_over_clip=noise)

    def _check_can_scale(self) -> None:
        if self.accountant == "paper":
            raise PlanError(
                f"num_scaled={self.num_scaled} with accountant='paper': it prices steps alone; use "
                "accountant='pair', or numbers='declared' or 'as-is'"
            )

    def with_paper_noise(self, multiplier: float) -> Self:
        """The same plan with the noise sigma = 2 C n `multiplier`, as the paper writes it."""
        return replace(self, sigma_over_clip=multiplier * 2 * self.changed_trees)

    def with_steps_for(self, *, epsilon: float) -> Self:
        """The same plan with as many steps as `epsilon` pays for at this noise.

        Guarantees:
            The epsilon of the new plan is at most `epsilon`.
        """
        epsilon = check_epsilon(epsilon)
        if self.num_tables:
            return self.with_evaluation(0).with_steps_for(epsilon=epsilon).with_evaluation(self.num_tables)
        if not self.is_private:
            raise PlanError(
                f"sigma_over_clip={self.sigma_over_clip}: expected a positive number; without noise no "
                "finite epsilon pays for a step"
            )
        [(event, _)] = list_events([self.step_charge.once])
        plan = replace(self, steps=_find_steps(event, epsilon, self.delta, self.accountant))
        if self.num_scaled:
            plan = plan._with_steps_beside_scaling(epsilon)
        while plan.steps > 0 and plan.epsilon > epsilon:
            plan = replace(plan, steps=plan.steps - 1)
        if plan.steps == 0:
            raise BudgetExceededError(
                f"epsilon={epsilon} at sigma_over_clip={self.sigma_over_clip}: it pays for no step; "
                "raise the noise or epsilon, or lower batch_size or max_readers"
            )
        return plan

    def _with_steps_beside_scaling(self, epsilon: float) -> Self:
        """Scaling gets its share of mu^2; the most of these steps that what is left pays for."""
        from hushgraph.accounting.accountants import gaussian_shift

        self._check_can_scale()
        shift = gaussian_shift(epsilon, self.delta) * math.sqrt(SCALING_SHARE)
        plan = replace(self, **_choose_scaling(self.num_scaled, shift, epsilon))
        fits, too_many = 0, plan.steps + 1
        while too_many - fits > 1:
            middle = (fits + too_many) // 2
            is_paid = replace(plan, steps=middle).epsilon <= epsilon
            fits, too_many = (middle, too_many) if is_paid else (fits, middle)
        return replace(plan, steps=fits)

    def list_figures(self) -> list[tuple[str, str]]:
        """Rows of the report's table: names and values."""
        figures = [row for charge in self.charges for row in charge.figures]
        return [
            *figures,
            (name_training(self.protects), f"{self.num_train_nodes:,}"),
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
        if not self.num_tables:
            # Fingerprints of plans that were made before there were figures stay as they are.
            del fields["num_tables"], fields["table_noise"]
        if not self.num_scaled:
            del fields["num_scaled"], fields["scaling_noise"]
        if self.protects == "node":
            del fields["protects"]
        return json.dumps(tags | fields, sort_keys=True, allow_nan=False)

    @staticmethod
    def from_json(text: str) -> PrivacyPlan:
        """The plan that `to_json` wrote, in any format; unknown, missing and repeated keys are refused."""
        values = parse_fields(text)
        if "format" not in values:
            return _read_format_1(values)
        if values.pop("format") != FORMAT:
            raise PlanError(f"plan: this version reads format {FORMAT} and earlier ones")
        method = values.pop("method", None)
        if method not in _METHODS:
            raise PlanError(f"plan: method={method!r}: expected {' or '.join(map(repr, sorted(_METHODS)))}")
        return _METHODS[method](**_METHODS[method]._check_keys(values, _REQUIRED))

    @classmethod
    def _check_keys(cls, values: dict[str, Any], required: tuple[str, ...]) -> dict[str, Any]:
        known = [field.name for field in fields(cls)]
        adjacency = ADJACENCIES.get(str(values.get("protects", "node")), ADJACENCY)
        return check_keys(values, known, required, adjacency=adjacency)

    def fingerprint(self) -> str:
        """SHA-256 of `to_json`; of the text itself for a plan that was read in an older format."""
        return hashlib.sha256((self._text or self.to_json()).encode()).hexdigest()


def name_training(protects: str) -> str:
    """What N counts, as the name of a figure."""
    return "persons with a training node, N" if protects == "person" else "training nodes, N"


def _read_format_1(values: dict[str, Any]) -> PrivacyPlan:
    """A plan of version 0.1: its noise is sigma / (2 C n), and a plan of trees has no tag."""
    text = json.dumps(values, sort_keys=True, allow_nan=False)
    method = values.pop("method", None)
    if method is None:
        method = "trees" if values.get("num_layers") else "rows"
    if method not in _METHODS:
        raise PlanError(f"plan: method={method!r}: expected 'billboard' or none")
    cls = _METHODS[method]
    multiplier = values.pop("noise_multiplier", None)
    values = cls._check_keys(values, (*_REQUIRED, "num_layers", "max_readers"))
    checked = None if multiplier is None else as_float(multiplier)
    if (checked is None) != (multiplier is None) or (checked is not None and not 0 <= checked < math.inf):
        raise PlanError(f"plan: noise_multiplier={show_value(multiplier)}: expected a number of at least 0")
    later = {name: values.pop(name) for name in ("board_noise",) if name in values}
    bare = cls(**values)
    plan = replace(bare, sigma_over_clip=(checked or 0.0) * 2 * bare.changed_trees, **later)
    object.__setattr__(plan, "_text", text)
    return plan


# Cached: a report asks for every figure several times.
@lru_cache(maxsize=256)
def _price(charges: tuple[Charge, ...], changes: tuple[Change, ...], delta: float, accountant: str) -> float:
    return epsilon(charges, changes, delta=delta, accountant=accountant)


# Runs that differ in their seed alone ask for the same noise, or the same steps.
@lru_cache(maxsize=256)
def _find_noise(
    draw: Draw, changed_trees: int, steps: int, epsilon: float, delta: float, accountant: str
) -> float:
    """The smallest sigma / C."""
    # Imported here: whoever only reads a plan should not wait for the accountants' libraries.
    from hushgraph.accounting.calibrate import smallest_noise

    return smallest_noise(
        draw=draw,
        changed_trees=changed_trees,
        steps=steps,
        epsilon=epsilon,
        delta=delta,
        accountant=accountant,
    )


@lru_cache(maxsize=256)
def _find_steps(event: Event, epsilon: float, delta: float, accountant: str) -> int:
    """The most steps."""
    from hushgraph.accounting.calibrate import most_steps

    return most_steps(event=event, epsilon=epsilon, delta=delta, accountant=accountant)


def _choose_scaling(num_scaled: int, shift: float, epsilon: float) -> dict[str, Any]:
    """The fields of a plan whose scaling a training row shifts by `shift`."""
    charge = ScalingCharge(num_columns=num_scaled).with_shift(shift)
    charge.check_noise(epsilon)
    return {"num_scaled": num_scaled, "scaling_noise": charge.noise_std}


def check_epsilon(epsilon: float) -> float:
    """The target as a 64-bit number: a narrower one would round what it is compared with."""
    number = as_float(epsilon)
    if number is None:
        raise PlanError(f"epsilon={show_value(epsilon)}: expected a positive number")
    if not (math.isfinite(number) and number > 0):
        raise PlanError(f"epsilon={epsilon}: expected a finite number above 0")
    return number


def json_number(value: float) -> float | str:
    """JSON has no infinity."""
    return "inf" if math.isinf(value) else value
