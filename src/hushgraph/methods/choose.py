"""Which method the settings of a run ask for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

from hushgraph._validate import show_value
from hushgraph.errors import InputError
from hushgraph.methods.base import Method
from hushgraph.methods.billboard import Billboard
from hushgraph.methods.rows import Rows
from hushgraph.methods.trees import Trees
from hushgraph.privacy import choices
from hushgraph.settings import list_given_for_trees


def choose_method(settings: Mapping[str, Any]) -> Method:
    """The billboard, unless a setting is given that belongs to trees alone; rows for the model "mlp"."""
    method, model = settings["method"], settings["model"]
    if method is not None and method not in get_args(choices.Method):
        raise InputError(
            f"method={show_value(method)}: expected one of {', '.join(get_args(choices.Method))}"
        )
    # A module of one's own may take rows of features and readings, but only where that is asked for.
    for_trees = list_given_for_trees(settings)
    if method == "billboard" and for_trees:
        given = ", ".join(f"{name}={show_value(settings[name])}" for name in for_trees)
        raise InputError(
            f"{given} with method='billboard': applies only to method='trees'; leave it out, or use "
            "method='trees'"
        )
    if method == "billboard" or (method is None and not for_trees and model is None):
        return Billboard()
    return Rows() if model == "mlp" else Trees()
