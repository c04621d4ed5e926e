"""Messages about cells of a node table that cannot be read: where, what is there, and what to do."""

from __future__ import annotations

import contextlib
import shlex
from typing import TYPE_CHECKING

import numpy as np

from hushgraph.datasets.tables.cells import SEPARATOR, SPLITS, name_remedy
from hushgraph.errors import GraphError
from hushgraph.graph.cell_rules import rule_for
from hushgraph.graph.columns import suggest

if TYPE_CHECKING:
    from hushgraph.datasets.tables.node_table import NodeTable


def number_error(reader: NodeTable, row: int, name: str) -> GraphError:
    """Why a cell of a column of numbers is none, and what to do."""
    text = reader.table.cell(reader.connection, row, name)
    where = reader.table.place(row, name)
    if text is None or text in reader.columns.missing:
        advice = reader.table.advice(
            f"fill empty cells (--fill {shlex.quote(f'{name}=0')}) or leave the column out (--ignore "
            f"{shlex.quote(name)})",
            "fill it",
        )
        return GraphError(f"{where}: empty; expected a number; {advice}")
    if name in reader.columns.dates:
        form = rule_for(reader.columns.date_format, name)
        advice = reader.table.advice(
            "correct it, or say how dates are written "
            f"(--date-format {name}={'%d.%m.%Y' if form is None else 'FORMAT'})",
            "correct it",
        )
        return GraphError(f"{where}: {text[:40]!r} is not {form or 'year-month-day'}; {advice}")
    if name in reader.columns.booleans:
        advice = reader.table.advice(
            f"correct it, or list such values (--categorical {name}='yes|no|...')", "correct it"
        )
        return GraphError(f"{where}: {text[:40]!r} is not true, false, yes, no, 1 or 0; {advice}")
    try:
        # NaN compares as false with everything.
        is_number = not abs(float(text)) <= float(np.finfo(np.float32).max)
    except ValueError:
        is_number = False
    if is_number:
        return GraphError(f"{where}: {text[:40]!r} is not a finite float32; replace it, for example by 0")
    remedy = name_remedy(text, name)
    # Labels are neither booleans nor dates.
    is_label = name in reader.columns.label_columns
    if is_label and (remedy is None or remedy.startswith(("booleans", "dates"))):
        advice = reader.table.advice(
            "leave out --task and --bounds and name the classes (--classes a,b,c), or count such cells "
            f"as empty (--missing {shlex.quote(text[:40])})",
            "correct it",
        )
        return GraphError(f"{where}: {text[:40]!r} is not a number; {advice}")
    if remedy is not None:
        return GraphError(
            f"{where}: {text[:40]!r} is not a number; {reader.table.advice(remedy, 'correct it')}"
        )
    advice = reader.table.advice(
        f"correct it, fill it (--missing {text[:40]!r} --fill {name}=0), list the column's values "
        f"(--categorical), hash it (--hash {name}=16) or leave it out (--ignore {name})",
        "correct it",
    )
    return GraphError(f"{where}: {text[:40]!r} is not a number; {advice}")


def value_error(reader: NodeTable, row: int, key: str, name: str) -> GraphError:
    """Why a label, a split or a categorical cell is invalid, and what to do."""
    where, text = reader.table.place(row, name), cell_text(reader, row, name)
    if key == "split":
        return GraphError(
            f"{where}: {text}; expected {', '.join(SPLITS)} (or 0, 1, 2) or an empty cell; correct "
            f"it, or count it as empty (--missing){suggest(text[1:-1], SPLITS)}"
        )
    if reader.has_columns and name in reader.columns.label_columns:
        return GraphError(
            f"{where}: {text} is not 0 or 1; correct it, or empty the cell: the row then has no label"
        )
    if key != "label":
        values = list(reader.columns.categorical[name])
        listed = f"among its {len(values)} values" if len(values) > 1 else f"its one value, {values[0]!r}"
        advice = reader.table.advice(
            "list it (--categorical), take such values as zeros (--unknown-category zeros), hash the "
            f"column (--hash {name}=16) or empty the cell",
            "correct it or empty the cell",
        )
        return GraphError(f"{where}: {text} is not {listed}; {advice}{suggest(text[1:-1], values)}")
    if reader.columns.classes is not None:
        names = list(reader.columns.classes)
        listed = f"among the {len(names)} classes" if len(names) > 1 else f"the one class, {names[0]!r}"
        advice = reader.table.advice(
            _name_other_task(text[1:-1]) or "name all classes in order (--classes a,b,c) or empty the cell",
            "correct it or empty the cell",
        )
        return GraphError(f"{where}: {text} is not {listed}; {advice}{suggest(text[1:-1], names)}")
    try:
        negative = float(text[1:-1]) < 0
    except ValueError:
        negative = False
    if negative:
        return GraphError(f"{where}: {text}; expected 0 or more; leave the cell empty for no label")
    advice = _name_other_task(text[1:-1]) or "name the classes in order (--classes a,b,c)"
    return GraphError(f"{where}: {text} is not a class number; {advice}")


def cell_text(reader: NodeTable, row: int, name: str) -> str:
    """The text of a cell, cut short."""
    return repr((reader.table.cell(reader.connection, row, name) or "")[:40])


def _name_other_task(text: str) -> str | None:
    """What to do about a label that is a number or a list; None for one that looks like a class."""
    number = text.strip().removesuffix("%").replace(",", ".")
    with contextlib.suppress(ValueError):
        if not float(number).is_integer():
            return "a number is predicted with --task number --bounds a,b; for classes, name them (--classes)"
    mark = next((mark for mark in ("|", ";") if mark in text), None)
    if mark is None:
        return None
    separator = "" if mark == SEPARATOR else f" --separator {shlex.quote(mark)}"
    return f"several labels a cell are read with --task labels{separator} --classes a,b,c"
