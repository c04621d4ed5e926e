"""The noise or the steps with which a plan meets epsilon, and the noise of what is released beside steps."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from hushgraph._validate import as_float, show_value
from hushgraph.errors import BudgetExceededError, PlanError
from hushgraph.privacy.changes import row_emptied
from hushgraph.privacy.charges import ScalingCharge, list_events
from hushgraph.privacy.charges.gaussian import LARGEST_NOISE, LEAST_NOISE

if TYPE_CHECKING:
    from hushgraph.privacy.plans.plan import PrivacyPlan

# The part of mu^2 that scaling gets, by rule: a tenth of it would do for tens of thousands of training rows.
SCALING_SHARE = 0.05
# What computed noise is enlarged by until its price, computed anew, is confirmed: rounding loses last bits.
_MARGINS = (0.0, 1e-12, 1e-9, 1e-6, 1e-4, 1e-3)

_Plan = TypeVar("_Plan", bound="PrivacyPlan")


def calibrate_steps(plan: _Plan, epsilon: float) -> _Plan:
    """See `PrivacyPlan.calibrated`."""
    epsilon = check_epsilon(epsilon)
    if plan.num_tables:
        return plan.with_evaluation(0).calibrated(epsilon=epsilon).with_evaluation(plan.num_tables)
    if plan.steps == 0:
        raise PlanError("steps=0: expected at least one step to calibrate noise for; give steps")
    if plan.scaling_charge is not None:
        return _calibrate_with_scaling(plan, epsilon)
    # Imported here: reading a plan should not wait for the accountants' libraries.
    from hushgraph.accounting.calibrate import smallest_noise

    n, delta, accountant = plan.changed_trees, plan.delta, plan.accountant
    wanted = smallest_noise(
        draw=plan.draw,
        changed_trees=n,
        steps=plan.steps,
        epsilon=epsilon,
        delta=delta,
        accountant=accountant,
    )
    # The noise is chosen as a multiple of 2n, which may lose the last bits: err upwards until it is safe.
    for margin in _MARGINS:
        noisy = plan.with_paper_noise(wanted / (2 * n) * (1.0 + margin))
        if noisy.epsilon <= epsilon:
            return noisy
    raise PlanError(
        f"epsilon={epsilon}: no noise near sigma/C={wanted:.6g} is confirmed to meet it; "
        "give sigma_over_clip instead"
    )


def _calibrate_with_scaling(plan: _Plan, epsilon: float) -> _Plan:
    """Scaling gets its share of mu^2, and steps the smallest noise that what is left pays for."""
    from hushgraph.accounting.accountants import gaussian_shift
    from hushgraph.accounting.calibrate import smallest_scale

    _check_can_scale(plan)
    mu = gaussian_shift(epsilon, plan.delta)
    scaled = replace(plan, **_choose_scaling(plan.num_scaled, mu * math.sqrt(SCALING_SHARE), epsilon))
    bare = replace(plan, num_scaled=0).calibrated(epsilon=epsilon)
    noise = smallest_scale(
        spent=lambda sigma: replace(scaled, sigma_over_clip=sigma).epsilon,
        start=1.05 * bare.sigma_over_clip,
        epsilon=epsilon,
        delta=plan.delta,
    )
    return replace(scaled, sigma_over_clip=noise)


def fit_steps(plan: _Plan, epsilon: float) -> _Plan:
    """See `PrivacyPlan.with_steps_for`."""
    epsilon = check_epsilon(epsilon)
    if plan.num_tables:
        return plan.with_evaluation(0).with_steps_for(epsilon=epsilon).with_evaluation(plan.num_tables)
    if not plan.is_private:
        raise PlanError(
            f"sigma_over_clip={plan.sigma_over_clip}: expected a positive number; without noise no "
            "finite epsilon pays for a step"
        )
    from hushgraph.accounting.calibrate import most_steps

    [(event, _)] = list_events([plan.step_charge.once])
    steps = most_steps(event=event, epsilon=epsilon, delta=plan.delta, accountant=plan.accountant)
    fitted = replace(plan, steps=steps)
    if plan.num_scaled:
        fitted = _fit_steps_beside_scaling(fitted, epsilon)
    while fitted.steps > 0 and fitted.epsilon > epsilon:
        fitted = replace(fitted, steps=fitted.steps - 1)
    if fitted.steps == 0:
        raise BudgetExceededError(
            f"epsilon={epsilon} at sigma_over_clip={plan.sigma_over_clip}: it pays for no step; "
            "raise the noise or epsilon, or lower batch_size or max_readers"
        )
    return fitted


def _fit_steps_beside_scaling(plan: _Plan, epsilon: float) -> _Plan:
    """Scaling gets its share of mu^2; the most of these steps that what is left pays for."""
    from hushgraph.accounting.accountants import gaussian_shift

    _check_can_scale(plan)
    shift = gaussian_shift(epsilon, plan.delta) * math.sqrt(SCALING_SHARE)
    plan = replace(plan, **_choose_scaling(plan.num_scaled, shift, epsilon))
    fits, too_many = 0, plan.steps + 1
    while too_many - fits > 1:
        middle = (fits + too_many) // 2
        is_paid = replace(plan, steps=middle).epsilon <= epsilon
        fits, too_many = (middle, too_many) if is_paid else (fits, middle)
    return replace(plan, steps=fits)


def _check_can_scale(plan: PrivacyPlan) -> None:
    if plan.accountant == "paper":
        raise PlanError(
            f"num_scaled={plan.num_scaled} with accountant='paper': it prices steps alone; use "
            "accountant='pair', or numbers='declared' or 'as-is'"
        )


def add_scaling(plan: _Plan, num_scaled: int) -> _Plan:
    """See `PrivacyPlan.with_scaling`."""
    bare = replace(plan, num_scaled=0, scaling_noise=0.0, num_tables=0, table_noise=0.0)
    if not num_scaled or not bare.is_private:
        return replace(plan, num_scaled=num_scaled, scaling_noise=0.0)
    from hushgraph.accounting.accountants import gaussian_shift

    mu = gaussian_shift(bare.epsilon, bare.delta)
    shift = mu * math.sqrt(SCALING_SHARE / (1 - SCALING_SHARE))
    return replace(bare, **_choose_scaling(num_scaled, shift, bare.epsilon)).with_evaluation(plan.num_tables)


def add_evaluation(plan: _Plan, num_tables: int) -> _Plan:
    """See `PrivacyPlan.with_evaluation`."""
    bare = replace(plan, num_tables=0, table_noise=0.0)
    if not num_tables or bare.guarantee != "holds" or not bare.can_evaluate:
        return bare
    from hushgraph.accounting.accountants import compose_shifts, gaussian_shift

    (change,) = row_emptied("evaluated")
    # Nothing that an evaluated row pays for is sampled, so that all of it is one Gaussian.
    paid = compose_shifts(list_events(bare.charges, change))
    total = gaussian_shift(bare.epsilon, bare.delta)
    noise = math.sqrt(num_tables / max(total**2 - paid**2, 1e-300))
    for margin in _MARGINS:
        noisy = replace(bare, num_tables=num_tables, table_noise=noise * (1 + margin))
        if noisy.epsilon_evaluated <= bare.epsilon:
            return noisy if LEAST_NOISE <= noisy.table_noise <= LARGEST_NOISE else bare
    raise PlanError(
        f"epsilon={bare.epsilon}: no noise near {noise:.6g} is confirmed to cover figures; take another"
    )


def _choose_scaling(num_scaled: int, shift: float, epsilon: float) -> dict[str, Any]:
    """The fields of a plan whose scaling a training row shifts by `shift`."""
    charge = ScalingCharge(num_columns=num_scaled).with_shift(shift)
    charge.check_noise(epsilon)
    return {"num_scaled": num_scaled, "scaling_noise": charge.noise_std}


def check_epsilon(epsilon: float) -> float:
    """The target as a 64-bit number: a narrower one would round what it is compared with."""
    number = as_float(epsilon)
    if number is None:
        raise PlanError(f"epsilon={show_value(epsilon)}: expected a positive number")
    if not (math.isfinite(number) and number > 0):
        raise PlanError(f"epsilon={epsilon}: expected a finite number above 0")
    return number
