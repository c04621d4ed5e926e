"""The run folder: what a run is, has paid for, has learnt. JSON and safetensors, never pickle.

run.json                what the run is: plan, configuration, shapes, versions
ledger.jsonl            what it has paid for
metrics.jsonl           validation accuracy and epsilon over time
checkpoint.safetensors  where to go on after an interruption; gone once the run is done
weights.safetensors     the result
result.json             the summary of a finished run
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

from hushgraph.accounting.ledger import Ledger
from hushgraph.config import TrainingConfig
from hushgraph.datasets import load_graph
from hushgraph.datasets.columns import Columns
from hushgraph.errors import HushgraphError, RunError
from hushgraph.graph import Graph
from hushgraph.models.gnn import GNN
from hushgraph.plan import PrivacyPlan
from hushgraph.whole_file import write_whole

FORMAT = 1
_FILES = (
    "run.json",
    "ledger.jsonl",
    "metrics.jsonl",
    "checkpoint.safetensors",
    "weights.safetensors",
    "result.json",
)
_VERSIONED = ("hushgraph", "torch", "numpy", "dp-accounting", "numba", "safetensors")


@dataclass(frozen=True, kw_only=True)
class RunFolder:
    """A run on disk. Every file but the two append-only ones is replaced as a whole or not at all.

    Attributes:
        path: the folder.
        plan, config: of the run.
        num_features, num_classes: of its data.
        split_id: which nodes are in the training split, as `split_id` gives it.
        data: what the data was called.
        columns: what the columns of its tables mean, where it was tables.
    """

    path: Path
    plan: PrivacyPlan
    config: TrainingConfig
    num_features: int
    num_classes: int
    split_id: str
    data: str
    columns: Columns | None = None

    def write(self) -> None:
        """Make the folder of a new run; RunError, and nothing left behind, where that cannot be done."""
        about = {
            "format": FORMAT,
            "plan": json.loads(self.plan.to_json()),
            "config": json.loads(self.config.to_json()),
            "num_features": self.num_features,
            "num_classes": self.num_classes,
            "split_id": self.split_id,
            "data": self.data,
            "columns": None if self.columns is None else json.loads(self.columns.to_json()),
            "versions": versions(),
        }
        try:
            is_new = not self.path.exists()
            if any((self.path / name).exists() for name in _FILES):
                raise RunError(
                    f"out={self.path}: it holds a run already; resume it, or choose another folder"
                )
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunError(
                f"out={self.path}: cannot be created ({error.strerror}); choose another folder"
            ) from None
        try:
            # The ledger comes first, so that a run without one is a damaged run and never a new one.
            Ledger.create(self.ledger_path, self.plan).close()
            write_whole(self.path / "run.json", json.dumps(about, indent=2, sort_keys=True).encode())
        except BaseException:
            if is_new:
                shutil.rmtree(self.path, ignore_errors=True)
            raise

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> RunFolder:
        """The folder `write` made; RunError where it is missing or damaged."""
        file = Path(path) / "run.json"
        try:
            about = json.loads(file.read_text())
        except OSError:
            raise RunError(f"run={path}: no run.json in it; expected the folder of a run") from None
        except (ValueError, RecursionError) as error:
            raise RunError(f"run={path}: run.json is damaged ({error}); restore it") from None
        try:
            if about["format"] != FORMAT:
                raise RunError(f"format {about['format']!r}; this version reads format {FORMAT}")
            return cls(
                path=Path(path),
                plan=PrivacyPlan.from_json(json.dumps(about["plan"])),
                config=TrainingConfig.from_json(json.dumps(about["config"])),
                num_features=int(about["num_features"]),
                num_classes=int(about["num_classes"]),
                split_id=str(about["split_id"]),
                data=str(about["data"]),
                # Runs that are older than tables have no such key.
                columns=Columns.of(about["columns"]) if about.get("columns") else None,
            )
        except RunError as error:
            raise RunError(f"run={path}: run.json is damaged ({error}); restore it") from None
        except (KeyError, TypeError, ValueError, OverflowError, HushgraphError) as error:
            raise RunError(f"run={path}: run.json is damaged ({error!r}); restore it") from None

    @property
    def ledger_path(self) -> Path:
        return self.path / "ledger.jsonl"

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """Names of the classes in order, where its tables had names."""
        return None if self.columns is None or self.columns.classes is None else tuple(self.columns.classes)

    @property
    def is_done(self) -> bool:
        return (self.path / "weights.safetensors").exists()

    def read_graph(self, data: Any) -> Graph:
        """The data of the run, read as it was read for training; RunError where it is other data."""
        config = self.config
        graph = load_graph(
            data,
            symmetrize=config.symmetrize,
            split=config.split,
            split_seed=config.split_seed,
            num_classes=self.num_classes,
            columns=self.columns,
        )
        if config.setting == "inductive":
            graph = graph.disjoint()
        if (graph.num_features, split_id(graph)) != (self.num_features, self.split_id):
            raise RunError(
                f"run={self.path}: the data has {len(graph.train_idx)} training nodes and "
                f"{graph.num_features} features, the run has {self.plan.num_train_nodes} and "
                f"{self.num_features}, or its training nodes are others; give the data it began with"
            )
        return graph

    def new_model(self) -> GNN:
        """The built-in model of this run, freshly initialised."""
        if self.config.model == "own":
            raise RunError(f"run={self.path}: it trained a module of your own; pass it as model=")
        return GNN(
            self.num_features,
            self.num_classes,
            model=self.config.model,  # type: ignore[arg-type]
            num_layers=self.plan.num_layers,
            hidden=self.config.hidden,
            encoder_layers=self.config.encoder_layers,
            decoder_layers=self.config.decoder_layers,
            activation=self.config.activation,  # type: ignore[arg-type]
            feature_norm=self.config.feature_norm,
        )

    def save_checkpoint(
        self,
        model: nn.Module,
        average: Mapping[str, Tensor],
        optimizer: torch.optim.Optimizer,
        *,
        step: int,
        steps_lost: int,
    ) -> None:
        """Everything a resumed run goes on from."""
        tensors: dict[str, Tensor] = {f"model.{name}": p for name, p in model.named_parameters()}
        tensors |= {f"average.{name}": value for name, value in average.items()}
        numbers = {}
        for place, state in optimizer.state_dict()["state"].items():
            for key, value in state.items():
                if isinstance(value, Tensor):
                    tensors[f"optimizer.{place}.{key}"] = value
                elif isinstance(value, (bool, int, float)):
                    numbers[f"{place}.{key}"] = value
        about = {"step": step, "steps_lost": steps_lost, "numbers": numbers}
        self._save("checkpoint.safetensors", tensors, {"about": json.dumps(about)})

    def load_checkpoint(
        self, model: nn.Module, average: dict[str, Tensor], optimizer: torch.optim.Optimizer
    ) -> tuple[int, int]:
        """Fill model, average and optimiser from the checkpoint; its step, and the steps lost by then."""
        if not (self.path / "checkpoint.safetensors").exists():
            return 0, 0
        tensors, metadata = self._load("checkpoint.safetensors")
        parts: dict[str, dict[str, Tensor]] = {"model": {}, "average": {}, "optimizer": {}}
        state: dict[int, dict[str, Any]] = {}
        try:
            about = json.loads(metadata["about"])
            for name, tensor in tensors.items():
                part, key = name.split(".", 1)
                parts[part][key] = tensor
            for name, value in (parts["optimizer"] | about["numbers"]).items():
                place, key = name.split(".", 1)
                state.setdefault(int(place), {})[key] = value
            _fill(model, parts["model"], self.path)
            for name, value in average.items():
                value.copy_(parts["average"][name])
            optimizer.load_state_dict({**optimizer.state_dict(), "state": state})
            return int(about["step"]), int(about["steps_lost"])
        except (KeyError, TypeError, ValueError, AttributeError, RuntimeError) as error:
            reason = " ".join(str(error).split())
            raise RunError(
                f"run={self.path}: checkpoint.safetensors is damaged or of another run ({reason}); restore it"
            ) from None

    def save_weights(self, weights: Mapping[str, Tensor], result: Mapping[str, Any]) -> None:
        """The result; after this the run is done."""
        write_whole(self.path / "result.json", json.dumps(result, indent=2, allow_nan=False).encode())
        self._save("weights.safetensors", dict(weights), {})
        (self.path / "checkpoint.safetensors").unlink(missing_ok=True)

    def load_weights(self, model: nn.Module) -> None:
        if not self.is_done:
            raise RunError(f"run={self.path}: it is not finished; resume it with hushgraph train --resume")
        tensors, _ = self._load("weights.safetensors")
        _fill(model, tensors, self.path)

    def append_metrics(self, values: Mapping[str, Any]) -> None:
        line = json.dumps(values, allow_nan=False).encode() + b"\n"
        try:
            with (self.path / "metrics.jsonl").open("ab+") as file:
                if file.tell():
                    file.seek(-1, os.SEEK_END)
                    # A kill may have cut the last line short; it must not take this one with it.
                    line = line if file.read(1) == b"\n" else b"\n" + line
                file.write(line)
        except OSError as error:
            raise RunError(f"{self.path / 'metrics.jsonl'}: cannot be written ({error.strerror})") from None

    def metrics(self) -> list[dict[str, Any]]:
        """All metrics so far; a line that a crash cut short is left out."""
        file = self.path / "metrics.jsonl"
        found = []
        for line in file.read_bytes().splitlines() if file.exists() else []:
            with contextlib.suppress(ValueError):
                found.append(json.loads(line))
        return found

    def result(self) -> dict[str, Any]:
        try:
            found: dict[str, Any] = json.loads((self.path / "result.json").read_text())
            float(found["epsilon"])
        except (OSError, KeyError, TypeError, ValueError, RecursionError) as error:
            raise RunError(
                f"run={self.path}: result.json is missing or damaged ({type(error).__name__}); restore it"
            ) from None
        return found

    def _save(self, name: str, tensors: dict[str, Tensor], metadata: dict[str, str]) -> None:
        flat = {key: value.detach().cpu().contiguous() for key, value in tensors.items()}
        write_whole(self.path / name, safetensors.torch.save(flat, metadata))

    def _load(self, name: str) -> tuple[dict[str, Tensor], dict[str, str]]:
        try:
            with safetensors.safe_open(self.path / name, framework="pt") as file:
                return {key: file.get_tensor(key) for key in file.keys()}, file.metadata() or {}  # noqa: SIM118
        except (OSError, safetensors.SafetensorError) as error:
            reason = " ".join(str(error).split())
            raise RunError(f"run={self.path}: {name} cannot be read ({reason}); restore it") from None


def split_id(graph: Graph) -> str:
    """A digest of what is public about the nodes: how many there are, and which are in the training split."""
    public = np.concatenate([[graph.num_nodes], graph.train_idx]).astype("<i8")
    return hashlib.sha256(public.tobytes()).hexdigest()[:32]


def versions() -> dict[str, str]:
    """What the run was made with."""
    found = {"python": platform.python_version()}
    for name in _VERSIONED:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "unknown"
    return found


def _fill(model: nn.Module, tensors: dict[str, Tensor], path: Path) -> None:
    """Put stored parameters into a model that has exactly these."""
    try:
        odd = {name for name, _ in model.named_parameters()} ^ set(tensors)
        if odd:
            raise RuntimeError(f"not in both: {', '.join(sorted(odd))}")
        # Buffers are the model's own: nothing of them is learnt.
        model.load_state_dict(tensors, strict=False)
    except RuntimeError as error:
        reason = " ".join(str(error).split())[:300]
        raise RunError(f"run={path}: its weights do not fit the model ({reason})") from None
