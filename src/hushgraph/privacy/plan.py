"""PrivacyPlan: every number of the guarantee, derived once."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import asdict, dataclass, fields, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, cast

from hushgraph._validate import as_float, show_value
from hushgraph.accounting.events import Draw, Event, FixedSizeDraw, PoissonDraw, StepEvent
from hushgraph.errors import BudgetExceededError, PlanError
from hushgraph.privacy import bounds, choices
from hushgraph.privacy.fields import check_fields, read_fields

if TYPE_CHECKING:
    from hushgraph.accounting.accountants import AccountantName

ADJACENCY = "node-level, zero-out"
# Trees of more rows contribute zero to a step: they would not fit memory.
LARGEST_TREE = 1 << 24
PREDICTIONS = {True: "covered towards everybody else", False: "not covered"}


@lru_cache(maxsize=1024)
def _price(accountant: str, event: StepEvent, steps: int, delta: float) -> float:
    """Epsilon of `steps` equal events."""
    # Imported here: whoever only reads a plan should not wait for the accountants' libraries.
    from hushgraph.accounting.accountants import make_accountant

    books = make_accountant(cast("AccountantName", accountant))
    books.compose(event, count=steps)
    return float(books.epsilon(delta))


# Runs that differ in their seed alone ask for the same noise, or the same steps.
@lru_cache(maxsize=256)
def _noise(
    draw: Draw, changed_trees: int, steps: int, epsilon: float, delta: float, accountant: str
) -> float:
    """The smallest sigma / C."""
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
def _steps(event: StepEvent, epsilon: float, delta: float, accountant: str) -> int:
    """The most steps."""
    from hushgraph.accounting.calibrate import most_steps

    return most_steps(event=event, epsilon=epsilon, delta=delta, accountant=accountant)


@dataclass(frozen=True, kw_only=True)
class PrivacyPlan:
    """What a training run may see and spend, and the guarantee that follows.

    Sampler, batches, noise and report all ask this object, so that no two of them can disagree.

    Args:
        num_train_nodes: N, how many nodes are in the training split (public).
        num_layers: r, rounds of message passing.
        max_readers: K, how many training nodes read one node, at most. 0 reads no edge in training.
        batch_size: expected number of roots in a batch, 1 to N.
        steps: T, how many noisy steps are taken.
        max_reads: D, how many nodes one training node reads, at most; None is unlimited.
        edge_owner: "sender" or "reader", whose row holds an edge record.
        clip: C, the largest norm of one root's gradient.
        noise_multiplier: lambda = sigma / (2 C n). None: not chosen yet. 0: training without privacy.
        delta: 1 / (10 N) unless given.
        sampler: "stable" or "paper".
        accountant: "pair" or "paper".
        batches: "poisson" or "fixed"; follows the accountant unless given.
        clipping: "normalised", "flat", "groups" or "percentile".
        noise: "common" or "per-layer".

    Guarantees:
        A plan that exists is consistent: a batch the accountant does not price cannot be combined with it.
        `epsilon` is infinite for a plan without noise, and never below what its accountant can prove.
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
    num_layers: int
    max_readers: int
    batch_size: int
    steps: int
    max_reads: int | None = None
    edge_owner: choices.EdgeOwner = "sender"
    clip: float = 1.0
    noise_multiplier: float | None = None
    # Both are filled in by __post_init__, so readers never meet None.
    delta: float = None  # type: ignore[assignment]
    sampler: choices.Sampler = "stable"
    accountant: choices.Accountant = "pair"
    batches: choices.Batches = None  # type: ignore[assignment]
    clipping: choices.Clipping = "normalised"
    noise: choices.Noise = "common"

    adjacency: ClassVar[str] = ADJACENCY
    method: ClassVar[choices.Method] = "trees"

    def __post_init__(self) -> None:
        """Fill in the defaults that follow from other fields, then check everything at once."""
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        for name, value in check_fields(given).items():
            object.__setattr__(self, name, value)

    @classmethod
    def non_private(cls, **others: Any) -> PrivacyPlan:
        """The same training without noise: epsilon is infinite and nothing is guaranteed."""
        return cls(**{**others, "noise_multiplier": 0.0})

    @property
    def changed_trees(self) -> int:
        """n: a node's own tree and the trees of others that differ when its row is emptied, at most N + 1."""
        trees = self.num_train_nodes
        if self.sampler == "paper":
            most = bounds.most_changed(trees)
            return bounds.occurrences(self.max_readers, self.num_layers, at_most=most)
        return bounds.changed_trees(
            self.max_readers, self.max_reads, self.num_layers, self.edge_owner, num_trees=trees
        )

    @property
    def reads_edges(self) -> bool:
        """Whether training reads any edge."""
        return self.num_layers > 0 and self.max_readers > 0 and self.max_reads != 0

    @property
    def is_private(self) -> bool:
        """Whether any noise is added."""
        return bool(self.noise_multiplier)

    @property
    def sampling_rate(self) -> float:
        """q, the chance that one training root is in a batch."""
        return self.batch_size / self.num_train_nodes

    @property
    def sigma_over_clip(self) -> float:
        """Standard deviation of the noise in units of the clipping norm C; 0 where no noise was chosen."""
        return (self.noise_multiplier or 0.0) * 2 * self.changed_trees

    @property
    def rows_per_root(self) -> int:
        """The most rows that one tree has, those of all levels together; larger trees contribute zero."""
        deepest = 1
        if self.reads_edges:
            # A row has a copy of itself and its reads in the level below.
            unlimited = self.max_reads is None
            deepest = (
                LARGEST_TREE
                if unlimited
                else min((1 + (self.max_reads or 0)) ** self.num_layers, LARGEST_TREE)
            )
        return (self.num_layers + 1) * deepest

    def most_rows(self, num_nodes: int) -> int:
        """The most rows that all trees of a batch have together, those of all levels.

        A node is read by at most K training nodes, so that it is at most (1 + K)^l times in level l.
        """
        by_root = self.num_train_nodes * self.rows_per_root
        if not self.reads_edges:
            return by_root
        return min(
            by_root, num_nodes * sum((1 + self.max_readers) ** level for level in range(self.num_layers + 1))
        )

    def mean_rows_per_root(self, num_nodes: int) -> float:
        """The most rows that the deepest level of a tree has on average over all training nodes.

        A node is at the end of at most K^j paths of j reads.
        """
        if not self.reads_edges:
            return 1.0
        paths = (1 + self.max_readers) ** self.num_layers - 1
        mean = 1 + num_nodes * paths / max(1, self.num_train_nodes)
        return mean if self.max_reads is None else min(mean, (1 + self.max_reads) ** self.num_layers)

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
    def step_event(self) -> StepEvent:
        """What one step costs."""
        return StepEvent(
            draw=self.draw, changed_trees=self.changed_trees, sigma_over_clip=self.sigma_over_clip
        )

    @property
    def charges(self) -> tuple[tuple[Event, int], ...]:
        """What the run is charged for, in order: events and how often each occurs."""
        return ((self.step_event, self.steps),)

    @property
    def segment_ends(self) -> tuple[int, ...]:
        """The steps after which what roots see changes, and the last step."""
        return (self.steps,)

    @property
    def covers_predictions(self) -> bool:
        """Whether predictions for everybody else are covered together with the weights."""
        return False

    def epsilon_after(self, steps: int) -> float:
        """Epsilon of a run that has taken `steps` steps."""
        return replace(self, steps=steps).epsilon

    @property
    def epsilon(self) -> float:
        """Epsilon at `delta` for all steps; infinite without noise."""
        return self._epsilon_for(self.step_event)

    @property
    def epsilon_group_of_two(self) -> float:
        """Epsilon when two rows are emptied together. Infinite where the accountant refuses to price that."""
        two = bounds.changed_by_two(self.changed_trees, self.num_train_nodes)
        # Where nothing is read, two examples are gone and nothing else differs.
        gone = 1 if self.reads_edges or self.accountant == "paper" else 2
        return self._epsilon_or_infinity(replace(self.step_event, changed_trees=two, gone=gone))

    @property
    def epsilon_edge(self) -> float:
        """Epsilon for one edge, the rest of both rows kept: both its records if undirected, else its one.

        0 where training reads no edge; infinite where no bound is proven.
        """
        if not self.reads_edges:
            return 0.0 if self.is_private else math.inf
        trees = bounds.trees_of_a_record(self.max_readers, self.num_layers, self.edge_owner)
        if self.sampler != "stable" or self.accountant != "pair":
            return math.inf
        records = 2 if self.edge_owner == "sender" else 1
        changed = min(records * trees, self.num_train_nodes)
        # No row is emptied, so no example is gone.
        return self._epsilon_or_infinity(replace(self.step_event, changed_trees=changed, gone=0))

    @property
    def epsilon_label(self) -> float:
        """Epsilon for one training label changed into another, which changes the gradient of its own root."""
        if self.accountant != "pair":
            return math.inf
        return self._epsilon_or_infinity(replace(self.step_event, changed_trees=1, gone=0))

    @property
    def epsilon_unlabelled_row(self) -> float:
        """Epsilon for a row without a training label, which trees read like any other."""
        return self.epsilon

    def _epsilon_or_infinity(self, event: StepEvent) -> float:
        try:
            return self._epsilon_for(event)
        except PlanError:
            return math.inf

    def _epsilon_for(self, event: StepEvent) -> float:
        """Epsilon where every step costs `event`."""
        if not self.is_private:
            return math.inf
        if self.steps == 0:
            return 0.0
        return _price(self.accountant, event, self.steps, self.delta)

    @property
    def unproven(self) -> tuple[str, ...]:
        """What the paper claims and no proof covers; empty for a plan whose guarantee holds."""
        parts = []
        if self.sampler == "paper" and self.edge_owner == "reader" and self.reads_edges:
            parts.append("paper sampler with reader-owned edges")
        if self.clipping == "percentile":
            parts.append("percentile thresholds")
        if self.noise == "per-layer":
            parts.append("per-layer noise")
        return tuple(parts)

    @property
    def guarantee(self) -> str:
        """ "holds", "claimed by the paper" or "none"."""
        if math.isinf(self.epsilon):
            return "none"
        return "claimed by the paper" if self.unproven else "holds"

    def calibrated(self, *, epsilon: float) -> PrivacyPlan:
        """The same plan with the smallest safe noise for `epsilon`.

        Guarantees:
            The epsilon of the new plan, computed anew, is at most `epsilon`.
        """
        epsilon = _checked_epsilon(epsilon)
        if self.steps == 0:
            raise PlanError("steps=0: expected at least one step to calibrate noise for; give steps")
        n = self.changed_trees
        wanted = _noise(self.draw, n, self.steps, epsilon, self.delta, self.accountant)
        # Dividing by 2n and multiplying again may lose the last bits: err upwards until the price is met.
        for margin in (0.0, 1e-12, 1e-9, 1e-6, 1e-4, 1e-3):
            plan = replace(self, noise_multiplier=wanted / (2 * n) * (1.0 + margin))
            if plan.epsilon <= epsilon:
                return plan
        raise PlanError(
            f"epsilon={epsilon}: no noise near sigma/C={wanted:.6g} is confirmed to meet it; "
            "give noise_multiplier instead"
        )

    def with_steps_for(self, *, epsilon: float) -> PrivacyPlan:
        """The same plan with as many steps as `epsilon` pays for at this noise.

        Guarantees:
            The epsilon of the new plan is at most `epsilon`.
        """
        epsilon = _checked_epsilon(epsilon)
        if not self.is_private:
            raise PlanError(
                f"noise_multiplier={self.noise_multiplier}: expected a positive number; without noise no "
                "finite epsilon pays for a step"
            )
        steps = _steps(self.step_event, epsilon, self.delta, self.accountant)
        plan = replace(self, steps=steps)
        while plan.steps > 0 and plan.epsilon > epsilon:
            plan = replace(plan, steps=plan.steps - 1)
        if plan.steps == 0:
            raise BudgetExceededError(
                f"epsilon={epsilon} at noise_multiplier={self.noise_multiplier}: it pays for no step; "
                "raise noise_multiplier or epsilon, or lower batch_size or max_readers"
            )
        return plan

    def summary(self) -> dict[str, Any]:
        """The keys that never change meaning; JSON has no infinity, so an infinite epsilon is "inf"."""
        return {
            "epsilon": json_number(self.epsilon),
            "delta": self.delta,
            "accountant": self.accountant,
            "sampler": self.sampler,
            "adjacency": self.adjacency,
            "guarantee": self.guarantee,
            "changed_trees": self.changed_trees,
            "epsilon_group_of_two": json_number(self.epsilon_group_of_two),
            "epsilon_edge": json_number(self.epsilon_edge),
            "epsilon_label": json_number(self.epsilon_label),
            "method": self.method,
            "predictions": PREDICTIONS[self.covers_predictions and self.is_private],
            "noise_multiplier": self.noise_multiplier,
            "sigma_over_clip": self.sigma_over_clip,
            "steps": self.steps,
            "sampling_rate": self.sampling_rate,
            "max_readers": self.max_readers,
            "max_reads": self.max_reads,
            "edge_owner": self.edge_owner,
        }

    def to_json(self) -> str:
        """The plan's fields as one line of JSON with sorted keys; `from_json` gives the same plan back."""
        return json.dumps({**asdict(self), "adjacency": self.adjacency}, sort_keys=True, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> PrivacyPlan:
        """The plan that `to_json` wrote; unknown, missing and repeated keys are refused."""
        if cls is PrivacyPlan and '"method": "billboard"' in text:
            from hushgraph.privacy.billboard_plan import BillboardPlan

            return BillboardPlan.from_json(text)
        known = [field.name for field in fields(cls)]
        return cls(**read_fields(text, known=known, adjacency=cls.adjacency))

    def fingerprint(self) -> str:
        """SHA-256 of `to_json`: equal exactly when the plans are."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()


def _checked_epsilon(epsilon: float) -> float:
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
