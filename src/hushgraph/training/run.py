"""Run: what training gives back."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from hushgraph._text import rounded_up
from hushgraph.datasets import load_graph
from hushgraph.graph.graph import Graph
from hushgraph.inference import in_memory as inference
from hushgraph.inference.evaluation import Evaluation, evaluate
from hushgraph.privacy.plan import PrivacyPlan
from hushgraph.runs.config import TrainingConfig
from hushgraph.runs.folder import RunFolder
from hushgraph.training.arguments import check_model_given
from hushgraph.training.session import usable_device

if TYPE_CHECKING:
    import numpy.typing as npt

    from hushgraph.comparison import Comparison


@dataclass(eq=False)
class Run:
    """A finished run.

    Attributes:
        model: the trained module, with the averaged weights.
        plan: the privacy plan it followed.
        config: everything else.
        result: the summary, with the keys of `hushgraph train --json`.
        metrics: validation accuracy and epsilon over time.
        folder: the run on disk; `folder.path` is where.

    Guarantees:
        `model` and its weights are covered by (`epsilon`, `delta`) where `result["guarantee"]` is "holds".
        Predictions and accuracies are not: they read neighbours, and labels, in the clear.

    Examples:
        >>> import hushgraph as hg
        >>> data = hg.datasets.synthetic(num_nodes=300, num_classes=3, seed=1)
        >>> run = hg.train(data, epsilon=4.0, steps=5, hidden=8, device="cpu", out="a-run")
        >>> run.predict(data).shape, run.probabilities(data).shape
        ((300,), (300, 3))
        >>> run.report("report.html")
        >>> bool((hg.Run.load("a-run", device="cpu").predict(data) == run.predict(data)).all())
        True
    """

    model: nn.Module
    plan: PrivacyPlan
    config: TrainingConfig
    result: dict[str, Any]
    metrics: list[dict[str, Any]]
    folder: RunFolder

    def __repr__(self) -> str:
        model = type(self.model).__name__ if self.config.model == "own" else self.config.model
        return (
            f"Run({str(self.folder.path)!r}, model={model!r}, epsilon={rounded_up(self.epsilon)}, "
            f"guarantee={self.result['guarantee']!r})"
        )

    @property
    def epsilon(self) -> float:
        """Spent, at `delta`; infinite for training without privacy."""
        return float(self.result["epsilon"])

    @property
    def delta(self) -> float:
        """The delta at which `epsilon` holds."""
        return self.plan.delta

    def predict(self, data: Any, *, symmetrize: bool | None = None) -> npt.NDArray[np.int64]:
        """int64 [num_nodes]: the most likely class of every node, from full neighbourhoods.

        Args:
            data: the training graph or another one with the same features; labels and splits are not read.
            symmetrize: add the reverse of every edge; as in training unless given.
        """
        best: npt.NDArray[np.int64] = self._scores(data, symmetrize).argmax(1).cpu().numpy()
        return best

    def probabilities(self, data: Any, *, symmetrize: bool | None = None) -> npt.NDArray[np.float32]:
        """float32 [num_nodes, num_classes]: what `predict` takes the largest of."""
        found: npt.NDArray[np.float32] = self._scores(data, symmetrize).softmax(1).cpu().numpy()
        return found

    def evaluate(self, data: Any) -> Evaluation | None:
        """Results on the test split of the training data; None where no test node has a label.

        The guarantee does not cover them: they read test labels, and neighbours in the clear.

        Args:
            data: what the run was trained on; it is read in the same way.
        """
        graph = self.folder.read_graph(data)
        best = inference.scores(self.model, graph, depth=self.plan.num_layers).argmax(1).cpu().numpy()
        return evaluate(best, graph.y, graph.test_idx, graph.num_classes)

    def report(
        self, path: str | os.PathLike[str], *, data: Any = None, comparison: Comparison | None = None
    ) -> None:
        """Write the report of this run as one HTML file, with a JSON twin beside it.

        Args:
            path: ends in .html.
            data: what the run was trained on, for results per class.
            comparison: what `compare` gave, where there is one.
        """
        from hushgraph.report import check_report_path, write_report

        # Before the data is read, which may take long.
        check_report_path(path)
        write_report(
            self.folder,
            path,
            evaluation=None if data is None else self.evaluate(data),
            comparison=None if comparison is None else json.loads(comparison.to_json()),
        )

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], *, model: nn.Module | None = None, device: str = "auto"
    ) -> Run:
        """The finished run in a folder; `model` only where it trained a module of the caller's."""
        if model is not None:
            check_model_given(model, names=())
        folder = RunFolder.open(path)
        if folder.is_done:
            folder.check_finished()
        model = folder.new_model() if model is None else model
        folder.load_weights(model)
        model.to(usable_device(device)).eval()
        return cls(model, folder.plan, folder.config, folder.result(), folder.metrics(), folder)

    def read(self, data: Any, *, symmetrize: bool | None = None) -> Graph:
        """A graph to predict on, read as the training data was, but features and edges alone.

        Args:
            data, symmetrize: as in `predict`.
        """
        graph = load_graph(
            data,
            symmetrize=self.config.symmetrize if symmetrize is None else symmetrize,
            num_classes=self.folder.num_classes,
            columns=self.folder.columns,
            labels=False,
        )
        # Here too, since a module of the caller's says nothing of its columns.
        inference.check_features(graph, self.folder.num_features)
        return graph

    def _scores(self, data: Any, symmetrize: bool | None) -> torch.Tensor:
        graph = self.read(data, symmetrize=symmetrize)
        return inference.scores(self.model, graph, depth=self.plan.num_layers)
