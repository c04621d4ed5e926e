"""Files of predictions: node, class and, if asked for, probabilities."""

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
    """Raise InputError for a path of unknown type, and for one that exists unless `force`."""
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
    """Write one row per node, in the order of the data. The file is replaced atomically.

    Args:
        path: `.csv` with columns node, class, p_0, ..., or `.npz` with arrays node, class, probabilities.
        probabilities: float32 [num_nodes, num_classes].
        with_probabilities: whether the probabilities are written.
        node_names: the names of the nodes; numbers from 0 unless given.
        class_names: the names of the classes; numbers from 0 unless given.
    """
    count, classes = probabilities.shape
    best = probabilities.argmax(1)
    nodes = np.arange(count) if node_names is None else node_names
    # NumPy text instead of objects, so that the file can be read without unpickling.
    nodes = nodes if nodes.dtype.kind in "iu" else nodes.astype(np.str_)
    names = np.arange(classes) if class_names is None else np.asarray(class_names, np.str_)
    arrays: dict[str, Any] = {"node": nodes, "class": names[best]}
    with whole_file(path) as file:
        if path.suffix == ".npz":
            if with_probabilities:
                arrays["probabilities"] = probabilities
                arrays |= {} if class_names is None else {"class_names": names}
            np.savez(file, **arrays)
            return
        arrays = {name: _quote_text(values) for name, values in arrays.items()}
        forms = ["%d" if values.dtype.kind in "iu" else "%s" for values in arrays.values()]
        if with_probabilities:
            arrays |= {f"p_{name}": column for name, column in zip(names, probabilities.T, strict=True)}
            forms += ["%.6g"] * classes
        header = ",".join(_quote_text(np.array(list(arrays), np.str_)))
        table = np.empty(count, [(f"c{place}", each.dtype) for place, each in enumerate(arrays.values())])
        for place, values in enumerate(arrays.values()):
            table[f"c{place}"] = values
        np.savetxt(file, table, fmt=forms, delimiter=",", header=header, comments="", encoding="utf-8")


def _quote_text(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Quote text for CSV where it contains a comma, a quote or a line break."""
    if values.dtype.kind != "U":
        return values
    is_special = np.zeros(values.shape, np.bool_)
    for character in ',"\n\r':
        is_special |= np.char.find(values, character) >= 0
    if not is_special.any():
        return values
    doubled = np.char.replace(values[is_special], '"', '""')
    quoted = np.char.add(np.char.add('"', doubled), '"')
    result = values.astype(np.result_type(values.dtype, quoted.dtype))
    result[is_special] = quoted
    return result
