"""NodeClassifier: training with scikit-learn's habits, and without scikit-learn."""

from __future__ import annotations

import copy
from importlib import import_module
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
from torch import nn

from hushgraph.datasets import load_graph
from hushgraph.errors import InputError, NotFittedError
from hushgraph.inference.in_memory import evaluate
from hushgraph.settings import TABLE, RunSettings, check_names, with_settings
from hushgraph.training.train import train

if TYPE_CHECKING:
    from typing import Self

    import numpy.typing as npt

    from hushgraph.privacy.plans import PrivacyPlan
    from hushgraph.training.run import Run

_SPLITS = ("train", "val", "test", "all")


class NodeClassifier:
    """Classifies the nodes of a graph, trained with node-level differential privacy.

    The constructor only stores its arguments; `fit` checks them. They are those of `hushgraph.train`, with
    the same defaults, so all but a budget (`epsilon`, `sigma_over_clip` or `private=False`) may be left out.

    A graph is given whole, and its labels and splits are part of it: `y` stays None. Searches and
    cross-validation, which cut data into rows and fit many times, therefore fail before anything is spent.

    Attributes:
        run_: the finished `Run`.
        model_: the trained module.
        plan_: the `PrivacyPlan` that was followed.
        epsilon_: what `fit` spent, at `plan_.delta`; infinite without privacy.
        classes_: [num_classes], the names of the classes where the data has names, else 0, 1, ...
        n_features_in_: columns of the features.

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
    """

    run_: Run
    model_: nn.Module
    plan_: PrivacyPlan
    epsilon_: float
    classes_: npt.NDArray[Any]
    n_features_in_: int

    @with_settings(RunSettings)
    def __init__(self, **settings: Unpack[RunSettings]) -> None:
        check_names(settings, TABLE, who=type(self).__name__)
        for name, entry in TABLE.items():
            setattr(self, name, settings.get(name, entry.default))

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Every setting is an attribute."""

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The constructor's arguments by name; `deep` changes nothing, as none of them is an estimator."""
        return {name: getattr(self, name) for name in TABLE}

    def set_params(self, **params: Any) -> Self:
        """Change some of the constructor's arguments; a name that is none of them changes nothing at all."""
        check_names(params, TABLE, who=type(self).__name__)
        for name, value in params.items():
            setattr(self, name, value)
        return self

    def fit(self, data: Any, y: None = None) -> Self:
        """Train from scratch; each call spends epsilon.

        Args:
            data: as `hushgraph.train` takes it.
            y: there for scikit-learn's sake; labels are part of `data`.
        """
        _refuse_labels(y)
        arguments = self.get_params(deep=False)
        if isinstance(self.model, nn.Module):
            # Parameters stay as given, so that a second fit starts where the first one did.
            arguments["model"] = copy.deepcopy(self.model)
        run = train(data, **arguments)
        self.run_, self.model_, self.plan_, self.epsilon_ = run, run.model, run.plan, run.epsilon
        self.classes_ = run.classes
        self.n_features_in_ = run.folder.num_features
        return self

    def predict(self, data: Any) -> npt.NDArray[Any]:
        """[num_nodes]: the most likely class of every node, out of `classes_`; as `Run.predict`.

        Args:
            data: as `Run.predict` takes it.
        """
        return self._fitted().predict(data)

    def predict_proba(self, data: Any) -> npt.NDArray[np.float32]:
        """float32 [num_nodes, num_classes]: what `predict` takes the largest of."""
        return self._fitted().predict_proba(data)

    def score(self, data: Any, y: None = None, *, split: str = "test") -> float:
        """Accuracy on a split, nodes without a label left out. The guarantee does not cover it.

        Args:
            data: read as `fit` does: in the inductive setting, without edges between splits.
            y: there for scikit-learn's sake; labels are part of `data`.
            split: "test", "val", "train", or "all" for every node, whether `data` has splits or not.
        """
        _refuse_labels(y)
        run = self._fitted()
        if split not in _SPLITS:
            raise InputError(f"split={str(split)[:40]!r}: expected one of {', '.join(_SPLITS)}")
        graph = load_graph(
            data,
            symmetrize=run.config.symmetrize,
            split="1/0/0" if split == "all" else run.config.split,
            split_seed=run.config.split_seed,
            num_classes=run.folder.num_classes,
            columns=run.folder.columns,
        )
        if split == "all":
            nodes = np.arange(graph.num_nodes)
        else:
            nodes = getattr(graph, f"{split}_idx")
            graph = graph.disjoint() if run.config.setting == "inductive" else graph
        best = run.predict_proba(graph, symmetrize=False).argmax(1)
        evaluation = evaluate(best, graph, nodes)
        if evaluation is None:
            raise InputError(
                f"split={split!r}: no node of it has a label; give data that has some, or another split"
            )
        return evaluation.figures[graph.task.headline]

    def __repr__(self) -> str:
        changed = [
            f"{name}={value!r}"
            for name, value in self.get_params().items()
            if value is not (usual := TABLE[name].default) and value != usual
        ]
        return f"{type(self).__name__}({', '.join(changed)})"

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "run_")

    def __sklearn_tags__(self) -> Any:
        """What scikit-learn wants to know about an estimator; only scikit-learn asks."""
        kinds = import_module("sklearn.utils")
        return kinds.Tags(
            estimator_type="classifier",
            target_tags=kinds.TargetTags(required=False),
            classifier_tags=kinds.ClassifierTags(),
            input_tags=kinds.InputTags(two_d_array=False),
            non_deterministic=self.seed is None,
        )

    def _fitted(self) -> Run:
        if not hasattr(self, "run_"):
            raise NotFittedError(f"this {type(self).__name__} is not fitted; call fit(data) first")
        return self.run_


def _refuse_labels(y: Any) -> None:
    if y is not None:
        raise InputError(
            f"y={type(y).__name__}: expected None, as labels are part of the graph; put them in data.y. A "
            "graph cannot be cut into rows, and every fit of a search would spend epsilon again: choose "
            "settings on public or generated data (hushgraph.datasets.synthetic), compare models with "
            "hushgraph.compare, or call fit yourself with budget=FILE and score(data, split='val')"
        )
