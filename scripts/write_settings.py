"""Write the table of settings in docs/command-line.md: python scripts/write_settings.py."""

from __future__ import annotations

from pathlib import Path

from hushgraph.settings import SECTIONS, TABLE, Setting

PAGE = Path(__file__).parent.parent / "docs" / "command-line.md"
BEGIN, END = "<!-- settings: python scripts/write_settings.py writes them -->\n", "<!-- end of settings -->\n"


def render_settings() -> str:
    """One table a section: argument, flag, values and what it does."""
    parts = []
    for section in SECTIONS:
        entries = [entry for entry in TABLE.values() if entry.section == section]
        lines = [f"### {section}\n", "| argument | flag | values | meaning [default] |", "|---|---|---|---|"]
        parts.append("\n".join([*lines, *map(_render_line, entries)]))
    return "\n\n".join(parts) + "\n"


def _render_line(entry: Setting) -> str:
    values = (
        ", ".join(f"`{value}`" for value in entry.values) or (entry.metavar and f"`{entry.metavar}`") or ""
    )
    flag = f"`--{entry.key}`" if entry.commands else "Python only"
    cells = (f"`{entry.name}`", flag, values, entry.meaning)
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def insert_settings(page: str) -> str:
    """The page with the tables between its two marks."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{render_settings()}\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(insert_settings(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
