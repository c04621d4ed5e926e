"""Charges: what a run releases, one class a mechanism. Importing this registers those of this package."""

from __future__ import annotations

from hushgraph.privacy.charges.board import BoardCharge, name_board
from hushgraph.privacy.charges.calibrate import calibrate
from hushgraph.privacy.charges.charge import Charge, epsilon, list_column, list_events, read_value
from hushgraph.privacy.charges.evaluation import FIGURES, EvaluationCharge
from hushgraph.privacy.charges.gaussian import GaussianCharge
from hushgraph.privacy.charges.recorded import RecordedCharge, read_recorded
from hushgraph.privacy.charges.scaling import SCALING, ScalingCharge
from hushgraph.privacy.charges.steps import RowSteps, Steps, TreeSteps

__all__ = [
    "FIGURES",
    "SCALING",
    "BoardCharge",
    "Charge",
    "EvaluationCharge",
    "GaussianCharge",
    "RecordedCharge",
    "RowSteps",
    "ScalingCharge",
    "Steps",
    "TreeSteps",
    "calibrate",
    "epsilon",
    "list_column",
    "list_events",
    "name_board",
    "read_recorded",
    "read_value",
]
