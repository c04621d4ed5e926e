"""Self-contained pages, each with a JSON twin: the report of a run, and the planner."""

from __future__ import annotations

from hushgraph.report.planner import write_planner_page
from hushgraph.report.report import check_report_path, write_report

__all__ = ["check_report_path", "write_planner_page", "write_report"]
