"""Which plan to audit: that of a run, or the one `train` would use on some data."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hushgraph.privacy.plan import PrivacyPlan
from hushgraph.runs.folder import RunFolder


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What an audit takes from a run: its plan, its model and its noise."""

    plan: PrivacyPlan
    model: str
    secure_noise: bool


class _SetUpError(Exception):
    """Training is set up; it carries the run's folder and stops there."""

    def __init__(self, folder: RunFolder) -> None:
        super().__init__("set up")
        self.folder = folder


def is_run(path: Any) -> bool:
    """Whether there is the folder of a run."""
    return (Path(path) / "run.json").is_file()


def settings_of_run(path: Any) -> Settings:
    """Those of a run, finished or not."""
    return _settings(RunFolder.open(path))


def settings_for(data: Any, **arguments: Any) -> Settings:
    """Those that `train` would use on this data; nothing is trained and nothing is kept.

    Args:
        data: as `train` takes it. Its rows are read to be checked; the audit sees how many training nodes and
            classes there are and, unless given, whether edges have their reverse, which are public.
        arguments: of `train`.
    """
    from hushgraph.training.train import train

    def stop(folder: RunFolder) -> None:
        raise _SetUpError(folder)

    try:
        train(data, on_start=stop, device="cpu", **arguments)
    except _SetUpError as found:
        return _settings(found.folder)
    raise RuntimeError("training did not stop where it was told to")


def _settings(folder: RunFolder) -> Settings:
    model = folder.config.model
    if folder.plan.num_layers == 0:
        model = "mlp"
    elif model == "own":
        # The guarantee is one for any model, so a built-in one stands for the user's.
        model = "gcn"
    return Settings(plan=folder.plan, model=model, secure_noise=folder.config.secure_noise)
