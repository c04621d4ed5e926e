"""Planning on rows: the private MLP, which reads no edge."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hushgraph.methods.base import Planned, PublicFigures
from hushgraph.methods.trees import plan_steps


class Rows:
    """Steps that read one row each."""

    name, short_name = "rows", "mlp"

    def plan(self, public: PublicFigures, settings: Mapping[str, Any]) -> Planned:
        """See `Method.plan`."""
        return plan_steps(public, settings, num_layers=0, model="mlp")
