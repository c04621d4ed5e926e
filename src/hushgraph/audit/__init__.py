"""An empirical lower bound on epsilon, by attacking training on small graphs made for it."""

from __future__ import annotations

from hushgraph.audit.attack import audit_plan
from hushgraph.audit.curve import CurveBound, curve_lower_bound
from hushgraph.audit.numbers import NumbersAudit, attack_numbers
from hushgraph.audit.result import Attack, Audit
from hushgraph.audit.statistics import LowerBound, epsilon_lower_bound

__all__ = [
    "Attack",
    "Audit",
    "CurveBound",
    "LowerBound",
    "NumbersAudit",
    "attack_numbers",
    "audit_plan",
    "curve_lower_bound",
    "epsilon_lower_bound",
]
