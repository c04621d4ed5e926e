"""What must not move: epsilons of plans, and what runs of earlier versions say and do."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import hushgraph as hg
from hushgraph import Graph

_DATA = Path(__file__).parent / "data"
_RUNS = _DATA / "runs_of_format_1"
_PLANS = json.loads((_DATA / "golden.json").read_text())["plans"]


@pytest.fixture(scope="module")
def data() -> Graph:
    """The graph that the stored runs were trained on."""
    return hg.datasets.synthetic(num_nodes=300, num_classes=3, num_features=8, seed=1)


@pytest.fixture
def expected() -> dict[str, object]:
    """What the finished run predicted and reported when it was stored."""
    content: dict[str, object] = json.loads((_RUNS / "expected.json").read_text())
    return content


def copy_run(name: str, folder: Path) -> Path:
    """A copy of a stored run, since a run is written to when it is resumed."""
    return Path(shutil.copytree(_RUNS / name, folder / name))


@pytest.mark.parametrize("place", range(len(_PLANS)))
def test_plans_cost_what_they_cost(place: int) -> None:
    kept = _PLANS[place]
    plan = hg.PrivacyPlan.from_json(json.dumps(kept["plan"]))
    # Prices of sampled batches go through Fourier transforms, which round differently on other processors.
    precision = 1e-12 if plan.sampling_rate == 1 else 1e-8
    for name in ("epsilon", "epsilon_group_of_two", "epsilon_edge", "epsilon_label"):
        assert getattr(plan, name) == pytest.approx(float.fromhex(kept[name]), rel=precision), name
    assert plan.sigma_over_clip == float.fromhex(kept["sigma_over_clip"])
    assert plan.guarantee == kept["guarantee"]


def test_a_finished_run_predicts_the_same(tmp_path: Path, data: Graph, expected: dict[str, object]) -> None:
    run = hg.Run.load(copy_run("finished", tmp_path), device="cpu")
    assert run.predict(data).tolist() == expected["predictions"]
    np.testing.assert_allclose(run.predict_proba(data)[:20], np.array(expected["probabilities"]), atol=1e-5)


def test_a_finished_run_reports_the_same(tmp_path: Path, data: Graph, expected: dict[str, object]) -> None:
    run = hg.Run.load(copy_run("finished", tmp_path), device="cpu")
    run.report(tmp_path / "report.html", data=data)
    report = json.loads((tmp_path / "report.json").read_text())
    kept = expected["report"]
    assert isinstance(kept, dict)
    for key in ("result", "ledger", "test", "spending"):
        same = {name: report[key][name] for name in kept[key]} if key == "result" else report[key]
        assert same == kept[key], key
    plans = [hg.PrivacyPlan.from_json(json.dumps(about["plan"])) for about in (report, kept)]
    assert plans[0] == plans[1]
    # Later versions say more; what was said stays, the noise under another name.
    said = dict(kept["guarantee"])
    assert said.pop("noise_multiplier") == report["guarantee"]["paper_noise_multiplier"]
    assert said.items() <= report["guarantee"].items()


def test_an_interrupted_run_goes_on(tmp_path: Path, data: Graph) -> None:
    folder = copy_run("interrupted", tmp_path)
    run = hg.resume(folder, data, device="cpu")
    assert run.result["resumed"]
    assert run.epsilon <= 4.0
    assert run.result["guarantee"] == "holds"
