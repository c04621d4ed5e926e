"""Graph neural networks with node-level differential privacy."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hushgraph import datasets as datasets
    from hushgraph.comparison import Comparison as Comparison
    from hushgraph.comparison import compare as compare
    from hushgraph.errors import BudgetExceededError as BudgetExceededError
    from hushgraph.errors import GraphError as GraphError
    from hushgraph.errors import HushgraphError as HushgraphError
    from hushgraph.errors import InputError as InputError
    from hushgraph.errors import ModelError as ModelError
    from hushgraph.errors import PlanError as PlanError
    from hushgraph.errors import RunError as RunError
    from hushgraph.estimator import NodeClassifier as NodeClassifier
    from hushgraph.graph.columns import Columns as Columns
    from hushgraph.graph.graph import Graph as Graph
    from hushgraph.privacy.plan import PrivacyPlan as PrivacyPlan
    from hushgraph.training.prepare import prepare as prepare
    from hushgraph.training.run import Run as Run
    from hushgraph.training.train import resume as resume
    from hushgraph.training.train import train as train

__all__ = [
    "BudgetExceededError",
    "Columns",
    "Comparison",
    "Graph",
    "GraphError",
    "HushgraphError",
    "InputError",
    "ModelError",
    "NodeClassifier",
    "PlanError",
    "PrivacyPlan",
    "Run",
    "RunError",
    "compare",
    "datasets",
    "prepare",
    "resume",
    "train",
]

_HOMES = {
    "BudgetExceededError": "errors",
    "Columns": "graph.columns",
    "Comparison": "comparison",
    "Graph": "graph.graph",
    "GraphError": "errors",
    "HushgraphError": "errors",
    "InputError": "errors",
    "ModelError": "errors",
    "NodeClassifier": "estimator",
    "PlanError": "errors",
    "PrivacyPlan": "privacy.plan",
    "Run": "training.run",
    "RunError": "errors",
    "compare": "comparison",
    "prepare": "training.prepare",
    "resume": "training.train",
    "train": "training.train",
}
_SUBPACKAGES = ("datasets",)


def __getattr__(name: str) -> Any:
    """Import a public name when it is first asked for, so that `import hushgraph` stays fast."""
    if name in _SUBPACKAGES:
        return import_module(f"hushgraph.{name}")
    if name in _HOMES:
        value = getattr(import_module(f"hushgraph.{_HOMES[name]}"), name)
        globals()[name] = value
        return value
    if name == "__version__":
        from importlib.metadata import PackageNotFoundError, version

        try:
            return version("hushgraph")
        except PackageNotFoundError:
            return "0+not.installed"
    raise AttributeError(f"module 'hushgraph' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "__version__"})
