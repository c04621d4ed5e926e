"""Messages about cells of a node table that cannot be read: where, what is there, and what to do."""

from __future__ import annotations

import contextlib
import shlex
from typing import TYPE_CHECKING

import numpy as np

from hushgraph._text import suggest
from hushgraph.datasets.tables.cells import SEPARATOR, SPLITS, name_remedy
from hushgraph.errors import GraphError
from hushgraph.graph.cell_rules import rule_for

if TYPE_CHECKING:
    from hushgraph.datasets.tables.node_table import NodeTable


def number_error(reader: NodeTable, row: int, name: str) -> GraphError:
    """Explain why a cell of a numeric column is not a number, and what to do."""
    table, columns = reader.table, reader.columns
    text, where = table.cell(reader.connection, row, name), table.place(row, name)
    quoted = shlex.quote(name)
    if text is None or text in columns.missing:
        filled = f"fill empty cells (--fill {quoted}=0) or leave the column out (--ignore {quoted})"
        advice = table.advice(filled, "fill it")
        return GraphError(f"{where}: empty; expected a number; {advice}")
    what, remedy = "is not a number", name_remedy(text, name)
    form = rule_for(columns.date_format, name)
    # Labels are neither booleans nor dates.
    if name in columns.label_columns and (remedy is None or remedy.startswith(("booleans", "dates"))):
        remedy = (
            "leave out --task and --bounds and name the classes (--classes a,b,c), or count such cells "
            f"as empty (--missing {shlex.quote(text[:40])})"
        )
    if name in columns.dates:
        what = f"is not {form or 'year-month-day'}"
        remedy = (
            "correct it, or say how dates are written "
            f"(--date-format {quoted}={'%d.%m.%Y' if form is None else 'FORMAT'})"
        )
    elif name in columns.booleans:
        what = "is not true, false, yes, no, 1 or 0"
        remedy = f"correct it, or list such values (--categorical {quoted}='yes|no|...')"
    elif _is_too_large(text):
        return GraphError(f"{where}: {text[:40]!r} is not a finite float32; replace it, for example by 0")
    elif remedy is None:
        remedy = (
            f"correct it, fill it (--missing {text[:40]!r} --fill {quoted}=0), list the column's values "
            f"(--categorical), hash it (--hash {quoted}=16) or leave it out (--ignore {quoted})"
        )
    return GraphError(f"{where}: {text[:40]!r} {what}; {table.advice(remedy, 'correct it')}")


def _is_too_large(text: str) -> bool:
    """Whether a text is a number that no float32 holds."""
    with contextlib.suppress(ValueError):
        # NaN compares as false with everything.
        return not abs(float(text)) <= float(np.finfo(np.float32).max)
    return False


def value_error(reader: NodeTable, row: int, key: str, name: str) -> GraphError:
    """Explain why a label, a split or a categorical cell is invalid, and what to do."""
    columns, where, text = reader.columns, reader.table.place(row, name), cell_text(reader, row, name)
    in_file = "correct it or empty the cell"
    if key == "split":
        return GraphError(
            f"{where}: {text}; expected {', '.join(SPLITS)} (or 0, 1, 2) or an empty cell; correct "
            f"it, or count it as empty (--missing){suggest(text[1:-1], SPLITS)}"
        )
    if reader.has_columns and name in columns.label_columns:
        return GraphError(
            f"{where}: {text} is not 0 or 1; correct it, or empty the cell: the row then has no label"
        )
    other_task = _name_other_task(text[1:-1])
    if key != "label":
        known, noun, one = list(columns.categorical[name]), "its {} values", "its one value"
        by_flags = (
            "list it (--categorical), take such values as zeros (--unknown-category zeros), hash the "
            f"column (--hash {shlex.quote(name)}=16) or empty the cell"
        )
    elif columns.classes is not None:
        known, noun, one = list(columns.classes), "the {} classes", "the one class"
        by_flags = other_task or "name all classes in order (--classes a,b,c) or empty the cell"
    else:
        with contextlib.suppress(ValueError):
            if float(text[1:-1]) < 0:
                return GraphError(f"{where}: {text}; expected 0 or more; leave the cell empty for no label")
        advice = other_task or "name the classes in order (--classes a,b,c)"
        return GraphError(f"{where}: {text} is not a class number; {advice}")
    listed = f"among {noun.format(len(known))}" if len(known) > 1 else f"{one}, {known[0]!r}"
    advice = reader.table.advice(by_flags, in_file) + suggest(text[1:-1], known)
    return GraphError(f"{where}: {text} is not {listed}; {advice}")


def cell_text(reader: NodeTable, row: int, name: str) -> str:
    """Return the text of a cell, truncated."""
    return repr((reader.table.cell(reader.connection, row, name) or "")[:40])


def _name_other_task(text: str) -> str | None:
    """Return advice on a label that is a number or a list; None for one that looks like a class."""
    number = text.strip().removesuffix("%").replace(",", ".")
    with contextlib.suppress(ValueError):
        if not float(number).is_integer():
            return "a number is predicted with --task number --bounds a,b; for classes, name them (--classes)"
    mark = next((mark for mark in ("|", ";") if mark in text), None)
    if mark is None:
        return None
    separator = "" if mark == SEPARATOR else f" --separator {shlex.quote(mark)}"
    return f"several labels a cell are read with --task labels{separator} --classes a,b,c"
