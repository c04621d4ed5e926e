"""The tables and figures of docs/reproduction.md, from the committed records of `hushgraph reproduce`.

    python benchmarks/reproduction_page.py

A table stands between <!-- table NAME --> and <!-- end -->, a figure in docs/assets/reproduction.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from hushgraph.reproduction import spec
from hushgraph.reproduction.figures import draw
from hushgraph.reproduction.records import Records
from hushgraph.reproduction.tables import Line, Table, build_table, format_holds

ROOT = Path(__file__).parent.parent
RECORDS = ROOT / "benchmarks" / "records" / "reproduction" / "records.jsonl"
PAGE = ROOT / "docs" / "reproduction.md"
FIGURES = ROOT / "docs" / "assets" / "reproduction"
_PLACE = re.compile(r"(<!-- table (?P<name>[\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)
_MODES = {
    "non-private": "no privacy",
    "non-private-ours": "no privacy, our defaults",
    "as-published": "as published",
    "sound": "sound",
}
_SYMBOLS = {"epsilon": "epsilon", "max_readers": "K", "batch_size": "batch"}


def read_tables() -> list[Table]:
    """The tables of all experiments that have committed records."""
    records = Records(RECORDS).all
    names = dict.fromkeys(record["experiment"] for record in records)
    return [
        build_table(spec.load(name), [record for record in records if record["experiment"] == name])
        for name in names
    ]


def filled(page: str, tables: Sequence[Table]) -> str:
    """The page with its tables made anew."""
    lines_of = {table.name: [line for line in table.lines if line.runs] for table in tables}

    def table(place: re.Match[str]) -> str:
        mine = lines_of[place["name"]]
        lines = _ablation(mine) if any(line.axes for line in mine) else _models(mine)
        return f"{place[1]}\n{_markdown(lines)}\n{place[3]}"

    return _PLACE.sub(table, page)


def _models(found: Sequence[Line]) -> list[list[str]]:
    """A line for each model and mode."""
    lines = [["model", "mode", "test accuracy", "published", "claimed epsilon", "epsilon that holds"]]
    rows = list(dict.fromkeys(line.row for line in found))
    for line in sorted(found, key=lambda line: (rows.index(line.row), [*_MODES].index(line.mode))):
        is_ours = line.mode in ("sound", "non-private-ours")
        lines.append(
            [
                line.row,
                _MODES[line.mode],
                _accuracy(line),
                "" if line.published is None or is_ours else f"{line.published:.3f}",
                "" if line.claimed is None else f"{line.claimed:g}",
                format_holds(line.holds, line.if_public),
            ]
        )
    return lines


def _ablation(found: Sequence[Line]) -> list[list[str]]:
    """A line for each place on the first axis, a column for each model, mode and place on the other one."""
    names = list(dict.fromkeys(name for line in found for name in line.axes))
    first = "epsilon" if "epsilon" in names else names[0]
    places = sorted({line.axes[first] for line in found if first in line.axes})
    rows = list(dict.fromkeys(line.row for line in found))
    columns = sorted(
        {(line.row, line.mode, line.other_axes(first)) for line in found},
        key=lambda column: (rows.index(column[0]), [*_MODES].index(column[1]), column[2]),
    )
    known = {
        (line.row, line.axes[first]): line.published
        for line in found
        if line.published is not None and [*line.axes] == [first]
    }
    printed = [row for row in rows if any(owner == row for owner, _ in known)]
    heads = [
        ", ".join([row, _MODES[mode], *(f"{_SYMBOLS[name]} = {value:,g}" for name, value in others)])
        for row, mode, others in columns
    ]
    lines = [[_SYMBOLS[first], *heads, *(f"{row}, published" for row in printed)]]
    for place in places:
        cells = [f"{place:,g}"]
        for column in columns:
            here = [
                line
                for line in found
                if (line.row, line.mode, line.other_axes(first)) == column
                # A model without privacy is the same at every epsilon.
                and line.axes.get(first) in (place, None)
            ]
            cells.append(_accuracy(here[0]) if here else "no step")
        published = [known.get((row, place)) for row in printed]
        lines.append(cells + ["" if value is None else f"{value:.3f}" for value in published])
    return lines


def _accuracy(line: Line) -> str:
    mean = f"{line.ours:.2f}"
    # Spaces that do not break, or every line of a table would take two.
    return mean if line.spread is None else f"{mean}\u00a0±\u00a0{line.spread:.2f}"


def _markdown(lines: Iterable[Sequence[Any]]) -> str:
    head, *rest = lines
    return "".join(f"| {' | '.join(line)} |\n" for line in [head, ["---"] * len(head), *rest])


def main() -> None:
    tables = read_tables()
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), tables), encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        for path in draw(tables, Path(folder)):
            if path.suffix == ".svg":
                shutil.copy(path, FIGURES / path.name)


if __name__ == "__main__":
    main()
