"""The checked graph: who reads whom, features, labels and splits, in compact arrays."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt
from scipy import sparse

from hushgraph.errors import GraphError
from hushgraph.graph.checks import (
    Array,
    check_integers,
    check_number_of_classes,
    check_range,
    check_shape,
    checked_features,
    disjoint_splits,
    id_type,
    lacks_reverse,
    reads_from_edges,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hushgraph.graph.columns import Columns

EdgeOwner = Literal["sender", "reader"]
SPLITS = ("train_idx", "val_idx", "test_idx")


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Graph:
    """A graph whose every array has been checked.

    Build one with `from_arrays`, `from_pyg`, `from_networkx` or `from_npz`. Node w *reads* node u when w's
    representation is computed from u's: in PyG's `edge_index`, row 0 holds the sources u and row 1 the
    targets w.

    Attributes:
        num_nodes: N.
        indptr: int64 [N + 1]; node w reads `indices[indptr[w]:indptr[w + 1]]`.
        indices: the sources read, ascending within each target; int32 where node ids fit, else int64.
        x: features, float32 [N, d]: a numpy array, or a `scipy.sparse.csr_array` if given sparse.
        y: labels, int64 [N]; -1 means no label.
        train_idx, val_idx, test_idx: int64, ascending, disjoint.
        num_classes: labels are below this number, which is treated as public.
        is_directed: whether some read lacks its reverse. It decides the default edge owner, so it is treated
            as public; state it with `from_arrays(directed=...)` if the edges must not decide.
        duplicates_removed, self_loops_removed: how many given edges were dropped.
        node_names: what the nodes were called where they came from, one each; None where numbers are all.
        columns: how tables became this graph, where it came from tables.

    `x` and `y` may share memory with what was given: nobody should write to them.

    Guarantees:
        No self-loop and no repeated edge; every id is in range; features are finite; splits are disjoint.
        Nodes of any split may be unlabelled: refusing them would tell that a row is empty.

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
    duplicates_removed: int = 0
    self_loops_removed: int = 0
    node_names: Array | None = None
    columns: Columns | None = None

    def __post_init__(self) -> None:
        x, y = checked_features(self.x), check_integers("y", self.y, ndim=1)
        if self.num_nodes != x.shape[0] or len(y) != x.shape[0]:
            raise GraphError(
                f"y has {len(y)} labels and x has {x.shape[0]} rows; expected one of each per node; give "
                "unlabelled nodes the label -1"
            )
        check_number_of_classes(self.num_classes)
        check_range("y", y, -1, self.num_classes - 1, "use -1 for no label, or raise num_classes")
        checked = disjoint_splits(self.num_nodes, {name: getattr(self, name) for name in SPLITS})
        checked |= {"x": x, "y": y.astype(np.int64, copy=False)}
        checked["indptr"] = check_integers("indptr", self.indptr, ndim=1).astype(np.int64, copy=False)
        checked["indices"] = check_integers("indices", self.indices, ndim=1)
        if self.node_names is not None and np.shape(self.node_names) != (self.num_nodes,):
            raise GraphError(
                f"node_names has shape {list(np.shape(self.node_names))}; expected one name per node, "
                f"[{self.num_nodes}]"
            )
        for name, value in checked.items():
            object.__setattr__(self, name, value)
        self._check_reads()

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
    ) -> Graph:
        """Check arrays and build the graph.

        Arguments:
            edge_index: integers [2, E]; column (u, w) means w reads u. Repeats and self-loops are dropped.
            x: features [N, d], a numpy array or any scipy sparse matrix.
            y: integer labels [N]; -1 means no label.
            train_idx, val_idx, test_idx: node ids. Validation and test nodes must be labelled.
            num_classes: the largest label plus one if not given. It is treated as public: give it if the
                labels must not decide it.
            symmetrize: add the reverse of every edge.
            directed: overrides `is_directed`, which otherwise is found from the edges.
            node_names, columns: as in the attributes.
        """
        # Training nodes without a label are allowed: emptying a node's row takes its label but leaves its
        # place in the training split, so refusing such a graph would reveal whether a row is empty.
        if symmetrize and directed:
            raise GraphError("symmetrize=True and directed=True contradict each other; leave one of them out")
        num_nodes = check_shape("x", x, ndim=2)[0]
        reads, duplicates, loops = reads_from_edges(edge_index, num_nodes)
        if symmetrize:
            reads, directed = reads + reads.T.tocsr(), False
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
        return cls(
            num_nodes=num_nodes,
            indptr=reads.indptr,
            indices=reads.indices,
            x=x,
            y=y,
            train_idx=train_idx,
            val_idx=np.empty(0, np.int64) if val_idx is None else val_idx,
            test_idx=np.empty(0, np.int64) if test_idx is None else test_idx,
            num_classes=num_classes,
            is_directed=lacks_reverse(reads) if directed is None else directed,
            duplicates_removed=duplicates,
            self_loops_removed=loops,
            node_names=node_names,
            columns=columns,
        )

    @classmethod
    def from_pyg(
        cls,
        data: Any,
        *,
        symmetrize: bool = False,
        num_classes: int | None = None,
        directed: bool | None = None,
    ) -> Graph:
        """Build from a `torch_geometric.data.Data`.

        Splits are boolean `train_mask`, `val_mask`, `test_mask` [N] or index tensors `train_idx`, `val_idx`,
        `test_idx`. Sparse `x` stays sparse; labels may be [N, 1], and NaN labels mean no label. The other
        arguments are those of `from_arrays`.
        """
        from hushgraph.datasets.pyg import arrays_from_pyg

        arrays = arrays_from_pyg(data)
        return cls.from_arrays(**arrays, symmetrize=symmetrize, num_classes=num_classes, directed=directed)

    @classmethod
    def from_networkx(
        cls,
        graph: Any,
        *,
        features: str | Sequence[str] = "x",
        label: str = "y",
        classes: Sequence[str] | None = None,
        labels: bool = True,
        split: str = "split",
        split_seed: int = 0,
        symmetrize: bool = False,
        num_classes: int | None = None,
        directed: bool | None = None,
    ) -> Graph:
        """Build from a NetworkX graph, its nodes in their order there.

        Arguments:
            graph: undirected, or directed: then the head of an edge reads its tail.
            features: a node attribute that holds a number or a list of numbers, or a list of attributes that
                hold a number each.
            label: the attribute with the class: a number from 0, or a name in `classes`; a node without it
                has no label.
            classes: names of the classes, in the order of their numbers.
            labels: False is for a graph to predict on: labels and splits are not read.
            split: the attribute that says "train", "val" or "test"; a node without it is in no split.
                Fractions such as "0.6/0.2/0.2" draw a split instead, with `split_seed`.
            symmetrize, num_classes, directed: as in `from_arrays`.
        """
        from hushgraph.datasets.loading import load_networkx

        if classes is not None and num_classes is None:
            num_classes = len(classes)
        options: dict[str, Any] = {"features": features, "label": label, "classes": classes, "split": split}
        options |= {"split_seed": split_seed, "symmetrize": symmetrize, "directed": directed}
        return load_networkx(graph, num_classes=num_classes, labels=labels, **options)

    @classmethod
    def from_npz(
        cls,
        path: str | PathLike[str],
        *,
        symmetrize: bool = False,
        num_classes: int | None = None,
        directed: bool | None = None,
        split: str | None = None,
        split_seed: int = 0,
    ) -> Graph:
        """Build from an `.npz` file; `hushgraph.datasets.load_npz` describes the format and the split."""
        from hushgraph.datasets.loading import load_npz

        return load_npz(
            path,
            symmetrize=symmetrize,
            num_classes=num_classes,
            directed=directed,
            split=split,
            split_seed=split_seed,
        )

    @property
    def num_edges(self) -> int:
        """How many reads there are; an undirected edge is two."""
        return len(self.indices)

    @property
    def num_features(self) -> int:
        """d, the columns of `x`."""
        return int(self.x.shape[1])

    @property
    def train_mask(self) -> npt.NDArray[np.bool_]:
        """Whether each node is in the training split, bool [N]."""
        mask = np.zeros(self.num_nodes, np.bool_)
        mask[self.train_idx] = True
        return mask

    def edge_chunks(
        self, chunk_edges: int = 1 << 22, *, shard: int = 0, shards: int = 1
    ) -> Iterator[tuple[Array, Array]]:
        """Yield every read once as (sources, targets), at most `chunk_edges` at a time, ordered by target.

        Arguments:
            chunk_edges: reads in one chunk, at most.
            shard, shards: only the reads of shard number `shard` of `shards` about equal ones.
        """
        if chunk_edges < 1:
            raise GraphError(f"chunk_edges={chunk_edges}; expected at least 1")
        if not 0 <= shard < shards:
            raise GraphError(f"shard={shard}, shards={shards}; expected a shard from 0 to shards - 1")
        first_read, end = (self.num_edges * number // shards for number in (shard, shard + 1))
        for start in range(first_read, end, chunk_edges):
            stop = min(start + chunk_edges, end)
            first = int(np.searchsorted(self.indptr, start, side="right")) - 1
            last = int(np.searchsorted(self.indptr, stop, side="left"))
            reads = np.diff(np.clip(self.indptr[first : last + 1], start, stop))
            yield self.indices[start:stop], np.repeat(np.arange(first, last, dtype=self.indices.dtype), reads)

    def dense_features(self, rows: Array) -> npt.NDArray[np.float32]:
        """The features of the nodes `rows` as a dense float32 array [len(rows), d]."""
        picked = self.x[rows]
        dense: npt.NDArray[np.float32] = picked.toarray() if sparse.issparse(picked) else picked
        return dense

    def symmetrized(self) -> Graph:
        """This graph with the reverse of every read added."""
        shape = (self.num_nodes, self.num_nodes)
        reads = sparse.csr_array((np.ones(self.num_edges, np.bool_), self.indices, self.indptr), shape=shape)
        both = reads + reads.T.tocsr()
        return replace(self, indptr=both.indptr, indices=both.indices, is_directed=False)

    def disjoint(self) -> Graph:
        """This graph without reads across splits, for the inductive setting.

        Nodes outside every split form a group of their own, so no path through them joins two splits.
        """
        group = self._split_numbers()
        return self._keeping(group[self.indices] == np.repeat(group, np.diff(self.indptr)))

    def with_row_emptied(self, v: int, edge_owner: EdgeOwner) -> Graph:
        """The neighbouring dataset in which node `v` left its row empty.

        Its features become zero, its label -1, and the edge records it owns go: those that let others read it
        (`edge_owner="sender"`) or those by which it reads (`"reader"`). Its id and its place in the splits
        stay, and `is_directed`, being public, does too.
        """
        if not 0 <= v < self.num_nodes:
            raise GraphError(f"v={v} is not a node; expected 0..{self.num_nodes - 1}")
        if edge_owner not in ("sender", "reader"):
            raise GraphError(f"edge_owner={edge_owner!r}; expected 'sender' or 'reader'")
        if edge_owner == "sender":
            kept = self.indices != v
        else:
            kept = np.ones(self.num_edges, np.bool_)
            kept[self.indptr[v] : self.indptr[v + 1]] = False
        x, y = self.x.copy(), self.y.copy()
        if sparse.issparse(x):
            x.data[x.indptr[v] : x.indptr[v + 1]] = 0
            x.eliminate_zeros()
        else:
            x[v] = 0
        y[v] = -1
        return self._keeping(kept, x=x, y=y)

    def summary(self) -> str:
        """One line: sizes, kind of edges, features, classes and splits."""
        kind = "directed" if self.is_directed else "undirected"
        form = "sparse" if sparse.issparse(self.x) else "dense"
        sizes = "/".join(f"{len(getattr(self, name)):,}" for name in SPLITS)
        return (
            f"{self.num_nodes:,} nodes, {self.num_edges:,} {kind} reads, {self.num_features:,} {form} "
            f"features, {self.num_classes} classes, train/val/test {sizes}"
        )

    def __repr__(self) -> str:
        return f"Graph({self.summary()})"

    def _check_reads(self) -> None:
        """Refuse rows that are not ascending lists of other nodes; narrow the ids once known to fit."""
        n, indptr = self.num_nodes, self.indptr
        spans = len(indptr) == n + 1 and indptr[0] == 0 and indptr[-1] == self.num_edges
        if not spans or np.any(indptr[1:] < indptr[:-1]):
            raise GraphError(
                f"indptr does not rise from 0 to {self.num_edges} in {n + 1} values; use Graph.from_arrays"
            )
        check_range("indices", self.indices, 0, n - 1, f"the graph has {n} nodes")
        object.__setattr__(self, "indices", self.indices.astype(id_type(n), copy=False))
        last = -1
        for source, target in self.edge_chunks():
            place = target.astype(np.int64) * n + source
            if place[0] <= last or np.any(place[1:] <= place[:-1]) or np.any(source == target):
                raise GraphError(
                    "indices repeats a read, holds a self-loop or is not ascending in a row; use "
                    "Graph.from_arrays"
                )
            last = place[-1]

    def _split_numbers(self) -> npt.NDArray[np.uint8]:
        """uint8 [N]: 1, 2 or 3 for the splits in order, 0 for none."""
        group = np.zeros(self.num_nodes, np.uint8)
        for number, name in enumerate(SPLITS, start=1):
            group[getattr(self, name)] = number
        return group

    def _keeping(self, kept: npt.NDArray[np.bool_], **changes: Any) -> Graph:
        before = np.concatenate([np.zeros(1, np.int64), np.cumsum(kept, dtype=np.int64)])
        return replace(self, indptr=before[self.indptr], indices=self.indices[kept], **changes)
