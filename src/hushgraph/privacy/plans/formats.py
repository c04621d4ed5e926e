"""Plans that were written down, in the format of this version and of earlier ones."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from hushgraph._validate import as_float, show_value
from hushgraph.errors import PlanError
from hushgraph.privacy.fields import check_keys, name_adjacency, parse_fields

if TYPE_CHECKING:
    from hushgraph.privacy.plans.plan import PrivacyPlan

    OfMethod = Callable[[str | None], type[PrivacyPlan]]

# Plans of format 1 have no format number; their noise is sigma / (2 C n).
FORMAT = 2
_REQUIRED = ("num_train_nodes", "batch_size", "steps")


def read_plan(text: str, of_method: OfMethod) -> PrivacyPlan:
    """See `PrivacyPlan.from_json`; `of_method` gives the class of the plans of a method."""
    values = parse_fields(text)
    if "format" not in values:
        return _read_format_1(values, of_method)
    if values.pop("format") != FORMAT:
        raise PlanError(f"plan: this version reads format {FORMAT} and earlier ones")
    cls = of_method(values.pop("method", None))
    return cls(**_check_keys(cls, values, _REQUIRED))


def _read_format_1(values: dict[str, Any], of_method: OfMethod) -> PrivacyPlan:
    """A plan of version 0.1: its noise is sigma / (2 C n), and a plan of trees has no tag."""
    text = json.dumps(values, sort_keys=True, allow_nan=False)
    method = values.pop("method", None)
    if method is None:
        method = "trees" if values.get("num_layers") else "rows"
    cls = of_method(method)
    multiplier = values.pop("noise_multiplier", None)
    values = _check_keys(cls, values, (*_REQUIRED, "num_layers", "max_readers"))
    checked = None if multiplier is None else as_float(multiplier)
    if (checked is None) != (multiplier is None) or (checked is not None and not 0 <= checked < math.inf):
        raise PlanError(f"plan: noise_multiplier={show_value(multiplier)}: expected a number of at least 0")
    later = {name: values.pop(name) for name in ("board_noise",) if name in values}
    bare = cls(**values)
    plan = replace(bare, sigma_over_clip=(checked or 0.0) * 2 * bare.changed_trees, **later)
    object.__setattr__(plan, "_text", text)
    return plan


def _check_keys(cls: type[PrivacyPlan], values: dict[str, Any], required: tuple[str, ...]) -> dict[str, Any]:
    known = [field.name for field in fields(cls)]
    return check_keys(values, known, required, adjacency=name_adjacency(values.get("protects", "node")))
