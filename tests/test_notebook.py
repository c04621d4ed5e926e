"""docs/tutorial.ipynb runs from top to bottom, and shows what its cells give."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
NOTEBOOK = ROOT / "docs" / "tutorial.ipynb"
# A notebook stays small enough to read as a diff.
LARGEST = 40_000


def load_runner() -> ModuleType:
    found = importlib.util.spec_from_file_location("run_notebook", ROOT / "scripts" / "run_notebook.py")
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def read_outputs(notebook: dict[str, Any]) -> list[str]:
    """What the cells show, in order; digits and classes may differ, because noise decides them."""
    texts = []
    for cell in notebook["cells"]:
        for output in cell.get("outputs", ()):
            parts = [output["text"]] if "text" in output else list(output["data"].values())
            texts += ["".join(part) for part in parts]
    return [
        re.sub(r"\b(chess|football|theatre)\b(?!_)", "CLUB", re.sub(r"[\d.]+", "#", text)) for text in texts
    ]


def without_names(text: str) -> str:
    """A text without widths of columns of names, which depend on the class."""
    return re.sub(r"<U#", "<U", text)


def test_the_notebook_runs_and_shows_what_it_gives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    stored = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    done = load_runner().run_cells(stored)
    shown, given = read_outputs(stored), read_outputs(done)
    assert len(shown) > 8
    assert [without_names(text) for text in shown] == [without_names(text) for text in given]
    assert (tmp_path / "to-publish" / "README.md").exists()
    assert "The guarantee holds" in (tmp_path / "clubs" / "report.html").read_text(encoding="utf-8")


def test_the_notebook_is_small_and_tells_nothing_of_the_machine() -> None:
    text = NOTEBOOK.read_text(encoding="utf-8")
    assert len(text) < LARGEST
    assert not re.search(r"/tmp|/home|/root|/work|Users", text)
    notebook = json.loads(text)
    assert (notebook["nbformat"], notebook["metadata"]["kernelspec"]["name"]) == (4, "python3")
    assert all("traceback" not in output for cell in notebook["cells"] for output in cell.get("outputs", ()))


def test_a_cell_that_fails_is_noticed() -> None:
    cell = {"cell_type": "code", "source": ["x = 1\n", "nowhere"], "outputs": []}
    with pytest.raises(NameError, match="nowhere"):
        load_runner().run_cells({"cells": [cell]})


def test_outputs_are_what_was_printed_and_given() -> None:
    cell = {"cell_type": "code", "source": ["print(2)\n", "3"], "outputs": []}
    (done,) = load_runner().run_cells({"cells": [cell]})["cells"]
    printed, given = done["outputs"]
    assert printed["text"] == ["2\n"]
    assert (given["data"], given["execution_count"]) == ({"text/plain": ["3"]}, 1)
