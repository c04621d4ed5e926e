"""Bounded lists: what every training node reads after sampling."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hushgraph.graph.chunks import Int32Array, Int64Array

# Lists above this many bytes are kept in a temporary file.
LARGEST_IN_MEMORY = 2 << 30


@dataclass(frozen=True, kw_only=True, eq=False)
class BoundedLists:
    """The nodes that each node reads, as compressed rows over all nodes.

    Every list is sorted by identifier and holds an identifier once, so two equal samplings have equal arrays.
    A node outside the training split has an empty list: in a tree it is a leaf.

    Attributes:
        indptr: int64 [num_nodes + 1], where each reader's list begins and ends in `indices`.
        indices: int32 [num_kept], the nodes that are read.
    """

    indptr: Int64Array
    indices: Int32Array

    @property
    def num_nodes(self) -> int:
        return len(self.indptr) - 1

    @property
    def num_kept(self) -> int:
        """How many records were kept."""
        return len(self.indices)

    def on_disk_if_large(self) -> BoundedLists:
        """These lists, as memory maps of temporary files where they take much memory.

        A batch reads a few lists, so the system keeps in memory what there is room for.
        """
        if self.indptr.nbytes + self.indices.nbytes <= LARGEST_IN_MEMORY or not self.num_kept:
            return self
        folder = Path(tempfile.mkdtemp(prefix="hushgraph-"))
        try:
            return BoundedLists(
                indptr=_mapped(self.indptr, folder / "indptr"),
                indices=_mapped(self.indices, folder / "indices"),
            )
        finally:
            # A memory map outlives the name of its file, so nothing can be left behind.
            shutil.rmtree(folder, ignore_errors=True)

    def reads_of(self, reader: int) -> Int32Array:
        """The nodes that `reader` reads, sorted."""
        return self.indices[self.indptr[reader] : self.indptr[reader + 1]]

    def reads_count(self) -> Int64Array:
        """int64 [num_nodes]: how many nodes each node reads."""
        return np.diff(self.indptr)

    def readers_count(self) -> Int64Array:
        """int64 [num_nodes]: how many training nodes read each node."""
        return np.bincount(self.indices, minlength=self.num_nodes)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, BoundedLists):
            return NotImplemented
        return np.array_equal(self.indptr, other.indptr) and np.array_equal(self.indices, other.indices)

    __hash__ = None  # type: ignore[assignment]


def _mapped(array: npt.NDArray[Any], path: Path) -> npt.NDArray[Any]:
    array.tofile(path)
    return np.memmap(path, array.dtype, "r", shape=array.shape)
