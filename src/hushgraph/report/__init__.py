"""Pages that stand by themselves, each with a JSON twin: the report of a run, and the planner."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hushgraph.report.planner_page import write_planner_page as write_planner_page
    from hushgraph.report.report import write_report as write_report

__all__ = ["write_planner_page", "write_report"]


def __getattr__(name: str) -> Any:
    """Import a page's maker when it is asked for: the report needs torch, the planner does not."""
    if name == "write_report":
        from hushgraph.report.report import write_report

        return write_report
    if name == "write_planner_page":
        from hushgraph.report.planner_page import write_planner_page

        return write_planner_page
    raise AttributeError(f"module 'hushgraph.report' has no attribute {name!r}")
