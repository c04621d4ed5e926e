"""Planning with a billboard: noisy boards pay for the graph once, then steps on single rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hushgraph.methods.base import LARGEST_EPSILON, Planned, PublicFigures, configure, count_tables
from hushgraph.privacy.defaults import choose_billboard, choose_billboard_non_private
from hushgraph.privacy.fields import default_delta
from hushgraph.privacy.plans import BillboardPlan


class Billboard:
    """Boards of noisy ballots, and steps that read one row and what it sees of the boards."""

    name = short_name = "billboard"

    def plan(self, public: PublicFigures, settings: Mapping[str, Any]) -> Planned:
        """See `Method.plan`."""
        num_train_nodes, epsilon = public.num_train_nodes, settings["epsilon"]
        delta = default_delta(num_train_nodes) if settings["delta"] is None else settings["delta"]
        defaults = (
            choose_billboard(
                num_train_nodes=num_train_nodes,
                num_classes=public.num_classes,
                epsilon=min(epsilon, LARGEST_EPSILON),
                delta=delta,
                task=public.task,
            )
            if settings["private"]
            else choose_billboard_non_private(
                num_train_nodes=num_train_nodes, num_classes=public.num_classes, task=public.task
            )
        )
        has_own_model = settings["model"] is not None
        if has_own_model:
            # A module of the caller's takes features and readings alone.
            settings = {**settings, "list_size": 0.0, "own_place": False}
        plan = BillboardPlan(
            num_train_nodes=num_train_nodes,
            num_classes=public.num_classes,
            label_change=public.label_change,
            batch_size=defaults.batch_size if settings["batch_size"] is None else settings["batch_size"],
            steps=defaults.steps if settings["steps"] is None else settings["steps"],
            clip=settings["clip"],
            clipping=settings["clipping"],
            edge_owner=settings["edge_owner"],
            directed=settings["directed"],
            delta=delta,
            # The ballots of a second board come from a model that is built here, not from the caller's.
            num_boards=1 if has_own_model else min(public.most_boards, defaults.reading.num_boards),
            board_share=defaults.board_share,
            num_scaled=public.num_scaled,
            protects=public.protects,
            has_target=public.has_target,
            is_weighted=public.is_weighted,
            num_relations=public.num_relations,
        )
        chosen = {**vars(defaults), **defaults.reading._asdict()}
        config = configure(settings, chosen, model="own" if has_own_model else "mlp")
        if epsilon is not None:
            plan = plan.calibrated(epsilon=epsilon).with_evaluation(count_tables(public, settings))
        return Planned(plan, config)
