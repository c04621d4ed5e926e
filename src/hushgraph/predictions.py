"""Files of predictions: node, class, and probabilities where wanted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hushgraph.errors import InputError
from hushgraph.whole_file import whole_file

NOT_COVERED = (
    "A prediction reads the node's neighbours in the clear: the guarantee is about the weights and does not "
    "cover predictions."
)


def check_out(path: Path, *, force: bool) -> None:
    """Refuse a file of an unknown kind, and one that exists unless `force`."""
    if path.suffix not in (".csv", ".npz"):
        raise InputError(f"out={path}: expected a name that ends in .csv or .npz")
    if path.exists() and not force:
        raise InputError(f"out={path}: it exists already; choose another name, or give --force")
    if not path.parent.is_dir():
        raise InputError(f"out={path}: there is no folder {path.parent}; make it first")


def save(path: Path, probabilities: npt.NDArray[np.float32], *, with_probabilities: bool) -> None:
    """Write one row per node, in order of node ids; the file is there as a whole or not at all.

    Args:
        path: `.csv` with columns node, class, p_0, ..., or `.npz` with arrays node, class, probabilities.
        probabilities: float32 [num_nodes, num_classes].
        with_probabilities: whether they are written too.
    """
    arrays: dict[str, Any] = {"node": np.arange(len(probabilities)), "class": probabilities.argmax(1)}
    with whole_file(path) as file:
        if path.suffix == ".npz":
            np.savez(file, **(arrays | {"probabilities": probabilities} if with_probabilities else arrays))
            return
        forms = ["%d", "%d"]
        if with_probabilities:
            arrays |= {f"p_{number}": column for number, column in enumerate(probabilities.T)}
            forms += ["%.6g"] * probabilities.shape[1]
        table = np.empty(len(probabilities), [(name, values.dtype) for name, values in arrays.items()])
        for name, values in arrays.items():
            table[name] = values
        np.savetxt(file, table, fmt=forms, delimiter=",", header=",".join(arrays), comments="")
