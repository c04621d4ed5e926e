"""Tables of integers with noise: the noise, and the files of this version and of earlier ones."""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hushgraph.errors import RunError
from hushgraph.figures.tables import NoisyTables
from hushgraph.noise.counts import NoisyCounts, add_noise
from hushgraph.scaling.histograms import NoisyHistograms

# As hushgraph 0.2 wrote them: their digests are in ledgers.
FIGURES = (
    '{"format": 1, "plan": "p", "noise_std": "0x1.8000000000000p+0", "groups": ["a", "b"], "grids": [1], '
    '"tables": {"val": [[[3, -1], [0, 2]]], "test": [[[7, 4], [1, -2]]]}}'
)
COLUMN = {"centre": -25 + 250.5 / 10, "counts": [0] * 250 + [9] + [0] * 249, "name": "age", "spread": 0.1}
SCALING = json.dumps(
    {
        "bins": {"least": -25, "number": 500, "of": "asinh", "width": 0.1},
        "columns": [COLUMN],
        "format": 1,
        "noise_std": "0x1.0000000000000p-1",
        "plan": "p",
    }
)
FILES: dict[str, tuple[type[NoisyCounts], str]] = {
    "figures.json": (NoisyTables, FIGURES),
    "scaling.json": (NoisyHistograms, SCALING),
}


@pytest.mark.parametrize("name", FILES)
def test_files_of_earlier_runs_are_read_and_keep_their_digest(name: str, tmp_path: Path) -> None:
    kind, text = FILES[name]
    (tmp_path / name).write_text(text)
    read = kind.load(tmp_path / name, plan="p")
    assert read.digest == hashlib.sha256(json.dumps(json.loads(text), sort_keys=True).encode()).hexdigest()
    read.save(tmp_path / "again")
    assert json.loads((tmp_path / "again").read_text()) == json.loads(text)
    assert kind.load(tmp_path / "again", plan="p").digest == read.digest
    if isinstance(read, NoisyTables):
        # Figures are listed in this order.
        assert list(read.splits) == ["val", "test"]
        assert read.splits["test"][0][1].tolist() == [1, -2]
        assert (read.groups, read.noise_std) == (("a", "b"), 1.5)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"format": 2}, "has format 2; update hushgraph"),
        ({"plan": "other"}, "belongs to another run"),
        ({"noise_std": "0x1p+9999"}, "damaged .OverflowError"),
        ({"tables": {"val": [[0.5]]}}, "damaged .ValueError"),
        ({"tables": {"val": [[2**70]]}}, "damaged .OverflowError"),
        ({"tables": None}, "damaged .AttributeError"),
        ({"groups": 3}, "damaged .TypeError"),
    ],
)
def test_another_file_is_refused_in_one_line(change: dict[str, Any], words: str, tmp_path: Path) -> None:
    path = tmp_path / "figures.json"
    with pytest.raises(RunError, match=r"figures.json is missing or damaged .FileNotFoundError"):
        NoisyTables.load(path, plan="p")
    path.write_text(json.dumps(json.loads(FIGURES) | change))
    with pytest.raises(RunError, match=words) as caught:
        NoisyTables.load(path, plan="p")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("grid", [1, 1 << 20])
def test_noise_has_the_size_that_is_asked_for(grid: int) -> None:
    table = np.full((40, 500), 7 * grid, np.int64)
    noisy, std = add_noise(table, noise_std=2.0, grid=grid)
    assert 2.0 <= std < 2.0 * (1 + 1e-4)
    assert noisy.dtype == np.int64
    assert (noisy / grid).mean() == pytest.approx(7.0, abs=0.1)
    assert (noisy / grid).std() == pytest.approx(math.hypot(2.0, math.sqrt(1 / 12) / grid), rel=0.03)
    exact, none = add_noise(table, noise_std=0.0)
    assert (exact is table, none) == (True, 0.0)
