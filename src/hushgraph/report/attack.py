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
from hushgraph.report.pages import Table, format_epsilon

if TYPE_CHECKING:
    from hushgraph.runs.folder import RunFolder

FILE = "audit.json"
"""What the record is called in the folder of a run."""
# What `hushgraph audit` writes and the page shows; a record without one of them is something else.
_NUMBERS = ("lower_bound", "lower_bound_by_event", "claimed_epsilon", "bound_confidence", "trials", "delta")
_ATTACK_NUMBERS = ("lower_bound", "claimed_epsilon")
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
        record = json.loads(place.read_text(encoding="utf-8"))
        numbers = {name: float(record[name]) for name in _NUMBERS}
        attacks = [
            {**{name: float(each[name]) for name in _ATTACK_NUMBERS}, "name": str(each["name"])}
            for each in record["attacks"]
        ]
        failed = [str(check["failure"]) for check in record["checks"] if check["failure"]]
        figures = [numbers, *attacks]
        if not all(math.isfinite(each["lower_bound"]) and each["claimed_epsilon"] >= 0 for each in figures):
            raise ValueError("a bound is not finite")
        rest = {"exceeds": bool(record["exceeds"]), "attacked": str(record["attacked"])}
        fault, method = record["fault"], str(record["method"])
    except OSError as error:
        raise InputError(f"audit={place}: cannot be read ({error.strerror}); give the record") from None
    except (KeyError, TypeError, ValueError, RecursionError, AttributeError) as error:
        reason = " ".join(repr(error).split())[:100]
        raise InputError(
            f"audit={place}: not the record of an audit ({reason}); write one with hushgraph audit RUN --out"
        ) from None
    plan = folder.plan
    same = math.isclose(numbers["claimed_epsilon"], plan.epsilon, rel_tol=_SAME) and math.isclose(
        numbers["delta"], plan.delta, rel_tol=_SAME
    )
    kind = "billboard" if plan.method == "billboard" else "trees"
    return {
        **numbers,
        "claimed_epsilon": json_number(numbers["claimed_epsilon"]),
        # Every bound has its own; together they are as certain as the audit was asked to be.
        "confidence": 1 - (1 - numbers["bound_confidence"]) * (1 + len(attacks)),
        **rest,
        "fault": None if fault is None else str(fault),
        "attacks": [{**each, "claimed_epsilon": json_number(each["claimed_epsilon"])} for each in attacks],
        "failed_checks": failed,
        "checks": len(record["checks"]),
        "is_of_this_plan": same and method == kind and fault is None,
    }


def write_audit(audit: Mapping[str, Any]) -> str:
    """Say what an audit is and what this one shows."""
    text = (
        "An audit attacks runs of this software on generated graphs, never on the data, and counts how often "
        "one row is recognised. That gives lower bounds: a bound above what is claimed refutes the claim, "
        "and one below it proves nothing. "
        f"This one took {audit['trials']:,.0f} trials with the row, and as many without it."
    )
    if not audit["is_of_this_plan"]:
        why = "code that was broken on purpose" if audit["fault"] else "another plan"
        text += f" The record is of {why}, not of this run: it says nothing about this page."
    elif audit["exceeds"]:
        text += " More was shown than is claimed: do not sign."
    else:
        text += " Nothing was shown beyond what is claimed."
    return text


def tabulate_audit(audit: Mapping[str, Any]) -> Table:
    """Return lower bounds beside what is claimed; bounds are rounded down, claims up."""
    attacked = (f"{audit['attacked']}", audit["lower_bound"], audit["claimed_epsilon"])
    alone = ("the same, no assumption on the noise", audit["lower_bound_by_event"], audit["claimed_epsilon"])
    others = [(each["name"], each["lower_bound"], each["claimed_epsilon"]) for each in audit["attacks"]]
    rows = [
        (name, f"{math.floor(100 * lower) / 100:.2f}", format_epsilon(claimed))
        for name, lower, claimed in (attacked, alone, *others)
    ]
    return Table(
        caption=f"Lower bounds on epsilon, all at {100 * audit['confidence']:.4g}% confidence together",
        heads=("attacked", "at least", "claimed, at most"),
        rows=rows,
        numeric_from=1,
    )
