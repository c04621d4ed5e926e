"""The fields of a PrivacyPlan: the values each takes, which go together, how they are read from JSON."""

from __future__ import annotations

import difflib
import json
import math
import numbers
import operator
from collections.abc import Mapping, Sequence
from typing import Any

from hushgraph.errors import InputError, PlanError
from hushgraph.privacy import bounds

CHOICES: dict[str, tuple[str, ...]] = {
    "edge_owner": ("sender", "reader"),
    "sampler": ("stable", "paper"),
    "accountant": ("pair", "paper"),
    "batches": ("poisson", "fixed"),
    "clipping": ("normalised", "flat", "groups", "percentile"),
    "noise": ("common", "per-layer"),
}
BATCHES_OF = {"pair": "poisson", "paper": "fixed"}
SMALLEST = {"num_train_nodes": 1, "num_layers": 0, "max_readers": 0, "batch_size": 1, "steps": 0}
REQUIRED = tuple(SMALLEST)
# Counts beyond this are typing mistakes, and would overflow the arrays that hold identifiers.
LARGEST = 2**63 - 1
# Gradients are 32-bit numbers: beyond these, sums of clipped ones would overflow or vanish.
SMALLEST_CLIP, LARGEST_CLIP = 1e-20, 1e20
# More rounds of messages are typing mistakes: the bounds alone would take minutes.
MOST_LAYERS = 1_000


def default_delta(num_train_nodes: int) -> float:
    """1 / (10 N), the delta of a plan that names none."""
    return 1.0 / (10.0 * num_train_nodes)


def whole(value: Any) -> int | None:
    """`value` as an int, whoever's integer it is; None where it is none, as a string or a bool."""
    if isinstance(value, bool):
        return None
    try:
        return operator.index(value)
    except TypeError:
        return None


def real(value: Any) -> float | None:
    """`value` as a float, whoever's number it is; None where it is none, as a string or a bool."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf


def shown(value: Any) -> str:
    """A value for a message: on one line, and not the whole of an array."""
    text = " ".join(repr(value).split())
    return text if len(text) <= 60 else f"{text[:57]}..."


def plain(given: Mapping[str, Any], kinds: Mapping[str, Any]) -> dict[str, Any]:
    """`given` with Python's numbers in place of whoever's; InputError lists everything that is none.

    Args:
        given: values by name.
        kinds: the types of these names as they are written; "int" and "float", or None, are looked at.
    """
    found, wrong = dict(given), []
    for name, value in given.items():
        kind, _, optional = kinds[name].partition(" | ")
        if kind not in ("int", "float") or (value is None and optional == "None"):
            continue
        found[name] = whole(value) if kind == "int" else real(value)
        if found[name] is None:
            wrong.append(f"{name}={shown(value)}: expected a {'whole ' * (kind == 'int')}number")
    if wrong:
        raise InputError("; ".join(wrong))
    return found


def checked(given: Mapping[str, Any]) -> dict[str, Any]:
    """The fields as plain Python numbers, defaults filled in; PlanError lists every offender at once."""
    fields = dict(given)
    wrong: list[str] = []
    for name, least in SMALLEST.items():
        fields[name] = _whole(name, fields[name], least, wrong)
    if not wrong and fields["num_layers"] > MOST_LAYERS:
        wrong.append(f"num_layers={fields['num_layers']}: expected at most {MOST_LAYERS}")
    if fields["max_reads"] is not None:
        fields["max_reads"] = _whole("max_reads", fields["max_reads"], 0, wrong)
    for name, choices in CHOICES.items():
        if name == "batches" and fields[name] is None:
            continue
        if fields[name] not in choices:
            expected = " or ".join(repr(choice) for choice in choices)
            wrong.append(f"{name}={fields[name]!r}: expected {expected}")
    fields["clip"] = _real("clip", fields["clip"], wrong, above=0.0)
    if not wrong and not SMALLEST_CLIP <= fields["clip"] <= LARGEST_CLIP:
        wrong.append(f"clip={fields['clip']}: expected from {SMALLEST_CLIP:g} to {LARGEST_CLIP:g}")
    if fields["noise_multiplier"] is not None:
        fields["noise_multiplier"] = _real("noise_multiplier", fields["noise_multiplier"], wrong, least=0.0)
    if fields["delta"] is not None:
        fields["delta"] = _real("delta", fields["delta"], wrong, above=0.0, below=1.0)
    # Pairings are only meaningful, and only checked, once every field makes sense by itself.
    if not wrong:
        fields["delta"] = fields["delta"] or default_delta(fields["num_train_nodes"])
        fields["batches"] = fields["batches"] or BATCHES_OF[fields["accountant"]]
        wrong = _bad_pairings(fields)
    if wrong:
        raise PlanError("; ".join(wrong))
    return fields


def _bad_pairings(fields: Mapping[str, Any]) -> list[str]:
    """What contradicts what, in words."""
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
    else:
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


def _whole(name: str, value: Any, least: int, wrong: list[str]) -> Any:
    """`value` as an int of at least `least`; what is wrong with it goes to `wrong`."""
    number = whole(value)
    if number is None:
        wrong.append(f"{name}={shown(value)}: expected a whole number of at least {least}")
        return value
    if not least <= number <= LARGEST:
        wrong.append(f"{name}={number}: expected at least {least} and at most 2**63 - 1")
    return number


def _real(
    name: str,
    value: Any,
    wrong: list[str],
    *,
    above: float | None = None,
    least: float | None = None,
    below: float | None = None,
) -> Any:
    """`value` as a finite float in its range; what is wrong with it goes to `wrong`."""
    number = real(value)
    if number is None:
        wrong.append(f"{name}={shown(value)}: expected a number")
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


def from_json(text: str, *, known: Sequence[str], adjacency: str) -> dict[str, Any]:
    """The fields written in `text`; unknown, missing and repeated keys are refused."""
    try:
        fields = json.loads(text, object_pairs_hook=_once, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise PlanError(f"plan: not valid JSON ({error}); expected what PrivacyPlan.to_json wrote") from None
    if not isinstance(fields, dict):
        raise PlanError(f"plan: expected a JSON object, found {type(fields).__name__}")
    wrong: list[str] = []
    for name in sorted(set(fields) - {*known, "adjacency"}):
        nearest = difflib.get_close_matches(name, known, n=1, cutoff=0.0)
        wrong.append(f"{name}: unknown key; the nearest known one is {nearest[0]}")
    wrong += [f"{name}: missing" for name in REQUIRED if name not in fields]
    found = fields.pop("adjacency", adjacency)
    if found != adjacency:
        wrong.append(f"adjacency={found!r}: expected {adjacency!r}")
    if wrong:
        raise PlanError("plan: " + "; ".join(wrong))
    return fields


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object whose keys occur once."""
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise ValueError("a key occurs twice")
    return fields


def _no_constant(name: str) -> Any:
    """NaN and infinity are not JSON."""
    raise ValueError(f"{name} is not a JSON number")
