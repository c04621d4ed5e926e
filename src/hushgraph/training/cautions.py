"""What a run should be warned about, in one list: public warnings, and notes for the owner's terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy import sparse

from hushgraph._text import digits_up, rounded_up
from hushgraph.privacy.guarantee import judge_size

if TYPE_CHECKING:
    from hushgraph.graph.graph import Graph
    from hushgraph.privacy.budget import DataBudget
    from hushgraph.privacy.plans import PrivacyPlan

# Looking for reverse edges sorts them all; above this it would delay training noticeably.
_MOST_EDGES = 20_000_000


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
    if plan.method == "trees" and plan.reads_edges and plan.max_readers >= nodes:
        warnings.append(
            f"K = {plan.max_readers} (max_readers) is at or above N = {nodes:,} training nodes: the bound "
            "cuts nothing, and the noise covers every tree; take a smaller one"
        )
    if plan.method == "trees" and plan.num_layers > 0 and not plan.reads_edges:
        warnings.append(
            "training reads no edges, as K (max_readers) or D (max_reads) is 0: the weights come from "
            "features alone, and predictions still read neighbours"
        )
    if graph.unread:
        names = ", ".join(map(repr, graph.unread[:6]))
        warnings.append(f"not read with the edges: {names}; every edge counts the same")
    if budget is not None and budget.charges:
        count = len(budget.charges)
        runs = "1 other run is" if count == 1 else f"{count:,} other runs are"
        warnings.append(
            f"{runs} charged to the budget of this data, epsilon {rounded_up(budget.spent)} together: the "
            "costs of all of them add up"
        )
    return warnings


def list_notes(graph: Graph, *, symmetrize: bool, directed: bool) -> list[str]:
    """List what the owner of the data should know and nobody else may: counts of what reading changed.

    Args:
        graph: the data.
        symmetrize, directed: what the caller declared about edges.

    Guarantees:
        Nothing of this is written by hushgraph: not into a run, a report or JSON.
    """
    counts = dict(graph.clean_up)
    if graph.columns is not None:
        # Of data that somebody else prepared, these say little.
        counts["self-loops dropped"] = graph.self_loops_removed
        counts["repeated edges dropped"] = graph.duplicates_removed
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
    return notes


def _has_no_reverse(graph: Graph) -> bool:
    """Whether no edge of a graph with edges has its reverse; False where looking would take long."""
    if not graph.is_directed or not 0 < graph.num_edges <= _MOST_EDGES:
        return False
    shape = (graph.num_nodes, graph.num_nodes)
    reads = sparse.csr_array((np.ones(graph.num_edges, np.bool_), graph.indices, graph.indptr), shape=shape)
    return bool(reads.multiply(reads.T.tocsr()).nnz == 0)
