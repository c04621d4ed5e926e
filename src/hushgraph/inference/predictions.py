"""Files of predictions: node, class, and probabilities where wanted."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hushgraph._files import whole_file
from hushgraph.errors import InputError

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


def save(
    path: Path,
    probabilities: npt.NDArray[np.float32],
    *,
    with_probabilities: bool,
    node_names: npt.NDArray[Any] | None = None,
    class_names: Sequence[str] | None = None,
) -> None:
    """Write one row per node, in the order of the data; the file is there as a whole or not at all.

    Args:
        path: `.csv` with columns node, class, p_0, ..., or `.npz` with arrays node, class, probabilities.
        probabilities: float32 [num_nodes, num_classes].
        with_probabilities: whether they are written too.
        node_names: what the nodes are called; numbers from 0 unless given.
        class_names: what the classes are called; numbers from 0 unless given.
    """
    count, classes = probabilities.shape
    best = probabilities.argmax(1)
    nodes = np.arange(count) if node_names is None else node_names
    # Text without objects in it, so that a file of predictions is read without unpickling.
    nodes = nodes if nodes.dtype.kind in "iu" else nodes.astype(np.str_)
    named = np.arange(classes) if class_names is None else np.asarray(class_names, np.str_)
    arrays: dict[str, Any] = {"node": nodes, "class": named[best]}
    with whole_file(path) as file:
        if path.suffix == ".npz":
            if with_probabilities:
                arrays["probabilities"] = probabilities
                arrays |= {} if class_names is None else {"class_names": named}
            np.savez(file, **arrays)
            return
        arrays = {name: _quoted(values) for name, values in arrays.items()}
        forms = ["%d" if values.dtype.kind in "iu" else "%s" for values in arrays.values()]
        if with_probabilities:
            arrays |= {f"p_{name}": column for name, column in zip(named, probabilities.T, strict=True)}
            forms += ["%.6g"] * classes
        header = ",".join(_quoted(np.array(list(arrays), np.str_)))
        table = np.empty(count, [(f"c{place}", each.dtype) for place, each in enumerate(arrays.values())])
        for place, values in enumerate(arrays.values()):
            table[f"c{place}"] = values
        np.savetxt(file, table, fmt=forms, delimiter=",", header=header, comments="", encoding="utf-8")


def _quoted(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Text as CSV wants it: quoted where it holds a comma, a quote or a line break."""
    if values.dtype.kind != "U":
        return values
    odd = np.zeros(values.shape, np.bool_)
    for character in ',"\n\r':
        odd |= np.char.find(values, character) >= 0
    if not odd.any():
        return values
    doubled = np.char.replace(values[odd], '"', '""')
    quoted = np.char.add(np.char.add('"', doubled), '"')
    found = values.astype(np.result_type(values.dtype, quoted.dtype))
    found[odd] = quoted
    return found
