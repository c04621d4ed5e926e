"""Run: what training gives back; one class that users hold, with all that can be asked of it, hence long."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from scipy import sparse
from torch import nn

from hushgraph import _arrays
from hushgraph._text import is_elsewhere, rounded_up
from hushgraph.billboard.board import Board
from hushgraph.billboard.ready import ReadyBoards
from hushgraph.billboard.scaled import add_free_inputs, scale_readings
from hushgraph.datasets import load_graph
from hushgraph.datasets.engine import use_engine
from hushgraph.datasets.spark import is_reading
from hushgraph.datasets.tables.files import TableFiles, name_tables
from hushgraph.datasets.tables.new_rows import ListedBy
from hushgraph.errors import GraphError, InputError, RunError
from hushgraph.figures.tables import NoisyTables
from hushgraph.graph.checks import check_features
from hushgraph.graph.graph import Graph
from hushgraph.inference import in_memory as inference
from hushgraph.inference.covered import average_over_neighbours, score_table
from hushgraph.inference.executors import Counts, PartCounts, PartScorer, write_scores
from hushgraph.inference.in_memory import evaluate
from hushgraph.inference.new_nodes import (
    NewNodes,
    check_listed,
    check_names,
    fill_empty,
    find_lists,
    open_new_nodes,
    score_rows,
)
from hushgraph.inference.predicted import Predicted, Skipped, Summary, save_predicted
from hushgraph.inference.predictions import check_out
from hushgraph.inference.rows_of_graph import cut_board
from hushgraph.inference.thresholds import Threshold, give_threshold, read_threshold
from hushgraph.models.device import choose_device
from hushgraph.privacy.guarantee import write_assumptions
from hushgraph.privacy.plans import PREDICTIONS, PrivacyPlan
from hushgraph.runs.config import TrainingConfig
from hushgraph.runs.consistency import BOARD_FILES, check_consistent
from hushgraph.runs.folder import RunFolder
from hushgraph.runs.release import list_files
from hushgraph.runs.result import read_metrics
from hushgraph.tasks.classes import Classes
from hushgraph.tasks.task import Evaluation
from hushgraph.training.boards import Boards
from hushgraph.training.parts import Parts
from hushgraph.training.prepare import check_model

if TYPE_CHECKING:
    import numpy.typing as npt


# Rows that are read and shown at a time.
_READ_ROWS = 1 << 17
# Held while the boards of a run are loaded for new nodes.
_LOADING = threading.Lock()


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
        is_temporary: whether the folder is removed with this object; `save` keeps it.

    Guarantees:
        `model` and its weights are covered by (`epsilon`, `delta`) where `result["guarantee"]` is "holds", on
        the assumptions that `result["assumptions"]` lists.
        So are predictions for everybody else where `result["predictions"]` says so, and figures where
        `result["figures"]` does. What `evaluate` gives never is: it reads labels in the clear.

    Examples:
        >>> import hushgraph as hg
        >>> data = hg.datasets.synthetic(num_nodes=300, num_classes=3, seed=1)
        >>> run = hg.train(data, epsilon=4.0, steps=5, hidden=8, device="cpu", out="a-run")
        >>> run.predict(data).shape, run.predict_proba(data).shape
        ((300,), (300, 3))
        >>> run.report("report.html")
        >>> run.card("README.md").splitlines()[1]
        'library_name: hushgraph'
        >>> bool((hg.Run.load("a-run", device="cpu").predict(data) == run.predict(data)).all())
        True
    """

    model: nn.Module
    plan: PrivacyPlan
    config: TrainingConfig
    result: dict[str, Any]
    metrics: list[dict[str, Any]]
    folder: RunFolder
    is_temporary: bool = False
    _ready: ReadyBoards | None = field(default=None, init=False, repr=False)

    def _repr_html_(self) -> str:
        """Called by notebooks: accuracy, epsilon, guarantee and the sentence."""
        from hushgraph.report.card import render_summary

        return render_summary(self.folder, self.result, is_temporary=self.is_temporary)

    def __repr__(self) -> str:
        model = type(self.model).__name__ if self.config.model == "own" else self.config.model
        # What reads boards is an MLP, and saying so would name another method.
        what = "" if self.plan.method == "billboard" else f"model={model!r}, "
        return (
            f"Run({str(self.folder.path)!r}, method={self.plan.method!r}, {what}"
            f"epsilon={rounded_up(self.epsilon)}, guarantee={self.folder.guarantee.kind_in_words!r})"
        )

    @property
    def epsilon(self) -> float:
        """Spent, at `delta`; infinite for training without privacy."""
        return float(self.result["epsilon"])

    @property
    def delta(self) -> float:
        """The delta at which `epsilon` holds."""
        return self.plan.delta

    @property
    def figures(self) -> list[dict[str, Any]]:
        """Covered figures, which may be published with the model: one for each split, group and class.

        Each has its value and two intervals of 95%: what `noise` may have moved it by, and what `sampling`
        may have. Empty where `result["figures"]` is "not covered".
        """
        return list(self.result.get("figure_table", ()))

    @property
    def classes(self) -> npt.NDArray[Any]:
        """[num_classes]: the names of the classes where the training data had names, else 0, 1, ..."""
        names = self.folder.class_names
        return np.arange(self.folder.num_classes) if names is None else np.asarray(names, np.str_)

    def predict(
        self, data: Any, *, symmetrize: bool | None = None, in_the_clear: bool = False
    ) -> npt.NDArray[Any]:
        """[num_nodes]: the most likely class of every node, out of `classes`; of a number, its value.

        Classes are numbers, or names where the training data had names. A billboard run computes them from
        the node's own row, the board and the weights, so that they are covered towards everybody else. A run
        on trees reads full neighbourhoods in the clear, unless it has no rounds of messages.

        Args:
            data: the training data of a billboard run; for trees the training graph or another one with the
                same features, whose labels and splits are not read.
            symmetrize: add the reverse of every edge; as in training unless given.
            in_the_clear: of a billboard run, average over neighbours too. That reads them in the clear: the
                predictions are then not covered.
        """
        probabilities = self.predict_proba(data, symmetrize=symmetrize, in_the_clear=in_the_clear)
        task = self.folder.task
        best: npt.NDArray[Any] = task.predict(torch.from_numpy(probabilities)).numpy()
        return self.classes[best] if isinstance(task, Classes) else best

    def predict_proba(
        self, data: Any, *, symmetrize: bool | None = None, in_the_clear: bool = False
    ) -> npt.NDArray[np.float32]:
        """float32 [num_nodes, num_classes]: what `predict` takes the largest of; columns as in `classes`."""
        graph = self._read_to_predict(data, symmetrize=symmetrize)
        return self._predict_graph(graph, in_the_clear=in_the_clear)

    def predict_outputs(self, data: Any, *, symmetrize: bool | None = None) -> npt.NDArray[np.float32]:
        """float32 [num_nodes, num_outputs]: the model's outputs, which `predict_proba` is computed from."""
        graph = self._read_to_predict(data, symmetrize=symmetrize)
        values: npt.NDArray[np.float32] = self._score_graph(graph).cpu().numpy()
        return values

    def predict_table(
        self,
        data: Any,
        *,
        new: bool = False,
        symmetrize: bool | None = None,
        in_the_clear: bool = False,
        threshold: float | None = None,
        top: str | float | None = None,
        engine: str = "memory",
        memory: str | None = None,
    ) -> Predicted:
        """Probabilities with the names of the nodes, what is promised about them and what was skipped.

        Args:
            data: as in `predict`. With `new`, nodes that were not there at training: a table of them in the
                columns of the training tables, whose label and split may be missing, with a table of edges
                that name places of the board; or an `.npz` file with `x`, `places_indptr` and `places`.
            new: whether these are new nodes. Nothing is charged for them.
            symmetrize: as in `predict`; with `new`, whether either end of an edge lists the other one.
            in_the_clear: as in `predict`; not for new nodes, which read the board alone.
            threshold: flag nodes whose score is above it: the probability of the positive one of two classes,
                of every label, or the number.
            top: the same, with the lowest threshold that at most this share of the validation split is above,
                as "1%" or 0.01, read off the released score bins. How many nodes of `data` it flags may
                differ. Who is flagged does not depend on the scores of others, as it would by rank.
            engine, memory: as in `train`, for tables larger than memory. The predictions are then in a file
                without a name, which is gone with them; work space is beside the folder of the run.

        Raises:
            InputError: where the data cannot be used; nothing was written.

        Guarantees:
            A covered prediction is a function of the node's own row, the board and the weights; so is a flag,
            of these and the released bins. New nodes change neither the ledger nor anybody's prediction.

        Examples:
            >>> import numpy as np
            >>> import hushgraph as hg
            >>> data = hg.datasets.synthetic(num_nodes=300, num_classes=3, seed=1)
            >>> run = hg.train(data, epsilon=4.0, steps=5, hidden=8, device="cpu")
            >>> np.savez("new.npz", x=data.x[:2], places_indptr=[0, 2, 3], places=[4, 17, 999])
            >>> predicted = run.predict_table("new.npz", new=True)
            >>> predicted.probabilities.shape, predicted.predictions, predicted.new_nodes.num_unknown
            ((2, 3), 'covered towards everybody else', 1)
        """
        asked = self._choose_threshold(threshold, top, in_the_clear=in_the_clear)
        if new and in_the_clear:
            raise InputError("in_the_clear: new nodes read the board alone; leave it out")
        if engine != "memory" or memory is not None:
            own: dict[str, Any] = {"new": new, "symmetrize": symmetrize, "in_the_clear": in_the_clear}
            with use_engine(engine, data, memory=memory, beside=self.folder.path):
                return self.predict_table(data, **own, threshold=threshold, top=top)
        if new:
            return self._predict_new_nodes(data, symmetrize=symmetrize, threshold=asked)
        graph = self._read_to_predict(data, symmetrize=symmetrize)
        reads_neighbours = in_the_clear or not self.plan.covers_predictions
        return Predicted(
            **self._names,
            probabilities=self._predict_graph(graph, in_the_clear=in_the_clear),
            names=graph.node_names,
            threshold=asked,
            is_covered=self._is_covered and not reads_neighbours,
            reads_neighbours=reads_neighbours,
        )

    def write_predictions(
        self,
        data: Any,
        out: str | os.PathLike[str],
        *,
        probabilities: bool = False,
        force: bool = False,
        engine: str = "memory",
        memory: str | None = None,
        **options: Any,
    ) -> Summary:
        """Write what `predict_table` gives to a file; with Spark, executors write it, files in and files out.

        Executors score rows by what the run released, where `out` is an address or ends in `.parquet`, unless
        neighbours are read in the clear, or splits of an inductive run. It is then a folder of Parquet files,
        complete where it holds `_SUCCESS`, and no row passes through this process.

        Args:
            data, engine, memory: as in `predict_table`.
            out: ends in `.csv`, `.parquet` or `.npz`; with Spark also the address of a folder, such as
                s3a://bank/scores.
            probabilities: whether each class or label has a column of its own.
            force: replace what is there.
            options: of `predict_table`.

        Returns:
            Counts, and what is promised.
        """
        if engine != "memory" or memory is not None:
            beside = None if is_elsewhere(str(out)) else Path(out)
            with use_engine(engine, data, memory=memory, beside=beside):
                return self.write_predictions(data, out, probabilities=probabilities, force=force, **options)
        check_out(out, force=force)
        if self._is_for_executors(out, **options):
            return self._write_by_executors(data, str(out), probabilities, force, options)
        if is_elsewhere(str(out)):
            raise InputError(
                f"out={out}: executors of Spark alone write there, and score what a run released without "
                "neighbours in the clear; name a file"
            )
        predicted = self.predict_table(data, **options)
        save_predicted(predicted, Path(out), probabilities=probabilities)
        return predicted.summary

    def _is_for_executors(
        self, out: str | os.PathLike[str], *, new: bool = False, in_the_clear: bool = False, **_: Any
    ) -> bool:
        """Whether Spark reads tables, and its executors can score them with the release alone."""
        is_folder = is_elsewhere(str(out)) or Path(out).suffix == ".parquet"
        # Neighbours in the clear, and their splits, are rows of others.
        is_own = self._has_boards
        if not new:
            is_own = self.plan.covers_predictions and not in_the_clear and self.config.setting != "inductive"
        return is_reading() and is_folder and is_own and self.folder.release_path.is_dir()

    def _write_by_executors(
        self, data: Any, out: str, probabilities: bool, force: bool, options: Mapping[str, Any]
    ) -> Summary:
        columns, is_new = self.folder.columns, bool(options.get("new"))
        if columns is None:
            raise GraphError(
                f"{name_tables(data)}: the run was not trained on tables, so the roles of columns are unknown"
            )
        threshold = self._choose_threshold(options.get("threshold"), options.get("top"), in_the_clear=False)
        summary: dict[str, Any] = {"threshold": threshold, "is_covered": self._is_covered}
        summary["reads_neighbours"] = False
        example = Predicted(
            **self._names,
            **summary,
            probabilities=np.zeros((1, self.folder.task.num_outputs), np.float32),
            names=np.zeros(1, np.int64),
        )

        def check(counts: Counts) -> None:
            if counts.listed and counts.unknown == counts.listed:
                board = self.folder.load_boards()[0]
                check_listed(board, counts.listed, counts.unknown, counts.unknown_names)
            if counts.places and (counts.rows, counts.trained) != (counts.places, self.plan.num_train_nodes):
                raise RunError(
                    f"run={self.folder.path}: the data has {counts.rows:,} nodes and {counts.trained:,} "
                    f"training nodes, or persons with one, the run {counts.places:,} and "
                    f"{self.plan.num_train_nodes:,}; give the data it began with"
                )

        counts = write_scores(
            data,
            out,
            columns=columns,
            listed_by=self._lister(options.get("symmetrize") if is_new else None),
            reads_edges=self._has_boards,
            scorer=PartScorer(load=Run.load, options=dict(options), probabilities=probabilities),
            release=list_files(self.folder.release_path),
            example=example,
            check=check,
            overwrite=force,
        )
        return replace(
            example.summary,
            nodes=counts.rows,
            skipped=Skipped(counts.unknown, counts.unknown_names, counts.skipped) if is_new else None,
        )

    def predict_part(
        self, files: TableFiles, *, new: bool = False, **options: Any
    ) -> tuple[Predicted, PartCounts]:
        """Predict some of the rows of a table, as `predict_table` predicts all; for executors.

        Args:
            files: of these rows and of the edges that belong to them. Nodes of one person are together.
            new: whether they are new nodes.
            options: of `predict_table`.
        """
        if new or not self._has_boards:
            return self.predict_table(files, new=new, **options), PartCounts()
        boards = self._ready_boards
        part = self.folder.read_rows(files, boards, listed_by=self._lister(None))

        def load_part(path: Path, *, plan: str) -> Board:
            return cut_board(boards.boards[BOARD_FILES.index(path.name)], part.nodes)

        own = Boards(self.folder, part.graph, parts=Parts(load_board=load_part))
        table = own.read_boards(self.folder.num_boards - 1, torch.device("cpu"))
        outputs = score_table(self.model, part.graph, table)[part.rows]
        predicted = Predicted(
            **self._names,
            probabilities=self.folder.task.show(outputs).cpu().numpy(),
            names=part.names,
            threshold=self._choose_threshold(
                options.get("threshold"), options.get("top"), in_the_clear=False
            ),
            is_covered=self._is_covered,
            reads_neighbours=False,
        )
        names = boards.boards[0].node_names
        return predicted, PartCounts(part.graph.num_train_units, len(names) if names is not None else 0)

    def _choose_threshold(
        self, threshold: float | None, top: str | float | None, *, in_the_clear: bool
    ) -> Threshold | None:
        """What nodes are flagged by, before data is read; None where nothing is asked for."""
        if threshold is not None and top is not None:
            raise InputError(f"threshold={threshold} and top={top}: both say who is flagged; leave out one")
        if threshold is not None:
            return give_threshold(self.folder.task, threshold)
        if top is None:
            return None
        if in_the_clear:
            raise InputError(
                f"top={top} and in_the_clear: the released score bins are of covered scores; leave out "
                "in_the_clear, or give threshold=T"
            )
        tables = None
        if self.plan.evaluation_charge is not None:
            tables = NoisyTables.load(self.folder.figures_path, plan=self.plan.fingerprint())
        return read_threshold(self.folder.task, tables, top)

    def predict_new(
        self,
        features: Any,
        places: Sequence[Sequence[Any]] | Mapping[str, Sequence[Sequence[Any]]],
        *,
        weights: Sequence[Sequence[float]] | Mapping[str, Sequence[Sequence[float]]] | None = None,
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
        """Probabilities for nodes that were not there at training and list places on the board.

        Nothing is charged: a new node reads what was released and its own row.

        Args:
            features: [R, d], or [d] for one row; dense or any SciPy sparse matrix. Numbers are given as they
                are in the training data, in its order of columns; they are scaled as in training. Of a run on
                tables, NaN is an empty cell, where tables may have one: it is filled and flagged as there.
            places: for every row the identifiers that it lists, as the training data named its nodes; numbers
                from 0 where it had no names. Repeats count once; unknown identifiers are skipped. Of a run
                with several relations, such lists by the name of the relation; one may be left out.
            weights: of a run with weights, that of every identifier, in the same form; 1 unless given. The
                function that the run declared is applied to them, and weights of one place are summed.

        Returns:
            float32 [R, num_classes], and int64 [R], how many identifiers of each row the board does not have.

        Examples:
            >>> import hushgraph as hg
            >>> data = hg.datasets.synthetic(num_nodes=300, num_classes=3, seed=1)
            >>> run = hg.train(data, epsilon=4.0, steps=5, hidden=8, device="cpu")
            >>> probabilities, unknown = run.predict_new(data.x[:1], [[4, 17, 999]])
            >>> probabilities.shape, unknown.tolist()
            ((1, 3), [1])
        """
        rows = features if sparse.issparse(features) else np.atleast_2d(np.asarray(features))
        lists = find_lists(
            self._ready_boards, places, weights, num_rows=rows.shape[0], declared=self.folder.edge_weight
        )
        return self.predict_listed(rows, lists.indptr, lists.places, weights=lists.weights)

    def predict_listed(
        self,
        features: Any,
        indptr: npt.NDArray[np.int64],
        places: npt.NDArray[np.int64],
        *,
        weights: npt.NDArray[np.float64] | None = None,
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
        """As `predict_new`; row i lists `places[indptr[i]:indptr[i + 1]]`, with -1 for an unknown place.

        Of several relations, places are numbers on the whole board. Weights are taken as they are.
        """
        boards = self._ready_boards
        x, filled = fill_empty(features, self.folder.columns)
        x = check_features(x)
        inference.check_width(x.shape[1], self.folder.num_features)
        nodes = NewNodes(x=x, indptr=indptr, places=places, weights=weights, filled=filled)
        return self._predict_rows(boards, nodes)

    def _predict_new_nodes(
        self, data: Any, *, symmetrize: bool | None, threshold: Threshold | None
    ) -> Predicted:
        boards = self._ready_boards
        with open_new_nodes(
            data,
            boards,
            columns=self.folder.columns,
            num_features=self.folder.num_features,
            declared=self.folder.edge_weight,
            listed_by=self._lister(symmetrize),
        ) as nodes:
            probabilities, _ = self._predict_rows(boards, nodes)
        return Predicted(
            **self._names,
            probabilities=probabilities,
            names=nodes.names,
            threshold=threshold,
            is_covered=self._is_covered,
            reads_neighbours=False,
            new_nodes=nodes,
        )

    def _lister(self, symmetrize: bool | None) -> ListedBy:
        """The end of an edge that lists the other one."""
        if self.config.symmetrize if symmetrize is None else symmetrize:
            return "either"
        return "source" if self.plan.edge_owner == "sender" else "target"

    def _predict_rows(
        self, boards: ReadyBoards, nodes: NewNodes
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
        """Probabilities of rows that read the boards, and how many places of each are unknown.

        Rows are independent of each other; some of them are read at a time.
        """
        count = len(nodes.indptr) - 1
        if count <= _READ_ROWS:
            return self._predict_part(boards, nodes)
        values = _arrays.empty((count, self.folder.num_classes), np.float32)
        unknown = np.empty(count, np.int64)
        for begin in range(0, count, _READ_ROWS):
            rows = slice(begin, begin + _READ_ROWS)
            values[rows], unknown[rows] = self._predict_part(boards, nodes.cut(begin, begin + _READ_ROWS))
        return values, unknown

    def _predict_part(
        self, boards: ReadyBoards, nodes: NewNodes
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
        config = self.config
        board, seen = boards.read_rows(nodes.indptr, nodes.places, shares=nodes.weights, damped=config.damped)
        scaling: dict[str, Any] = {"scale": config.reading_scale, "radius": config.reading_radius}
        readings = add_free_inputs(
            scale_readings(seen.values, board, **scaling),
            board,
            seen.known,
            list_size=config.list_size,
            # A new node has no place of its own.
            own_places=np.full(len(seen.known), -1) if config.own_place else None,
            **scaling,
        )
        x = self.folder.scale_features(nodes.x, nodes.filled)
        scores = score_rows(self.model, x, readings, feature_norm=config.feature_norm, is_part=nodes.is_part)
        values: npt.NDArray[np.float32] = self.folder.task.show(scores).cpu().numpy()
        return values, seen.unknown

    @property
    def _has_boards(self) -> bool:
        return self.folder.num_boards > 0

    @property
    def _names(self) -> dict[str, Any]:
        """The task of predictions, and the names of its table."""
        columns = self.folder.columns
        return {
            "task": self.folder.task,
            "class_names": self.folder.class_names,
            "id_name": None if columns is None else columns.id,
            "label_name": None if columns is None else columns.label,
        }

    @property
    def _is_covered(self) -> bool:
        """Whether predictions that read no neighbour are covered."""
        return self.result.get("predictions") == PREDICTIONS[True]

    @property
    def _ready_boards(self) -> ReadyBoards:
        """The boards for new nodes, loaded once, by whichever thread comes first."""
        if self._ready is None:
            with _LOADING:
                if self._ready is None:
                    self._ready = ReadyBoards(self.folder.load_boards(), centred=self.folder.task.is_centred)
        return self._ready

    def __getstate__(self) -> dict[str, Any]:
        """Leave the boards out of pickles: they are in the folder."""
        return self.__dict__ | {"_ready": None}

    def _read_to_predict(self, data: Any, *, symmetrize: bool | None) -> Graph:
        """The graph to predict on: of a billboard run its own, with labels; else any with the features."""
        if self._has_boards:
            return self._read_training_data(data)
        return self.read(data, symmetrize=symmetrize)

    def _predict_graph(self, graph: Graph, *, in_the_clear: bool) -> npt.NDArray[np.float32]:
        if in_the_clear and not self._has_boards:
            raise InputError(
                "in_the_clear: it is for billboard runs; trees always read neighbours in the clear, and "
                "models without messages never do; leave it out"
            )
        task, outputs = self.folder.task, self._score_graph(graph)
        if in_the_clear:
            shown = average_over_neighbours(task, task.show(outputs), graph)
            values: npt.NDArray[np.float32] = shown.cpu().numpy()
            return values
        values = _arrays.empty((len(outputs), task.num_outputs), np.float32)
        for begin in range(0, len(outputs), _READ_ROWS):
            rows = slice(begin, begin + _READ_ROWS)
            values[rows] = task.show(outputs[rows]).cpu().numpy()
        return values

    def _score_graph(self, graph: Graph) -> torch.Tensor:
        """[num_nodes, num_outputs]: the outputs of the model, covered where the run has boards."""
        if self._has_boards:
            return self._score_covered(graph)
        return inference.scores(self.model, graph, depth=self.plan.num_layers)

    def _read_training_data(self, data: Any) -> Graph:
        """The graph that the board was made on, with its labels: own ballots are taken off readings."""
        board = self.folder.load_boards()[0]
        try:
            graph = self.folder.read_graph(data)
        except RunError as error:
            raise RunError(
                f"{error}; on another graph there is no board: give new nodes and the places they list "
                "(predict --new, predict_new), or train with method='trees'"
            ) from None
        check_names(board, graph.node_names)
        return graph

    def _score_covered(self, graph: Graph) -> torch.Tensor:
        device = next(self.model.parameters()).device
        boards = self.folder.load_boards()
        table = Boards(self.folder, graph, boards=boards).read_boards(len(boards) - 1, device)
        return score_table(self.model, graph, table)

    def evaluate(self, data: Any) -> Evaluation | None:
        """Results on the test split of the training data; None where no test node has a label.

        The guarantee does not cover them: they read test labels, and neighbours in the clear.

        Args:
            data: what the run was trained on; it is read in the same way.
        """
        graph = self.folder.read_graph(data)
        scores = self._score_graph(graph)
        predicted = self.folder.task.predict(self.folder.task.show(scores)).cpu().numpy()
        return evaluate(predicted, graph, graph.test_idx)

    def report(
        self,
        path: str | os.PathLike[str],
        *,
        data: Any = None,
        comparison: Any = None,
        about: str | os.PathLike[str] | None = None,
        audit: str | os.PathLike[str] | None = None,
    ) -> None:
        """Write the report of this run as one HTML file, with a JSON twin beside it.

        Args:
            path: ends in .html.
            data: what the run was trained on, for results per class.
            comparison: what `compare` gave, where there is one.
            about: a TOML file with what only people know, such as purpose, owner and a name of the data.
            audit: the record of an audit; by default `audit.json` in the folder of the run.
        """
        from hushgraph.report import check_report_path, write_report
        from hushgraph.report.about import read_about
        from hushgraph.report.attack import read_audit

        # Before the data is read, which may take long.
        check_report_path(path, self.folder, reads_more=data is not None or comparison is not None)
        read_about(about)
        read_audit(self.folder, audit)
        write_report(
            self.folder,
            path,
            evaluation=None if data is None else self.evaluate(data),
            comparison=None if comparison is None else json.loads(comparison.to_json()),
            about=about,
            audit=audit,
        )

    def card(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        accuracy: bool = False,
        about: str | os.PathLike[str] | None = None,
    ) -> str:
        """Return the model card of this run, as Markdown with YAML front matter.

        Args:
            path: where to write it too; ends in .md, and hubs expect README.md.
            accuracy: whether exact accuracies, which the guarantee does not cover, are in it; covered are.
            about: as in `report`; it may declare what the data is called, which is "the data" otherwise.
        """
        from hushgraph.report.card import render_card, write_card

        if path is not None:
            write_card(self.folder, path, accuracy=accuracy, about=about)
        return render_card(self.folder, accuracy=accuracy, about=about)

    def export(self, path: str | os.PathLike[str]) -> Path:
        """Write what was released of this run as ONNX, Parquet and JSON, to be served without hushgraph.

        Args:
            path: a folder that does not exist yet, or is empty.

        Raises:
            RunError: where nothing was released, or where predictions read neighbours.
        """
        from hushgraph.export.bundle import export_run

        return export_run(self.folder.path, path)

    def log_mlflow(self, *, name: str = "model") -> str:
        """Log settings, covered figures, the card and a model that MLflow serves, from what was released.

        They go to the active run of MLflow, or to a new one. `mlflow.pyfunc.load_model` takes the returned
        address; its `predict` takes a DataFrame with the columns of the training table and, of a billboard, a
        column `places` of lists.

        Args:
            name: of the model in MLflow.

        Raises:
            RunError: where nothing was released, or where predictions read neighbours.

        Guarantees:
            Everything that is logged is a function of files of the release: no exact figure, no loss, no
            path, no time of training and no seed.
        """
        from hushgraph.training.tracking import log_run

        return log_run(self.folder.path, name=name)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Copy the folder of this run, so that it outlives this object; `Run.load` reads it.

        From then on `folder` is the copy. Nothing is charged: the copy is the same run.

        Args:
            path: a folder that does not exist yet, or is empty.

        Examples:
            >>> import hushgraph as hg
            >>> data = hg.datasets.synthetic(num_nodes=300, num_classes=3, seed=1)
            >>> run = hg.train(data, epsilon=4.0, steps=5, hidden=8, device="cpu")
            >>> hg.Run.load(run.save("kept-run")).epsilon == run.epsilon
            True
        """
        self.folder = self.folder.copy_to(path)
        self.is_temporary = False
        return self.folder.path

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], *, model: nn.Module | None = None, device: str = "auto"
    ) -> Run:
        """The finished run in a folder; `model` only where it trained a module of the caller's."""
        if model is not None:
            check_model(model, names=())
        folder = RunFolder.open(path)
        if folder.is_finished:
            check_consistent(folder)
        model = folder.build_model() if model is None else model
        folder.load_weights(model)
        model.to(choose_device(device)).eval()
        # What an older run does not record is an assumption too.
        result = folder.result() | {"assumptions": write_assumptions(folder.assumptions)}
        return cls(model, folder.plan, folder.config, result, read_metrics(folder.path), folder)

    def read(self, data: Any, *, symmetrize: bool | None = None) -> Graph:
        """A graph to predict on, read as the training data was, but features and edges alone.

        Args:
            data, symmetrize: as in `predict`.
        """
        config, columns = self.config, self.folder.columns
        reads_records = self.plan.num_layers > 0
        is_read = isinstance(data, Graph)
        with self.folder.explain_other_data("data of the same form"):
            graph = load_graph(
                data,
                symmetrize=config.symmetrize if symmetrize is None else symmetrize,
                num_classes=self.folder.num_classes,
                columns=columns,
                labels=False,
                edge_weight=config.edge_weight if reads_records and not is_read and columns is None else None,
                people=None if is_read else config.people,
            )
        if reads_records and tuple(each.info for each in graph.relations) != self.folder.relations:
            raise InputError(
                "the data has other relations or weights than the run was trained on; give data with the same"
            )
        # Here too, since a module of the caller's says nothing of its columns.
        inference.check_width(graph.num_features, self.folder.num_features)
        return self.folder.scale(graph)
