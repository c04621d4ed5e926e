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
from hushgraph.reproduction.measurements import Measurement, group_records
from hushgraph.reproduction.records import Records
from hushgraph.reproduction.tables import format_holds

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


def ordered(records: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Models in the order of the paper: processes that share the runs finish them in any order."""
    rows = {name: [row.row for row in spec.load(name).rows] for name in spec.names()}
    return sorted(records, key=lambda record: rows[record["experiment"]].index(record["row"]))


def filled(page: str, found: Sequence[Measurement]) -> str:
    """The page with its tables made anew."""

    def table(place: re.Match[str]) -> str:
        mine = [cell for cell in found if cell.experiment == place["name"]]
        lines = _ablation(mine) if any(cell.axes for cell in mine) else _models(mine)
        return f"{place[1]}\n{_markdown(lines)}\n{place[3]}"

    return _PLACE.sub(table, page)


def _models(found: Sequence[Measurement]) -> list[list[str]]:
    """A line for each model and mode."""
    lines = [["model", "mode", "test accuracy", "published", "claimed epsilon", "epsilon that holds"]]
    known = spec.published_by_row(found[0].experiment, found[0].column)
    rows = list(dict.fromkeys(cell.row for cell in found))
    for cell in sorted(found, key=lambda cell: (rows.index(cell.row), [*_MODES].index(cell.mode))):
        is_ours = cell.mode in ("sound", "non-private-ours")
        published = None if is_ours else known.get((cell.row, ()))
        lines.append(
            [
                cell.row,
                _MODES[cell.mode],
                _accuracy(cell),
                "" if published is None else f"{published:.3f}",
                "" if cell.claimed is None or cell.mode == "sound" else f"{cell.claimed:g}",
                format_holds(cell.holds, cell.if_public),
            ]
        )
    return lines


def _ablation(found: Sequence[Measurement]) -> list[list[str]]:
    """A line for each place on the first axis, a column for each model, mode and place on the other one."""
    names = list(dict.fromkeys(name for cell in found for name, _ in cell.axes))
    first = "epsilon" if "epsilon" in names else names[0]
    places = sorted({cell.axis(first) for cell in found} - {None})
    rows = list(dict.fromkeys(cell.row for cell in found))
    columns = sorted(
        {(cell.row, cell.mode, cell.other_axes(first)) for cell in found},
        key=lambda column: (rows.index(column[0]), [*_MODES].index(column[1]), column[2]),
    )
    known = spec.published_by_row(found[0].experiment, found[0].column)
    printed = [row for row in rows if any(owner == row for owner, _ in known)]
    heads = [
        ", ".join([row, _MODES[mode], *(f"{_SYMBOLS[name]} = {value:,g}" for name, value in others)])
        for row, mode, others in columns
    ]
    lines = [[_SYMBOLS[first], *heads, *(f"{row}, published" for row in printed)]]
    for place in places:
        line = [f"{place:,g}"]
        for row, mode, others in columns:
            here = [
                cell
                for cell in found
                if (cell.row, cell.mode, cell.other_axes(first)) == (row, mode, others)
                # A model without privacy is the same at every epsilon.
                and cell.axis(first) in (place, None)
            ]
            line.append(_accuracy(here[0]) if here else "no step")
        published = [known.get((row, ((first, place),))) for row in printed]
        lines.append(line + ["" if value is None else f"{value:.3f}" for value in published])
    return lines


def _accuracy(cell: Measurement) -> str:
    mean = f"{100 * cell.mean:.2f}"
    # Spaces that do not break, or every line of a table would take two.
    return f"{mean}\u00a0±\u00a0{100 * cell.spread:.2f}" if len(cell.accuracy) > 1 else mean


def _markdown(lines: Iterable[Sequence[Any]]) -> str:
    head, *rest = lines
    return "".join(f"| {' | '.join(line)} |\n" for line in [head, ["---"] * len(head), *rest])


def main() -> None:
    records = ordered(Records(RECORDS).all)
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), group_records(records)), encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        for path in draw(records, Path(folder)):
            if path.suffix == ".svg":
                shutil.copy(path, FIGURES / path.name)


if __name__ == "__main__":
    main()
