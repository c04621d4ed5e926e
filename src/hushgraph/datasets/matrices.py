"""X, y and a graph as users of scikit-learn have them: features, labels and edges of the same nodes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from hushgraph._text import find_nearest, suggest
from hushgraph.datasets.networkx import as_weight, is_networkx, list_ends, list_weights
from hushgraph.datasets.tables.frames import is_frame
from hushgraph.errors import GraphError, InputError
from hushgraph.graph.checks import check_shape
from hushgraph.graph.graph import Array

NO_LABEL = "None, NaN, an empty text or -1"
"""What stands for no label in `y`, in words."""
ID, LABEL = "node", "label"
"""What the columns of nodes and labels are called beside the columns of a DataFrame that has neither."""
_EXPECTED = (
    "expected an array [2, E] of row numbers, a SciPy matrix [N, N], a NetworkX graph or a DataFrame of edges"
)


@dataclass(frozen=True, kw_only=True, eq=False)
class ClassLabels:
    """Labels that are classes.

    Attributes:
        codes: int64 [N], places in `classes`; -1 for no label.
        classes: [c], sorted, or in the order in which they were declared.
        is_declared: whether the list was declared; otherwise it was read off the labels.
    """

    codes: npt.NDArray[np.int64]
    classes: Array
    is_declared: bool


def count_rows(X: Any) -> int:
    """How many rows X has; GraphError where it is no table of numbers."""
    if is_frame(X):
        return int(X.shape[0]) if hasattr(X, "shape") else len(X)
    return check_shape("X", X if sparse.issparse(X) else np.asarray(X), ndim=2)[0]


def encode_classes(
    y: Any, num_rows: int, *, classes: Sequence[Any] | None = None, num_classes: int | None = None
) -> ClassLabels:
    """Labels of classes: numbers or names, with `NO_LABEL` where there is none.

    Args:
        y: [N], a list, an array or a Series.
        num_rows: N.
        classes: the declared list of classes; read off the labels unless given.
        num_classes: declares that classes are 0, ..., num_classes - 1 instead.
    """
    values = _as_list(y, num_rows)
    labelled = np.array([not _is_missing(value) for value in values], np.bool_)
    given = [_as_class(value) for value, has_label in zip(values, labelled, strict=True) if has_label]
    known: list[Any]
    # A boolean has two values, whatever the rows hold.
    is_boolean = bool(given) and all(isinstance(each, bool) for each in given)
    if classes is not None:
        known = [_as_class(each) for each in classes]
        if len(set(known)) < len(known) or len(known) < 2:
            raise InputError(f"classes={list(classes)!r}: expected two or more different classes")
    elif num_classes is not None:
        known = list(range(num_classes))
    elif is_boolean:
        known = [False, True]
    else:
        known = _sort_classes(set(given))
    places = {each: place for place, each in enumerate(known)}
    codes = np.full(num_rows, -1, np.int64)
    codes[labelled] = [_find_class(each, places) for each in given]
    is_declared = classes is not None or num_classes is not None or is_boolean
    return ClassLabels(codes=codes, classes=np.array(known), is_declared=is_declared)


def encode_numbers(y: Any, num_rows: int) -> npt.NDArray[np.float64]:
    """Labels that are numbers: float64 [N], NaN for none."""
    numbers = np.full(num_rows, np.nan)
    for place, value in enumerate(_as_list(y, num_rows)):
        if value is None or (isinstance(value, str) and not value):
            continue
        try:
            numbers[place] = float(value)
        except (TypeError, ValueError):
            raise GraphError(f"y[{place}]={value!r:.40}: expected a number, or None or NaN") from None
    return numbers


def encode_sets(y: Any, num_rows: int) -> tuple[npt.NDArray[np.int64], Array]:
    """Several labels of every row: int64 [N, L] of 0 and 1, -1 throughout for none, and the labels' names.

    Args:
        y: [N, L], an array or a DataFrame, whose columns are the names; a SciPy matrix.
        num_rows: N.
    """
    names = np.array([str(name) for name in y.columns]) if is_frame(y) else None
    values = y.toarray() if sparse.issparse(y) else np.asarray(y)
    if values.ndim != 2 or len(values) != num_rows or values.shape[1] < 1:
        raise GraphError(f"y has shape {list(values.shape)}; expected [{num_rows}, labels], 0 or 1 for each")
    try:
        numbers = values.astype(np.float64)
    except (TypeError, ValueError):
        raise GraphError(
            "y holds text; expected 0 or 1 for every label, and NaN or -1 for no label"
        ) from None
    missing = np.isnan(numbers).all(1) | (numbers == -1).all(1)
    labelled = numbers[~missing]
    if not np.isin(labelled, (0, 1)).all():
        raise GraphError(
            "y holds other numbers than 0 and 1; use NaN or -1 throughout for a row without labels"
        )
    sets = np.full(values.shape, -1, np.int64)
    sets[~missing] = labelled.astype(np.int64)
    return sets, np.arange(values.shape[1]) if names is None else names


def read_edges(
    graph: Any,
    num_rows: int,
    *,
    names: Array | None = None,
    source: str = "source",
    target: str = "target",
) -> npt.NDArray[np.int64]:
    """Edges between rows: int64 [2, E].

    Args:
        graph: integers [2, E], row numbers; a SciPy matrix [N, N], where (u, w) is an edge if it is not 0; a
            NetworkX graph, or a DataFrame of edges.
        num_rows: N.
        names: what NetworkX and DataFrames call the rows; their numbers unless given.
        source, target: the columns of a DataFrame. In a directed graph the target reads the source.
    """
    if sparse.issparse(graph):
        if graph.shape != (num_rows, num_rows):
            raise GraphError(f"graph has shape {list(graph.shape)}; expected [{num_rows}, {num_rows}]")
        entries = graph.tocoo()
        is_edge = entries.data != 0
        return np.stack([entries.row[is_edge], entries.col[is_edge]]).astype(np.int64)
    if is_networkx(graph):
        return list_ends(graph, _place_all([end for edge in graph.edges() for end in edge], names))
    if is_frame(graph):
        return np.stack([np.asarray(_place_all(_take(graph, name), names)) for name in (source, target)])
    array = np.asarray(graph.detach().cpu() if hasattr(graph, "detach") else graph)
    if array.ndim != 2 or array.shape[0] != 2 or (array.size and array.dtype.kind not in "iu"):
        has_rows = array.ndim == 2 and array.shape[1] == 2
        advice = "; give its transpose" if has_rows and array.shape[0] != 2 else f"; {_EXPECTED}"
        kind = type(graph).__name__
        raise GraphError(f"graph={kind} has dtype {array.dtype} and shape {list(array.shape)}{advice}")
    return array.astype(np.int64)


def read_weights(graph: Any, column: str) -> npt.NDArray[np.float64]:
    """The weights of the edges that `read_edges` gives, in the same order.

    Args:
        graph: a SciPy matrix, whose values they are; a NetworkX graph or a DataFrame of edges.
        column: the attribute of edges, or the column; a SciPy matrix has no name for its values.
    """
    if sparse.issparse(graph):
        entries = graph.tocoo()
        return np.asarray(entries.data[entries.data != 0], np.float64)
    if is_networkx(graph):
        return list_weights(graph, column)
    if is_frame(graph):
        return np.array([as_weight(value) for value in _take(graph, column).tolist()], np.float64)
    raise GraphError(
        f"edge_weight={column!r} with an array of edges, which has no weights; give a SciPy matrix, a "
        "NetworkX graph or a DataFrame of edges"
    )


def build_tables(
    X: Any, graph: Any, labels: Sequence[Any] | None, *, source: str = "source", target: str = "target"
) -> tuple[Any, Any, dict[str, str]]:
    """A DataFrame of features and a graph as the tables of nodes and edges.

    Args:
        X: a DataFrame of pandas, whose index names the nodes, or of Polars, whose row numbers do.
        graph: as in `read_edges`; a DataFrame is taken as it is.
        labels: of every row, None for no label; None for data to predict on.
        source, target: the columns of the edges.

    Returns:
        Nodes, edges, and the settings that say what the columns are.
    """
    library = import_module(type(X).__module__.partition(".")[0])
    X = X.collect() if hasattr(X, "collect") else X
    if library.__name__ == "pyarrow":
        raise GraphError("X is an Arrow table; expected a DataFrame of pandas or Polars, or an array")
    names = _list_names(X)
    id_name, label_name = _find_free(ID, X.columns), _find_free(LABEL, X.columns)
    added: dict[str, Any] = {id_name: names}
    if labels is not None:
        added[label_name] = list(labels)
    if hasattr(X, "with_columns"):
        nodes = X.with_columns(**{name: library.Series(name, values) for name, values in added.items()})
    else:
        nodes = X.reset_index(drop=True).assign(**added)
    if not is_frame(graph):
        ends = names[read_edges(graph, len(names), names=list_row_names(X))]
        graph = library.DataFrame({source: ends[0], target: ends[1]})
    return nodes, graph, {"id": id_name, "label": label_name}


def list_row_names(X: Any) -> Array | None:
    """What the index of a pandas DataFrame calls its rows; None for other kinds of X."""
    return None if not is_frame(X) or not hasattr(X, "index") else _list_names(X)


def _list_names(X: Any) -> Array:
    """Names of all rows: integers or text."""
    if not hasattr(X, "index"):
        return np.arange(len(X))
    if X.index.nlevels > 1 or not X.index.is_unique:
        what = "several levels" if X.index.nlevels > 1 else f"{X.index[X.index.duplicated()][0]!r:.40} twice"
        raise GraphError(f"the index of X has {what}; expected one name for each node; use X.reset_index()")
    names = X.index.to_numpy()
    return names if names.dtype.kind in "iu" else np.asarray([str(name) for name in names])


def _find_free(name: str, taken: Any) -> str:
    """The name, with an underscore for every column that has it."""
    while name in list(taken):
        name += "_"
    return name


def _as_list(y: Any, num_rows: int) -> list[Any]:
    """The labels, one for every row."""
    given = y.detach().cpu() if hasattr(y, "detach") else y
    # Of a list as objects: numbers beside names stay numbers.
    values = np.asarray(given, object if isinstance(y, list) else None)
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.shape != (num_rows,):
        raise GraphError(
            f"y has shape {list(values.shape)} and X has {num_rows} rows; expected one label for each row, "
            f"with {NO_LABEL} where there is none"
        )
    # pandas calls it NA, which is not a number and compares with nothing.
    return [None if type(value).__name__ in ("NAType", "NaTType") else value for value in values.tolist()]


def _is_missing(value: Any) -> bool:
    if value is None or (isinstance(value, str) and not value):
        return True
    if isinstance(value, float) and math.isnan(value):
        return True
    return not isinstance(value, (bool, str)) and value == -1


def _as_class(value: Any) -> Any:
    """A label as a Python value; a whole number that is stored as a float becomes an integer."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        if not value.is_integer():
            raise GraphError(
                f"y holds {value:g}, which is no class; expected names or whole numbers; for numbers use "
                "NodeRegressor"
            )
        return int(value)
    if isinstance(value, (bool, int, str)):
        return value
    raise GraphError(f"y holds a {type(value).__name__}; expected names, whole numbers or booleans")


def _sort_classes(classes: set[Any]) -> list[Any]:
    kinds = {type(each) for each in classes}
    if len(kinds) > 1:
        named = ", ".join(sorted(kind.__name__ for kind in kinds))
        raise GraphError(f"y holds labels of several types ({named}); expected one; convert them")
    return sorted(classes)


def _find_class(value: Any, places: dict[Any, int]) -> int:
    place = places.get(value)
    # True equals 1 and hashes as 1 does: of numbers, a boolean is a mistake, and the other way around.
    if place is None or isinstance(value, bool) != isinstance(next(iter(places)), bool):
        known = [str(each) for each in places]
        hint = suggest(str(value), known, cutoff=0.6) or f"; expected one of {', '.join(known[:10])}"
        raise GraphError(f"y holds {value!r:.40}, which is not among the declared classes{hint}")
    return place


def _take(frame: Any, name: str) -> Any:
    frame = frame.collect() if hasattr(frame, "collect") else frame
    columns = [str(each) for each in getattr(frame, "column_names", frame.columns)]
    if name not in columns:
        near = find_nearest(name, columns)
        hint = f"did you mean {near!r}? " if near else ""
        raise GraphError(
            f"graph has no column {name!r}; {hint}It has {', '.join(columns[:6])}; name yours with "
            "source and target"
        )
    return np.asarray(frame[name])


def _place_all(given: Any, names: Array | None) -> list[int]:
    """The row numbers of names; integers are row numbers where rows have no names."""
    values = given.tolist() if isinstance(given, np.ndarray) else list(given)
    if names is None:
        wrong = next((each for each in values if isinstance(each, bool) or not isinstance(each, int)), None)
        if wrong is not None:
            raise GraphError(
                f"graph names the node {wrong!r:.40}; expected row numbers of X, or X as a pandas DataFrame "
                "whose index holds the names"
            )
        return [int(each) for each in values]
    places = {name: place for place, name in enumerate(names.tolist())}
    is_text = names.dtype.kind not in "iu"
    keys = [str(each) if is_text else each for each in values]
    unknown = next((each for each in keys if each not in places), None)
    if unknown is not None:
        raise GraphError(f"graph names {unknown!r:.40}, which is not in the index of X; leave it out")
    return [places[each] for each in keys]
