"""The same against a server that speaks S3; `make store-test` installs it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hushgraph as hg
from hushgraph.errors import RunError

pytest.importorskip("s3fs", reason="make store-test installs s3fs")
server = pytest.importorskip("moto.server", reason="make store-test installs moto")


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[str]:
    """The name of a bucket of a server of this test's own."""
    import s3fs

    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("HUSHGRAPH_DATA", str(tmp_path / "cache"))
    running = server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    running.start()
    host, port = running.get_host_and_port()
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
    s3fs.S3FileSystem.clear_instance_cache()
    s3fs.S3FileSystem().makedirs("people", exist_ok=True)
    yield "people"
    s3fs.S3FileSystem.clear_instance_cache()
    running.stop()


def test_a_release_is_published_and_served(bucket: str, tmp_path: Path, run: Any) -> None:
    data = hg.datasets.synthetic(num_nodes=80, num_classes=2, seed=1)
    trained = hg.train(data, epsilon=2.0, steps=3, hidden=4, device="cpu", out=tmp_path / "run")
    address = f"s3://{bucket}/models/demo"
    assert run("release", tmp_path / "run", "--to", address)[0] == 0
    rows = np.ones((2, trained.folder.num_features), np.float32)
    loaded = hg.Run.load(address, device="cpu")
    np.testing.assert_array_equal(
        loaded.predict_new(rows, [[1], [2, 3]])[0], trained.predict_new(rows, [[1], [2, 3]])[0]
    )
    assert run("report", address, "--card", "--out", tmp_path / "card.md")[0] == 0
    assert "epsilon" in (tmp_path / "card.md").read_text()


def test_what_is_not_there_is_one_line(bucket: str) -> None:
    with pytest.raises(RunError, match=r"^s3://people/nothing: nothing was found there; "):
        hg.Run.load(f"s3://{bucket}/nothing")
    with pytest.raises(RunError, match=r"^s3://another/models: "):
        hg.Run.load("s3://another/models")


@pytest.mark.parametrize("engine", ["memory", "duckdb"])
def test_tables_are_read_from_there(bucket: str, tmp_path: Path, run: Any, engine: str) -> None:
    import s3fs

    nodes = "id,label,x,split\n" + "".join(f"p{i},{i % 2},{i / 10},train\n" for i in range(20))
    system = s3fs.S3FileSystem()
    system.pipe_file(f"{bucket}/bank/nodes.csv", nodes.encode())
    system.pipe_file(f"{bucket}/bank/edges/1.csv", b"source,target\np1,p2\np2,p3\n")
    words = ["--edges", f"s3://{bucket}/bank/edges", "--num-classes", "2", "--epsilon", "4", "--steps", "2"]
    own = ["--engine", engine, "--out", tmp_path / "run"]
    assert run("train", f"s3://{bucket}/bank/nodes.csv", *words, *own)[0] == 0
    assert (tmp_path / "run" / "release").is_dir()
