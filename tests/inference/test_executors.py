"""Predictions that Spark's executors compute and write: files in, files out, the numbers of memory."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest

import hushgraph as hg
from benchmark_scripts import ROOT
from hushgraph.cli.app import main
from hushgraph.datasets import spark as spark_module
from hushgraph.errors import GraphError, InputError, RunError, WriteError
from hushgraph.inference import executors
from spark_processes import find_executors, wait_until

pyspark = pytest.importorskip("pyspark", reason="Spark is not installed: pip install 'hushgraph[spark]'")
if shutil.which("java") is None or subprocess.run(["java", "-version"], capture_output=True).returncode:
    pytest.skip("Spark needs Java, and there is none", allow_module_level=True)
for _name in ("pandas", "pyarrow"):
    pytest.importorskip(_name, reason=f"executors score by {_name}")

# Spark leaves sockets to its gateway for Python to close.
pytestmark = pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)
FLAGS = ["--epsilon", "4", "--steps", "3", "--hidden", "4", "--num-classes", "3", "--quiet"]
NEW = ("new.parquet", "lists.parquet")


@pytest.fixture(scope="module")
def session() -> Iterator[Any]:
    """A session in this process, whose executors have this Python."""
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
    }
    builder = SparkSession.builder.master("local[2]").appName("hushgraph tests")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield session
    gateway = session.sparkContext._gateway
    session.stop()
    spark_module._end_gateway(gateway)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on 300 people, and tables of 40 new ones who list people, each other and nobody's names."""
    folder = tmp_path_factory.mktemp("trained")
    rng = np.random.default_rng(1)
    ids, y = rng.permutation(300), rng.integers(0, 3, 300)
    split = np.array(["train", "val", "test"])[rng.integers(0, 3, 300)]
    ends = rng.integers(0, 300, (2, 2_000))
    tables = {
        "nodes": {"id": ids, "age": rng.normal(size=300) + y, "label": y, "split": split},
        "edges": {"source": ends[0], "target": ends[1]},
        "new": {"id": np.arange(1000, 1040), "age": np.arange(40) / 9.0},
        "lists": {
            "source": 1000 + rng.integers(0, 40, 300),
            "target": np.r_[rng.integers(0, 310, 280), np.full(20, 1003)],
        },
    }
    for name, table in tables.items():
        with duckdb.connect() as connection:
            connection.register("given", table)
            connection.execute(f"COPY (SELECT * FROM given) TO '{folder}/{name}.parquet'")
    data = [f"{folder}/nodes.parquet", "--edges", f"{folder}/edges.parquet"]
    assert main(["train", *data, *FLAGS, "--out", str(folder / "run")]) == 0
    return folder


@pytest.fixture
def folder(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it, in which some rows are a part."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(trained, tmp_path, dirs_exist_ok=True)
    monkeypatch.setattr(executors, "_PART_ROWS", 15)
    return tmp_path


def read(path: str) -> dict[str, Any]:
    files = f"{path}/*.parquet" if Path(path).is_dir() else path
    return dict(duckdb.execute(f"SELECT * FROM '{files}' ORDER BY 1").fetchnumpy())


def types(path: str) -> list[str]:
    files = f"{path}/*.parquet" if Path(path).is_dir() else path
    return [str(each) for each in duckdb.sql(f"SELECT * FROM '{files}'").types]


def assert_same(one: str, other: str) -> None:
    """The same columns, types and rows, each once."""
    first, second = read(one), read(other)
    assert [*first] == [*second]
    assert types(one) == types(other)
    for name, values in first.items():
        if values.dtype.kind == "f":
            np.testing.assert_allclose(second[name], values, rtol=0, atol=1e-5)
        else:
            assert np.array_equal(second[name], values), name


def list_files() -> list[str]:
    return sorted(str(path) for path in Path().rglob("*"))


@pytest.mark.parametrize("flags", [[], ["--probabilities"], ["--threshold", "0.5"]])
def test_the_command_writes_a_folder_with_what_memory_writes(
    session: Any, folder: Path, flags: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    if flags[:1] == ["--threshold"]:
        label = "CASE label WHEN 0 THEN 'yes' ELSE 'no' END AS label"
        duckdb.execute(f"COPY (SELECT * REPLACE ({label}) FROM 'nodes.parquet') TO 'two.parquet'")
        two = [
            "--task",
            "binary",
            "--classes",
            "no,yes",
            "--positive",
            "yes",
            "--epsilon",
            "4",
            "--steps",
            "3",
        ]
        data = ["two.parquet", "--edges", "edges.parquet"]
        shutil.rmtree("run")
        assert main(["train", *data, *two, *FLAGS[2:6], "--quiet", "--out", "run"]) == 0
    else:
        data = ["nodes.parquet", "--edges", "edges.parquet"]
    capsys.readouterr()
    for kind, given in (("known", data), ("new", [NEW[0], "--edges", NEW[1], "--new"])):
        told = []
        for engine in ("memory", "spark"):
            call = ["predict", "run", *given, *flags, "--engine", engine, "--json"]
            assert main([*call, "--out", f"{kind}-{engine}.parquet"]) == 0, capsys.readouterr().err
            told.append(json.loads(capsys.readouterr().out))
        assert_same(f"{kind}-memory.parquet", f"{kind}-spark.parquet")
        written = Path(f"{kind}-spark.parquet")
        assert (written / "_SUCCESS").is_file()
        assert len([*written.glob("*.parquet")]) > 1
        for each in told:
            del each["out"]
            # The first few in the order of rows, or of names.
            assert len(each.pop("unknown_names", [])) <= 5
        assert told[0] == told[1]
    assert told[0]["unknown_places"] > 0
    assert [each for each in list_files() if each.endswith(".work")] == []


def test_either_end_lists_where_edges_are_symmetrized(session: Any, folder: Path) -> None:
    """Edges between new rows are in two parts and counted once."""
    run, options = hg.Run.load("run", device="cpu"), {"new": True, "symmetrize": True}
    turned = "SELECT target AS source, source AS target FROM 'lists.parquet' UNION ALL SELECT 1, 2"
    duckdb.execute(f"COPY ({turned}) TO 'turned.parquet'")
    data = (NEW[0], "turned.parquet")
    one = run.write_predictions(data, "m.parquet", **options)
    other = run.write_predictions(data, "s.parquet", engine="spark", **options)
    assert_same("m.parquet", "s.parquet")
    assert one.skipped is not None
    assert other.skipped is not None
    assert other.skipped.edges == one.skipped.edges > 0
    assert other.skipped.unknown == one.skipped.unknown > 0


def test_tables_by_relation_whose_columns_differ(session: Any, folder: Path) -> None:
    """Also where a relation is called as a table of nodes is, and where ids of one table are text."""
    duckdb.execute("COPY (SELECT source, target FROM 'edges.parquet' LIMIT 900) TO 'a.parquet'")
    text = "target::VARCHAR AS target, source::VARCHAR AS source, 'x' AS unused"
    duckdb.execute(f"COPY (SELECT {text} FROM 'edges.parquet' OFFSET 900) TO 'b.parquet'")
    names = 'nodes = "a.parquet"\npaid = "b.parquet"\n'
    Path("graph.toml").write_text(f'nodes = "nodes.parquet"\n[edges]\n{names}')
    own: dict[str, Any] = {"num_classes": 3, "epsilon": 4.0, "steps": 3, "hidden": 4, "progress": False}
    run = hg.train("graph.toml", out="by-relation", **own)
    new = 'nodes = "lists.parquet"\npaid = "turned.parquet"\n'
    duckdb.execute("COPY (SELECT source, target + 1 AS target FROM 'lists.parquet') TO 'turned.parquet'")
    Path("new.toml").write_text(f'nodes = "new.parquet"\n[edges]\n{new}')
    for data, is_new in (("graph.toml", False), ("new.toml", True)):
        run.write_predictions(data, "m.parquet", new=is_new, force=True)
        run.write_predictions(data, "s.parquet", new=is_new, engine="spark", force=True)
        assert Path("s.parquet").is_dir()
        assert_same("m.parquet", "s.parquet")


def test_a_private_mlp_reads_no_edge(session: Any, folder: Path) -> None:
    own: dict[str, Any] = {"num_classes": 3, "epsilon": 4.0, "steps": 3, "hidden": 4, "progress": False}
    data = ("nodes.parquet", "edges.parquet")
    run = hg.train(data, model="mlp", out="mlp", **own)
    run.write_predictions(data, "m.parquet")
    run.write_predictions(data, "s.parquet", engine="spark")
    assert Path("s.parquet").is_dir()
    assert_same("m.parquet", "s.parquet")


def test_files_do_not_tell_how_many_edges_there_are(
    session: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Edges decide how rows are cut; which rows a file has, and in which order, follows from ids alone."""
    monkeypatch.setattr(executors, "_PART_EDGES", 700)
    run = hg.Run.load("run", device="cpu")
    duckdb.execute("COPY (SELECT * FROM 'edges.parquet' LIMIT 1400) TO 'fewer.parquet'")
    held = []
    for edges in ("edges.parquet", "fewer.parquet"):
        run.write_predictions(("nodes.parquet", edges), "s.parquet", engine="spark", force=True)
        ids = [
            duckdb.execute(f"SELECT id FROM '{each}'").fetchall()
            for each in Path("s.parquet").glob("*.parquet")
        ]
        held.append(sorted(each for each in ids if each))
    assert held[0] == held[1]
    assert len(held[0]) > 10


def test_persons_with_blanks_around_their_names_come_together(session: Any, folder: Path) -> None:
    """Of every kind that there is."""
    person = "'c' || (id // 3) || CASE id % 3 WHEN 0 THEN chr(160) WHEN 1 THEN chr(8195) ELSE ' ' END"
    duckdb.execute(f"COPY (SELECT id, age, label, {person} AS holder FROM 'nodes.parquet') TO 'held.parquet'")
    data = ("held.parquet", "edges.parquet")
    own: dict[str, Any] = {"num_classes": 3, "epsilon": 4.0, "steps": 3, "hidden": 4, "progress": False}
    run = hg.train(data, person="holder", split="0.6/0.2/0.2", out="persons", **own)
    run.write_predictions(data, "m.parquet")
    run.write_predictions(data, "s.parquet", engine="spark")
    assert_same("m.parquet", "s.parquet")


def test_a_gap_in_ends_changes_no_other_id(session: Any, folder: Path) -> None:
    """Integers with a gap are floats where pandas wrote them."""
    gap = "SELECT source, CAST(target AS DOUBLE) AS target FROM 'lists.parquet' UNION ALL SELECT 1000, NULL"
    duckdb.execute(f"COPY ({gap}) TO 'gap.parquet'")
    own: dict[str, Any] = {"num_classes": 3, "epsilon": 4.0, "steps": 3, "hidden": 4, "progress": False}
    run = hg.train(("nodes.parquet", "edges.parquet"), unknown_ids="drop", out="dropping", **own)
    data = ("new.parquet", "gap.parquet")
    run.write_predictions(("new.parquet", "lists.parquet"), "m.parquet", new=True)
    run.write_predictions(data, "gap-m.parquet", new=True)
    run.write_predictions(data, "s.parquet", new=True, engine="spark")
    assert_same("m.parquet", "s.parquet")
    assert_same("gap-m.parquet", "s.parquet")


def test_no_row_passes_through_this_process(
    session: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Numbers that are counted do: one row of an aggregation at a time."""
    frame = type(session.range(1))
    collect, seen = frame.collect, []

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("rows were collected")

    def count(self: Any) -> Any:
        rows = collect(self)
        seen.append([type(value) for row in rows for value in row])
        return rows

    for name in ("toPandas", "toArrow", "toLocalIterator", "take", "head", "first", "tail", "rdd"):
        monkeypatch.setattr(frame, name, refuse)
    monkeypatch.setattr(frame, "collect", count)
    run = hg.Run.load("run", device="cpu")
    assert run.write_predictions(NEW, "s.parquet", new=True, engine="spark").nodes == 40
    assert seen == [[int, int, int], [int]]


def test_what_cannot_be_scored_is_one_line_and_leaves_nothing(session: Any, folder: Path) -> None:
    run = hg.Run.load("run", device="cpu")
    cells = {
        "empty": "SELECT * REPLACE (CASE id WHEN 1003 THEN NULL ELSE id END AS id) FROM 'new.parquet'",
        "twice": "SELECT * FROM 'new.parquet' UNION ALL SELECT * FROM 'new.parquet' LIMIT 41",
        "none": "SELECT * FROM 'new.parquet' LIMIT 0",
        "ages": "SELECT * REPLACE (CASE id WHEN 1003 THEN NULL ELSE age END AS age) FROM 'new.parquet'",
        "floats": "SELECT * REPLACE (id::DOUBLE AS id) FROM 'new.parquet'",
        "old": "SELECT id, age FROM 'nodes.parquet'",
        "moved": "SELECT * REPLACE (CASE id WHEN 3 THEN 5000 ELSE id END AS id) FROM 'nodes.parquet'",
        "few": "SELECT * FROM 'nodes.parquet' LIMIT 299",
        "open": "SELECT * FROM 'lists.parquet' UNION ALL SELECT NULL, 3",
        "foreign": "SELECT source, target + 5000 AS target FROM 'lists.parquet'",
        "renamed": "SELECT source AS payer, target FROM 'lists.parquet'",
    }
    for name, sql in cells.items():
        duckdb.execute(f"COPY ({sql}) TO '{name}.parquet'")
    Path("taken.parquet").mkdir()
    before = list_files()

    def check(nodes: str, edges: str, message: str, kind: type[InputError] = GraphError, **how: Any) -> None:
        options: dict[str, Any] = {"new": True, "out": "s.parquet", "engine": "spark"} | how
        with pytest.raises(kind, match=message) as failure:
            run.write_predictions((f"{nodes}.parquet", f"{edges}.parquet"), **options)
        assert "\n" not in str(failure.value)
        assert list_files() == before

    check("empty", "lists", r"empty\.parquet.*empty; expected the id of a node")
    check("twice", "lists", r"twice\.parquet.*expected each id once")
    check("none", "lists", r"none\.parquet: no rows")
    check("ages", "lists", r"ages\.parquet row \d+, column 'age': empty.*within a part")
    check("floats", "lists", r"floats\.parquet: column 'id' holds double; executors compare ids")
    check("old", "edges", r"ids are on the board already")
    check("new", "open", r"open\.parquet: 1 edges have an empty 'source' or 'target'")
    check("new", "foreign", r"none of the \d+ listed places is on the board: '5")
    check("new", "renamed", r"renamed\.parquet: no column 'source'; add or rename it")
    check("new", "nowhere", r"nowhere\.parquet: no such file")
    check("moved", "edges", r"'5000' was not there at training; give new nodes by", RunError, new=False)
    check("few", "edges", r"the data has 299 nodes and .* the run 300 and", RunError, new=False)
    check("new", "lists", r"it exists already", InputError, out="taken.parquet")
    check("new", "lists", r"a folder without predictions", WriteError, out="taken.parquet", force=True)
    check(
        "new", "lists", r"executors of Spark alone write there", InputError, out="s3a://b/c", engine="memory"
    )


def test_an_address_is_written_by_the_committer_and_not_over_what_is_there(
    session: Any, folder: Path
) -> None:
    """As where a file system has no rename: straight there, `_SUCCESS` last."""
    run = hg.Run.load("run", device="cpu")
    address = (folder / "far").as_uri()
    run.write_predictions(NEW, "m.parquet", new=True)
    run.write_predictions(NEW, address, new=True, engine="spark")
    assert (folder / "far" / "_SUCCESS").is_file()
    assert_same("m.parquet", "far")
    with pytest.raises(WriteError, match="far: Spark cannot write predictions there"):
        run.write_predictions(NEW, address, new=True, engine="spark")
    run.write_predictions(NEW, address, new=True, engine="spark", force=True)
    assert_same("m.parquet", "far")
    run.write_predictions(NEW, "m.parquet", new=True, engine="spark", force=True)
    assert_same("m.parquet", "far")
    # Neighbours in the clear are read by one process, which writes to no address.
    with pytest.raises(InputError, match="neighbours in the clear; name a file"):
        run.write_predictions(("nodes.parquet", "edges.parquet"), address, in_the_clear=True, engine="spark")


def test_what_executors_wrote_elsewhere_is_told(
    session: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyspark.sql import DataFrameWriter

    run, before, write = hg.Run.load("run", device="cpu"), list_files(), DataFrameWriter.parquet

    def lose(self: Any, path: str) -> None:
        write(self, path)
        next(Path(path.removeprefix("file://")).glob("*.parquet")).unlink()

    monkeypatch.setattr(DataFrameWriter, "parquet", lose)
    with pytest.raises(WriteError, match="executors of Spark wrote 40 predictions, and this process finds"):
        run.write_predictions(NEW, "s.parquet", new=True, engine="spark")
    assert list_files() == before


def test_packages_that_are_missing_are_named_with_the_remedy(
    session: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, real = hg.Run.load("run", device="cpu"), importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *_: None if name == "pyarrow" else real(name)
    )
    with pytest.raises(InputError, match=r"executors score by pyarrow; pip install 'pyspark\[sql\]'"):
        run.write_predictions(NEW, "s.parquet", new=True, engine="spark")
    told = executors._explain("out", "ModuleNotFoundError: No module named 'hushgraph'")
    assert f"install hushgraph {hg.__version__} where they run" in str(told)


# Processes of their own: what ends in a kill, and sessions that hushgraph opens itself.

PREDICT = """
import os, sys
import hushgraph as hg
from hushgraph.inference import executors
from hushgraph.training import run as run_module
executors._PART_ROWS = 15
engine, mark, kind = sys.argv[1:]
load = hg.Run.load

def fail_once(path, **options):
    import hushgraph, os, time
    if mark != "none":
        try:
            os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            pass
        else:
            if mark.endswith("slow"):
                time.sleep(10_000)
            raise OSError("this task fails once")
    return hushgraph.Run.load(path, **options)

run_module.PartScorer = lambda **given: executors.PartScorer(**given | {"load": fail_once})
data = ("new.parquet", "lists.parquet") if kind == "new" else ("nodes.parquet", "edges.parquet")
load("run", device="cpu").write_predictions(data, "s.parquet", new=kind == "new", engine=engine)
"""


def start(engine: str, mark: str, kind: str, **environment: str) -> subprocess.Popen[str]:
    home = str(Path(pyspark.__file__).parent)
    own = {**os.environ, "SPARK_HOME": home, "SPARK_LOCAL_IP": "127.0.0.1", **environment}
    own["PYTHONPATH"] = f"{ROOT / 'src'}:{own.get('PYTHONPATH', '')}"
    return subprocess.Popen(
        [sys.executable, "-c", PREDICT, engine, mark, kind],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=own,
    )


def test_a_task_that_fails_and_is_repeated_gives_each_row_once(folder: Path) -> None:
    """In a session of hushgraph's own, whose executors have the Python of this process."""
    hg.Run.load("run", device="cpu").write_predictions(NEW, "m.parquet", new=True)
    environment = {name: value for name, value in os.environ.items() if name == "PYSPARK_PYTHON"}
    os.environ.pop("PYSPARK_PYTHON", None)
    try:
        process = start("local[2,3]", str(folder / "mark"), "new")
        printed = process.communicate(timeout=500)
    finally:
        os.environ.update(environment)
    assert process.returncode == 0, printed
    assert Path("mark").exists()
    assert_same("m.parquet", "s.parquet")


def test_an_executor_killed_while_it_scores_costs_time_alone(folder: Path) -> None:
    hg.Run.load("run", device="cpu").write_predictions(("nodes.parquet", "edges.parquet"), "m.parquet")
    process = start("local-cluster[2,1,1024]", str(folder / "mark"), "known")
    wait_until(lambda: Path("mark").exists() or process.poll() is not None)
    assert process.poll() is None, process.communicate()
    os.kill(find_executors(process.pid)[0], signal.SIGKILL)
    printed = process.communicate(timeout=500)
    assert process.returncode == 0, printed
    assert_same("m.parquet", "s.parquet")
    assert [each for each in list_files() if ".work" in each] == []


@contextlib.contextmanager
def start_cluster(folder: Path) -> Iterator[str]:
    """The address of a cluster whose two workers are two hosts, as copies of a task need them."""
    home = str(Path(pyspark.__file__).parent)
    own = {**os.environ, "SPARK_HOME": home, "SPARK_LOCAL_IP": "127.0.0.1"}
    own |= {"SPARK_NO_DAEMONIZE": "1", "PYTHONPATH": f"{ROOT / 'src'}:{os.environ.get('PYTHONPATH', '')}"}
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    address, classes = f"spark://127.0.0.1:{port}", "org.apache.spark.deploy"
    words = [["master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"]]
    for host in ("127.0.0.1", "127.0.0.2"):
        more = ["--host", host, "--cores", "1", "--memory", "1g", "--webui-port", "0"]
        words.append(["worker.Worker", address, *more, "--work-dir", str(folder / host)])
    processes = []
    try:
        for name, *given in words:
            log = (folder / f"{len(processes)}.log").open("w")
            with log:
                command = [f"{home}/bin/spark-class", f"{classes}.{name}", *given]
                processes.append(subprocess.Popen(command, env=own, stdout=log, stderr=log))
        wait_until(lambda: (folder / "0.log").read_text().count("Registering worker") == 2, seconds=60)
        yield address
    finally:
        for process in processes:
            process.kill()
            process.wait()


def test_a_task_that_is_started_twice_because_it_is_slow_gives_each_row_once(folder: Path) -> None:
    """On a cluster: the first copy of one task never ends, so that only a speculative one can."""
    hg.Run.load("run", device="cpu").write_predictions(("nodes.parquet", "edges.parquet"), "m.parquet")
    Path("conf").mkdir()
    settings = {"": "true", ".interval": "100ms", ".quantile": "0.1", ".minTaskRuntime": "100ms"}
    lines = [f"spark.speculation{name} {value}\n" for name, value in settings.items()]
    Path("conf/spark-defaults.conf").write_text("".join(lines))
    mark = folder / "slow"
    with start_cluster(folder) as address:
        own = {"SPARK_CONF_DIR": str(folder / "conf"), "PYSPARK_PYTHON": sys.executable}
        process = start(address, str(mark), "known", **own)
        try:
            printed = process.communicate(timeout=150)
        finally:
            process.kill()
    assert process.returncode == 0, printed
    assert mark.exists()
    assert_same("m.parquet", "s.parquet")


def test_executors_without_the_package_are_one_line(folder: Path) -> None:
    missing = "raise ModuleNotFoundError(\"No module named 'hushgraph'\")\n"
    Path("other").mkdir()
    Path("other/hushgraph.py").write_text(missing)
    python = folder / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={folder}/other:$PYTHONPATH exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    process = start("local[2]", "none", "new", PYSPARK_PYTHON=str(python))
    _, told = process.communicate(timeout=500)
    last = told.strip().splitlines()[-1]
    assert "InputError: executors of Spark lack a package (ModuleNotFoundError: No module named" in last
    assert "'hushgraph'" in last
    assert not Path("s.parquet").exists()
