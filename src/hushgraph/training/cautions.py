"""What a run should be warned about: public warnings, notes for the owner's terminal, notices of figures."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy import sparse

from hushgraph._text import digits_up, rounded_up
from hushgraph.figures.names import format_figure, name_figure
from hushgraph.privacy.guarantee import judge_size

if TYPE_CHECKING:
    from hushgraph.graph.graph import Graph
    from hushgraph.privacy import choices
    from hushgraph.privacy.budget import DataBudget
    from hushgraph.privacy.plans import PrivacyPlan
    from hushgraph.tasks.task import Task

# Looking for reverse edges sorts them all; above this it would delay training noticeably. So would looking at
# more features.
_MOST_EDGES = 20_000_000
_MOST_FEATURES = 500_000_000
_CHUNK = 65_536
# Columns whose largest values differ by this factor: the smaller ones are lost when a row is scaled.
_FACTOR = 1_000
# Shares below this difference are called the same.
_SAME = 0.02
_SPLITS = {"test": "test", "val": "validation"}


def list_warnings(graph: Graph, plan: PrivacyPlan, *, budget: DataBudget | None = None) -> list[str]:
    """List the warnings about a run that its terminal, its JSON and its report show.

    Args:
        graph: the data; only the names of parts that were not read are looked at.
        plan: of the run.
        budget: the budget of the data as it was before this run.

    Guarantees:
        Every warning follows from the plan, from names of columns and from the budget: nothing is private.
    """
    nodes = plan.num_train_nodes
    size = judge_size(plan.epsilon, plan.delta)
    warnings = [] if size is None else [size.sentence]
    if plan.is_private and plan.delta >= 1 / nodes:
        warnings.append(
            f"delta = {digits_up(plan.delta)} is at or above 1 / N for N = {nodes:,} training nodes: it "
            f"allows a row to be published; take less than 1 / N, such as {digits_up(1 / (10 * nodes))}"
        )
    if plan.reads_edges and plan.max_readers >= nodes:
        warnings.append(
            f"K = {plan.max_readers} (max_readers) is at or above N = {nodes:,} training nodes: the bound "
            "cuts nothing, and the noise covers every tree; take a smaller one"
        )
    if plan.num_layers > 0 and not plan.reads_edges:
        warnings.append(
            "training reads no edges, as K (max_readers) or D (max_reads) is 0: the weights come from "
            "features alone, and predictions still read neighbours"
        )
    if graph.unread:
        names = ", ".join(map(repr, graph.unread[:6]))
        alike = "" if graph.relations else "; every edge counts the same"
        warnings.append(f"columns or attributes of edges that are not read: {names}{alike}")
    if budget is not None and budget.charges:
        count = len(budget.charges)
        runs = "1 other run is" if count == 1 else f"{count:,} other runs are"
        warnings.append(
            f"{runs} charged to the budget of this data, epsilon {rounded_up(budget.spent)} together: the "
            "costs of all of them add up"
        )
    return warnings


def list_notes(
    graph: Graph, *, symmetrize: bool, directed: bool, numbers: choices.Numbers = "as-is"
) -> list[str]:
    """List what the owner of the data should know and nobody else may: counts of what reading changed.

    Args:
        graph: the data.
        symmetrize, directed: what the caller declared about edges.
        numbers: how numeric columns are scaled.

    Guarantees:
        Nothing of this is written by hushgraph: not into a run, a report or JSON.
    """
    counts = dict(graph.clean_up)
    if graph.columns is not None:
        # Of data that somebody else prepared, these say little.
        counts["self-loops dropped"] = graph.self_loops_removed
        what = "repeated edges, weights summed" if graph.columns.is_weighted else "repeated edges dropped"
        counts[what] = graph.duplicates_removed
    notes = [f"{what}: {count:,}" for what, count in counts.items() if count]
    if not (symmetrize or directed) and _has_no_reverse(graph):
        notes.append(
            "no edge has its reverse; give --symmetrize if edges are undirected, or --directed if they are "
            "not, so that the figure of one edge is that of one record"
        )
    if directed and graph.num_edges and not graph.is_directed:
        notes.append(
            "every edge has its reverse, and --directed prices one of the two; leave it out if they are "
            "undirected edges"
        )
    if not graph.num_edges and not any(len(each.indices) for each in graph.relations):
        notes.append(
            "there is no edge, so that the graph adds nothing but noise; check the edges, or use --model mlp"
        )
    return notes + _list_feature_notes(graph, numbers)


def _list_feature_notes(graph: Graph, numbers: choices.Numbers) -> list[str]:
    """Notes about features that carry nothing, or that drown others."""
    if not 0 < math.prod(graph.x.shape) <= _MOST_FEATURES:
        return []
    largest = np.zeros(graph.x.shape[1])
    for start in range(0, graph.num_nodes, _CHUNK):
        part = abs(graph.x[start : start + _CHUNK]).max(axis=0)
        np.maximum(largest, part.toarray().ravel() if sparse.issparse(part) else part, out=largest)
    used = largest[largest > 0]
    if not used.size:
        return ["all features are 0, so that a model can learn from edges alone; check the features"]
    columns = graph.columns
    if columns is not None and numbers != "as-is":
        is_scaled = [numbers == "private" or name in columns.scale for name in columns.features or ()]
        largest[: len(is_scaled)][is_scaled] = 0
        used = largest[largest > 0]
    factor = used.max() / used.min() if used.size else 1.0
    if factor < _FACTOR:
        return []
    advice = "divide columns by constants that you know without looking at the data"
    if columns is not None:
        advice = "use --numbers private, or declare constants (--scale)"
    return [
        f"the largest values of columns of features differ by a factor of {factor:,.0f}: every row is scaled "
        f"to one norm, so that large columns hide small ones; {advice}"
    ]


def list_figure_notices(figure_table: Sequence[Mapping[str, Any]], *, task: Task) -> list[str]:
    """List what covered figures say about a model that has learnt little.

    Only tasks judged by accuracy have notices: accuracy says nothing about a rare class. A notice is given
    only where the noise of the figures cannot explain it: the ends of their intervals support it, not their
    values alone. Of the splits the test split counts, or the validation split where no figure of the test
    split can be told.

    Args:
        figure_table: of a result: dicts with split, group, class, figure, value and its interval, noise.
        task: of the run.

    Guarantees:
        A function of covered figures and of the task alone, so that it may be published with them.

    Examples:
        >>> from hushgraph.tasks.classes import Classes
        >>> from hushgraph.training.cautions import list_figure_notices
        >>> table = [
        ...     {"split": "test", "group": None, "class": None, "figure": name, "value": 0.6, "noise": noise}
        ...     for name, noise in {"accuracy": [0.595, 0.605], "majority_baseline": [0.595, 0.605]}.items()
        ... ]
        >>> len(list_figure_notices(table, task=Classes(num_classes=3)))
        1
    """
    if task.judged_by != "accuracy":
        return []
    advice = "a larger epsilon or more training nodes"
    if task.num_outputs > 2:
        advice = "a larger epsilon, more training nodes or fewer classes"
    for split, words in _SPLITS.items():
        told = _list_told(figure_table, split)
        accuracy, baseline = told.get("accuracy"), told.get("majority_baseline")
        if accuracy is None:
            continue
        # Both come from the same tables, so that their errors may add up.
        if baseline is None or accuracy.high - baseline.low > _SAME:
            return []
        return [
            "the model is hardly better, or worse, than always predicting the most frequent class: "
            f"{words} accuracy {accuracy.value:.1%} against {baseline.value:.1%}; {advice} may help"
        ]
    return []


def list_comparison_notices(
    tables: Mapping[str, Sequence[Mapping[str, Any]]], *, figure: str = "accuracy"
) -> list[str]:
    """Say where the graph does not help: a private model that reads no edges is as good.

    Args:
        tables: the figure tables of two runs by what they are called, the one that reads the graph first.
        figure: what they are judged by, as the tables call it.

    Returns:
        One sentence where the graph does not help, or where noise hides whether it does; none where it helps.

    Guarantees:
        A function of covered figures alone, so that it may be published with them.
    """
    (name, reads_graph), (baseline, reads_rows) = tables.items()
    words = name_figure(figure)
    for split, split_words in _SPLITS.items():
        with_graph = _list_told(reads_graph, split).get(figure)
        without = _list_told(reads_rows, split).get(figure)
        if with_graph is None or without is None:
            continue
        # The two runs drew their noise independently.
        most = with_graph.value - without.value + math.hypot(with_graph.above, without.below)
        least = with_graph.value - without.value - math.hypot(with_graph.below, without.above)
        shown = (
            f"{split_words} {words} {format_figure(figure, without.value)} against "
            f"{format_figure(figure, with_graph.value)} of {name}, covered"
        )
        if most <= _SAME:
            verdict = "better" if most < 0 else "as good"
            return [
                f"the graph does not help: {baseline}, the private MLP, reads no edges, protects them fully "
                f"and is {verdict} ({shown})"
            ]
        if least <= 0:
            verdict = "better" if without.value > with_graph.value else "worse"
            return [
                f"whether the graph helps cannot be told: {baseline}, the private MLP, is {verdict}, but by "
                f"less than the noise of the figures ({shown})"
            ]
        return []
    return [f"whether the graph helps cannot be told: noise hides the {words} of {name} or {baseline}"]


class _Figure(NamedTuple):
    """A figure and the ends of its noise interval."""

    value: float
    low: float
    high: float

    @property
    def above(self) -> float:
        return self.high - self.value

    @property
    def below(self) -> float:
        return self.value - self.low


def _list_told(figure_table: Iterable[Mapping[str, Any]], split: str) -> dict[str, _Figure]:
    """The figures of one whole split that noise does not hide."""
    return {
        row["figure"]: _Figure(row["value"], *row["noise"])
        for row in figure_table
        if (row["split"], row["group"], row["class"]) == (split, None, None)
        and row["value"] is not None
        and row["noise"] is not None
    }


def _has_no_reverse(graph: Graph) -> bool:
    """Whether no edge of a graph with edges has its reverse; False where looking would take long."""
    if not graph.is_directed or not 0 < graph.num_edges <= _MOST_EDGES:
        return False
    shape = (graph.num_nodes, graph.num_nodes)
    reads = sparse.csr_array((np.ones(graph.num_edges, np.bool_), graph.indices, graph.indptr), shape=shape)
    return bool(reads.multiply(reads.T.tocsr()).nnz == 0)
