"""How many training trees a change of the data changes: the bounds of steps on trees, written here alone."""

from __future__ import annotations

from hushgraph.errors import PlanError


def occurrences(max_readers: int, num_layers: int, *, at_most: int | None = None) -> int:
    """Return N(K, r) = 1 + K + ... + K^r, the largest number of training trees that one node occurs in.

    Args:
        max_readers: K, the most training nodes that read one node.
        num_layers: r, the depth of a tree.
        at_most: stop counting here, if no more trees exist.

    Guarantees:
        If at most K training nodes read each node, no node is in more than N(K, r) trees of depth r.
    """
    total = 1
    for _ in range(num_layers):
        total = total * max_readers + 1
        if at_most is not None and total >= at_most:
            return at_most
    return total


def changed_trees(
    max_readers: int,
    max_reads: int | None,
    num_layers: int,
    edge_owner: str,
    *,
    num_trees: int | None = None,
) -> int:
    """Return n for the stable sampler: the trees of others that differ when a row is emptied, plus one.

    The one is the row's own tree, which a node outside the training split does not have.

    Args:
        max_readers: K, the most training nodes that read one node.
        max_reads: D, the most nodes that one training node reads; None is unlimited.
        num_layers: r, the depth of a tree.
        edge_owner: "sender" or "reader", whose row holds an edge record.
        num_trees: N, the number of training trees, if known. A node outside the training split may change
            all of them, so n is at most N + 1, not N.

    Guarantees:
        Sender-owned, n = N(K, r). Reader-owned, n = N(K, r) + D N(K, r - 1). Where nothing is read, n = 1.
    """
    if edge_owner not in ("sender", "reader"):
        raise PlanError(f"edge_owner={edge_owner!r}: expected 'sender' or 'reader'")
    if num_layers == 0 or max_readers == 0 or max_reads == 0:
        return 1
    at_most = None if num_trees is None else most_changed(num_trees)
    containing = occurrences(max_readers, num_layers, at_most=at_most)
    if edge_owner == "sender":
        return containing
    if max_reads is None:
        raise PlanError(
            "max_reads=None with edge_owner='reader': one row may then change any number of trees; "
            "give max_reads, the most nodes that one training node reads"
        )
    total = containing + max_reads * occurrences(max_readers, num_layers - 1, at_most=at_most)
    return total if at_most is None else min(total, at_most)


def most_changed(num_trees: int) -> int:
    """Return the largest possible n for N training trees: all of them, plus one for the row's own tree."""
    return num_trees + 1


def changed_by_group(changed: int, count: int, num_trees: int) -> int:
    """Return n for `count` rows emptied together, where `changed` is n for one row of N training trees."""
    return min(count * changed, most_changed(num_trees))


def trees_of_a_record(max_readers: int, num_layers: int, edge_owner: str) -> int:
    """Return the largest number of training trees that differ when one edge record is removed.

    Nothing else is removed, in particular no label. With the paper's sampler no bound is known: one record
    more or less changes the probability of all other records of its sender. With K = 2 and r = 1, three trees
    can change where the stable sampler changes two.

    Args:
        max_readers: K, the most training nodes that read one node.
        num_layers: r, the depth of a tree.
        edge_owner: "sender" or "reader", whose row holds an edge record.

    Guarantees:
        2 N(K, r - 1) if senders own the edges, 3 N(K, r - 1) if readers do (Lemma 4 of docs/privacy.md), for
        the stable sampler.
    """
    lists = 2 if edge_owner == "sender" else 3
    return lists * occurrences(max_readers, num_layers - 1)
