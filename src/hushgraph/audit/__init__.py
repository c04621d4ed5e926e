"""An empirical lower bound on epsilon, by attacking training on small graphs made for it."""

from __future__ import annotations

from hushgraph.audit.attack import Audit, audit_plan
from hushgraph.audit.statistics import LowerBound, epsilon_lower_bound

__all__ = ["Audit", "LowerBound", "audit_plan", "epsilon_lower_bound"]
