"""Planning on trees: every step pays for the neighbours that a root reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from hushgraph.errors import PlanError
from hushgraph.methods.base import LARGEST_EPSILON, Planned, PublicFigures, configure, count_tables
from hushgraph.privacy.defaults import (
    Defaults,
    adapt_to_task,
    choose_non_private,
    choose_private,
    choose_reads,
)
from hushgraph.privacy.fields import default_delta
from hushgraph.privacy.plans import LARGEST_TREE, PrivacyPlan, RowPlan, TreePlan, bound_tree_size

# Without a target epsilon, the rule for defaults starts from a common one.
_USUAL_EPSILON = 8.0


class Trees:
    """Steps that read the tree of a root, over lists of bounded length."""

    name, short_name = "trees", "gcn"

    def plan(self, public: PublicFigures, settings: Mapping[str, Any]) -> Planned:
        """See `Method.plan`."""
        model = self.short_name if settings["model"] is None else settings["model"]
        return plan_steps(
            public,
            settings,
            num_layers=1 if settings["num_layers"] is None else settings["num_layers"],
            model=model if isinstance(model, str) else "own",
        )


def plan_steps(public: PublicFigures, settings: Mapping[str, Any], *, num_layers: int, model: str) -> Planned:
    """Plan steps of `num_layers` rounds of messages; none of them is training on single rows."""
    if num_layers:
        _check_records(public, model)
    defaults = adapt_to_task(_choose_defaults(public, settings, num_layers, model), public.task)
    readers = defaults.max_readers if settings["max_readers"] is None else settings["max_readers"]
    reads = settings["max_reads"]
    if reads is None and settings["sampler"] != "paper":
        by_rule = settings["max_readers"] is None
        reads = defaults.max_reads if by_rule else choose_reads(readers, settings["edge_owner"])
    kind = TreePlan if num_layers else RowPlan
    plan: PrivacyPlan = kind(
        num_train_nodes=public.num_train_nodes,
        num_layers=num_layers,
        max_readers=readers,
        max_reads=reads,
        batch_size=defaults.batch_size if settings["batch_size"] is None else settings["batch_size"],
        steps=defaults.steps if settings["steps"] is None else settings["steps"],
        **{name: settings[name] for name in ("edge_owner", "directed", "clip", "clipping", "delta")},
        **{name: settings[name] for name in ("sampler", "accountant", "noise")},
        num_scaled=public.num_scaled,
        protects=public.protects,
        has_target=public.has_target,
        # Single rows have no records.
        is_weighted=public.is_weighted and num_layers > 0,
        num_relations=public.num_relations if num_layers else 1,
    )
    _check_tree_size(plan, public.num_nodes)
    plan = _meet_epsilon(plan, settings).with_evaluation(count_tables(public, settings))
    return Planned(plan, configure(settings, vars(defaults), model=model))


def _check_records(public: PublicFigures, model: str) -> None:
    """Refuse records that rounds of messages cannot read."""
    if public.has_places:
        raise PlanError(
            "places with rounds of messages: a place has no features that a tree could read; use "
            "method='billboard', or leave out places"
        )
    if public.num_relations > 1 and model in ("gin", "gat"):
        raise PlanError(
            f"model={model!r} with {public.num_relations} relations: it has one map for all records; use "
            "model='gcn', which has one for each relation"
        )


def _choose_defaults(
    public: PublicFigures, settings: Mapping[str, Any], num_layers: int, model: str
) -> Defaults:
    if not settings["private"]:
        return choose_non_private(
            num_train_nodes=public.num_train_nodes, num_classes=public.num_classes, model=model
        )
    epsilon, delta = settings["epsilon"], settings["delta"]
    return choose_private(
        num_train_nodes=public.num_train_nodes,
        epsilon=_USUAL_EPSILON if epsilon is None else min(epsilon, LARGEST_EPSILON),
        delta=default_delta(public.num_train_nodes) if delta is None else delta,
        num_layers=num_layers,
        num_classes=public.num_classes,
        edge_owner=settings["edge_owner"],
    )


def _check_tree_size(plan: PrivacyPlan, num_nodes: int) -> None:
    """Refuse bounds by which a tree may be too large, by public figures, so that no row decides it later."""
    if bound_tree_size(plan.max_readers, plan.max_reads, plan.num_layers, num_nodes) > LARGEST_TREE:
        raise PlanError(
            f"num_layers={plan.num_layers}, max_readers={plan.max_readers}, max_reads={plan.max_reads}: with "
            f"{num_nodes:,} nodes a tree may have more than {LARGEST_TREE:,} lines, too many to train on; "
            "take fewer of them"
        )


def _meet_epsilon(plan: PrivacyPlan, settings: Mapping[str, Any]) -> PrivacyPlan:
    """Solve for the noise, or, where the noise is given, for the number of steps."""
    epsilon = settings["epsilon"]
    if settings["sigma_over_clip"] is not None:
        plan = replace(plan, sigma_over_clip=settings["sigma_over_clip"])
    if settings["paper_noise_multiplier"] is not None:
        plan = plan.with_paper_noise(settings["paper_noise_multiplier"])
    if epsilon is None:
        return plan.with_scaling(plan.num_scaled)
    return plan.with_steps_for(epsilon=epsilon) if plan.is_private else plan.calibrated(epsilon=epsilon)
