"""The plan of a run, on trees or with a billboard: every number of its guarantee, derived once."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import asdict, dataclass, fields, replace
from functools import lru_cache
from typing import Any, ClassVar

from hushgraph._validate import as_float, as_int, show_value
from hushgraph.accounting.events import Draw, Event, FixedSizeDraw, PoissonDraw, StepEvent, Terms
from hushgraph.errors import BudgetExceededError, PlanError
from hushgraph.privacy import bounds, choices
from hushgraph.privacy.bounds import BoardCharge, Change, Charge, TrainingCharge
from hushgraph.privacy.fields import check_fields, read_fields

ADJACENCY = "node-level, zero-out"
# Trees of more rows contribute zero to a step: they would not fit memory.
LARGEST_TREE = 1 << 24
PREDICTIONS = {True: "covered towards everybody else", False: "not covered"}


def _price(accountant: str, event: StepEvent, steps: int, delta: float) -> float:
    """Epsilon of `steps` equal events."""
    # Imported here: whoever only reads a plan should not wait for the accountants' libraries.
    from hushgraph.accounting.accountants import price

    return price([(event, steps)], delta=delta, accountant=accountant)


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
        directed: whether an edge is one record. Otherwise it is two, one in the row of each end, and
            `epsilon_edge` prices both.
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
    directed: bool = False

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
        copies: int = sum((1 + self.max_readers) ** level for level in range(self.num_layers + 1))
        return min(by_root, num_nodes * copies)

    def mean_rows_per_root(self, num_nodes: int) -> float:
        """The most rows that the deepest level of a tree has on average over all training nodes.

        A node is at the end of at most K^j paths of j reads.
        """
        if not self.reads_edges:
            return 1.0
        paths: int = (1 + self.max_readers) ** self.num_layers - 1
        mean = 1 + num_nodes * paths / max(1, self.num_train_nodes)
        largest: float = math.inf if self.max_reads is None else (1 + self.max_reads) ** self.num_layers
        return min(mean, largest)

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
    def terms(self) -> Terms:
        """What a ledger of this plan keeps to."""
        return Terms(
            fingerprint=self.fingerprint(),
            epsilon=self.epsilon,
            delta=self.delta,
            accountant=self.accountant,
            steps=self.steps,
            step_event=self.step_event,
            charges=self.charges,
        )

    @property
    def segment_ends(self) -> tuple[int, ...]:
        """The steps after which what roots see changes, and the last step."""
        return (self.steps,)

    @property
    def covers_predictions(self) -> bool:
        """Whether predictions for everybody else are covered together with the weights.

        Without rounds of messages, a prediction reads one row and the weights. With K = 0 training reads no
        edge either, but predictions do.
        """
        return self.num_layers == 0 and self.guarantee == "holds"

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
        """Epsilon for one edge, the rest of both rows kept: both its records, or its one if `directed`.

        0 where training reads no edge; infinite where no bound is proven.
        """
        if not self.reads_edges:
            return 0.0 if self.is_private else math.inf
        trees = bounds.trees_of_a_record(self.max_readers, self.num_layers, self.edge_owner)
        if self.sampler != "stable" or self.accountant != "pair":
            return math.inf
        records = 1 if self.directed else 2
        changed = min(records * trees, self.num_train_nodes)
        # No row is emptied, so no example is gone.
        return self._epsilon_or_infinity(replace(self.step_event, changed_trees=changed, gone=0))

    @property
    def edge_name(self) -> str:
        """What `epsilon_edge` is the figure of, in words."""
        return "directed record" if self.directed else "undirected edge"

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
        predictions = PREDICTIONS[self.covers_predictions and self.guarantee == "holds"]
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
            "predictions": predictions,
            "noise_multiplier": self.noise_multiplier,
            "sigma_over_clip": self.sigma_over_clip,
            "steps": self.steps,
            "sampling_rate": self.sampling_rate,
            "max_readers": self.max_readers,
            "max_reads": self.max_reads,
            "edge_owner": self.edge_owner,
            "directed": self.directed,
        }

    def to_json(self) -> str:
        """The plan's fields as one line of JSON with sorted keys; `from_json` gives the same plan back."""
        return json.dumps(self._to_values(), sort_keys=True, allow_nan=False)

    def _to_values(self) -> dict[str, Any]:
        values = {**asdict(self), "adjacency": self.adjacency}
        if not self.directed:
            # Plans without this field keep the fingerprint that their ledgers show.
            del values["directed"]
        if values.get("label_change", self) is None:
            del values["label_change"]
        return values

    @classmethod
    def from_json(cls, text: str) -> PrivacyPlan:
        """The plan that `to_json` wrote; unknown, missing and repeated keys are refused."""
        if cls is PrivacyPlan and '"method": "billboard"' in text:
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


@lru_cache(maxsize=256)
def _price_charges(charges: tuple[Charge, ...], change: Change, delta: float) -> float:
    """Epsilon of boards and trainings."""
    return bounds.epsilon(charges, change, delta=delta)


@dataclass(frozen=True, kw_only=True)
class BillboardPlan(PrivacyPlan):
    """Boards and private training on (own features, own reading): weights and predictions are covered.

    The ballots of the first board are labels. On a second board, made after half of the steps, rows without a
    training label cast what the model predicts for them by then.

    Args:
        num_train_nodes, batch_size, steps, delta, clip, clipping, edge_owner, directed: as in
            `PrivacyPlan`.
        num_classes: c, how many classes there are, which is public.
        label_change: the largest squared change of a ballot when a label changes, `Task.label_change`, of
            other tasks than classes.
        num_boards: 1 or 2.
        board_share: the part of the budget (of mu^2) that the boards get together, in equal parts.
        board_noise: s of every board, where one ballot has norm 1. Empty: not chosen yet.
        noise_multiplier: sigma / (2 C); follows from epsilon.

    Guarantees:
        `epsilon` composes all boards and all steps for one emptied row; everything but a person's own
        prediction is covered by it: weights, boards, and the predictions for everybody else.

    Examples:
        >>> from hushgraph.privacy.plan import BillboardPlan
        >>> plan = BillboardPlan(num_train_nodes=1000, num_classes=3, batch_size=1000, steps=100)
        >>> private = plan.calibrated(epsilon=4.0)
        >>> private.epsilon <= 4.0, private.guarantee, private.covers_predictions
        (True, 'holds', True)
    """

    num_layers: int = 0
    max_readers: int = 0
    num_classes: int = 2
    num_boards: int = 2
    board_share: float = 0.5
    board_noise: tuple[float, ...] = ()
    label_change: float | None = None

    method: ClassVar[choices.Method] = "billboard"

    def __post_init__(self) -> None:
        """Convert numbers, fill in what follows from other fields, then check everything."""
        super().__post_init__()
        noise = tuple(as_float(value) for value in self.board_noise)
        if self.noise_multiplier == 0.0 and not noise:
            noise = (0.0,) * self.num_boards
        object.__setattr__(self, "board_noise", noise)
        wrong = self._find_invalid()
        if wrong:
            raise PlanError("; ".join(wrong))

    def _find_invalid(self) -> list[str]:
        wrong = []
        if self.num_layers or self.max_readers:
            wrong.append("a billboard reads no edges in training; leave out num_layers and max_readers")
        if self.accountant != "pair" or self.noise != "common" or self.clipping == "percentile":
            wrong.append(
                f"accountant={self.accountant!r}, noise={self.noise!r}, clipping={self.clipping!r}: the "
                "paper's choices are for method='trees'"
            )
        if self.label_change is None and (as_int(self.num_classes) is None or self.num_classes < 2):
            wrong.append(f"num_classes={self.num_classes}: expected 2 or more; one class needs no model")
        if self.num_boards not in (1, 2):
            wrong.append(f"num_boards={self.num_boards}: expected 1 or 2")
        share = as_float(self.board_share)
        if share is None or not 0 < share < 1:
            wrong.append(f"board_share={self.board_share}: expected a number above 0 and below 1")
        if any(value is None or not 0 <= value < math.inf for value in self.board_noise):
            wrong.append(f"board_noise={self.board_noise}: expected finite numbers of at least 0")
        elif len(self.board_noise) not in (0, self.num_boards) or (
            bool(self.noise_multiplier) != any(self.board_noise)
        ):
            wrong.append(
                f"noise_multiplier={self.noise_multiplier} with board_noise={self.board_noise}: a billboard "
                "has noise on every board and on steps; give epsilon, from which both follow"
            )
        return wrong

    @property
    def changed_trees(self) -> int:
        """n: given the boards, a training example is a function of one row, and no other one differs."""
        return bounds.rows_emptied(1).examples

    @property
    def segment_ends(self) -> tuple[int, ...]:
        """The steps at which a board is made anew, and the last step: a segment follows every board."""
        return (self.steps,) if self.num_boards == 1 else (self.steps // 2, self.steps)

    @property
    def covers_predictions(self) -> bool:
        """Predictions for everybody else are covered together with the weights and the boards."""
        return True

    def board_charge(self, place: int) -> BoardCharge:
        """What a board is charged as; everybody casts onto the second."""
        return BoardCharge(
            noise_std=self.board_noise[place] if self.board_noise else 0.0, by_everybody=place > 0
        )

    def charges_until(self, steps: int) -> tuple[Charge, ...]:
        """The boards that are made, and the steps that are taken, by a run that has come this far."""
        places = [place for place in range(self.num_boards) if place == 0 or steps >= self.segment_ends[0]]
        training = TrainingCharge(steps=steps, rate=self.sampling_rate, sigma_over_clip=self.sigma_over_clip)
        return (*(self.board_charge(place) for place in places), training)

    @property
    def charges(self) -> tuple[tuple[Event, int], ...]:
        """Boards and steps as events for one emptied row."""
        events = bounds.events(self.charges_until(self.steps), bounds.rows_emptied(1))
        return tuple(events)

    @property
    def epsilon(self) -> float:
        """Epsilon at `delta` for one emptied row: all boards and all steps."""
        return self.epsilon_after(self.steps)

    def epsilon_after(self, steps: int) -> float:
        """Epsilon of a run that has taken `steps` steps: its boards until then and these steps."""
        return self._epsilon_by(bounds.rows_emptied(1), steps)

    def _epsilon_by(self, change: Change, steps: int | None = None) -> float:
        """Epsilon where `change` differs, after `steps` steps, all of them unless given."""
        if not self.is_private:
            return math.inf
        return _price_charges(self.charges_until(self.steps if steps is None else steps), change, self.delta)

    @property
    def epsilon_group_of_two(self) -> float:
        """Epsilon when two rows are emptied together."""
        return self._epsilon_by(bounds.rows_emptied(2))

    @property
    def epsilon_edge(self) -> float:
        """Epsilon for one edge, whoever owns it: both its records, or its one if `directed`."""
        return self._epsilon_by(bounds.RECORD if self.directed else bounds.EDGE)

    @property
    def epsilon_label(self) -> float:
        """Epsilon for one training label changed into another."""
        if self.label_change is None:
            return self._epsilon_by(bounds.label_changed(self.num_classes))
        move = math.sqrt(self.label_change)
        return self._epsilon_by(Change(label_board=move, full_board=move, examples=1))

    @property
    def epsilon_unlabelled_row(self) -> float:
        """Epsilon for a row without a training label: 0 with one board, else that of the second board."""
        return self._epsilon_by(bounds.UNLABELLED_ROW)

    def calibrated(self, *, epsilon: float) -> BillboardPlan:
        """The same plan with the smallest safe noise for `epsilon`, split by `board_share`.

        Guarantees:
            The epsilon of the new plan, computed anew, is at most `epsilon`.
        """
        target = as_float(epsilon)
        if target is None or not 0 < target < math.inf:
            raise PlanError(f"epsilon={epsilon}: expected a finite number above 0")
        rate, shares = self.sampling_rate, [self.board_share / self.num_boards] * self.num_boards
        boards = [BoardCharge(by_everybody=place > 0) for place in range(self.num_boards)]
        noisy = bounds.calibrate(
            [*boards, TrainingCharge(steps=self.steps, rate=rate)],
            [*shares, 1 - self.board_share],
            epsilon=target,
            delta=self.delta,
        )
        noise = tuple(charge.noise_std for charge in noisy if isinstance(charge, BoardCharge))
        bounds.check_board_noise(noisy, target)
        sigma = next(charge.sigma_over_clip for charge in noisy if isinstance(charge, TrainingCharge))
        for margin in (0.0, 1e-12, 1e-9, 1e-6):
            # Dividing by 2 and multiplying again is exact; the margin is for callers that round.
            plan = replace(self, board_noise=noise, noise_multiplier=sigma / 2 * (1 + margin))
            if plan.epsilon <= target:
                return plan
        raise PlanError(f"epsilon={epsilon}: no noise is confirmed to meet it; use another epsilon")

    def with_steps_for(self, *, epsilon: float) -> PrivacyPlan:
        """Refused: with boards, epsilon and steps give the noise."""
        raise PlanError("a billboard has its noise from epsilon and steps; give these two")

    def summary(self) -> dict[str, Any]:
        """The keys that never change meaning."""
        of_boards = {
            "board_share": self.board_share,
            "board_noise": list(self.board_noise),
            "epsilon_unlabelled_row": json_number(self.epsilon_unlabelled_row),
        }
        return super().summary() | of_boards

    def _to_values(self) -> dict[str, Any]:
        return {**super()._to_values(), "method": self.method}

    @classmethod
    def from_json(cls, text: str) -> BillboardPlan:
        """The plan that `to_json` wrote; unknown, missing and repeated keys are refused."""
        known = [field.name for field in fields(cls)]
        values = read_fields(text, known=[*known, "method"], adjacency=cls.adjacency)
        values.pop("method", None)
        return cls(**values)
