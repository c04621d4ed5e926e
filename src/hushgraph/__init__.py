"""Graph neural networks with node-level differential privacy."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hushgraph import datasets as datasets
    from hushgraph.comparison.comparing import compare as compare
    from hushgraph.comparison.result import Comparison as Comparison
    from hushgraph.datasets.tables.check import Check as Check
    from hushgraph.datasets.tables.check import check as check
    from hushgraph.errors import BudgetExceededError as BudgetExceededError
    from hushgraph.errors import DivergedError as DivergedError
    from hushgraph.errors import DownloadError as DownloadError
    from hushgraph.errors import GraphError as GraphError
    from hushgraph.errors import GroupError as GroupError
    from hushgraph.errors import HushgraphError as HushgraphError
    from hushgraph.errors import InputError as InputError
    from hushgraph.errors import MissingSplitError as MissingSplitError
    from hushgraph.errors import ModelError as ModelError
    from hushgraph.errors import NotFittedError as NotFittedError
    from hushgraph.errors import PlanError as PlanError
    from hushgraph.errors import ReportedError as ReportedError
    from hushgraph.errors import RunError as RunError
    from hushgraph.errors import WriteError as WriteError
    from hushgraph.estimator import NodeClassifier as NodeClassifier
    from hushgraph.estimator import NodeRegressor as NodeRegressor
    from hushgraph.graph.columns import Columns as Columns
    from hushgraph.graph.graph import Graph as Graph
    from hushgraph.models.blocks import Reads as Reads
    from hushgraph.privacy.guarantee import Guarantee as Guarantee
    from hushgraph.privacy.plans import BillboardPlan as BillboardPlan
    from hushgraph.privacy.plans import PrivacyPlan as PrivacyPlan
    from hushgraph.privacy.plans import RowPlan as RowPlan
    from hushgraph.privacy.plans import TreePlan as TreePlan
    from hushgraph.runs.config import TrainingConfig as TrainingConfig
    from hushgraph.training.prepare import prepare as prepare
    from hushgraph.training.run import Run as Run
    from hushgraph.training.train import resume as resume
    from hushgraph.training.train import train as train

_HOMES = {
    "BillboardPlan": "privacy.plans",
    "BudgetExceededError": "errors",
    "Check": "datasets.tables.check",
    "Columns": "graph.columns",
    "Comparison": "comparison.result",
    "DivergedError": "errors",
    "DownloadError": "errors",
    "Graph": "graph.graph",
    "GraphError": "errors",
    "GroupError": "errors",
    "Guarantee": "privacy.guarantee",
    "HushgraphError": "errors",
    "InputError": "errors",
    "MissingSplitError": "errors",
    "ModelError": "errors",
    "NodeClassifier": "estimator",
    "NodeRegressor": "estimator",
    "NotFittedError": "errors",
    "PlanError": "errors",
    "PrivacyPlan": "privacy.plans",
    "Reads": "models.blocks",
    "ReportedError": "errors",
    "RowPlan": "privacy.plans",
    "Run": "training.run",
    "RunError": "errors",
    "TrainingConfig": "runs.config",
    "TreePlan": "privacy.plans",
    "WriteError": "errors",
    "check": "datasets.tables.check",
    "compare": "comparison.comparing",
    "prepare": "training.prepare",
    "resume": "training.train",
    "train": "training.train",
}

__all__ = sorted(["datasets", *_HOMES])


def __getattr__(name: str) -> Any:
    """Import a public name when it is first asked for, so that `import hushgraph` stays fast."""
    if name == "datasets":
        return import_module("hushgraph.datasets")
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
