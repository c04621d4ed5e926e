"""A released run in MLflow: settings, covered figures, the card, and a model that MLflow serves.

`mlflow.pyfunc` calls `_load_pyfunc` of this module: a model in MLflow is the release of a run, and nothing is
pickled.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hushgraph import __version__
from hushgraph.datasets.tables.new_rows import new_rows_from_tables
from hushgraph.errors import InputError
from hushgraph.export.bundle import open_published
from hushgraph.export.onnx_model import check_exportable
from hushgraph.graph.checks import check_features
from hushgraph.graph.columns import Columns
from hushgraph.graph.graph import Graph
from hushgraph.inference.new_nodes import NewNodes, find_lists
from hushgraph.inference.predicted import Predicted
from hushgraph.runs.folder import RunFolder
from hushgraph.runs.release import CARD, list_files, list_settings

if TYPE_CHECKING:
    from hushgraph.training.run import Run

PLACES, WEIGHTS = "places", "weights"
"""The columns with the list of identifiers of every row, and with their weights."""
# What MLflow accepts in the name of a metric.
_OTHER_CHARACTERS = re.compile(r"[^\w./ -]")


def log_run(path: Path, *, name: str) -> str:
    """Log what was released of a run; return the address of the model.

    Args:
        path: of the folder of the run.
        name: of the model in MLflow.

    Raises:
        RunError: where nothing was released, or where predictions read neighbours.

    Guarantees:
        Everything that is logged is a function of files of the release.
    """
    try:
        import mlflow
    except ImportError:
        raise InputError(
            "mlflow is not installed, but log_mlflow needs it; install it with pip install "
            "'hushgraph[mlflow]'"
        ) from None
    folder = open_published(path)
    check_exportable(folder)
    check_columns(folder)
    # MLflow would note down the name of the program that runs.
    own = {"mlflow.source.name": "hushgraph"}
    is_new = mlflow.active_run() is None
    with mlflow.start_run(tags=own) if is_new else contextlib.nullcontext(), warnings.catch_warnings():
        # An example would show a private row.
        warnings.filterwarnings("ignore", ".*An input example was not provided")
        mlflow.log_params(list_params(folder))
        mlflow.log_metrics(list_metrics(folder))
        mlflow.log_text((folder.path / CARD).read_text(encoding="utf-8"), CARD)
        with tempfile.TemporaryDirectory() as place:
            # What else lies in the folder of a release stays there.
            (data := Path(place) / "release").mkdir()
            for file in list_files(folder.path):
                shutil.copyfile(file, data / file.name)
            logged = mlflow.pyfunc.log_model(
                name=name,
                loader_module=__name__,
                data_path=str(data),
                pip_requirements=[f"hushgraph[mlflow]=={__version__}"],
                signature=describe_input(folder),
            )
    return str(logged.model_uri)


def list_params(folder: RunFolder) -> dict[str, Any]:
    """The settings of a release: single values of its configuration and its plan."""
    settings = list_settings(folder.config) | folder.plan.summary() | {"task": folder.task.name}
    return {
        key: value
        for key, value in settings.items()
        if value is None or isinstance(value, (str, int, float, bool))
    }


def list_metrics(folder: RunFolder) -> dict[str, float]:
    """Epsilon, delta and every covered figure of a release, by name."""
    metrics = {"epsilon": folder.guarantee.epsilon, "delta": folder.guarantee.delta}
    for row in folder.result().get("figure_table", ()):
        if row["value"] is None:
            continue
        parts = [f"{row['split']}_{row['figure']}"]
        parts += [] if row["group"] is None else [f"group {row['group']}"]
        if row["class"] is not None:
            names = folder.class_names
            parts.append(f"class {row['class'] if names is None else names[row['class']]}")
        metrics[_OTHER_CHARACTERS.sub("_", "/".join(parts))] = float(row["value"])
    return metrics


def name_lists(folder: RunFolder) -> tuple[str, ...]:
    """The columns of lists that a model takes."""
    weighted = any(each.is_weighted for each in folder.relations)
    return (PLACES, WEIGHTS)[: 1 + weighted] if folder.num_boards else ()


def check_columns(folder: RunFolder) -> None:
    """Refuse tables that have a feature with the name of a column of lists."""
    for name in {*name_lists(folder)} & {*name_columns(folder.columns, 0)}:
        raise InputError(
            f"column {name!r} is a feature, and MLflow's models take lists of places or weights under that "
            "name; rename the column and train again"
        )


def name_columns(columns: Columns | None, num_features: int) -> list[str]:
    """The columns of features that a model takes, in order: those of the tables, or x0, x1, ..."""
    if columns is None:
        return [f"x{number}" for number in range(num_features)]
    return [*(columns.features or ()), *columns.categorical, *columns.hashed]


def describe_input(folder: RunFolder) -> Any:
    """The columns that a model takes, for MLflow. Types are those of the tables: it does not check them."""
    from mlflow.models import ModelSignature
    from mlflow.types.schema import AnyType, Array, ColSpec, Schema

    columns = [
        ColSpec(AnyType(), name, required=False) for name in name_columns(folder.columns, folder.num_features)
    ]
    # Of several relations a cell is an object with a list for each.
    kind = Array(AnyType()) if folder.num_readings == 1 else AnyType()
    columns += [ColSpec(kind, name, required=False) for name in name_lists(folder)]
    return ModelSignature(inputs=Schema(columns))


class ServedRun:
    """What `mlflow.pyfunc.load_model` wraps: rows in a DataFrame in, predictions as a DataFrame out.

    Args:
        run: a release.
    """

    def __init__(self, run: Run) -> None:
        self.run = run

    def predict(self, model_input: Any, params: Mapping[str, Any] | None = None) -> Any:
        """Predict every row of a DataFrame.

        Args:
            model_input: the columns of the training table, or x0, x1, ... where there was none; label and
                split are not read. Of a billboard also `places`, the list of identifiers of every row, which
                may be missing; where there are weights `weights`, a list of numbers for every row, 1 each
                where the column is missing. Of a run with several relations, a cell of both is a dictionary
                of such lists by the name of the relation.
            params: not used.

        Returns:
            A DataFrame with what `Run.predict_table` shows of every row.
        """
        import pandas as pd

        # Objects of one type, as JSON gives them, become columns of that type.
        frame = pd.DataFrame(model_input).infer_objects().reset_index(drop=True)
        names = name_lists(self.run.folder)
        lists = {name: self._read_lists(frame, name) for name in names if name in frame.columns}
        features, filled = self._read_features(frame.drop(columns=list(lists)))
        predicted = Predicted(
            **self.run._names,
            probabilities=self._score(features, filled, lists.get(PLACES), lists.get(WEIGHTS)),
            is_covered=self.run._is_covered,
            reads_neighbours=False,
        )
        columns = predicted.to_columns()
        return pd.DataFrame(dict(list(columns.items())[1:]))

    def _read_features(self, frame: Any) -> tuple[Any, Any]:
        """Features [R, d], as in the training data, and which numbers were empty."""
        columns = self.run.folder.columns
        if columns is None:
            wanted = name_columns(None, self.run.folder.num_features)
            _check_present(frame, wanted)
            return frame[wanted].to_numpy(np.float32), None
        wanted = name_columns(columns, 0)
        _check_present(frame, wanted)
        # A column without any value has no type of its own.
        empty = {name: "string" for name in wanted if frame[name].isna().all()}
        empty |= {name: "float64" for name in empty if name in {*(columns.features or ())} - {*columns.dates}}
        nodes = frame[wanted].astype(empty)
        nodes[columns.id] = [f"row {number}" for number in range(len(frame))]
        edges = type(frame)({columns.source: ["row 0"], columns.target: ["row 0"]})
        columns = columns.without_records()
        with new_rows_from_tables((nodes, edges), columns=columns, listed_by="source") as rows:
            return rows.x, rows.filled

    def _read_lists(self, frame: Any, name: str) -> Any:
        """What rows list, or its weights, as `predict_new` takes it."""
        relations = [each.name for each in self.run.folder.relations]
        cells = frame[name].tolist()
        if len(relations) < 2:
            return [_read_list(each, row, name) for row, each in enumerate(cells)]
        for row, each in enumerate(cells):
            if isinstance(each, Mapping):
                wrong = [key for key in each if key not in relations]
            else:
                wrong, cells[row] = _read_list(each, row, name), {}
            if wrong:
                raise InputError(
                    f"row {row}, column {name}: found {str(wrong[0])[:40]!r}; expected a dictionary "
                    f"of lists by relation, {', '.join(relations)}"
                )
        return {
            relation: [_read_list(each.get(relation), row, name) for row, each in enumerate(cells)]
            for relation in relations
        }

    def _score(self, x: Any, filled: Any, lists: Any, weights: Any) -> Any:
        folder, rows = self.run.folder, x.shape[0]
        if folder.num_boards:
            boards = self.run._ready_boards
            if lists is None:
                lists, weights = {} if len(folder.relations) > 1 else [[]] * rows, None
            rows_read = find_lists(boards, lists, weights, num_rows=rows, declared=folder.edge_weight)
            nodes = NewNodes(
                x=check_features(x),
                indptr=rows_read.indptr,
                places=rows_read.places,
                weights=rows_read.weights,
                filled=filled,
            )
            return self.run._predict_rows(boards, nodes)[0]
        # No edges, and labels that nobody reads.
        alone = Graph.from_arrays(
            edge_index=np.empty((2, 0), np.int64),
            x=folder.scale_features(x, filled),
            y=np.zeros(rows, np.int64),
            train_idx=np.arange(rows),
        )
        return self.run._predict_graph(alone, in_the_clear=False)


def _read_list(cell: Any, row: int, name: str) -> list[Any]:
    """The list in a cell; an empty one where there is none."""
    if isinstance(cell, (list, tuple, np.ndarray)):
        return list(cell)
    if cell is None or cell != cell:
        return []
    what = "numbers" if name == WEIGHTS else "identifiers"
    raise InputError(f"row {row}, column {name}: found {str(cell)[:40]!r}; expected a list of {what}")


def _check_present(frame: Any, wanted: Sequence[str]) -> None:
    missing = [name for name in wanted if name not in frame.columns]
    if missing:
        raise InputError(
            f"the rows lack {', '.join(map(repr, missing[:5]))}; expected the columns "
            f"{', '.join(wanted[:20])}"
        )


def _load_pyfunc(path: str) -> ServedRun:
    """Called by MLflow with the folder of a release."""
    from hushgraph.training.run import Run

    return ServedRun(Run.load(path, device="cpu"))
