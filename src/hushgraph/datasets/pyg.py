"""Arrays from PyG's `Data`, given as an object or in a `.pt` file."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from scipy import sparse

from hushgraph.datasets.npz import NO_SPLIT, UNREAD, mask_name, nodes_of_mask
from hushgraph.datasets.paths import check_is_file
from hushgraph.errors import GraphError, MissingSplitError
from hushgraph.graph.checks import check_integers, check_range
from hushgraph.graph.graph import SPLITS
from hushgraph.graph.records import EdgeWeight, Relation

# What PyG puts before the name of a type of edges that it adds as the reverse of another.
_REVERSE = "rev_"


def read_pt(path: Path) -> Any:
    """Return the fields of the `Data` in a `.pt` file; a file without permission raises PermissionError."""
    import torch

    check_is_file(path)
    classes = _pyg_classes()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            # What PyG has registered itself stays so: the context forgets what it is given.
            allowed = torch.serialization.get_safe_globals()
            with torch.serialization.safe_globals([each for each in classes if each not in allowed]):
                content: Any = torch.load(path, map_location="cpu", weights_only=True)
        # PyG's in-memory datasets store (data, slices, class); slices are empty for a single graph.
        if isinstance(content, tuple):
            content, has_several_graphs = content[0], len(content) > 1 and bool(content[1])
            if has_several_graphs:
                raise GraphError("several graphs in one file; expected one")
        is_data = bool(classes) and isinstance(content, classes[0])
        fields = content.to_dict() if is_data else content if isinstance(content, Mapping) else {}
        return SimpleNamespace(**fields)
    except (GraphError, PermissionError):
        raise
    except Exception as error:  # pickle, zipfile and torch raise a dozen types on damaged files
        if not classes and "torch_geometric" in str(error):
            raise GraphError(
                "a PyG Data, and torch-geometric is not installed; install it with "
                "pip install 'hushgraph[pyg]', or save the file with torch.save(data.to_dict(), path)"
            ) from None
        raise GraphError(
            f"not a .pt file of tensors ({type(error).__name__}); it is damaged, or holds objects that only "
            "running code could restore; save it with torch.save(data.to_dict(), path)"
        ) from error


def _pyg_classes() -> list[Any]:
    """Return the classes that a saved `Data` consists of; none if torch-geometric is not installed."""
    try:
        from torch_geometric.data import Data
        from torch_geometric.data.data import DataEdgeAttr, DataTensorAttr
        from torch_geometric.data.storage import GlobalStorage
    except ImportError:
        return []
    return [Data, DataEdgeAttr, DataTensorAttr, GlobalStorage]


def arrays_from_pyg(
    data: Any,
    *,
    splits: bool = True,
    labels: bool = True,
    classes: bool = True,
    edge_weight: str | None = None,
    person: str | None = None,
) -> dict[str, Any]:
    """Return the arguments of `Graph.from_arrays` from an object with the fields of a PyG `Data`.

    Args:
        data: the object.
        splits: whether a split is required.
        labels: False reads only `edge_index` and `x`.
        classes: whether labels are classes; numbers stay as they are.
        edge_weight: as in `load_graph`; the weights are under "weights" then.
        person: the attribute that says whose every node is, where people have several.
    """
    wanted = ("edge_index", "x", "y") if labels else ("edge_index", "x")
    missing = [name for name in wanted if getattr(data, name, None) is None]
    if missing:
        raise GraphError(
            f"missing {', '.join(missing)}; expected a PyG Data with {', '.join(wanted[:-1])} and "
            f"{wanted[-1]}, a file or a dataset name"
        )
    arrays = {name: _to_array(name, getattr(data, name)) for name in ("edge_index", "x")}
    column = None if edge_weight is None else EdgeWeight.of(edge_weight).column
    if column is not None:
        arrays["weights"] = _read_weights(data, column)
    if person is not None:
        arrays["persons"] = _find(data, person, "person")
    arrays["unread"] = tuple(
        name for name in UNREAD if name != column and getattr(data, name, None) is not None
    )
    if not labels:
        return arrays
    y = _to_array("y", data.y)
    arrays["y"] = _class_numbers(y) if classes else y
    if splits:
        nodes = {name: _split_nodes(data, name, arrays["y"].shape[:1]) for name in SPLITS}
        if nodes["train_idx"] is None:
            raise MissingSplitError(f"no train_mask and no train_idx: {NO_SPLIT}")
        arrays |= nodes
    return arrays


def is_hetero(data: Any) -> bool:
    """Return whether this has types of nodes and of edges, as a PyG `HeteroData`."""
    return hasattr(data, "node_types") and hasattr(data, "edge_types") and hasattr(data, "edge_items")


def arrays_from_hetero(
    data: Any,
    people: str | None,
    *,
    edge_weight: str | None = None,
    splits: bool = True,
    labels: bool = True,
    classes: bool = True,
    person: str | None = None,
) -> dict[str, Any]:
    """Return the arguments of `Graph.from_arrays` from a PyG `HeteroData`.

    Every type of edges between people is a relation, and so is every type between people and another type of
    nodes, which are places. Types between places are not read, nor is a type whose name begins with rev_ and
    whose reverse is there.

    Args:
        data: the object.
        people: the type of nodes that are people.
        edge_weight: the name of an array of weights that every type of edges has.
        splits, labels, classes, person: as in `arrays_from_pyg`.
    """
    types = [str(each) for each in data.node_types]
    if people not in types:
        hint = "" if people is None else f"people={people!r} is none of its types; "
        raise GraphError(
            f"a HeteroData with the types {', '.join(types)}: {hint}say which are people, as "
            f"people={types[0] if types else 'user'!r}; all others are places"
        )
    store = data[people]
    read = ("x", "y", *SPLITS, *map(mask_name, SPLITS), *([] if person is None else [person]))
    fields = {name: getattr(store, name, None) for name in read} | {"edge_index": np.empty((2, 0), np.int64)}
    how: dict[str, Any] = {"splits": splits, "labels": labels, "classes": classes, "person": person}
    arrays = arrays_from_pyg(SimpleNamespace(**fields), **how)
    num_nodes = int(arrays["x"].shape[0])
    declared = None if edge_weight is None else EdgeWeight.of(edge_weight)
    relations = []
    for kind in _list_record_types(data.edge_types, people):
        source, name, target = kind
        edges = _check_hetero_edges(data, kind)
        weights = None
        if declared is not None:
            raw = None if declared.column is None else _read_weights(data[kind], declared.column)
            weights = declared.read(raw, edges.shape[1], where=f" of {kind}")
        if source == target:
            relations.append(Relation.between_people(name, edges, num_nodes=num_nodes, weights=weights))
            continue
        persons, places = edges if source == people else edges[::-1]
        other = target if source == people else source
        relations.append(
            Relation.to_places(
                f"{name} {other}",
                persons,
                places,
                num_nodes=num_nodes,
                num_places=int(data[other].num_nodes),
                weights=weights,
            )
        )
    if not relations:
        raise GraphError(f"the HeteroData has no edge type with {people!r} at an end; expected at least one")
    return arrays | {"edge_index": None, "relations": relations, "unread": ()}


def _list_record_types(edge_types: Any, people: str) -> list[tuple[str, str, str]]:
    """The types of edges with people at an end, without reverses of others, in order."""
    types = [(str(source), str(name), str(target)) for source, name, target in edge_types]
    return [
        (source, name, target)
        for source, name, target in types
        if people in (source, target)
        and not (name.startswith(_REVERSE) and (target, name.removeprefix(_REVERSE), source) in types)
    ]


def _check_hetero_edges(data: Any, kind: tuple[str, str, str]) -> Any:
    name = f"edge_index of {kind}"
    edges = check_integers(name, _to_array("edge_index", data[kind].edge_index), ndim=2)
    if edges.shape[0] != 2:
        raise GraphError(f"{name} has shape {list(edges.shape)}; expected integers [2, E]")
    for row, end in zip(edges, (kind[0], kind[2]), strict=True):
        count = int(data[end].num_nodes)
        check_range(name, row, 0, count - 1, f"{end!r} has {count} nodes")
    return edges.astype(np.int64)


def _read_weights(data: Any, column: str) -> Any:
    """The array of weights of an object with fields."""
    return _to_array(column, _find(data, column, "edge_weight"))


def _find(data: Any, name: str, role: str) -> Any:
    if getattr(data, name, None) is None:
        raise GraphError(f"no {name!r}, given as {role}; name an array that is there")
    return getattr(data, name)


def _to_array(name: str, value: Any) -> Any:
    """Convert a tensor to a NumPy array, or to a SciPy matrix if it is sparse."""
    try:
        if not hasattr(value, "detach"):
            return value if sparse.issparse(value) else np.asarray(value)
        tensor = value.detach().cpu()
        if "sparse" not in str(tensor.layout):
            return (tensor.float() if "bfloat16" in str(tensor.dtype) else tensor).numpy()
        entries = tensor.to_sparse_coo().coalesce()
        row, column = entries.indices().numpy()
        return sparse.coo_array((entries.values().float().numpy(), (row, column)), shape=tuple(entries.shape))
    except (AttributeError, RuntimeError, TypeError, ValueError) as error:
        raise GraphError(
            f"{name} is a {type(value).__name__} that cannot be converted to an array; expected a dense "
            "tensor, or a sparse matrix for x"
        ) from error


def _class_numbers(labels: Any) -> Any:
    """Return labels [N] from [N] or [N, 1]; floats must be integral, and NaN means no label."""
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim != 1 or labels.dtype.kind != "f":
        return labels
    labels = np.where(np.isnan(labels), -1.0, labels)
    invalid = np.flatnonzero((labels != np.rint(labels)) | (np.abs(labels) > 2**31))
    if invalid.size:
        raise GraphError(f"y[{invalid[0]}]={labels[invalid[0]]}: expected class numbers, or NaN for no label")
    return labels.astype(np.int64)


def _split_nodes(data: Any, name: str, shape: tuple[int, ...]) -> Any:
    """Return the nodes of a split, from its mask of this shape or its index tensor; None without either."""
    mask_field = mask_name(name)
    given, mask = getattr(data, name, None), getattr(data, mask_field, None)
    if given is not None and mask is not None:
        raise GraphError(f"both {mask_field} and {name}; expected one of them; delete the other")
    if mask is not None:
        return nodes_of_mask(mask_field, _to_array(mask_field, mask), shape)
    return None if given is None else _to_array(name, given)
