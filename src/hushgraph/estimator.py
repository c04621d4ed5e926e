"""NodeClassifier: training with scikit-learn's habits, and without scikit-learn."""

from __future__ import annotations

import copy
import difflib
import inspect
import os
import sys
import types
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np
from torch import nn

from hushgraph.datasets import load_graph
from hushgraph.errors import InputError, NotFittedError
from hushgraph.inference.in_memory import evaluate
from hushgraph.training.train import train

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Self

    import numpy.typing as npt

    from hushgraph.graph.columns import Columns
    from hushgraph.privacy import choices
    from hushgraph.privacy.budget import DataBudget
    from hushgraph.privacy.plans import PrivacyPlan
    from hushgraph.training.prepare import OptimizerFactory
    from hushgraph.training.run import Run

_SPLITS = ("train", "val", "test", "all")
# Parts of scikit-learn that fit an estimator many times, on rows that they choose.
_REPEATING = tuple(
    f"sklearn.{name}"
    for name in (
        "model_selection",
        "ensemble",
        "calibration",
        "feature_selection",
        "multiclass",
        "multioutput",
    )
)
_Method = TypeVar("_Method", bound=Callable[..., Any])


class _RefusedToSearches:
    """A method that model selection cannot get hold of.

    A search asks for the method before it looks at the data, and turns what the method itself raises into
    warnings and missing scores. So the refusal is here.
    """

    def __init__(self, method: Callable[..., Any]) -> None:
        self._method = method
        self.__doc__ = method.__doc__

    def __get__(self, instance: NodeClassifier | None, owner: type) -> Callable[..., Any]:
        if instance is None:
            return self._method
        frame: types.FrameType | None = sys._getframe(1)
        while frame is not None:
            module = _name_caller(frame)
            if module.startswith(_REPEATING):
                raise InputError(_describe_search(module, instance))
            frame = frame.f_back
        return types.MethodType(self._method, instance)


def _name_caller(frame: types.FrameType) -> str:
    """The module of a frame, or the one that a function about to be called is from."""
    module = str(frame.f_globals.get("__name__", ""))
    if module == "sklearn.utils._param_validation":
        # It checks the arguments of a function before it calls that function.
        return str(getattr(frame.f_locals.get("func"), "__module__", module))
    return module


def _refuse_searches(method: _Method) -> _Method:
    return cast("_Method", _RefusedToSearches(method))


def _describe_search(module: str, estimator: NodeClassifier) -> str:
    """Say why a search is refused, what its fits would cost, and what to do instead."""
    name = ".".join(module.split(".")[:2])
    if not estimator.private:
        cost = "each of its fits reads the whole graph"
    elif estimator.epsilon is None:
        cost = "each of its fits would spend the whole epsilon of noise_multiplier again"
    else:
        cost = (
            f"each of its fits would spend epsilon={estimator.epsilon} again, {10 * estimator.epsilon:g} for "
            "10 fits"
        )
    return (
        f"{name} fits an estimator many times on rows that it cuts out: {cost}, and a graph cannot be cut "
        "into rows; choose settings on public or generated data (hushgraph.datasets.synthetic), compare "
        "models with hushgraph.compare, or call fit yourself with budget=FILE, which charges every fit, and "
        "score(data, split='val')"
    )


class NodeClassifier:
    """Classifies the nodes of a graph, trained with node-level differential privacy.

    The constructor only stores its arguments; `fit` checks them. They are those of `hushgraph.train`, with
    the same defaults, so all but a budget (`epsilon`, `noise_multiplier` or `private=False`) may be left out.

    A graph is given whole, and its labels and splits are part of it: `y` stays None, and helpers that cut `X`
    into rows, as cross-validation does, are refused.

    Args:
        method: "billboard" or "trees"; as in `hushgraph.train`.
        model: "gcn", "gin", "gat", "mlp", or a module, of which `fit` trains a copy.
        num_layers: r, rounds of message passing.
        epsilon, noise_multiplier, private, delta: the budget.
        max_readers, max_reads, edge_owner, directed: what training may read.
        batch_size, steps, optimizer, learning_rate: of training.
        hidden, encoder_layers, decoder_layers, activation: of the built-in models.
        sampler, accountant, clipping, noise, clip: see `PrivacyPlan`.
        setting, symmetrize, split, split_seed, num_classes, columns: how to read the data.
        seed: makes `fit` reproducible and therefore not private.
        device: "auto", "cpu" or "cuda".
        out: folder of the run; a temporary one unless given.
        budget: the budget of the data, which every `fit` is charged to.
        progress: whether `fit` shows a bar; as in `hushgraph.train`.

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

    def __init__(
        self,
        *,
        method: choices.Method | None = None,
        model: choices.Model | nn.Module | None = None,
        num_layers: int | None = None,
        epsilon: float | None = None,
        noise_multiplier: float | None = None,
        private: bool = True,
        delta: float | None = None,
        max_readers: int | None = None,
        max_reads: int | None = None,
        edge_owner: choices.EdgeOwner = "sender",
        directed: bool = False,
        batch_size: int | None = None,
        steps: int | None = None,
        sampler: choices.Sampler = "stable",
        accountant: choices.Accountant = "pair",
        clipping: choices.Clipping = "normalised",
        noise: choices.Noise = "common",
        clip: float = 1.0,
        optimizer: choices.Optimizer | OptimizerFactory = "adam",
        learning_rate: float | None = None,
        hidden: int | None = None,
        encoder_layers: int = 1,
        decoder_layers: int = 1,
        activation: choices.Activation = "tanh",
        setting: choices.Setting = "transductive",
        symmetrize: bool = False,
        split: str | None = None,
        split_seed: int = 0,
        num_classes: int | None = None,
        columns: Columns | Mapping[str, Any] | None = None,
        seed: int | None = None,
        device: choices.Device = "auto",
        out: str | os.PathLike[str] | None = None,
        budget: str | os.PathLike[str] | DataBudget | None = None,
        progress: bool | None = None,
    ) -> None:
        self.method = method
        self.model = model
        self.num_layers = num_layers
        self.epsilon = epsilon
        self.noise_multiplier = noise_multiplier
        self.private = private
        self.delta = delta
        self.max_readers = max_readers
        self.max_reads = max_reads
        self.edge_owner = edge_owner
        self.directed = directed
        self.batch_size = batch_size
        self.steps = steps
        self.sampler = sampler
        self.accountant = accountant
        self.clipping = clipping
        self.noise = noise
        self.clip = clip
        self.optimizer = optimizer
        self.learning_rate = learning_rate
        self.hidden = hidden
        self.encoder_layers = encoder_layers
        self.decoder_layers = decoder_layers
        self.activation = activation
        self.setting = setting
        self.symmetrize = symmetrize
        self.split = split
        self.split_seed = split_seed
        self.num_classes = num_classes
        self.columns = columns
        self.seed = seed
        self.device = device
        self.out = out
        self.budget = budget
        self.progress = progress

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The constructor's arguments by name; `deep` changes nothing, as none of them is an estimator."""
        return {name: getattr(self, name) for name in self._defaults()}

    def set_params(self, **params: Any) -> Self:
        """Change some of the constructor's arguments; a name that is none of them changes nothing at all."""
        known = self._defaults()
        for name in params:
            if name not in known:
                near = difflib.get_close_matches(name, known, n=1)
                hint = f"did you mean {near[0]}?" if near else "get_params() lists those there are"
                raise InputError(f"{name}: {type(self).__name__} has no such parameter; {hint}")
        for name, value in params.items():
            setattr(self, name, value)
        return self

    @_refuse_searches
    def fit(self, data: Any, y: None = None) -> Self:
        """Train from scratch.

        A search or cross-validation of scikit-learn is refused: it would spend epsilon for every fit.

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
        evaluation = evaluate(best, graph.y, nodes, graph.num_classes)
        if evaluation is None:
            raise InputError(
                f"split={split!r}: no node of it has a label; give data that has some, or another split"
            )
        return evaluation.accuracy

    def __repr__(self) -> str:
        changed = [
            f"{name}={value!r}"
            for name, value in self.get_params().items()
            if value is not (usual := self._defaults()[name]) and value != usual
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

    @classmethod
    def _defaults(cls) -> dict[str, Any]:
        """The constructor's arguments and their defaults."""
        return {name: parameter.default for name, parameter in inspect.signature(cls).parameters.items()}

    def _fitted(self) -> Run:
        if not hasattr(self, "run_"):
            raise NotFittedError(f"this {type(self).__name__} is not fitted; call fit(data) first")
        return self.run_


def _refuse_labels(y: Any) -> None:
    if y is not None:
        raise InputError(
            f"y={type(y).__name__}: expected None, as labels are part of the graph; put them in data.y"
        )
