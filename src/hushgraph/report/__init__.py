"""The report of a run: one HTML file, and the same facts as JSON."""

from hushgraph.report.report import write_report

__all__ = ["write_report"]
