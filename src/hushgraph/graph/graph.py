"""Graph: reads, features, labels and splits in compact, checked arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt
from scipy import sparse

from hushgraph.errors import GraphError
from hushgraph.graph.checks import Array as Array
from hushgraph.graph.checks import Chunks as Chunks
from hushgraph.graph.checks import (
    check_edges,
    check_features,
    check_integers,
    check_owner,
    check_range,
    check_shape,
    check_splits,
    cut_edges,
    id_type,
)
from hushgraph.graph.persons import name_persons
from hushgraph.graph.records import Relation, join_people
from hushgraph.tasks.classes import Classes
from hushgraph.tasks.task import Task, no_label

if TYPE_CHECKING:
    from hushgraph.graph.columns import Columns

EdgeParts = Callable[[int], Chunks]
"""From the number of nodes to edges that are read in parts, each of which is checked."""
EdgeOwner = Literal["sender", "reader"]
SPLITS = ("train_idx", "val_idx", "test_idx")


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Graph:
    """A graph whose arrays have all been checked.

    Build one with `from_arrays`, or with `load_graph` or `from_networkx` of `hushgraph.datasets`. Node w
    *reads* node u when w's representation is computed from u's: in PyG's `edge_index`, row 0 holds the
    sources u and row 1 the targets w.

    Attributes:
        num_nodes: N.
        indptr: int64 [N + 1]; node w reads `indices[indptr[w]:indptr[w + 1]]`.
        indices: the sources read, ascending within each target; int32 where node ids fit, else int64.
        x: features, float32 [N, d]: a NumPy array, or a `scipy.sparse.csr_array` if given sparse.
        y: labels, int64 [N]; -1 means no label.
        train_idx, val_idx, test_idx: int64, ascending, disjoint.
        num_classes: labels are below this number. It is treated as public. For other tasks than classes, the
            number of outputs.
        has_declared_classes: whether that number was declared; otherwise it was taken from the labels.
        is_directed: whether some read lacks its reverse, as declared or as the edges look. One row can change
            how they look, so nothing is decided by it.
        duplicates_removed, self_loops_removed: the numbers of given edges that were dropped.
        node_names: the names of the nodes in the original data, one each; None if they had none.
        groups: int64 [N], the declared group of every node (`Columns.group`), -1 for none; None if no groups
            are declared.
        columns: the roles of the columns, if the graph was read from tables.
        clean_up: how often each declared rule for imperfect cells and edges applied, if the graph was read
            from tables. These counts are private: nothing writes them.
        declared_task: what is asked of a node; one of `num_classes` classes unless given.
        filled: bool [N, numbers], which cells of numeric columns were empty and filled with a constant; None
            if none can have been.
        unread: names of parts of the edges that the data has and nothing reads, such as weights. Names alone,
            so they are public.
        relations: records that have weights, are of several kinds or name places that are not people; the
            reads are then those of all relations between people. Empty where the reads are all there is.
        persons: int64 [N], for every node the first node of its person, where people have several nodes; None
            where every node is a person. Whose a node is, is public.
        is_part: whether these are some rows of a graph and the nodes that they list. A part need not have a
            training node.
        checked_reads: `indptr` and `indices` of a graph that this one was made from by `dataclasses.replace`:
            the same arrays are not checked again.

    `x` and `y` may share memory with the given arrays: do not write to them.

    Guarantees:
        There are no self-loops and no repeated edges; every id is in range; features are finite; splits are
        disjoint. Nodes of any split may be unlabelled: refusing them would reveal that a row is empty.
        With persons, nobody reads a node of one's own in any relation, and no person with a training node has
        a node in another split.

    Examples:
        >>> import numpy as np
        >>> from hushgraph import Graph
        >>> edges = np.array([[0, 1, 2], [1, 2, 0]])  # 1 reads 0, 2 reads 1, 0 reads 2
        >>> graph = Graph.from_arrays(edge_index=edges, x=np.eye(3), y=[0, 1, 1], train_idx=[0, 1])
        >>> graph.num_edges, graph.is_directed, graph.symmetrized().num_edges
        (3, True, 6)
        >>> graph.with_row_emptied(0, "sender").num_edges
        2
    """

    num_nodes: int
    indptr: Array
    indices: Array
    x: Any
    y: Array
    train_idx: Array
    val_idx: Array
    test_idx: Array
    num_classes: int
    is_directed: bool
    has_declared_classes: bool = False
    duplicates_removed: int = 0
    self_loops_removed: int = 0
    node_names: Array | None = None
    columns: Columns | None = None
    clean_up: Mapping[str, int] = field(default_factory=dict)
    unread: tuple[str, ...] = ()
    declared_task: Task | None = None
    groups: Array | None = None
    filled: Array | None = None
    relations: tuple[Relation, ...] = ()
    persons: Array | None = None
    is_part: bool = False
    checked_reads: tuple[Array, Array] | None = None

    def __post_init__(self) -> None:
        x = check_features(self.x)
        is_other = self.declared_task is not None and not isinstance(self.declared_task, Classes)
        y = self.task.check_labels(self.y) if is_other else check_integers("y", self.y, ndim=1)
        if self.num_nodes != x.shape[0] or len(y) != x.shape[0]:
            raise GraphError(
                f"y has {len(y)} labels and x has {x.shape[0]} rows; expected one of each per node; give "
                "unlabelled nodes the label -1"
            )
        y = self.task.check_labels(y)
        splits = {name: getattr(self, name) for name in SPLITS}
        checked = check_splits(self.num_nodes, splits, is_part=self.is_part)
        checked |= {"x": x, "y": y}
        checked["indptr"] = check_integers("indptr", self.indptr, ndim=1).astype(np.int64, copy=False)
        checked["indices"] = check_integers("indices", self.indices, ndim=1)
        if self.node_names is not None and np.shape(self.node_names) != (self.num_nodes,):
            raise GraphError(
                f"node_names has shape {list(np.shape(self.node_names))}; expected one name per node, "
                f"[{self.num_nodes}]"
            )
        for name, value in checked.items():
            object.__setattr__(self, name, value)
        wrong = next((each for each in self.relations if each.num_nodes != self.num_nodes), None)
        if wrong is not None:
            raise GraphError(
                f"relation {wrong.info.name!r} has {wrong.num_nodes} rows; expected one per node, "
                f"{self.num_nodes}"
            )
        self._check_reads()
        if self.persons is not None:
            self._check_persons()

    @classmethod
    def from_arrays(
        cls,
        *,
        edge_index: Any,
        x: Any,
        y: Any,
        train_idx: Any,
        val_idx: Any = None,
        test_idx: Any = None,
        num_classes: int | None = None,
        symmetrize: bool = False,
        directed: bool | None = None,
        node_names: Array | None = None,
        columns: Columns | None = None,
        clean_up: Mapping[str, int] | None = None,
        unread: tuple[str, ...] = (),
        task: Task | None = None,
        groups: Array | None = None,
        filled: Array | None = None,
        relations: Sequence[Relation] = (),
        persons: Any = None,
        is_part: bool = False,
    ) -> Graph:
        """Check arrays and build a graph.

        Args:
            edge_index: integers [2, E]; column (u, w) means w reads u. Repeats and self-loops are dropped.
                Edges that are not in memory are given as a function (`hushgraph.graph.graph.EdgeParts`).
            x: features [N, d], a NumPy array or any SciPy sparse matrix.
            y: integer labels [N]; -1 means no label.
            train_idx, val_idx, test_idx: node ids. Nodes of any split may be unlabelled.
            num_classes: the largest label plus one by default, which a guarantee then has to assume to be
                public: one row can change it. A number that is given is declared public.
            symmetrize: add the reverse of every edge.
            directed: the value of `is_directed`; computed from the edges by default.
            node_names, columns, clean_up, unread, groups, filled, is_part: as in the attributes.
            relations: as in the attributes; `edge_index` is None then, and `symmetrize` is for each of them.
            task: what is asked of a node, with labels `y` as it takes them; declared, and so public.
            persons: whose every node is, as in `with_persons`; every node is a person unless given.

        Returns:
            The checked graph.
        """
        if symmetrize and directed:
            raise GraphError("symmetrize=True and directed=True contradict each other; leave one of them out")
        num_nodes = check_shape("x", x, ndim=2)[0]
        # Imported here, because commands that only look at the class need no compiler.
        from hushgraph.graph.reads import build_reads, lacks_reverse

        if relations:
            if edge_index is not None:
                raise GraphError("edge_index and relations: both hold edges; give edge_index=None")
            relations = [each.symmetrized() for each in relations] if symmetrize else relations
            edge_index = join_people(relations)
        chunks: Chunks = (
            edge_index(num_nodes)
            if callable(edge_index)
            else cut_edges(check_edges(edge_index, num_nodes), num_nodes)
        )
        reads = build_reads(chunks, num_nodes, symmetrize=symmetrize)
        directed = False if symmetrize else directed
        num_classes = num_classes if task is None else task.num_outputs
        has_declared_classes = num_classes is not None
        if num_classes is None:
            labels = check_integers("y", y, ndim=1)
            if labels.size == 0 or labels.max() < 0:
                raise GraphError("y holds no label, so num_classes is unknown; give num_classes")
            num_classes = int(labels.max()) + 1
            # Such labels are codes or damage, and a model with that many outputs would exhaust memory.
            if num_classes > max(num_nodes, 1_000):
                raise GraphError(
                    f"y[{int(labels.argmax())}]={num_classes - 1} means more classes than nodes; number the "
                    "classes from 0, or give num_classes"
                )
        graph = cls(
            num_nodes=num_nodes,
            indptr=reads.indptr,
            indices=reads.indices,
            x=x,
            y=y,
            train_idx=train_idx,
            val_idx=np.empty(0, np.int64) if val_idx is None else val_idx,
            test_idx=np.empty(0, np.int64) if test_idx is None else test_idx,
            num_classes=num_classes,
            is_directed=lacks_reverse(reads.indptr, reads.indices) if directed is None else directed,
            has_declared_classes=has_declared_classes,
            duplicates_removed=reads.duplicates,
            self_loops_removed=reads.self_loops,
            node_names=node_names,
            columns=columns,
            clean_up=clean_up or {},
            unread=unread,
            declared_task=task,
            groups=groups,
            filled=filled,
            relations=tuple(relations),
            is_part=is_part,
        )
        return graph if persons is None else graph.with_persons(persons)

    @property
    def task(self) -> Task:
        """What is asked of a node."""
        return Classes(num_classes=self.num_classes) if self.declared_task is None else self.declared_task

    @property
    def num_edges(self) -> int:
        """The number of reads; an undirected edge counts twice."""
        return len(self.indices)

    @property
    def num_features(self) -> int:
        """d, the number of columns of `x`."""
        return int(self.x.shape[1])

    @property
    def train_mask(self) -> npt.NDArray[np.bool_]:
        """Whether each node is in the training split, bool [N]."""
        mask = np.zeros(self.num_nodes, np.bool_)
        mask[self.train_idx] = True
        return mask

    @property
    def num_train_units(self) -> int:
        """How many training nodes there are; with persons, how many persons have one."""
        if self.persons is None:
            return len(self.train_idx)
        return len(np.unique(self.persons[self.train_idx]))

    def with_persons(self, persons: Any) -> Graph:
        """Return this graph with several nodes a person.

        Records between nodes of one person go, and nodes of the validation and test split whose person has a
        training node leave their split.

        Args:
            persons: for every node a text or a number that tells whose it is, such as an account's owner. A
                gap (None, NaN, an empty text, a number below 0) is a person of one's own.
        """
        names = name_persons(persons, self.num_nodes)
        is_trained = np.isin(names, names[self.train_idx])
        evaluated = {
            name: nodes[~is_trained[nodes]] for name in SPLITS[1:] for nodes in [getattr(self, name)]
        }
        kept = names[self.indices] != np.repeat(names, np.diff(self.indptr))
        relations = tuple(each.between_persons(names) for each in self.relations)
        return self._filter_reads(kept, persons=names, relations=relations, **evaluated)

    def edge_chunks(self, chunk_edges: int = 1 << 20) -> Iterator[tuple[Array, Array]]:
        """Yield every read once as (sources, targets), at most `chunk_edges` at a time, ordered by target."""
        if chunk_edges < 1:
            raise GraphError(f"chunk_edges={chunk_edges}: expected at least 1")
        for start in range(0, self.num_edges, chunk_edges):
            stop = min(start + chunk_edges, self.num_edges)
            first = int(np.searchsorted(self.indptr, start, side="right")) - 1
            last = int(np.searchsorted(self.indptr, stop, side="left"))
            reads = np.diff(np.clip(self.indptr[first : last + 1], start, stop))
            yield self.indices[start:stop], np.repeat(np.arange(first, last, dtype=self.indices.dtype), reads)

    def lists_of(self, edge_owner: EdgeOwner) -> tuple[Array, Array]:
        """What every row lists: row v lists `places[ends[v]:ends[v + 1]]`, ascending; return (ends, places).

        Readers list what they read, senders who reads them. The latter is computed once for a graph.
        """
        check_owner(edge_owner)
        return (self.indptr, self.indices) if edge_owner == "reader" else self._reverse

    @cached_property
    def _reverse(self) -> tuple[Array, Array]:
        """Who reads every node: `indptr` and `indices` of the reads turned around."""
        from hushgraph.graph.reads import build_reads

        turned = build_reads(lambda: ((w, u) for u, w in self.edge_chunks()), self.num_nodes)
        return turned.indptr, turned.indices

    def dense_features(self, rows: Array) -> npt.NDArray[np.float32]:
        """Return the features of the nodes `rows` as a dense float32 array [len(rows), d]."""
        features = self.x[rows]
        dense: npt.NDArray[np.float32] = features.toarray() if sparse.issparse(features) else features
        return dense

    def symmetrized(self) -> Graph:
        """Return this graph with the reverse of every read added."""
        from hushgraph.graph.reads import build_reads

        both = build_reads(self.edge_chunks, self.num_nodes, symmetrize=True)
        relations = tuple(each.symmetrized() for each in self.relations)
        return replace(self, indptr=both.indptr, indices=both.indices, is_directed=False, relations=relations)

    def disjoint(self) -> Graph:
        """Return this graph without reads across splits, for the inductive setting.

        Nodes outside every split form a group of their own, so that no path through them joins two splits.
        """
        group = np.zeros(self.num_nodes, np.uint8)
        for number, name in enumerate(SPLITS, start=1):
            group[getattr(self, name)] = number
        relations = tuple(each.within(group) for each in self.relations)
        kept = group[self.indices] == np.repeat(group, np.diff(self.indptr))
        return self._filter_reads(kept, relations=relations)

    def with_row_emptied(self, v: int, edge_owner: EdgeOwner) -> Graph:
        """Return the adjacent dataset in which the row of node `v`, or of its person, is empty.

        Its features become zero, its label and its group -1. The edges it owns are removed: those by which
        others read it (`edge_owner="sender"`) or those by which it reads (`"reader"`). Its id, its membership
        in splits and `is_directed`, as of the graph that was given, do not change.
        """
        if not 0 <= v < self.num_nodes:
            raise GraphError(f"v={v} is not a node; expected 0..{self.num_nodes - 1}")
        check_owner(edge_owner)
        nodes = np.array([v]) if self.persons is None else np.flatnonzero(self.persons == self.persons[v])
        kept = np.ones(self.num_edges, np.bool_)
        if edge_owner == "sender":
            kept = ~np.isin(self.indices, nodes)
        x, y = self.x.copy(), self.y.copy()
        for node in nodes:
            if edge_owner == "reader":
                kept[self.indptr[node] : self.indptr[node + 1]] = False
            if sparse.issparse(x):
                x.data[x.indptr[node] : x.indptr[node + 1]] = 0
            else:
                x[node] = 0
        if sparse.issparse(x):
            x.eliminate_zeros()
        y[nodes] = no_label(y.dtype)
        groups = None if self.groups is None else self.groups.copy()
        if groups is not None:
            groups[nodes] = -1
        relations = tuple(each.with_rows_emptied(nodes, edge_owner) for each in self.relations)
        return self._filter_reads(kept, x=x, y=y, groups=groups, relations=relations)

    def summary(self) -> str:
        """Describe sizes, kind of edges, features, classes and splits in one line."""
        kind = "directed" if self.is_directed else "undirected"
        form = "sparse" if sparse.issparse(self.x) else "dense"
        sizes = "/".join(f"{len(getattr(self, name)):,}" for name in SPLITS)
        return (
            f"{self.num_nodes:,} nodes, {self.num_edges:,} {kind} reads, {self.num_features:,} {form} "
            f"features, {self.task.question}, train/val/test {sizes}"
        )

    def __repr__(self) -> str:
        return f"Graph({self.summary()})"

    def _check_reads(self) -> None:
        """Raise GraphError unless rows are ascending lists of other nodes; narrow the type of the ids."""
        n, indptr = self.num_nodes, self.indptr
        known = self.checked_reads
        if known is not None and known[0] is indptr and known[1] is self.indices and len(indptr) == n + 1:
            return
        has_ends = len(indptr) == n + 1 and indptr[0] == 0 and indptr[-1] == self.num_edges
        if not has_ends or np.any(indptr[1:] < indptr[:-1]):
            raise GraphError(
                f"indptr does not increase from 0 to {self.num_edges} in {n + 1} values; use "
                "Graph.from_arrays"
            )
        from hushgraph.graph.reads import are_ascending

        if not are_ascending(indptr, self.indices, n):
            check_range("indices", self.indices, 0, n - 1, f"the graph has {n} nodes")
            raise GraphError(
                "indices repeats a read, holds a self-loop or is not ascending in a row; use "
                "Graph.from_arrays"
            )
        object.__setattr__(self, "indices", self.indices.astype(id_type(n), copy=False))
        object.__setattr__(self, "checked_reads", (indptr, self.indices))

    def _check_persons(self) -> None:
        """Raise GraphError unless persons are those of `with_persons`."""
        persons = check_integers("persons", self.persons, ndim=1)
        own = np.arange(self.num_nodes)
        is_named = persons.shape == own.shape and bool(np.all((persons >= 0) & (persons <= own)))
        if not is_named or np.any(persons[persons] != persons):
            raise GraphError("persons does not hold the first node of every person; use Graph.with_persons")
        is_trained = np.isin(persons, persons[self.train_idx])
        if is_trained[self.val_idx].any() or is_trained[self.test_idx].any():
            raise GraphError("a person has nodes in train_idx and in another split; use Graph.with_persons")
        # The reads are those of all relations between people, but a relation may have been put in later.
        named: list[Graph | Relation] = [self, *(each for each in self.relations if each.names_people)]
        if any(np.any(persons[e.indices] == np.repeat(persons, np.diff(e.indptr))) for e in named):
            raise GraphError("a node reads another node of its person; use Graph.with_persons")

    def _filter_reads(self, kept: npt.NDArray[np.bool_], **changes: Any) -> Graph:
        """Return this graph with the reads where `kept` is true, and with other changes."""
        before = np.concatenate([np.zeros(1, np.int64), np.cumsum(kept, dtype=np.int64)])
        return replace(self, indptr=before[self.indptr], indices=self.indices[kept], **changes)
