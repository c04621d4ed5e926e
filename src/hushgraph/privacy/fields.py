"""The fields of a PrivacyPlan: the values each takes, which go together, how they are read from JSON."""

from __future__ import annotations

import difflib
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn, get_args

from hushgraph._validate import as_float, as_int, show_value
from hushgraph.errors import PlanError
from hushgraph.privacy import bounds, choices
from hushgraph.privacy.clipping import list_clippings

CHOICES: dict[str, tuple[str, ...]] = {
    "edge_owner": get_args(choices.EdgeOwner),
    "sampler": get_args(choices.Sampler),
    "accountant": get_args(choices.Accountant),
    "batches": get_args(choices.Batches),
    "clipping": get_args(choices.Clipping),
    "noise": get_args(choices.Noise),
}
BATCHES_OF = {"pair": "poisson", "paper": "fixed"}
SMALLEST = {"num_train_nodes": 1, "num_layers": 0, "max_readers": 0, "batch_size": 1, "steps": 0}
# Fields that not every plan names: what they are at least, and unless given.
SMALLEST_LATER = {"num_tables": 0, "num_relations": 1, "num_scaled": 0}
NOISES = ("sigma_over_clip", "table_noise", "scaling_noise")
# Counts beyond this are typing mistakes, and would overflow the arrays that hold identifiers.
LARGEST = 2**63 - 1
# Gradients are 32-bit numbers: beyond these, sums of clipped ones would overflow, vanish or lose digits.
SMALLEST_CLIP, LARGEST_CLIP = 1e-15, 1e15
# More rounds of messages are typing mistakes: the bounds alone would take minutes.
MOST_LAYERS = 1_000


def name_adjacency(protects: Any) -> str:
    """What the relation between neighbouring data sets is called."""
    return f"{'person' if protects == 'person' else 'node'}-level, zero-out"


def default_delta(num_train_nodes: int) -> float:
    """1 / (10 N), the delta of a plan that names none."""
    return 1.0 / (10.0 * num_train_nodes)


def check_budget(
    epsilon: float | None,
    sigma_over_clip: float | None,
    paper_noise_multiplier: float | None,
    private: bool,
    delta: float | None,
    steps: int | None,
) -> None:
    """Refuse a budget that contradicts itself, before data is read."""
    units = {"sigma_over_clip": sigma_over_clip, "paper_noise_multiplier": paper_noise_multiplier}
    noise = {name: value for name, value in units.items() if value is not None}
    if private and epsilon is None and not noise:
        raise PlanError(
            "no budget: give epsilon=E or sigma_over_clip=S, or ask for training without privacy "
            "(private=False)"
        )
    for name, value in {"epsilon": epsilon, **noise}.items():
        if not private and value is not None:
            raise PlanError(
                f"{name}={value} and private=False: without privacy there is no budget; leave out one"
            )
    if len(noise) > 1:
        raise PlanError(
            f"sigma_over_clip={sigma_over_clip} and paper_noise_multiplier={paper_noise_multiplier}: both "
            "say how much noise there is; leave one out"
        )
    for name, value in noise.items():
        if not (math.isfinite(value) and value > 0):
            raise PlanError(f"{name}={value}: expected a finite number above 0")
    if epsilon is not None and not (math.isfinite(epsilon) and epsilon > 0):
        raise PlanError(f"epsilon={epsilon}: expected a finite number above 0")
    if delta is not None and not 0 < delta < 1:
        raise PlanError(f"delta={delta}: expected a number above 0 and below 1")
    if epsilon is not None and noise and steps is not None:
        [(name, value)] = noise.items()
        raise PlanError(
            f"epsilon={epsilon}, {name}={value} and steps={steps}: two of them give the third; leave one out"
        )


def check_fields(given: Mapping[str, Any]) -> dict[str, Any]:
    """Convert numbers and fill in defaults; raise PlanError listing every invalid field."""
    fields = dict(given)
    wrong: list[str] = []
    for name, least in (SMALLEST | SMALLEST_LATER).items():
        fields[name] = _check_int(name, fields.get(name, least), least, wrong)
    if not wrong and fields["num_layers"] > MOST_LAYERS:
        wrong.append(f"num_layers={fields['num_layers']}: expected at most {MOST_LAYERS}")
    if fields["max_reads"] is not None:
        fields["max_reads"] = _check_int("max_reads", fields["max_reads"], 0, wrong)
    for name, allowed in (CHOICES | {"clipping": list_clippings()}).items():
        if name == "batches" and fields[name] is None:
            continue
        if fields[name] not in allowed:
            expected = " or ".join(repr(choice) for choice in allowed)
            wrong.append(f"{name}={fields[name]!r}: expected {expected}")
    if fields.get("protects", "node") not in get_args(choices.Unit):
        wrong.append(f"protects={show_value(fields['protects'])}: expected 'node' or 'person'")
    for name in ("directed", "has_target", "is_weighted"):
        if not isinstance(fields.get(name, False), bool):
            wrong.append(f"{name}={show_value(fields[name])}: expected True or False")
    fields["clip"] = _check_float("clip", fields["clip"], wrong, above=0.0)
    if not wrong and not SMALLEST_CLIP <= fields["clip"] <= LARGEST_CLIP:
        wrong.append(f"clip={fields['clip']}: expected from {SMALLEST_CLIP:g} to {LARGEST_CLIP:g}")
    for name in NOISES:
        fields[name] = _check_float(name, fields.get(name, 0.0), wrong, least=0.0)
    if fields["delta"] is not None:
        fields["delta"] = _check_float("delta", fields["delta"], wrong, above=0.0, below=1.0)
    # Pairings are only meaningful, and only checked, once every field makes sense by itself.
    if not wrong:
        fields["delta"] = fields["delta"] or default_delta(fields["num_train_nodes"])
        fields["batches"] = fields["batches"] or BATCHES_OF[fields["accountant"]]
        wrong = _find_conflicts(fields)
    if wrong:
        raise PlanError("; ".join(wrong))
    return fields


def _find_conflicts(fields: Mapping[str, Any]) -> list[str]:
    """List the fields that contradict each other."""
    wrong: list[str] = []
    if fields["batch_size"] > fields["num_train_nodes"]:
        wrong.append(
            f"batch_size={fields['batch_size']}: expected at most num_train_nodes={fields['num_train_nodes']}"
        )
    needed = BATCHES_OF[fields["accountant"]]
    if fields["batches"] != needed:
        wrong.append(
            f"accountant={fields['accountant']!r} with batches={fields['batches']!r}: "
            f"this accountant prices {needed!r} batches only; leave batches out or change the accountant"
        )
    if fields["sampler"] == "paper":
        if fields["max_reads"] is not None:
            wrong.append(
                f"sampler='paper' with max_reads={fields['max_reads']}: the paper's sampler does not bound "
                "reads; leave max_reads out or use sampler='stable'"
            )
    elif fields["num_layers"] and fields["max_readers"]:
        try:
            bounds.changed_trees(
                fields["max_readers"],
                fields["max_reads"],
                fields["num_layers"],
                fields["edge_owner"],
                num_trees=fields["num_train_nodes"],
            )
        except PlanError as error:
            wrong.append(str(error))
    return wrong


def _check_int(name: str, value: Any, least: int, wrong: list[str]) -> Any:
    """Convert to int of at least `least`; append to `wrong` what is invalid."""
    number = as_int(value)
    if number is None:
        wrong.append(f"{name}={show_value(value)}: expected a whole number of at least {least}")
        return value
    if not least <= number <= LARGEST:
        wrong.append(f"{name}={number}: expected at least {least} and at most 2**63 - 1")
    return number


def _check_float(
    name: str,
    value: Any,
    wrong: list[str],
    *,
    above: float | None = None,
    least: float | None = None,
    below: float | None = None,
) -> Any:
    """Convert to a finite float within its range; append to `wrong` what is invalid."""
    number = as_float(value)
    if number is None:
        wrong.append(f"{name}={show_value(value)}: expected a number")
        return value
    limits = [
        f"above {above:g}" if above is not None else "",
        f"of at least {least:g}" if least is not None else "",
        f"below {below:g}" if below is not None else "",
    ]
    inside = (
        math.isfinite(number)
        and (above is None or number > above)
        and (least is None or number >= least)
        and (below is None or number < below)
    )
    if not inside:
        wrong.append(
            f"{name}={number!r}: expected a finite number {' and '.join(limit for limit in limits if limit)}"
        )
    return number


def parse_fields(text: str) -> dict[str, Any]:
    """Parse a JSON object; refuse repeated keys and numbers that are not JSON."""
    try:
        values = json.loads(text, object_pairs_hook=_refuse_repeated_keys, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise PlanError(f"plan: not valid JSON ({error}); expected what PrivacyPlan.to_json wrote") from None
    if not isinstance(values, dict):
        raise PlanError(f"plan: expected a JSON object, found {type(values).__name__}")
    return values


def check_keys(
    values: Mapping[str, Any], known: Sequence[str], required: Sequence[str], *, adjacency: str
) -> dict[str, Any]:
    """Refuse unknown and missing keys, and another adjacency; return the others."""
    if "noise_multiplier" in values:
        refuse_noise_multiplier(values["noise_multiplier"])
    wrong: list[str] = []
    for name in sorted(set(values) - {*known, "adjacency"}):
        nearest = difflib.get_close_matches(name, known, n=1, cutoff=0.0)
        wrong.append(f"{name}: unknown key; the nearest known one is {nearest[0]}")
    wrong += [f"{name}: missing" for name in required if name not in values]
    written = values.get("adjacency", adjacency)
    if written != adjacency:
        wrong.append(f"adjacency={written!r}: expected {adjacency!r}")
    if wrong:
        raise PlanError("plan: " + "; ".join(wrong))
    return {name: value for name, value in values.items() if name != "adjacency"}


def refuse_noise_multiplier(value: Any) -> NoReturn:
    """Refuse a name that meant sigma / (2 C n) here and sigma / C elsewhere."""
    raise PlanError(
        f"noise_multiplier={show_value(value)}: this name is gone, because it meant two things; give "
        f"paper_noise_multiplier={show_value(value)} for sigma / (2 C n), the paper's lambda, which it was "
        f"here, or sigma_over_clip={show_value(value)} for sigma / C, which it is in other libraries"
    )


def _refuse_repeated_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Build a JSON object; refuse a key that occurs twice."""
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise ValueError("a key occurs twice")
    return fields


def _refuse_constant(name: str) -> Any:
    """Refuse NaN and infinity, which are not JSON."""
    raise ValueError(f"{name} is not a JSON number")
