"""The plan of training on trees: bounded lists of reads, and steps on the trees that they form."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from hushgraph._text import digits_down, digits_up
from hushgraph.privacy import bounds
from hushgraph.privacy.charges import RowSteps, Steps, TreeSteps
from hushgraph.privacy.plans.plan import PrivacyPlan
from hushgraph.privacy.statement import TREE_WORDS, Wording

# Trees of more lines contribute zero to a step: they would not fit memory.
LARGEST_TREE = 1 << 24


def bound_tree_size(max_readers: int, max_reads: int | None, depth: int, num_nodes: int) -> int:
    """Return the most rows that the deepest level of a tree can have, from public figures alone.

    The rows that are j reads below the root are counted for every j. They are at most D^j. A node is read by
    at most K training nodes, so at most K^(j-1) of them are the same node, and they are at most N K^(j-1).

    Args:
        max_readers: K.
        max_reads: D; None is unlimited.
        depth: r.
        num_nodes: N, all nodes of the graph.
    """
    reads = num_nodes if max_reads is None else min(max_reads, num_nodes)
    total = 1
    if max_readers == 0:
        return total
    for j in range(1, depth + 1):
        total += math.comb(depth, j) * min(reads**j, num_nodes * max_readers ** (j - 1))
        if total > LARGEST_TREE:
            break
    return total


@dataclass(frozen=True, kw_only=True)
class TreePlan(PrivacyPlan):
    """Steps on trees; a prediction reads its neighbours in the clear, so it is not covered.

    With K = 0 training reads no edge, but predictions do. The fields are those of `PrivacyPlan`.

    Examples:
        >>> from hushgraph import TreePlan
        >>> plan = TreePlan(num_train_nodes=1000, num_layers=1, max_readers=3, batch_size=100, steps=10)
        >>> plan.changed_trees, plan.covers_predictions
        (4, False)
    """

    method: ClassVar[str] = "trees"

    @property
    def words(self) -> Wording:
        """The wording about trees and what bounds them."""
        return TREE_WORDS

    @property
    def reads_edges(self) -> bool:
        """Whether training reads any edge."""
        return self.num_layers > 0 and self.max_readers > 0 and self.max_reads != 0

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
    def step_charge(self) -> Steps:
        """Steps on trees, or on rows where no edge is read."""
        draw, noise = self.draw, self.sigma_over_clip
        if not self.reads_edges:
            return RowSteps(draw=draw, sigma_over_clip=noise, times=self.steps, reads_lists=False)
        bounded = self.sampler == "stable"
        return TreeSteps(
            draw=draw,
            sigma_over_clip=noise,
            times=self.steps,
            changed_trees=self.changed_trees,
            num_trees=self.num_train_nodes,
            trees_of_record=(
                bounds.trees_of_a_record(self.max_readers, self.num_layers, self.edge_owner)
                if bounded
                else math.inf
            ),
        )

    @property
    def covers_predictions(self) -> bool:
        """Predictions read neighbours in the clear."""
        return False

    @property
    def unproven(self) -> tuple[str, ...]:
        """What the paper claims and no proof covers; empty for a plan whose guarantee holds."""
        is_bounded = self.sampler != "paper" or self.edge_owner != "reader" or not self.reads_edges
        return (() if is_bounded else ("paper sampler with reader-owned edges",)) + super().unproven

    @property
    def record_sentences(self) -> tuple[str, ...]:
        """Whether records have weights, and what several relations count."""
        return self._tell_records(", and a pair of nodes in several of them is one read")

    def describe_model(self, model: str) -> str:
        """The architecture, its depth, and whether relations have maps of their own."""
        rounds = f"{self.num_layers} round{'s' * (self.num_layers != 1)} of messages"
        has_maps = model == "gcn" and self.num_relations > 1 and self.reads_edges
        maps = f", a map for each of {self.num_relations} relations" if has_maps else ""
        return f"{model.upper()}, {rounds}{maps}"

    def list_own_figures(self) -> list[tuple[str, str]]:
        """What the noise covers, and what bounds the lists."""
        return [
            ("sigma / (2 C n)", digits_up(self.paper_noise_multiplier, digits=6)),
            ("changed trees (n)", str(self.changed_trees)),
            ("layers (r)", str(self.num_layers)),
            ("max readers (K)", str(self.max_readers)),
            ("max reads (D)", "unlimited" if self.max_reads is None else str(self.max_reads)),
        ]

    def list_figures(self) -> list[tuple[str, str]]:
        """Entries of the report about trees and what bounds their lists."""
        reads = "unlimited" if self.max_reads is None else f"{self.max_reads:,}"
        return [
            ("changed trees, n", f"{self.changed_trees:,}"),
            (
                "the paper's noise multiplier, sigma / (2 C n)",
                digits_down(self.paper_noise_multiplier, digits=6),
            ),
            ("readers of one node, K", f"{self.max_readers:,}"),
            ("reads of one node, D", reads),
            ("sampler", self.sampler),
            *super().list_figures(),
        ]

    def most_lines(self, num_nodes: int) -> int:
        """The most lines that all trees of a batch have together, those of all levels.

        A node is read by at most K training nodes, so that it is at most (1 + K)^l times in level l. A line
        has a copy of itself and its reads in the level below; larger trees contribute zero.
        """
        by_root = super().most_lines(num_nodes) * (self.num_layers + 1)
        if not self.reads_edges:
            return by_root
        reads = LARGEST_TREE if self.max_reads is None else self.max_reads
        deepest: int = min((1 + reads) ** self.num_layers, LARGEST_TREE)
        copies: int = sum((1 + self.max_readers) ** level for level in range(self.num_layers + 1))
        return min(by_root * deepest, num_nodes * copies)

    def mean_lines_per_root(self, num_nodes: int) -> float:
        """The most lines that the deepest level of a tree has on average over all training nodes.

        A node is at the end of at most K^j paths of j reads.
        """
        if not self.reads_edges:
            return 1.0
        paths: int = (1 + self.max_readers) ** self.num_layers - 1
        mean = 1 + num_nodes * paths / max(1, self.num_train_nodes)
        largest: float = math.inf if self.max_reads is None else (1 + self.max_reads) ** self.num_layers
        return min(mean, largest)
