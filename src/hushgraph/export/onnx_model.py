"""The model of a release as ONNX: raw features and a reading in, scores and predictions out."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from hushgraph.errors import InputError, RunError
from hushgraph.graph.columns import Columns
from hushgraph.models.gnn import GNN, ReadingMLP
from hushgraph.runs.folder import RunFolder
from hushgraph.scaling.scaler import LARGEST, Scaler
from hushgraph.tasks.classes import Classes
from hushgraph.tasks.labels import Labels
from hushgraph.tasks.number import Number
from hushgraph.tasks.task import Task

FEATURES, READING, LIST_SIZE = "features", "reading", "list_size"
SCORES = "scores"
# What is old enough for every runtime of today, and has all operators below.
_OPSET, _IR_VERSION = 17, 8
_ACTIVATIONS: dict[type[nn.Module], str] = {nn.Tanh: "Tanh", nn.ReLU: "Relu"}


def check_exportable(folder: RunFolder) -> None:
    """Refuse a run whose predictions no file of a model can make."""
    if folder.config.model == "own":
        raise RunError(
            f"run={folder.path}: it trained a module of your own, which export does not know; export that "
            "with torch.onnx"
        )
    if not folder.num_boards and folder.plan.num_layers:
        raise RunError(
            f"run={folder.path}: its predictions read the features of neighbours, so a model alone cannot "
            "make them; export a run with a billboard, or one with model='mlp'"
        )
    _find_shown(folder.task)


def name_shown(task: Task) -> str:
    """What the output of the model is called that shows `Task.show`."""
    return _find_shown(task)[0]


def build_onnx(folder: RunFolder, model: nn.Module, *, noise_std: float) -> bytes:
    """The content of model.onnx, for any number of rows.

    Inputs are `features` float32 [rows, num_features], as in the training data and not scaled, with NaN for
    an empty number that has a constant; of a billboard
    `reading` float32 [rows, width], what `rules.json` describes, of every relation; and `list_size` float32
    [rows, 1], how many places of the board a row lists, where the model uses that. Outputs are `scores` and
    what `name_shown` says.

    Args:
        folder: of the release.
        model: with its weights.
        noise_std: of the combined boards; 0 where there are none or no noise.
    """
    graph = _Graph()
    x, empty = _fill_numbers(graph, FEATURES, folder.columns)
    x = _scale_numbers(graph, x, empty, folder.scaler)
    x = _scale_rows(graph, x, folder.config.feature_norm)
    if isinstance(model, ReadingMLP):
        scores = _add_reading_model(graph, x, folder, model, noise_std)
        inputs = {FEATURES: folder.num_features, READING: folder.task.ballot_width * folder.num_readings}
        inputs |= {LIST_SIZE: 1} if folder.config.list_size else {}
    elif isinstance(model, GNN):
        scores = _add_layers(graph, _add_layers(graph, x, model.encoder), model.decoder)
        inputs = {FEATURES: folder.num_features}
    else:
        raise RunError(f"model={type(model).__name__}: export knows the built-in models alone")
    name, show = _find_shown(folder.task)
    graph.add("Identity", scores, out=SCORES)
    graph.add("Identity", show(graph, scores, folder.task), out=name)
    width = folder.task.num_outputs
    return graph.pack(inputs, {SCORES: width, name: width})


class _Graph:
    """Collects operators and constants."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def add(self, operator: str, *inputs: str, out: str | None = None, **attributes: Any) -> str:
        """Add an operator; return the name of its output."""
        name = out or f"{operator.lower()}_{len(self.nodes)}"
        self.nodes.append(_import_onnx().helper.make_node(operator, list(inputs), [name], **attributes))
        return name

    def keep(self, values: npt.ArrayLike, dtype: Any = np.float32) -> str:
        """Add a constant; return its name."""
        name = f"constant_{len(self.constants)}"
        array = np.ascontiguousarray(np.asarray(values, dtype))
        self.constants.append(_import_onnx().numpy_helper.from_array(array.reshape(np.shape(values)), name))
        return name

    def pack(self, inputs: dict[str, int], outputs: dict[str, int]) -> bytes:
        """The content of the file, with its inputs and outputs, float32 [rows, width] each."""
        onnx = _import_onnx()

        def describe(widths: dict[str, int]) -> list[Any]:
            kind = onnx.TensorProto.FLOAT
            return [
                onnx.helper.make_tensor_value_info(name, kind, ["rows", width])
                for name, width in widths.items()
            ]

        graph = onnx.helper.make_graph(
            self.nodes, "hushgraph", describe(inputs), describe(outputs), self.constants
        )
        model = onnx.helper.make_model(
            graph,
            opset_imports=[onnx.helper.make_opsetid("", _OPSET)],
            ir_version=_IR_VERSION,
            producer_name="hushgraph",
        )
        onnx.checker.check_model(model, full_check=True)
        content: bytes = model.SerializeToString()
        return content


def _import_onnx() -> Any:
    try:
        import onnx
    except ImportError:
        raise InputError(
            "onnx is not installed, but export needs it; install it with pip install 'hushgraph[export]'"
        ) from None
    return onnx


def _cut(graph: _Graph, x: str, width: int) -> tuple[str, str]:
    """The first columns, which are numbers, and the others."""
    axis, zero = graph.keep([1], np.int64), graph.keep([0], np.int64)
    end, far = graph.keep([width], np.int64), graph.keep([np.iinfo(np.int64).max], np.int64)
    return graph.add("Slice", x, zero, end, axis), graph.add("Slice", x, end, far, axis)


def _fill_numbers(graph: _Graph, x: str, columns: Columns | None) -> tuple[str, str | None]:
    """Features with their constants in place of NaN, and which numbers were NaN; None where none may be."""
    if columns is None or not columns.constants:
        return x, None
    names = columns.features or ()
    numbers, rest = _cut(graph, x, len(names))
    may_be_empty = graph.keep([name in columns.constants for name in names], np.bool_)
    empty = graph.add("And", graph.add("IsNaN", numbers), may_be_empty)
    constants = graph.keep([columns.constants.get(name, 0.0) for name in names])
    return graph.add("Concat", graph.add("Where", empty, constants, numbers), rest, axis=1), empty


def _scale_numbers(graph: _Graph, x: str, empty: str | None, scaler: Scaler | None) -> str:
    """`Scaler.apply`, in float64 as there."""
    if scaler is None or not any(scaler.scales):
        return x
    onnx, scales = _import_onnx(), scaler.scales
    numbers, rest = _cut(graph, x, len(scales))
    exact = graph.add("Cast", numbers, to=onnx.TensorProto.DOUBLE)
    one = graph.keep(1.0, np.float64)
    # asinh, for which runtimes have no operator in float64.
    root = graph.add("Sqrt", graph.add("Add", graph.add("Mul", exact, exact), one))
    size = graph.add("Log", graph.add("Add", graph.add("Abs", exact), root))
    log = graph.add("Mul", graph.add("Sign", exact), size)
    has_log = graph.keep([scale is not None and scale.log for scale in scales], np.bool_)
    centre = graph.keep([0.0 if scale is None else scale.centre for scale in scales], np.float64)
    spread = graph.keep([1.0 if scale is None else scale.spread for scale in scales], np.float64)
    moved = graph.add("Sub", graph.add("Where", has_log, log, exact), centre)
    limits = graph.keep(-LARGEST, np.float64), graph.keep(LARGEST, np.float64)
    cut = graph.add("Min", graph.add("Max", graph.add("Div", moved, spread), limits[0]), limits[1])
    scaled = graph.add("Cast", cut, to=onnx.TensorProto.FLOAT)
    # A row of zeros stays one.
    nothing = graph.keep(0.0)
    largest = graph.add("ReduceMax", graph.add("Abs", x), axes=[1], keepdims=1)
    used = graph.add("Where", graph.add("Greater", largest, nothing), scaled, nothing)
    if empty is not None:
        used = graph.add("Where", empty, nothing, used)
    is_scaled = graph.keep([scale is not None for scale in scales], np.bool_)
    return graph.add("Concat", graph.add("Where", is_scaled, used, numbers), rest, axis=1)


def _scale_rows(graph: _Graph, x: str, norm: float) -> str:
    """`scale_rows`."""
    if not norm:
        return x
    norms = graph.add("ReduceL2", x, axes=[1], keepdims=1)
    return graph.add("Mul", x, graph.add("Div", graph.keep(norm), graph.add("Max", norms, graph.keep(1e-12))))


def _add_reading_model(graph: _Graph, x: str, folder: RunFolder, model: ReadingMLP, noise_std: float) -> str:
    """`scale_readings`, `add_free_inputs` and the model, of rows without a place of their own."""
    config, width, count = folder.config, folder.task.ballot_width, folder.num_readings
    # Readings of several relations are scaled one by one.
    each = graph.add("Reshape", READING, graph.keep([0, count, width], np.int64))
    scaled = graph.add("Mul", each, graph.keep(config.reading_scale / (noise_std or 1.0)))
    squares = graph.add("ReduceSumSquare", scaled, axes=[2], keepdims=1)
    share = graph.add("Div", squares, graph.keep(config.reading_radius**2))
    divided = graph.add("Div", scaled, graph.add("Sqrt", graph.add("Add", graph.keep(1.0), share)))
    reading = graph.add("Reshape", divided, graph.keep([0, count * width], np.int64))
    kept = list(range(count * width))
    if config.list_size:
        log = graph.add("Log", graph.add("Add", LIST_SIZE, graph.keep(1.0)))
        reading = graph.add("Concat", reading, graph.add("Mul", log, graph.keep(config.list_size)), axis=1)
        kept.append(folder.reading_width - 1)
    # The columns between are those of a row's own place: 0 for a new row, so that their weights are left out.
    first, last = model.encoder[0], model.decoder
    assert isinstance(first, nn.Linear)
    columns = [*range(folder.num_features), *(folder.num_features + column for column in kept)]
    joined = graph.add("Concat", x, reading, axis=1)
    hidden = _add_linear(graph, joined, first.weight[:, columns], first.bias)
    hidden = graph.add(_ACTIVATIONS[type(model.encoder[1])], hidden)
    direct = _add_linear(graph, reading, model.skip.weight[:, kept], None)
    return graph.add("Add", _add_linear(graph, hidden, last.weight, last.bias), direct)


def _add_layers(graph: _Graph, x: str, layers: nn.Sequential) -> str:
    for layer in layers:
        if isinstance(layer, nn.Linear):
            x = _add_linear(graph, x, layer.weight, layer.bias)
        else:
            x = graph.add(_ACTIVATIONS[type(layer)], x)
    return x


def _add_linear(graph: _Graph, x: str, weight: torch.Tensor, bias: torch.Tensor | None) -> str:
    parts = [weight] if bias is None else [weight, bias]
    return graph.add("Gemm", x, *(graph.keep(part.detach().cpu().numpy()) for part in parts), transB=1)


def _show_classes(graph: _Graph, scores: str, task: Task) -> str:
    return graph.add("Softmax", scores, axis=1)


def _show_labels(graph: _Graph, scores: str, task: Task) -> str:
    return graph.add("Sigmoid", scores)


def _show_number(graph: _Graph, scores: str, task: Task) -> str:
    assert isinstance(task, Number)
    cut = graph.add("Min", graph.add("Max", scores, graph.keep(-1.0)), graph.keep(1.0))
    half = graph.add("Div", graph.add("Add", cut, graph.keep(1.0)), graph.keep(2.0))
    return graph.add("Add", graph.add("Mul", half, graph.keep(task.high - task.low)), graph.keep(task.low))


# Name of the output and `Task.show`, by task.
_SHOWN: dict[type[Task], tuple[str, Any]] = {
    Classes: ("probabilities", _show_classes),
    Labels: ("probabilities", _show_labels),
    Number: ("number", _show_number),
}


def _find_shown(task: Task) -> tuple[str, Any]:
    for kind, shown in _SHOWN.items():
        if isinstance(task, kind):
            return shown
    known = ", ".join(sorted(kind.name for kind in _SHOWN))
    raise RunError(f"task={task.name!r}: export knows {known}, and what follows from them")
