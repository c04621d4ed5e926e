"""NodeClassifier and NodeRegressor: training with scikit-learn's habits, and without scikit-learn."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Mapping
from importlib import import_module
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar, Unpack

import numpy as np
import torch
from torch import nn

from hushgraph.datasets import load_graph
from hushgraph.datasets.loading import name_labels
from hushgraph.datasets.matrices import (
    build_tables,
    count_rows,
    encode_classes,
    encode_numbers,
    encode_sets,
    list_row_names,
    read_edges,
    read_weights,
)
from hushgraph.datasets.splits import DEFAULT_SPLIT
from hushgraph.datasets.tables.frames import is_frame
from hushgraph.errors import InputError, NotFittedError
from hushgraph.figures.tables import Scored
from hushgraph.graph.graph import Graph
from hushgraph.graph.records import EdgeWeight
from hushgraph.settings import ENGINE, TABLE, RunSettings, Setting, check_names, with_settings
from hushgraph.tasks.choose import find_class
from hushgraph.tasks.labels import Labels
from hushgraph.tasks.number import Number
from hushgraph.training.evaluation import evaluate_exactly
from hushgraph.training.train import train

if TYPE_CHECKING:
    from typing import Self

    import numpy.typing as npt

    from hushgraph.privacy.plans import PrivacyPlan
    from hushgraph.training.run import Run

_SPLITS = ("train", "val", "test", "all")
# Settings of another kind of label, and of tables.
_OF_NUMBERS = ("bounds", "unit", *ENGINE)
_OF_CLASSES = ("task", "num_classes", "positive", "rare", "class_weight", "classes", *ENGINE)


class NodeEstimator(ABC):
    """What estimators of nodes share; use `NodeClassifier` or `NodeRegressor`.

    Attributes:
        run_: the finished `Run`.
        model_: the trained module.
        plan_: the `PrivacyPlan` that was followed.
        epsilon_: what `fit` spent, at `plan_.delta`; infinite without privacy.
        n_features_in_: columns that the model reads.
    """

    run_: Run
    model_: nn.Module
    plan_: PrivacyPlan
    epsilon_: float
    n_features_in_: int

    _kind: ClassVar[str]
    _settings: ClassVar[Mapping[str, Setting]] = {}
    # Of X, y and graph: the labels that `fit` was given. A row of the training split needs its own to be
    # predicted, because what it cast itself is taken off its reading.
    _labels: npt.NDArray[Any] | None = None

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Every setting is an attribute."""

    def _store(self, settings: Mapping[str, Any]) -> None:
        check_names(settings, self._settings, who=type(self).__name__)
        for name, entry in self._settings.items():
            setattr(self, name, settings.get(name, entry.default))

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The constructor's arguments by name; `deep` changes nothing, as none of them is an estimator."""
        return {name: getattr(self, name) for name in self._settings}

    def set_params(self, **params: Any) -> Self:
        """Change some of the constructor's arguments; a name that is none of them changes nothing at all."""
        check_names(params, self._settings, who=type(self).__name__)
        for name, value in params.items():
            setattr(self, name, value)
        return self

    def fit(self, X: Any, y: Any = None, graph: Any = None) -> Self:
        """Train from scratch; each call spends epsilon.

        Args:
            X: features [N, d]: an array, a SciPy matrix, or a DataFrame of pandas or Polars, whose columns of
                numbers are scaled as those of tables are. Without `y` and `graph`: data as `hushgraph.train`
                takes it, with its labels and edges.
            y: labels [N]; None, NaN, an empty text or -1 for no label (of numbers, None or NaN).
            graph: edges: an array [2, E] of row numbers, a SciPy matrix [N, N], a NetworkX graph, or a
                DataFrame with columns `source` and `target`. NetworkX and DataFrames name rows by the index
                of a pandas DataFrame, else by their numbers. The target reads the source; give
                `symmetrize=True` where an edge has no direction.

        Rows are training, validation or test rows by their places alone (`split`, `split_seed`), whether they
        have a label or not.
        """
        arguments = {**self.get_params(deep=False), **self._fixed()}
        data = X
        labels = None
        if y is not None or graph is not None:
            if y is None:
                raise InputError("y=None with a graph: expected the labels of X; give fit(X, y, graph)")
            _require_graph(y, graph)
            labels, more = self._encode(y, count_rows(X), is_fit=True)
            arguments = {**arguments, **more, "split": arguments["split"] or DEFAULT_SPLIT}
            data, columns = self._join(X, graph, labels)
            arguments |= columns
        self._check_task(data)
        if isinstance(self.model, nn.Module):
            # Parameters stay as given, so that a second fit starts where the first one did.
            arguments["model"] = copy.deepcopy(self.model)
        run = train(data, **arguments)
        self.run_, self.model_, self.plan_, self.epsilon_ = run, run.model, run.plan, run.epsilon
        self.n_features_in_ = run.folder.num_features
        self._remember(run, labels)
        return self

    def _fixed(self) -> dict[str, Any]:
        """Settings that the kind of estimator decides."""
        return {}

    @abstractmethod
    def _check_task(self, data: Any) -> None:
        """Refuse a graph whose labels are of another kind."""

    def _remember(self, run: Run, labels: npt.NDArray[Any] | None) -> None:
        """Keep what predictions need besides the run: the labels that were given apart from the data."""
        self._labels = labels

    @abstractmethod
    def _encode(
        self, y: Any, num_rows: int, *, is_fit: bool = False
    ) -> tuple[npt.NDArray[Any], dict[str, Any]]:
        """Labels as numbers, and the settings that follow from them.

        Args:
            y: the labels.
            num_rows: how many there are.
            is_fit: whether they are those to train on; otherwise they are read as these were.
        """

    def _list_labels(self, labels: npt.NDArray[Any]) -> list[Any]:
        """Encoded labels as the cells of a table; None for no label."""
        return [None if np.isnan(label) else float(label) for label in labels]

    def _join(self, X: Any, graph: Any, labels: npt.NDArray[Any] | None) -> tuple[Any, dict[str, Any]]:
        """Features, edges and labels as one data set, and what its columns are called."""
        ends = {"source": self.source or "source", "target": self.target or "target"}
        if is_frame(X):
            if labels is not None and labels.ndim > 1:
                raise InputError("y holds several labels, and X is a DataFrame: give X as an array")
            listed = None if labels is None else self._list_labels(labels)
            nodes, edges, columns = build_tables(X, graph, listed, **ends)
            return (nodes, edges), columns
        edge_index = read_edges(graph, count_rows(X), names=list_row_names(X), **ends)
        if labels is not None and labels.ndim > 1:
            if self.edge_weight is not None:
                raise InputError("edge_weight with several labels: give tables, or a Graph with relations")
            task = Labels(num_labels=labels.shape[1])
            return Graph.from_arrays(edge_index=edge_index, x=X, y=labels, train_idx=[0], task=task), {}
        column = None if self.edge_weight is None else EdgeWeight.of(self.edge_weight).column
        weights = {} if column is None else {column: read_weights(graph, column)}
        # As PyG's `Data` names them.
        return SimpleNamespace(x=X, edge_index=edge_index, y=labels, **weights), {}

    def _read(self, X: Any, graph: Any, y: Any = None) -> Any:
        """The data to predict on."""
        run = self._fitted()
        if graph is None:
            if self._labels is not None and not isinstance(X, Graph):
                raise InputError("graph=None: expected the edges between the rows of X, as in fit")
            return X
        labels = self._labels if y is None else self._encode(y, count_rows(X))[0]
        if run.folder.num_boards and labels is None:
            raise InputError(
                "y=None: the labels that fit was given are needed, as what a training row cast itself is "
                "taken off its reading, and they are not kept in a pickle; give y"
            )
        return self._join(X, graph, labels if run.folder.num_boards else None)[0]

    def _show(self, X: Any, graph: Any, y: Any = None) -> npt.NDArray[np.float32]:
        return self._fitted().predict_proba(self._read(X, graph, y))

    def score(self, X: Any, y: Any = None, graph: Any = None, *, split: str = "test") -> float:
        """Accuracy on a split; R^2 of numbers, mean ROC-AUC of several labels. It is not covered.

        Nodes without a label are left out.

        Args:
            X, y, graph: as in `fit`, and read as there: in the inductive setting, without edges between
                splits.
            split: "test", "val", "train", or "all" for every node, whether the data has splits or not.
        """
        run = self._fitted()
        if split not in _SPLITS:
            raise InputError(f"split={str(split)[:40]!r}: expected one of {', '.join(_SPLITS)}")
        data = X
        if y is not None:
            _require_graph(y, graph)
            data = self._join(X, graph, self._encode(y, count_rows(X))[0])[0]
        task, config = run.folder.task, run.config
        loaded = load_graph(
            data,
            symmetrize=config.symmetrize,
            split="1/0/0" if split == "all" else config.split,
            split_seed=config.split_seed,
            num_classes=run.folder.num_classes,
            columns=run.folder.columns,
            task=name_labels(task),
            edge_weight=config.edge_weight if run.folder.columns is None else None,
            people=config.people,
        )
        nodes = np.arange(loaded.num_nodes) if split == "all" else getattr(loaded, f"{split}_idx")
        is_cut = split != "all" and config.setting == "inductive"
        shown = run.predict_proba(loaded.disjoint(), symmetrize=False) if is_cut else run.predict_proba(data)
        figures = evaluate_exactly(task, [Scored(shown[nodes], loaded.y[nodes])])
        if task.headline not in figures:
            few = " of at least 50 of them" if figures else ""
            raise InputError(
                f"split={split!r}: no node of it has a label{few}; give data that has some, or another split"
            )
        return figures[task.headline]

    def __repr__(self) -> str:
        changed = [
            f"{name}={value!r}"
            for name, value in self.get_params().items()
            if value is not (usual := TABLE[name].default) and value != usual
        ]
        return f"{type(self).__name__}({', '.join(changed)})"

    def __getstate__(self) -> dict[str, Any]:
        """Leave private labels out of pickles."""
        return {name: value for name, value in vars(self).items() if name != "_labels"}

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "run_")

    def __sklearn_tags__(self) -> Any:
        """What scikit-learn wants to know about an estimator; only scikit-learn asks."""
        kinds = import_module("sklearn.utils")
        is_classifier = self._kind == "classifier"
        return kinds.Tags(
            estimator_type=self._kind,
            target_tags=kinds.TargetTags(required=False),
            classifier_tags=kinds.ClassifierTags(multi_label=True) if is_classifier else None,
            regressor_tags=None if is_classifier else kinds.RegressorTags(),
            input_tags=kinds.InputTags(two_d_array=False, sparse=True),
            non_deterministic=self.seed is None,
        )

    def _fitted(self) -> Run:
        if not hasattr(self, "run_"):
            raise NotFittedError(f"this {type(self).__name__} is not fitted; call fit(data) first")
        return self.run_


class NodeClassifier(NodeEstimator):
    """Classifies the nodes of a graph, trained with node-level differential privacy.

    The constructor only stores its arguments; `fit` checks them. They are those of `hushgraph.train`, with
    the same defaults, so all but a budget (`epsilon`, `sigma_over_clip` or `private=False`) may be left out.

    `fit(data)` takes what `hushgraph.train` takes, and `fit(X, y, graph)` features, labels and edges. The
    list of classes is declared with `classes` or `num_classes`; otherwise it is read off the labels, and the
    guarantee assumes that it is public. `class_weight` maps a class to a weight from 0 to 1; "balanced" is
    refused, because it counts labels, which are private. Several labels of a node are an array `y` [N, L] of
    0 and 1.

    Searches and cross-validation cut data into rows and fit many times, and every fit spends epsilon: they
    fail before anything is spent. A pipeline of this estimator alone works, with
    `fit(X, y, NAME__graph=edges)`. A scaler before it is fitted on private rows: what it learns is not
    covered. Give X as a DataFrame instead, whose columns are scaled within the budget.

    Attributes:
        run_: the finished `Run`.
        model_: the trained module.
        plan_: the `PrivacyPlan` that was followed.
        epsilon_: what `fit` spent, at `plan_.delta`; infinite without privacy.
        classes_: [num_classes], the names of the classes where the data has names, else 0, 1, ...; of several
            labels, their names.
        n_features_in_: columns that the model reads.

    Guarantees:
        `epsilon_` covers one `fit`. Fitting again on the same graph spends again, and trying out parameters
        on it is not covered.

    Examples:
        >>> import hushgraph as hg
        >>> data = hg.datasets.synthetic(num_nodes=300, num_classes=3, seed=1)
        >>> clf = hg.NodeClassifier(epsilon=4.0, steps=5, hidden=8, device="cpu").fit(data)
        >>> clf.epsilon_ <= 4.0
        True
        >>> clf.predict(data).shape, clf.predict_proba(data).shape
        ((300,), (300, 3))
        >>> 0 <= clf.score(data) <= 1
        True

        Features, labels and edges of their own:

        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> X, edges = rng.normal(size=(200, 4)), rng.integers(200, size=(2, 600))
        >>> y = np.where(X[:, 0] > 1, "fraud", "fine")
        >>> clf = hg.NodeClassifier(
        ...     epsilon=4.0, classes=["fine", "fraud"], class_weight={"fine": 0.2}, steps=5, device="cpu"
        ... )
        >>> clf.fit(X, y, edges).predict(X, edges).shape
        (200,)
        >>> clf.decision_function(X, edges).shape, clf.classes_.tolist()
        ((200,), ['fine', 'fraud'])
    """

    classes_: npt.NDArray[Any]

    _kind = "classifier"
    _settings: ClassVar[Mapping[str, Setting]] = {
        name: entry for name, entry in TABLE.items() if name not in _OF_NUMBERS
    }
    # Of X, y and graph.
    _classes: npt.NDArray[Any] | None = None

    @with_settings(RunSettings, without=_OF_NUMBERS)
    def __init__(self, **settings: Unpack[RunSettings]) -> None:
        self._store(settings)

    def predict(self, X: Any, graph: Any = None, *, y: Any = None) -> npt.NDArray[Any]:
        """[N]: the most likely class of every node, out of `classes_`; of several labels [N, L], 0 or 1 each.

        Args:
            X, graph: as in `fit`; X alone as `Run.predict` takes it. A billboard predicts the nodes that it
                was trained on; `run_.predict_new` predicts others.
            y: the labels that `fit` was given, for an estimator that was pickled: pickles leave them out.
        """
        shown = self._show(X, graph, y)
        task = self._fitted().folder.task
        best: npt.NDArray[Any] = task.predict(torch.from_numpy(shown)).numpy()
        return best if isinstance(task, Labels) else self.classes_[best]

    def predict_proba(self, X: Any, graph: Any = None, *, y: Any = None) -> npt.NDArray[np.float32]:
        """float32 [N, classes]: what `predict` takes the largest of; of labels, the probability of each."""
        return self._show(X, graph, y)

    def decision_function(self, X: Any, graph: Any = None, *, y: Any = None) -> npt.NDArray[np.float32]:
        """float32 [N], log-odds of `classes_[1]`, of two classes; else the model's outputs [N, classes]."""
        run = self._fitted()
        outputs = run.predict_outputs(self._read(X, graph, y))
        is_pair = len(self.classes_) == 2 and not isinstance(run.folder.task, Labels)
        return outputs[:, 1] - outputs[:, 0] if is_pair else outputs

    def _encode(
        self, y: Any, num_rows: int, *, is_fit: bool = False
    ) -> tuple[npt.NDArray[Any], dict[str, Any]]:
        if np.ndim(y) == 2 and np.shape(y)[1] > 1:
            sets, columns = encode_sets(y, num_rows)
            if self.classes is not None and len(self.classes) != len(columns):
                raise InputError(f"classes: expected {len(columns)} names, one for each column of y")
            if is_fit:
                self._classes = columns if self.classes is None else np.asarray(self.classes)
            return sets, {"classes": None}
        if not is_fit and self._classes is not None:
            return encode_classes(y, num_rows, classes=self._classes.tolist()).codes, {}
        encoded = encode_classes(y, num_rows, classes=self.classes, num_classes=self.num_classes)
        self._classes = encoded.classes
        names = [str(each) for each in encoded.classes.tolist()]
        settings: dict[str, Any] = {"classes": None}
        settings["num_classes"] = len(names) if encoded.is_declared else None
        if self.positive is not None:
            settings["positive"] = find_class(self.positive, len(names), names, setting="positive")
        if isinstance(self.class_weight, Mapping):
            settings["class_weight"] = {
                str(find_class(name, len(names), names, setting="class_weight")): weight
                for name, weight in self.class_weight.items()
            }
        return encoded.codes, settings

    def _list_labels(self, labels: npt.NDArray[Any]) -> list[Any]:
        return [None if code < 0 else int(code) for code in labels]

    def _check_task(self, data: Any) -> None:
        if self.task == "number" or (isinstance(data, Graph) and isinstance(data.task, Number)):
            raise InputError("task='number': labels are numbers; use NodeRegressor")

    def _remember(self, run: Run, labels: npt.NDArray[Any] | None) -> None:
        super()._remember(run, labels)
        if labels is None:
            self._classes = None
        self.classes_ = run.classes if self._classes is None else self._classes


class NodeRegressor(NodeEstimator):
    """Predicts a number for every node of a graph, trained with node-level differential privacy.

    Arguments and data are those of `NodeClassifier`, without what is about classes. `bounds`, the lowest and
    the highest number, are required and declared: never looked up in the data. A number beyond them counts as
    the bound.

    Attributes:
        run_: the finished `Run`.
        model_: the trained module.
        plan_: the `PrivacyPlan` that was followed.
        epsilon_: what `fit` spent, at `plan_.delta`; infinite without privacy.
        n_features_in_: columns that the model reads.

    Guarantees:
        `epsilon_` covers one `fit`. Fitting again on the same graph spends again, and trying out parameters
        on it is not covered.

    Examples:
        >>> import numpy as np
        >>> import hushgraph as hg
        >>> rng = np.random.default_rng(0)
        >>> X, edges = rng.normal(size=(200, 4)), rng.integers(200, size=(2, 600))
        >>> y = 50 + 10 * X[:, 0]
        >>> reg = hg.NodeRegressor(epsilon=4.0, bounds=(0, 100), steps=5, device="cpu").fit(X, y, edges)
        >>> values = reg.predict(X, edges)
        >>> values.shape, bool((values >= 0).all() and (values <= 100).all())
        ((200,), True)
    """

    _kind = "regressor"
    _settings: ClassVar[Mapping[str, Setting]] = {
        name: entry for name, entry in TABLE.items() if name not in _OF_CLASSES
    }

    @with_settings(RunSettings, without=_OF_CLASSES)
    def __init__(self, **settings: Unpack[RunSettings]) -> None:
        self._store(settings)

    def predict(self, X: Any, graph: Any = None, *, y: Any = None) -> npt.NDArray[Any]:
        """float32 [N]: the number of every node, in the unit of the labels.

        Args:
            X, graph, y: as in `NodeClassifier.predict`.
        """
        return self._show(X, graph, y)[:, 0]

    def _fixed(self) -> dict[str, Any]:
        return {"task": "number"}

    def _encode(
        self, y: Any, num_rows: int, *, is_fit: bool = False
    ) -> tuple[npt.NDArray[Any], dict[str, Any]]:
        return encode_numbers(y, num_rows), {}

    def _check_task(self, data: Any) -> None:
        if isinstance(data, Graph) and not isinstance(data.task, Number):
            raise InputError(f"data: its labels are {data.task.question}, not numbers; use NodeClassifier")


def _require_graph(y: Any, graph: Any) -> None:
    if graph is None:
        raise InputError(
            f"y={type(y).__name__} without a graph: give the edges too, fit(X, y, graph), or data with its "
            "labels alone, fit(data). A graph cannot be cut into rows, and every fit of a search would spend "
            "epsilon again: choose settings on public or generated data (hushgraph.datasets.synthetic), "
            "compare models with hushgraph.compare, or call fit yourself with budget=FILE and "
            "score(data, split='val')"
        )
