"""The report of a run: a self-contained page with a JSON twin."""

from __future__ import annotations

from hushgraph.report.report import check_report_path, write_report

__all__ = ["check_report_path", "write_report"]
