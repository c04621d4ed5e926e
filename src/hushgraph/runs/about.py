"""run.json: what a run is, as its folder keeps it, in the format of this version and of earlier ones."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hushgraph._files import write_whole
from hushgraph.errors import RunError, explain
from hushgraph.graph.columns import Columns
from hushgraph.graph.records import RelationInfo
from hushgraph.privacy.budget import BudgetEntry
from hushgraph.privacy.guarantee import CLASSES_NOT_RECORDED, Assumption, write_assumptions
from hushgraph.privacy.lines import MALFORMED
from hushgraph.privacy.plans import PrivacyPlan
from hushgraph.runs.config import TrainingConfig
from hushgraph.tasks.classes import Classes
from hushgraph.tasks.task import Task, read_task

if TYPE_CHECKING:
    from hushgraph.runs.folder import RunFolder

ABOUT = "run.json"
FORMAT = 1


def write_about(path: Path, about: Mapping[str, Any]) -> None:
    """Write what a run is into its folder, with a checksum."""
    checked = {**about, "sum": find_checksum(about)}
    write_whole(path / ABOUT, json.dumps(checked, indent=2, sort_keys=True).encode())


def read_about(path: Path) -> dict[str, Any]:
    """The fields of a `RunFolder` that `write_about` wrote; RunError where they are missing or damaged."""
    with explain(RunError, f"run={path}: run.json cannot be read", "check its permissions"):
        try:
            about = json.loads((path / ABOUT).read_text())
        except (FileNotFoundError, NotADirectoryError):
            advice = (
                "its ledger is there; restore run.json, or, if the run never began, remove the folder"
                if (path / "ledger.jsonl").exists()
                else "expected the folder of a run"
            )
            raise RunError(f"run={path}: no run.json in it; {advice}") from None
        except (ValueError, RecursionError) as error:
            raise RunError(f"run={path}: run.json is damaged ({error}); restore it") from None
    if isinstance(about, dict) and (version := about.get("format", FORMAT)) != FORMAT:
        raise RunError(
            f"run={path}: run.json has format {version!r}, and this version reads format {FORMAT}; use the "
            "version of hushgraph that wrote it"
        )
    try:
        fields = read_fields(about) | {
            "split_id": str(about["split_id"]),
            "data": str(about["data"]),
            "budget": BudgetEntry.from_json(about.get("budget")),
            "warnings": tuple(str(each) for each in about.get("warnings", ())),
        }
        if about.pop("sum") != find_checksum(about):
            raise RunError("it does not match its checksum, so its plan or settings were edited")
        return fields
    except RunError as error:
        raise RunError(f"run={path}: run.json is damaged ({error}); restore it") from None
    except MALFORMED as error:
        raise damage_error(path, ABOUT, error) from None


def damage_error(path: Path, name: str, error: Exception) -> RunError:
    """Return the error for a damaged file of a run."""
    reason = " ".join(repr(error).split())[:300]
    return RunError(f"run={path}: {name} is damaged ({reason}); restore it")


def write_fields(folder: RunFolder) -> dict[str, Any]:
    """Return the fields common to the files of a run and of its release, without the settings."""
    about: dict[str, Any] = {
        "plan": json.loads(folder.plan.to_json()),
        "num_features": folder.num_features,
        "columns": None if folder.columns is None else json.loads(folder.columns.to_json()),
        "assumptions": write_assumptions(folder.assumptions),
    }
    # Left out where records are a list of nodes.
    return about | ({"relations": [asdict(each) for each in folder.relations]} if folder.relations else {})


def read_fields(about: Mapping[str, Any]) -> dict[str, Any]:
    """Read the `RunFolder` fields common to a run and its release; raise one of MALFORMED if one lacks."""
    columns = Columns.of(about["columns"]) if about["columns"] else None
    return {
        "plan": PrivacyPlan.from_json(json.dumps(about["plan"])),
        "config": TrainingConfig.from_json(json.dumps(about["config"])),
        "num_features": int(about["num_features"]),
        "asked": _read_task(about),
        "columns": columns,
        "assumptions": _read_assumptions(about, columns),
        "relations": tuple(RelationInfo(**each) for each in about.get("relations", ())),
    }


def _read_task(about: Mapping[str, Any]) -> Task:
    """Read the task; older runs recorded only the number of classes."""
    if "task" in about:
        return read_task(about["task"])
    return Classes(num_classes=int(about["num_classes"]))


def _read_assumptions(about: Mapping[str, Any], columns: Columns | None) -> tuple[Assumption, ...]:
    """Read the assumptions; older runs recorded none, and only named classes count as declared."""
    if "assumptions" in about:
        return tuple(Assumption(**each) for each in about["assumptions"])
    is_declared = columns is not None and columns.classes is not None
    return () if is_declared else (CLASSES_NOT_RECORDED,)


def find_checksum(about: Mapping[str, Any]) -> str:
    """Return the checksum that reveals an edited run.json; the ledger protects only the plan."""
    return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()[:32]
