"""What docs/deploying.md says: the service answers, the script keeps to its budget, units and image parse."""

from __future__ import annotations

import configparser
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hushgraph as hg
from hushgraph.cli.app import main

ROOT = Path(__file__).parent.parent
EXAMPLES = ROOT / "docs" / "examples"
PAGE = (ROOT / "docs" / "deploying.md").read_text(encoding="utf-8")
UNITS = sorted((EXAMPLES / "systemd").iterdir())
KNOWN = {
    "Unit": {"Description", "After"},
    "Service": {
        "Type",
        "User",
        "UMask",
        "WorkingDirectory",
        "ExecStart",
        "SuccessExitStatus",
        "TimeoutStartSec",
        "Nice",
        "PrivateTmp",
        "ProtectSystem",
        "ProtectHome",
        "NoNewPrivileges",
        "ReadWritePaths",
        "ReadOnlyPaths",
        "Restart",
    },
    "Timer": {"OnCalendar", "Persistent"},
    "Install": {"WantedBy"},
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> hg.Run:
    data = hg.datasets.synthetic(num_nodes=90, num_classes=3, num_features=4, seed=1)
    out = tmp_path_factory.mktemp("served") / "run"
    return hg.train(data, epsilon=4.0, steps=3, hidden=4, device="cpu", out=out)


@pytest.fixture(scope="module")
def address(trained: hg.Run) -> Iterator[str]:
    """Where the example serves the release."""
    spec = spec_from_file_location("serve", EXAMPLES / "serve.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    with module.make_server(str(trained.folder.path / "release"), port=0) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def ask(address: str, content: Any) -> tuple[int, Any]:
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    try:
        with urllib.request.urlopen(urllib.request.Request(address, body), timeout=60) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def test_a_served_request_is_predict_new(trained: hg.Run, address: str) -> None:
    features = np.random.default_rng(2).normal(size=(20, 4)).astype(np.float32)
    places = [[i, i + 5, 1000] for i in range(20)]
    expected, unknown = trained.predict_new(features, places)

    def ask_one(i: int) -> tuple[int, Any]:
        return ask(
            f"{address}/predict", {"features": features[i : i + 1].tolist(), "places": places[i : i + 1]}
        )

    with ThreadPoolExecutor(4) as pool:
        for i, (status, answer) in enumerate(pool.map(ask_one, range(20))):
            assert status == 200
            np.testing.assert_allclose(answer["predictions"][0], expected[i], rtol=1e-5)
            assert answer["unknown"] == [unknown[i]] == [1]


def test_bad_requests_are_told_so_and_the_service_goes_on(trained: hg.Run, address: str) -> None:
    for content in (b"{", {"features": [[1, 2, 3, 4]]}, {"features": [[1, 2]], "places": [[1]]}, [1], b""):
        status, answer = ask(f"{address}/predict", content)
        assert status == 400
        assert answer["error"]
    assert ask(f"{address}/other", {})[0] == 404
    with urllib.request.urlopen(f"{address}/about", timeout=60) as answer:
        about = json.load(answer)
    sentences = [each["sentence"] for each in trained.result["assumptions"]]
    expected = {"epsilon": trained.epsilon, "delta": trained.delta, "guarantee": "holds"}
    assert about == expected | {"assumptions": sentences}


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_units_parse_and_are_the_ones_of_the_page(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert f"```text\n{text}```" in PAGE
    unit = configparser.ConfigParser(interpolation=None, strict=True)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read_string(text)
    for section in unit.sections():
        assert set(unit[section]) <= KNOWN[section], section
    if path.suffix == ".timer":
        assert re.fullmatch(r"\*-[\d,]+-\d\d \d\d:\d\d:\d\d", unit["Timer"]["OnCalendar"])
        assert path.with_suffix(".service") in UNITS
    else:
        assert unit["Service"]["ExecStart"].startswith("/")
        assert unit["Service"]["User"] != "root"


def test_the_image_copies_what_is_there_and_is_not_root() -> None:
    text = (ROOT / "Containerfile").read_text(encoding="utf-8")
    lines = re.sub(r"\\\n", " ", text).splitlines()
    steps = [line.split(maxsplit=1) for line in lines if line and not line.startswith("#")]
    assert steps[0][0] == "FROM"
    assert {word for word, _ in steps} <= {
        "FROM",
        "ENV",
        "WORKDIR",
        "COPY",
        "RUN",
        "USER",
        "VOLUME",
        "EXPOSE",
        "ENTRYPOINT",
        "CMD",
    }
    copied = [name for word, rest in steps if word == "COPY" for name in rest.split()[:-1]]
    assert all((ROOT / name).exists() for name in copied)
    ignored = ROOT / ".dockerignore"
    if ignored.exists():
        assert {f"!{name}" for name in copied} <= set(ignored.read_text(encoding="utf-8").split())
    assert [rest for word, rest in steps if word == "USER"] == ["hushgraph"]
    assert [rest for word, rest in steps if word == "ENTRYPOINT"] == ['["hushgraph"]']


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder for runs with a budget, and the command as programs find it."""
    (tmp_path / "bin").mkdir()
    command = tmp_path / "bin" / "hushgraph"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m hushgraph "$@" ${{MORE:-}}\n')
    command.chmod(0o755)
    assert main(["budget", str(tmp_path / "year.ledger"), "--epsilon", "2.5", "--delta", "1e-5"]) == 0
    return tmp_path


def retrain(place: Path, **more: str) -> subprocess.CompletedProcess[str]:
    path = f"{place / 'bin'}:{os.environ['PATH']}"
    here = {"PATH": path, "DATA": "demo", "HOME_OF_RUNS": str(place), "EPSILON": "2"}
    return subprocess.run(
        [str(EXAMPLES / "retrain.sh")],
        env={**os.environ, **here, **more},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.mark.skipif(shutil.which("flock") is None, reason="flock is of Linux")
def test_the_script_trains_once_and_stops_at_the_budget(place: Path) -> None:
    assert f"```text\n{(EXAMPLES / 'retrain.sh').read_text(encoding='utf-8')}```" in PAGE
    first = retrain(place, MORE="--steps 2 --hidden 4 --device cpu --delta 1e-5")
    assert (first.returncode, first.stderr) == (0, "")
    assert (place / "current" / "release" / "release.json").is_file()
    ledger = (place / "year.ledger").read_bytes()
    # Finished: nothing is trained, nothing is charged.
    assert retrain(place, MORE="--no-such-flag").returncode == 0
    assert (place / "year.ledger").read_bytes() == ledger
    (run,) = place.glob("run-*")
    run.rename(place / "earlier")
    refused = retrain(place, MORE="--steps 2 --hidden 4 --device cpu --delta 1e-5")
    assert refused.returncode == 3
    assert "budget" in refused.stderr
    assert (place / "year.ledger").read_bytes() == ledger
