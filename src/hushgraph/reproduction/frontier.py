"""The experiment `frontier`: accuracy against epsilon, for both methods, on real graphs and their ceilings.

It is not in the paper. Only epsilon is given; all else are the defaults. Runs have no fixed seed, so every
epsilon in a record is one that holds; the seed of a record draws the split where the file has none.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from fnmatch import fnmatch
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from hushgraph._files import write_whole
from hushgraph.datasets import load_graph, synthetic
from hushgraph.datasets.catalog.data_root import data_root
from hushgraph.errors import InputError
from hushgraph.graph.graph import Graph
from hushgraph.reproduction.data_sources import GENERATED
from hushgraph.reproduction.jobs import run_digest
from hushgraph.reproduction.records import Records
from hushgraph.reproduction.runner import Observe, Options, Say, find_commit

if TYPE_CHECKING:
    from hushgraph.training.run import Run

NAME = "frontier"
TITLE = "Accuracy against epsilon"
EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0, 12.0)
SEEDS = 3
RANDOM_SPLIT = "0.6/0.2/0.2"
_QUICK_EPSILONS = (1.0, 8.0)
_QUICK = {"steps": 3, "hidden": 8}
# Evaluating between steps would only cost time.
_NEVER = 1_000_000_000


@dataclass(frozen=True, kw_only=True)
class FrontierGraph:
    """A graph of the data folder, read with both directions of every edge.

    Attributes:
        name: its file, without .npz.
        num_classes: how many classes it has, as published.
        split: the random split to draw; None for that of the file.
    """

    name: str
    num_classes: int
    split: str | None = None


# The official splits of the Planetoid graphs have 60 to 140 training nodes, too few for any private model.
GRAPHS = (
    FrontierGraph(name="facebook_32_schools", num_classes=6),
    FrontierGraph(name="ogbn_arxiv_hints", num_classes=40),
    FrontierGraph(name="coauthor_physics", num_classes=5, split=RANDOM_SPLIT),
    FrontierGraph(name="planetoid_pubmed", num_classes=3, split=RANDOM_SPLIT),
    FrontierGraph(name="amazon_computers", num_classes=10, split=RANDOM_SPLIT),
    FrontierGraph(name="planetoid_citeseer", num_classes=6, split=RANDOM_SPLIT),
    FrontierGraph(name="planetoid_cora", num_classes=7, split=RANDOM_SPLIT),
)
_GENERATED = FrontierGraph(name=GENERATED, num_classes=4)


@dataclass(frozen=True, kw_only=True)
class Method:
    """One way to train, and the rows of the table that a run of it fills.

    Attributes:
        name: in records and for `--only`.
        row: the row of its predictions.
        arguments: of `train`, without the budget.
        private: whether it is trained at every epsilon; else without noise, as a ceiling.
        clear_row: the row of its predictions in the clear.
        has_new_nodes: test nodes are taken out before training and arrive afterwards.
    """

    name: str
    row: str
    arguments: dict[str, Any]
    private: bool = True
    clear_row: str | None = None
    has_new_nodes: bool = False


_BILLBOARD = {"method": "billboard"}
METHODS = (
    Method(
        name="billboard",
        row="DP-Billboard, covered",
        arguments=_BILLBOARD,
        clear_row="DP-Billboard, in the clear",
    ),
    Method(name="new-nodes", row="DP-Billboard, new nodes", arguments=_BILLBOARD, has_new_nodes=True),
    Method(name="trees", row="DP-GNN (trees)", arguments={"model": "gcn"}),
    Method(name="mlp", row="DP-MLP", arguments={"model": "mlp"}),
    Method(
        name="ceiling-billboard",
        row="Billboard without noise",
        arguments=_BILLBOARD,
        private=False,
        clear_row="Billboard without noise, in the clear",
    ),
    Method(name="ceiling-gcn", row="GCN", arguments={"model": "gcn"}, private=False),
    Method(name="ceiling-gat", row="GAT", arguments={"model": "gat"}, private=False),
    Method(name="ceiling-mlp", row="MLP", arguments={"model": "mlp"}, private=False),
)


@dataclass(frozen=True, kw_only=True)
class Job:
    """One run: a method on a graph, at an epsilon, for one seed of the split."""

    graph: FrontierGraph
    method: Method
    epsilon: float | None
    seed: int
    quick: bool = False

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments of `train`."""
        budget = {"private": False} if self.epsilon is None else {"epsilon": self.epsilon}
        return {**self.method.arguments, **budget, "evaluate_every": _NEVER, **(_QUICK if self.quick else {})}

    @property
    def reading(self) -> dict[str, Any]:
        """How its graph is read."""
        return {
            "symmetrize": True,
            "split": self.graph.split,
            "split_seed": None if self.graph.split is None else self.seed,
            "has_new_nodes": self.method.has_new_nodes,
        }

    @property
    def digest(self) -> str:
        """A digest of everything that determines the run but its randomness."""
        return run_digest(self.arguments, data=self.graph.name, reading=self.reading, seed=self.seed)

    @property
    def label(self) -> str:
        """One line that identifies this run."""
        epsilon = "" if self.epsilon is None else f", epsilon {self.epsilon:g}"
        return f"{self.graph.name}, {self.method.name}{epsilon}, seed {self.seed}"

    @property
    def labels(self) -> dict[str, Any]:
        """The labels of its record."""
        return {
            "experiment": NAME,
            "column": self.graph.name,
            "data": self.graph.name,
            "row": self.method.name,
            "mode": "non-private-ours" if self.epsilon is None else "sound",
            "axes": {} if self.epsilon is None else {"epsilon": self.epsilon},
            "seed": self.seed,
        }


@dataclass(frozen=True, kw_only=True)
class Line:
    """One row of the table at one epsilon; accuracies on the test split, in percent.

    Attributes:
        data, row: the graph and the row.
        epsilon: None without noise.
        ours, spread: mean and standard deviation over seeds; the spread of one seed is None.
        epsilon_holds: the largest epsilon of its runs; None without noise.
        runs: digests of its records.
    """

    data: str
    row: str
    epsilon: float | None
    ours: float
    spread: float | None
    epsilon_holds: float | None
    runs: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class NewNodes:
    """Test nodes that arrive after training: features, and lists of places, -1 where there is no place."""

    features: npt.NDArray[np.float32]
    indptr: npt.NDArray[np.int64]
    places: npt.NDArray[np.int64]
    labels: npt.NDArray[np.int64]


def take_out_test_nodes(graph: Graph) -> tuple[Graph, NewNodes]:
    """Return an undirected graph without its test nodes, and these with the lists they come back with.

    Other test nodes have no place on the board of the smaller graph, so a list does not reach them.
    """
    kept = np.ones(graph.num_nodes, np.bool_)
    kept[graph.test_idx] = False
    number = np.where(kept, np.cumsum(kept) - 1, -1)
    shape = (graph.num_nodes, graph.num_nodes)
    reads = sparse.csr_array((np.ones(graph.num_edges, np.bool_), graph.indices, graph.indptr), shape=shape)
    inside = reads[kept][:, kept].tocsr()
    inside.sort_indices()
    lists = reads[graph.test_idx].tocsr()
    smaller = replace(
        graph,
        num_nodes=int(kept.sum()),
        indptr=inside.indptr,
        indices=inside.indices,
        x=graph.x[kept],
        y=graph.y[kept],
        train_idx=number[graph.train_idx],
        val_idx=number[graph.val_idx],
        test_idx=np.empty(0, np.int64),
        node_names=None if graph.node_names is None else graph.node_names[kept],
    )
    return smaller, NewNodes(
        features=graph.dense_features(graph.test_idx),
        indptr=lists.indptr.astype(np.int64),
        places=number[lists.indices],
        labels=graph.y[graph.test_idx],
    )


def list_jobs(options: Options) -> list[Job]:
    """List the runs: graph by graph, then by seed, so that a graph is read once."""
    graphs = (_GENERATED,) if options.quick else GRAPHS
    epsilons = _QUICK_EPSILONS if options.quick else EPSILONS
    count = 1 if options.quick else SEEDS if options.seeds is None else options.seeds
    return [
        Job(graph=graph, method=method, epsilon=epsilon, seed=seed, quick=options.quick)
        for graph in graphs
        for seed in range(count)
        for method in METHODS
        if _matches(graph, method, options.only)
        for epsilon in (epsilons if method.private else (None,))
    ]


def _matches(graph: FrontierGraph, method: Method, only: Sequence[str]) -> bool:
    names = (graph.name, method.name, f"{graph.name}/{method.name}")
    return not only or any(fnmatch(name, pattern.lower()) for pattern in only for name in names)


class Frontier:
    """The runs of one call, and the table of all records in its folder.

    Guarantees:
        A record is on disk when its run ends; an interruption loses at most the run in progress.
    """

    def __init__(self, options: Options, *, say: Say) -> None:
        self.options, self.say = options, say
        self.root = data_root(options.data_root)
        self.records = Records(options.out / f"{NAME}.jsonl")
        if options.quick and any(record["data"] != GENERATED for record in self.records.all):
            raise InputError(
                f"out={options.out}: it has records of real data, whose table --quick would replace; "
                "choose another folder"
            )
        jobs = list_jobs(options)
        if not jobs:
            names = ", ".join(graph.name for graph in GRAPHS)
            methods = ", ".join(method.name for method in METHODS)
            raise InputError(
                f"--only {' '.join(options.only)}: no run has this name; graphs are {names}; methods are "
                f"{methods}"
            )
        missing = [graph for graph in dict.fromkeys(job.graph for job in jobs) if not self._is_there(graph)]
        self.skipped = [
            f"{graph.name}: skipped, {self.root / graph.name}.npz does not exist" for graph in missing
        ]
        self.plan = [job for job in jobs if job.graph not in missing]
        if not self.plan:
            raise InputError(f"nothing is left to run: {self.skipped[0]}; give --data-root")
        for line in self.skipped:
            self.say(line)

    @property
    def left(self) -> list[Job]:
        """The runs without a record."""
        done = {record["run"] for record in self.records.all}
        return [job for job in self.plan if job.digest not in done]

    def run(self, begin: Callable[[int, str], None], observe: Observe) -> None:
        """Train the runs that are left, except those that another process trains at the moment.

        Args:
            begin: called with the number of runs done and the label of the next.
            observe: called with the number of steps done and the total; may raise KeyboardInterrupt.
        """
        left = self.left
        for number, (job, graph, arrivals) in enumerate(self._read_graphs(left)):
            with self.records.claimed(job.digest) as is_mine:
                self.records.refresh()
                if not is_mine or job not in self.left:
                    continue
                begin(number, job.label)
                record = _train(job, graph, arrivals, self.options, observe)
                self.records.append(record)
            clear = record["test_accuracy_in_the_clear"]
            self.say(
                f"[{number + 1}/{len(left)}] {job.label}: {100 * record['test_accuracy']:.2f}%"
                + ("" if clear is None else f", in the clear {100 * clear:.2f}%")
                + f" in {record['seconds']:.1f} s"
            )

    def lines(self) -> list[Line]:
        """The rows of all records in the folder."""
        return summarise(self.records.all)

    def _is_there(self, graph: FrontierGraph) -> bool:
        return self.options.quick or (self.root / f"{graph.name}.npz").is_file()

    def _read_graphs(self, jobs: Sequence[Job]) -> Iterator[tuple[Job, Graph, NewNodes | None]]:
        """Yield every job with its graph; one graph is kept, and one split of it."""
        name, base = "", None
        key: tuple[Any, ...] = ()
        for job in jobs:
            if job.graph.name != name:
                name, base, key = job.graph.name, self._read(job.graph), ()
            if key != (job.graph.split, job.seed):
                key, graph = (job.graph.split, job.seed), _split(base, job)
                smaller, arrivals = None, None
            if not job.method.has_new_nodes:
                yield job, graph, None
                continue
            if smaller is None:
                smaller, arrivals = take_out_test_nodes(graph)
            yield job, smaller, arrivals

    def _read(self, graph: FrontierGraph) -> Graph:
        if self.options.quick:
            return synthetic(num_nodes=300, num_classes=graph.num_classes, num_features=8, average_degree=6.0)
        path = self.root / f"{graph.name}.npz"
        reading: dict[str, Any] = {"split": graph.split, "split_seed": 0, "num_classes": graph.num_classes}
        return load_graph(path, symmetrize=True, **reading)


def _split(graph: Graph | None, job: Job) -> Graph:
    if graph is None:
        raise InputError(f"{job.graph.name}: no graph was read; give --data-root")
    return graph if job.graph.split is None else load_graph(graph, split=job.graph.split, split_seed=job.seed)


def _train(
    job: Job, graph: Graph, arrivals: NewNodes | None, options: Options, observe: Observe
) -> dict[str, Any]:
    """Train a run and return its record."""
    from hushgraph.runs.versions import versions
    from hushgraph.training.train import train

    run = train(
        graph,
        **job.arguments,
        device=options.device,
        observer=lambda done, total, epsilon, accuracy: observe(done, total),
    )
    holds = run.result["guarantee"] == "holds"
    clear = None if job.method.clear_row is None else _measure_in_the_clear(run, graph)
    return job.labels | {
        "test_accuracy": _measure(run, arrivals),
        "test_accuracy_in_the_clear": clear,
        "val_accuracy": run.result["val_accuracy"],
        "claimed_epsilon": job.epsilon,
        "epsilon_holds": run.epsilon if holds else None,
        "delta": run.plan.delta if holds else None,
        "guarantee": run.result["guarantee"],
        "assumptions": run.result["assumptions"],
        "predictions": run.result["predictions"],
        "randomness": "from the operating system; the seed is that of the split",
        "reading": job.reading,
        "asked": job.arguments,
        "train_nodes": len(graph.train_idx),
        "plan": json.loads(run.plan.to_json()),
        "config": json.loads(run.config.to_json()),
        "ledger_digest": hashlib.sha256(run.folder.ledger_path.read_bytes()).hexdigest(),
        "seconds": run.result["seconds"],
        "device": run.result["device"],
        "versions": dict(versions()),
        "commit": find_commit(),
        "run": job.digest,
    }


def _measure(run: Run, arrivals: NewNodes | None) -> float:
    """The accuracy on labelled test nodes, of the graph or arriving after training."""
    if arrivals is None:
        return float(run.result["test_accuracy"])
    import torch

    probabilities, _ = run.predict_listed(
        torch.from_numpy(arrivals.features), arrivals.indptr, arrivals.places
    )
    is_labelled = arrivals.labels >= 0
    return float(np.mean(probabilities.argmax(1)[is_labelled] == arrivals.labels[is_labelled]))


def _measure_in_the_clear(run: Run, graph: Graph) -> float:
    nodes = graph.test_idx[graph.y[graph.test_idx] >= 0]
    return float(np.mean(run.predict_proba(graph, in_the_clear=True).argmax(1)[nodes] == graph.y[nodes]))


def _place(entry: tuple[tuple[str, str, float | None], Any]) -> tuple[int, int, float]:
    (data, row, epsilon), _ = entry
    graphs = [graph.name for graph in (*GRAPHS, _GENERATED)]
    return graphs.index(data), list_rows().index(row), 0.0 if epsilon is None else epsilon


def list_rows() -> list[str]:
    """The rows of the table, from top to bottom."""
    return [row for method in METHODS for row in (method.row, method.clear_row) if row is not None]


def summarise(records: Sequence[dict[str, Any]]) -> list[Line]:
    """Average records over seeds; in the order of graphs, methods and epsilons."""
    groups: dict[tuple[str, str, float | None], list[tuple[dict[str, Any], float]]] = {}
    for record in records:
        method = next(one for one in METHODS if one.name == record["row"])
        epsilon = record["axes"].get("epsilon")
        values = {method.row: record["test_accuracy"]}
        if method.clear_row is not None:
            values[method.clear_row] = record["test_accuracy_in_the_clear"]
        for row, value in values.items():
            groups.setdefault((record["data"], row, epsilon), []).append((record, 100 * value))
    return [_summarise(key, group) for key, group in sorted(groups.items(), key=_place)]


def _summarise(key: tuple[str, str, float | None], group: Sequence[tuple[dict[str, Any], float]]) -> Line:
    # The last record of a seed counts.
    by_seed = {record["seed"]: (record, value) for record, value in group}
    values = [value for _, value in by_seed.values()]
    holds = [record["epsilon_holds"] for record, _ in by_seed.values()]
    return Line(
        data=key[0],
        row=key[1],
        epsilon=key[2],
        ours=fmean(values),
        spread=stdev(values) if len(values) > 1 else None,
        epsilon_holds=None if None in holds else max(holds),
        runs=tuple(record["run"] for record, _ in by_seed.values()),
    )


def list_notes(lines: Sequence[Line]) -> list[str]:
    """What a reader of the table and of the figure must know."""
    seeds = sorted({len(line.runs) for line in lines})
    count = str(seeds[0]) if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
    return [
        "Test accuracy in percent, only epsilon given, symmetrized. "
        + ("One seed." if seeds == [1] else f"Mean and standard deviation over {count} seeds."),
        "Runs have no fixed seed: epsilon holds for weights and boards of every one. These accuracies read "
        "test labels and are not covered.",
        "Covered: predictions for everybody else are covered by the same epsilon. In the clear and on "
        "trees, predictions read neighbours without noise and are not covered.",
        "New nodes: test nodes are taken out before board and training and arrive afterwards, at no charge.",
        "Split: that of the file for facebook_32_schools and ogbn_arxiv_hints, else random 60/20/20 by seed.",
    ]


def write_table(lines: Sequence[Line], out: Path) -> str:
    """Write frontier.md and frontier.json; return the Markdown."""
    text = f"# {TITLE}\n\n" + "\n".join(f"- {note}" for note in list_notes(lines)) + "\n"
    for data in dict.fromkeys(line.data for line in lines):
        text += f"\n## {data}\n\n{format_graph([line for line in lines if line.data == data])}\n"
    write_whole(out / f"{NAME}.md", text.encode())
    content = {"name": NAME, "title": TITLE, "lines": [asdict(line) for line in lines]}
    write_whole(out / f"{NAME}.json", json.dumps(content, indent=1).encode())
    return text


def format_graph(lines: Sequence[Line]) -> str:
    """The Markdown table of one graph: a row for each method, a column for each epsilon."""
    epsilons = sorted({line.epsilon for line in lines if line.epsilon is not None})
    columns: list[float | None] = [*epsilons, None]
    cells = {(line.row, line.epsilon): line for line in lines}
    heads = ["method", *(f"epsilon {epsilon:g}" for epsilon in epsilons), "without noise"]
    table = [heads, ["---"] + ["---:"] * len(columns)]
    for row in dict.fromkeys(line.row for line in lines):
        table.append([row, *(_format_cell(cells.get((row, epsilon))) for epsilon in columns)])
    return "\n".join("| " + " | ".join(entries) + " |" for entries in table)


def _format_cell(line: Line | None) -> str:
    if line is None:
        return ""
    return f"{line.ours:.1f}" + ("" if line.spread is None else f" ± {line.spread:.1f}")


def draw(lines: Sequence[Line], path: Path, *, notes: Sequence[str] | None = None) -> None:
    """Draw the figure of `lines`, one panel for each graph, in the format of the path's suffix."""
    from hushgraph.plots.frontier import FrontierLine, draw_frontier

    panels: dict[str, list[FrontierLine]] = {}
    for data, row in dict.fromkeys((line.data, line.row) for line in lines):
        points = tuple(
            (line.epsilon, line.ours, line.spread or 0.0)
            for line in lines
            if (line.data, line.row) == (data, row)
        )
        panels.setdefault(data, []).append(FrontierLine(label=row, points=points))
    draw_frontier(panels, path, title=TITLE, notes=list(list_notes(lines) if notes is None else notes))
