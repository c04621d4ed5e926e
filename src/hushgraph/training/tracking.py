"""A released run in MLflow: settings, covered figures, the card, and a model that MLflow serves.

`mlflow.pyfunc` calls `_load_pyfunc` of this module: a model in MLflow is the release of a run, and nothing is
pickled.
"""

from __future__ import annotations

import contextlib
import re
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hushgraph import __version__
from hushgraph._arrays import find_ends
from hushgraph.datasets.tables.new_rows import new_rows_from_tables
from hushgraph.errors import InputError
from hushgraph.export.bundle import open_published
from hushgraph.export.onnx_model import check_exportable
from hushgraph.graph.checks import check_features
from hushgraph.graph.columns import Columns
from hushgraph.graph.graph import Graph
from hushgraph.inference.new_nodes import NewNodes
from hushgraph.inference.predicted import Predicted
from hushgraph.runs.folder import RunFolder
from hushgraph.runs.release import CARD, list_settings

if TYPE_CHECKING:
    from hushgraph.training.run import Run

PLACES = "places"
"""The column with the list of identifiers of every row."""
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
    check_columns(folder.columns)
    # MLflow would note down the name of the program that runs.
    own = {"mlflow.source.name": "hushgraph"}
    is_new = mlflow.active_run() is None
    with mlflow.start_run(tags=own) if is_new else contextlib.nullcontext(), warnings.catch_warnings():
        # An example would show a private row.
        warnings.filterwarnings("ignore", ".*An input example was not provided")
        mlflow.log_params(list_params(folder))
        mlflow.log_metrics(list_metrics(folder))
        mlflow.log_text((folder.path / CARD).read_text(encoding="utf-8"), CARD)
        logged = mlflow.pyfunc.log_model(
            name=name,
            loader_module=__name__,
            data_path=str(folder.path),
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


def check_columns(columns: Columns | None) -> None:
    """Refuse tables that have a feature with the name of the column of lists."""
    if PLACES in name_columns(columns, 0):
        raise InputError(
            f"column {PLACES!r} is a feature, and MLflow's models take lists of places under that name; "
            "rename the column and train again"
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
    if folder.num_boards:
        columns.append(ColSpec(Array(AnyType()), PLACES, required=False))
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
                may be missing.
            params: not used.

        Returns:
            A DataFrame with what `Run.predict_table` shows of every row.
        """
        import pandas as pd

        # Objects of one type, as JSON gives them, become columns of that type.
        frame = pd.DataFrame(model_input).infer_objects().reset_index(drop=True)
        lists = _read_lists(frame)
        features, filled = self._read_features(frame.drop(columns=PLACES, errors="ignore"))
        predicted = Predicted(
            **self.run._names,
            probabilities=self._score(features, filled, lists),
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
        with new_rows_from_tables((nodes, edges), columns=columns, listed_by="source") as rows:
            return rows.x, rows.filled

    def _score(self, x: Any, filled: Any, lists: Sequence[Sequence[Any]]) -> Any:
        if self.run.folder.num_boards:
            boards = self.run._ready_boards
            indptr = find_ends([len(row) for row in lists])
            places = boards.places_of(np.asarray([place for row in lists for place in row]))
            nodes = NewNodes(x=check_features(x), indptr=indptr, places=places, filled=filled)
            return self.run._predict_rows(boards, nodes)[0]
        rows = x.shape[0]
        # No edges, and labels that nobody reads.
        alone = Graph.from_arrays(
            edge_index=np.empty((2, 0), np.int64),
            x=self.run.folder.scale_features(x, filled),
            y=np.zeros(rows, np.int64),
            train_idx=np.arange(rows),
        )
        return self.run._predict_graph(alone, in_the_clear=False)


def _read_lists(frame: Any) -> list[list[Any]]:
    """The lists of all rows; empty ones where there are none."""
    if PLACES not in frame.columns:
        return [[] for _ in range(len(frame))]
    lists = frame[PLACES].tolist()
    wrong = [place for place, each in enumerate(lists) if isinstance(each, str)]
    if wrong:
        raise InputError(
            f"row {wrong[0]}, column {PLACES}: {lists[wrong[0]][:40]!r} is a text; expected a list of "
            "identifiers"
        )
    return [list(each) if isinstance(each, (list, tuple, np.ndarray)) else [] for each in lists]


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
