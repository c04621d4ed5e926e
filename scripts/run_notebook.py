"""Run the cells of a notebook in this process, and keep what they print and give.

    python scripts/run_notebook.py docs/tutorial.ipynb

Only Python is needed, no kernel. The cells run in one namespace and in an empty folder; the notebook is
written back with their outputs. A cell that fails ends the run, and the notebook stays as it was.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import sys
import tempfile
from pathlib import Path
from typing import Any


def run_cells(notebook: dict[str, Any]) -> dict[str, Any]:
    """The notebook with the outputs of its code cells, run in order in the current folder."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    cells, count = [], 0
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            count += 1
            source = "".join(cell["source"])
            outputs = _run_cell(source, f"cell {count}", namespace)
            cell = {**cell, "execution_count": count, "outputs": _number(outputs, count)}
        cells.append(cell)
    return {**notebook, "cells": cells}


def _run_cell(source: str, name: str, namespace: dict[str, Any]) -> list[dict[str, Any]]:
    """Run a cell; return what it printed, and the value of its last line."""
    tree = ast.parse(source, name)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    value = None
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(tree, name, "exec"), namespace)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), name, "eval"), namespace)
    outputs: list[dict[str, Any]] = []
    if printed.getvalue():
        outputs.append({"output_type": "stream", "name": "stdout", "text": _lines(printed.getvalue())})
    if value is not None:
        data = {"text/plain": _lines(repr(value))}
        if hasattr(value, "_repr_html_"):
            data["text/html"] = _lines(value._repr_html_())
        outputs.append({"output_type": "execute_result", "data": data, "metadata": {}})
    return outputs


def _number(outputs: list[dict[str, Any]], count: int) -> list[dict[str, Any]]:
    return [
        {**output, "execution_count": count} if output["output_type"] == "execute_result" else output
        for output in outputs
    ]


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def main() -> None:
    """Run the notebook that the command line names."""
    path = Path(sys.argv[1]).resolve()
    notebook = json.loads(path.read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        done = run_cells(notebook)
    path.write_text(json.dumps(done, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
