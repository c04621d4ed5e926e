"""What figures of quality are called, in results and for readers, and how their values are written."""

from __future__ import annotations

SPLITS = {"val": "validation", "test": "test"}
"""What evaluated splits are called."""
KEYS = {
    "accuracy": "accuracy",
    "macro_f1": "macro_f1",
    "roc_auc": "auc",
    "average_precision": "average_precision",
    "macro_auc": "auc",
    "macro_average_precision": "average_precision",
    "r2": "r2",
    "mae": "mae",
}
"""The keys of a result, behind val_ or test_, by what tables of figures call them."""
_NAMES = {
    "macro_f1": "macro-F1",
    "f1": "F1",
    "roc_auc": "ROC-AUC",
    "auc": "ROC-AUC",
    "macro_auc": "mean ROC-AUC",
    "macro_average_precision": "mean average precision",
    "r2": "R²",
    "mae": "mean absolute error",
    "rmse": "root mean squared error",
}
# Written as numbers from 0 to 1.
_UP_TO_ONE = ("roc_auc", "auc", "macro_auc", "r2")
# A probability that may be very near to 1.
_THRESHOLDS = ("threshold_at_1_percent",)
# In the unit of the number that is predicted.
_IN_UNITS = ("mae", "rmse")


def name_figure(figure: str, unit: str = "") -> str:
    """Return the name of a figure for readers, by its name in tables or its key in results.

    Args:
        figure: its name or key.
        unit: of the number that is predicted, which errors are in.
    """
    name = _NAMES.get(figure, figure.replace("_", " "))
    return f"{name} ({unit})" if unit and figure in _IN_UNITS else name


def format_figure(figure: str, value: float) -> str:
    """Write a value: shares in percent, areas and R² with four decimals, errors in their unit."""
    forms = dict.fromkeys(_UP_TO_ONE, ".4f") | dict.fromkeys(_IN_UNITS, ".5g")
    return format(value, (forms | dict.fromkeys(_THRESHOLDS, ".5f")).get(figure, ".2%"))
