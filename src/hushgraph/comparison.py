"""GNN, DP-GNN, MLP and DP-MLP side by side: what neighbours are worth, and what privacy costs."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hushgraph._files import write_whole
from hushgraph._text import digits_up, rounded_up
from hushgraph.errors import InputError, RunError
from hushgraph.privacy import choices

if TYPE_CHECKING:
    from hushgraph.graph.graph import Graph
    from hushgraph.runs.folder import RunFolder
    from hushgraph.training.run import Run
    from hushgraph.training.session import Observer, OnStart

FORMAT = 1
SETTINGS = "settings.json"
NAMES = ("GNN", "DP-GNN", "MLP", "DP-MLP")
_MODELS = ("gcn", "gin", "gat")
# Bounds that training without privacy has no use for: it reads as much as its own defaults let it.
_PRIVATE_ONLY = {"max_readers", "max_reads", "sampler", "accountant", "clipping", "clip", "noise"}
_READING = ("symmetrize", "split", "split_seed", "num_classes", "columns")
_NUMBERS = ("epsilon", "delta", "val_accuracy", "test_accuracy", "macro_f1", "seconds")
_OURS = ("private", "noise_multiplier")


@dataclass(frozen=True, kw_only=True)
class Row:
    """One of the four runs.

    Attributes:
        name: "GNN", "DP-GNN", "MLP" or "DP-MLP".
        model: the architecture.
        private: whether it was trained with noise.
        epsilon, delta, guarantee: of this run by itself; epsilon is infinite without privacy.
        val_accuracy, test_accuracy, macro_f1: macro-F1 is on the test split; None without labelled nodes.
        seconds: how long training took.
        plan: fingerprint of the run's plan.
    """

    name: str
    model: str
    private: bool
    epsilon: float
    delta: float
    guarantee: str
    val_accuracy: float | None
    test_accuracy: float | None
    macro_f1: float | None
    seconds: float
    plan: str


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Four runs on one split.

    Attributes:
        data: what the data was called.
        seeded: whether a fixed seed made all four reproducible, not private.
        rows: GNN, DP-GNN, MLP, DP-MLP.
        runs: by name; empty for a comparison that was read from a file.

    Guarantees:
        `release_both` is infinite unless the guarantee of both private models holds.

    Examples:
        >>> import hushgraph as hg
        >>> data = hg.datasets.synthetic(num_nodes=300, num_classes=3, seed=1)
        >>> comparison = hg.compare(data, epsilon=2.0, steps=3, hidden=8, device="cpu")
        >>> [row.name for row in comparison.rows if row.private]
        ['DP-GNN', 'DP-MLP']
        >>> epsilon, delta = comparison.release_both
        >>> epsilon <= 4.0
        True
    """

    data: str
    seeded: bool
    rows: tuple[Row, ...]
    runs: Mapping[str, Run] = field(default_factory=dict, compare=False, repr=False)

    @property
    def release_both(self) -> tuple[float, float]:
        """Epsilon and delta of publishing both private models, by basic composition."""
        private = [row for row in self.rows if row.private]
        if self.seeded or any(row.guarantee != "holds" for row in private):
            return math.inf, 1.0
        return sum(row.epsilon for row in private), sum(row.delta for row in private)

    @property
    def cost(self) -> str:
        """What each of the trials costs, in words."""
        non_private = " and ".join(row.name for row in self.rows if not row.private)
        unsafe = (
            f"{non_private} are trained without privacy: they have no guarantee at all and must not be "
            "released. "
            "All accuracies read the private graph and its labels in the clear, so neither they nor a choice "
            "made by them is covered."
        )
        private = [row for row in self.rows if row.private]
        if self.seeded:
            names = " and ".join(row.name for row in private)
            fixed = f"The seed is fixed, so {names} are reproducible, not private: nothing is guaranteed."
            return f"{fixed} {unsafe}"
        unproven = [row for row in private if row.guarantee != "holds"]
        if unproven:
            words = "; ".join(f"the guarantee of {row.name}: {row.guarantee}" for row in unproven)
            return f"Publishing both private models has no proven cost ({words}). {unsafe}"
        epsilon, delta = max(row.epsilon for row in private), max(row.delta for row in private)
        both = self.release_both
        return (
            f"Each of the two private models is ({rounded_up(epsilon)}, {digits_up(delta)})-differentially "
            f"private by itself; publishing both costs up to ({rounded_up(both[0])}, {digits_up(both[1])}) "
            f"by basic composition. {unsafe}"
        )

    def to_json(self) -> str:
        """One line of JSON; `from_json` gives the same comparison back, without its runs."""
        epsilon, delta = self.release_both
        about = {
            "comparison": FORMAT,
            "data": self.data,
            "seeded": self.seeded,
            "rows": [{**asdict(row), "epsilon": _json_number(row.epsilon)} for row in self.rows],
            "release_both": {"epsilon": _json_number(epsilon), "delta": delta},
            "cost": self.cost,
        }
        return json.dumps(about, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Comparison:
        """The comparison that `to_json` wrote."""
        try:
            about = json.loads(text)
            if about["comparison"] != FORMAT:
                raise ValueError(f"format {about['comparison']!r}; this version reads format {FORMAT}")
            rows = tuple(Row(**row | {key: _number(row[key]) for key in _NUMBERS}) for row in about["rows"])
            if tuple(row.name for row in rows) != NAMES:
                raise ValueError(f"expected rows {', '.join(NAMES)}")
            return cls(data=str(about["data"]), seeded=bool(about["seeded"]), rows=rows)
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            raise RunError(f"the comparison is damaged ({error}); restore it or compare again") from None


def compare(
    data: Any,
    *,
    epsilon: float,
    model: choices.Model = "gcn",
    num_layers: int = 1,
    seed: int | None = None,
    device: choices.Device = "auto",
    out: str | os.PathLike[str] | None = None,
    name: str | None = None,
    observer: Observer | None = None,
    on_start: OnStart | None = None,
    **train_arguments: Any,
) -> Comparison:
    """Train a GNN and an MLP, each without and with privacy, on the same data and split.

    Args:
        data, num_layers, device: as in `train`.
        epsilon: of each of the two private runs.
        model: "gcn", "gin" or "gat": the GNN.
        seed: of all four runs; makes the private ones reproducible and therefore not private.
        out: a folder for the four run folders `gnn`, `dp-gnn`, `mlp` and `dp-mlp`; temporary ones unless
            given. The same call goes on with what it finds there after an interruption.
        name: what to call the data; as it was given unless said otherwise.
        observer, on_start: as in `train`, for each run.
        train_arguments: of `train`, for all runs. Those that bound what a private run may read are not for
            the runs without privacy.

    Returns:
        Rows with accuracies on the validation and test splits, and the four runs.

    Guarantees:
        Each private run spends at most `epsilon`, and `cost` says what publishing both costs.

    Examples:
        >>> import hushgraph as hg
        >>> data = hg.datasets.synthetic(num_nodes=300, num_classes=3, seed=1)
        >>> comparison = hg.compare(data, epsilon=2.0, steps=3, hidden=8, device="cpu")
        >>> [row.name for row in comparison.rows]
        ['GNN', 'DP-GNN', 'MLP', 'DP-MLP']
    """
    if model not in _MODELS:
        raise InputError(f"model={model!r}: expected one of {', '.join(_MODELS)}, to be compared with an MLP")
    for ours in _OURS:
        if ours in train_arguments:
            raise InputError(f"{ours}: compare trains with and without privacy by itself; leave it out")
    from hushgraph.training.prepare import prepare
    from hushgraph.training.train import resume, train

    where = None if out is None else Path(out)
    asked = {"data": data, "epsilon": epsilon, "model": model, "num_layers": num_layers, "seed": seed}
    settings = _describe_settings(asked | train_arguments)
    goes_on = where is not None and _is_begun(where, settings)

    def begin(folder: RunFolder) -> None:
        # Not before everything is checked: a comparison that is refused leaves no folder behind.
        if where is not None and not (where / SETTINGS).exists():
            write_whole(where / SETTINGS, json.dumps(settings, indent=2, sort_keys=True).encode())
        if on_start is not None:
            on_start(folder)

    watching: dict[str, Any] = {"device": device, "observer": observer, "on_start": begin}
    common: dict[str, Any] = {"num_layers": num_layers, "seed": seed}
    public = {key: value for key, value in train_arguments.items() if key not in _PRIVATE_ONLY}
    runs: dict[str, Run] = {}
    # Private runs first: they are the ones with a plan that can be refused.
    for which in ("DP-GNN", "DP-MLP", "GNN", "MLP"):
        architecture: choices.Model = "mlp" if which.endswith("MLP") else model
        folder = None if where is None else where / which.lower()
        if goes_on and folder is not None and folder.exists():
            runs[which] = resume(folder, data, **watching)
            continue
        budget: dict[str, Any] = {"private": False, **public}
        if which.startswith("DP-"):
            budget = {"epsilon": epsilon, **train_arguments}
        runs[which] = train(data, model=architecture, out=folder, **watching, **common, **budget)
    ordered = {which: runs[which] for which in NAMES}
    how = {key: value for key, value in public.items() if key in _READING}
    graph = prepare(data, private=False, **how).graph
    return Comparison(
        data=runs["GNN"].folder.data if name is None else name,
        seeded=seed is not None,
        rows=tuple(_row(which, run, graph) for which, run in ordered.items()),
        runs=ordered,
    )


def _describe_settings(settings: Mapping[str, Any]) -> dict[str, str]:
    """The settings that two calls must share to be one comparison."""
    named = {key: value for key, value in settings.items() if value is not None}
    if isinstance(settings["data"], os.PathLike):
        named["data"] = os.fspath(settings["data"])
    elif not isinstance(settings["data"], (str, tuple)):
        # An object has no name; a run that goes on compares its counts and its training nodes.
        named["data"] = type(settings["data"]).__name__
    return {key: value if isinstance(value, str) else repr(value) for key, value in named.items()}


def _is_begun(out: Path, settings: Mapping[str, str]) -> bool:
    """Whether the folder holds a comparison with these settings; RunError where it has others."""
    file = out / SETTINGS
    try:
        known = json.loads(file.read_text())
        if not isinstance(known, dict):
            raise ValueError("no object")
    except (FileNotFoundError, NotADirectoryError):
        return False
    except (OSError, ValueError, RecursionError) as error:
        raise RunError(f"{file}: cannot be read ({error}); restore it or choose another folder") from None
    for key in sorted({*known, *settings}):
        if known.get(key) != settings.get(key):
            raise RunError(
                f"out={out}: its comparison has {key}={known.get(key)}, and {key}={settings.get(key)} is "
                "asked for; ask for the same to go on, or choose another folder"
            )
    return True


def _row(name: str, run: Run, graph: Graph) -> Row:
    evaluation = run.evaluate(graph)
    return Row(
        name=name,
        model=run.config.model,
        private=run.plan.is_private,
        epsilon=run.epsilon,
        delta=run.delta,
        guarantee=run.result["guarantee"],
        val_accuracy=run.result["val_accuracy"],
        test_accuracy=run.result["test_accuracy"],
        macro_f1=None if evaluation is None else evaluation.macro_f1,
        seconds=run.result["seconds"],
        plan=run.plan.fingerprint(),
    )


def _number(value: Any) -> Any:
    return None if value is None else float(value)


def _json_number(value: float) -> float | str:
    return "inf" if math.isinf(value) else value
