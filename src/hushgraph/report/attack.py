"""The record of an audit, attached to the report of a run."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hushgraph.errors import InputError
from hushgraph.privacy.plans import json_number

if TYPE_CHECKING:
    from hushgraph.privacy.plans import PrivacyPlan
    from hushgraph.runs.folder import RunFolder

FILE = "audit.json"
"""What the record is called in the folder of a run."""
# Relative: a record of the plan itself has the same epsilon.
_SAME = 1e-6


def read_audit(folder: RunFolder, path: str | os.PathLike[str] | None = None) -> dict[str, Any] | None:
    """Read what an audit of a run found.

    Args:
        folder: the run.
        path: the JSON record that `hushgraph audit --out` wrote; by default `audit.json` in the folder.

    Returns:
        The figures that the page shows, and whether they are of the same plan; None where there is no record.

    Raises:
        InputError: the file cannot be read or is no such record.
    """
    place = folder.path / FILE if path is None else Path(path)
    if path is None and not place.exists():
        return None
    try:
        return _read_record(json.loads(place.read_text(encoding="utf-8")), folder.plan)
    except OSError as error:
        raise InputError(f"audit={place}: cannot be read ({error.strerror}); give the record") from None
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError, AttributeError) as error:
        reason = f"it has no {error}" if isinstance(error, KeyError) else " ".join(repr(error).split())[:100]
        raise InputError(
            f"audit={place}: not the record of an audit ({reason}); write one with hushgraph audit RUN --out"
        ) from None


def _read_record(record: Mapping[str, Any], plan: PrivacyPlan) -> dict[str, Any]:
    """Check a record and keep what the page shows; one of several errors where it is something else."""
    attacks = [{"name": str(each["name"]), **_read_bounds(each)} for each in record["attacks"]]
    failures = [str(check["failure"]) for check in record["checks"] if check["failure"]]
    fault, delta = record["fault"], float(record["delta"])
    is_of_plan = (
        math.isclose(float(record["claimed_epsilon"]), plan.epsilon, rel_tol=_SAME)
        and math.isclose(delta, plan.delta, rel_tol=_SAME)
        and record["method"] == plan.method
    )
    return {
        **_read_bounds(record),
        "lower_bound_by_event": _read_finite(record["lower_bound_by_event"]),
        # Every bound has its own; together they are as certain as the audit was asked to be.
        "confidence": 1 - (1 - float(record["bound_confidence"])) * (1 + len(attacks)),
        "delta": delta,
        "trials": int(record["trials"]),
        "attacked": str(record["attacked"]),
        "exceeds": bool(record["exceeds"]),
        "fault": None if fault is None else str(fault),
        "attacks": attacks,
        "failed_checks": failures,
        "is_of_this_plan": is_of_plan and fault is None,
    }


def _read_bounds(record: Mapping[str, Any]) -> dict[str, Any]:
    claimed = float(record["claimed_epsilon"])
    if not claimed >= 0:
        raise ValueError(f"claimed_epsilon={claimed}")
    return {"lower_bound": _read_finite(record["lower_bound"]), "claimed_epsilon": json_number(claimed)}


def _read_finite(value: Any) -> float:
    if not math.isfinite(float(value)):
        raise ValueError(f"bound={value}")
    return float(value)
