"""Tables that Spark reads: the numbers of memory, from files, catalogs, DataFrames and Spark Connect."""

from __future__ import annotations

import importlib.util
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
from benchmark_scripts import ROOT, script
from hushgraph.cli.app import main
from hushgraph.datasets import spark as spark_module
from hushgraph.datasets.engine import use_engine
from hushgraph.datasets.spark import read_by_spark
from hushgraph.datasets.tables.files import find_tables
from hushgraph.datasets.tables.reading import open_pair
from hushgraph.errors import GraphError, InputError, WriteError
from hushgraph.graph.columns import Columns
from hushgraph.privacy.ledger import Ledger
from hushgraph.runs.folder import RunFolder
from spark_processes import find_executors, wait_until

pyspark = pytest.importorskip("pyspark", reason="Spark is not installed: pip install 'hushgraph[spark]'")
if shutil.which("java") is None or subprocess.run(["java", "-version"], capture_output=True).returncode:
    pytest.skip("Spark needs Java, and there is none", allow_module_level=True)

# Spark leaves sockets to its gateway for Python to close.
pytestmark = pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)
Tables = tuple[Path, Path]
SETTINGS: dict[str, Any] = {"num_classes": 3, "epsilon": 4.0, "steps": 3, "hidden": 4, "progress": False}
IGNORE: dict[str, Any] = {"columns": {"ignore": ["notes"]}}
FLAGS = ["--epsilon", "4", "--steps", "3", "--hidden", "4", "--num-classes", "3"]
# Of benchmarks/engine_settings.py: every task, owner, scaling and kind of columns and records.
NUMBERS = (0, 1, 2, 3, 4, 6, 7, 8, 9, 14, 19, 23, 32, 41)


@pytest.fixture(scope="module")
def session() -> Iterator[Any]:
    """A session in this process, whose reads are cut into many splits."""
    from pyspark.sql import SparkSession

    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
    }
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master("local[2]").appName("hushgraph tests")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield session
    gateway = session.sparkContext._gateway
    session.stop()
    spark_module._end_gateway(gateway)


@pytest.fixture
def tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tables:
    """300 people in no order of their identifiers, and 2,000 edges."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(1)
    ids, y = rng.permutation(300), rng.integers(0, 3, 300)
    split = np.array(["train", "val", "test"])[rng.integers(0, 3, 300)]
    cells = {"id": ids, "age": rng.normal(size=300) + y, "label": y, "split": split, "notes": split}
    ends = rng.integers(0, 300, (2, 2_000))
    Path("people").mkdir()
    for name, table in (("nodes", cells), ("edges", {"source": ends[0], "target": ends[1]})):
        with duckdb.connect() as connection:
            connection.register("given", table)
            connection.execute(f"COPY given TO 'people/{name}.parquet'")
    return Path("people/nodes.parquet"), Path("people/edges.parquet")


def list_files() -> list[str]:
    return sorted(str(path) for path in Path().rglob("*"))


def charges(path: str) -> tuple[int, int]:
    ledger = Ledger.open(Path(path) / "ledger.jsonl", plan=RunFolder.open(path).plan, read_only=True)
    return ledger.releases_charged, ledger.steps_charged


def load_by_spark(data: Any, **options: Any) -> Any:
    with use_engine("spark", data, beside=Path("run")):
        return hg.datasets.load_graph(data, **options)


def assert_same(one: Any, other: Any) -> None:
    for name in ("x", "y", "indptr", "indices", "node_names", "train_idx", "val_idx", "test_idx"):
        assert np.array_equal(getattr(one, name), getattr(other, name)), name


@pytest.mark.parametrize("number", NUMBERS)
def test_a_run_has_the_numbers_that_it_has_in_memory(session: Any, number: int, tmp_path: Path) -> None:
    """Boards, histograms and tables of figures bit for bit, under the same keys; and files of predictions."""
    settings = script("engine_settings")
    result = settings.run_both(tmp_path, number, "spark")
    assert settings.is_same(result), result
    assert result["charges equal"]
    is_trees = number % 9 == 8
    assert result["known rows"]["in executors"] != is_trees
    assert ("new rows" in result) != is_trees


def test_types_arrive_as_the_table_gives_them(session: Any, tmp_path: Path) -> None:
    """Types and cells, as DuckDB reads them from the same file."""
    cells = {
        "id": "i",
        "tiny": "i::TINYINT",
        "flag": "i % 2 = 0",
        "price": "i::DECIMAL(9, 2)",
        "born": "DATE '1999-01-01' + i::INTEGER",
        "seen": "TIMESTAMP '2020-01-01 01:02:03.5' + INTERVAL (i) DAY",
        "zoned": "TIMESTAMPTZ '2020-06-01 12:00:00+02'",
        "tags": "['a', NULL, 'b' || i]",
        "a.b `c`": "CASE WHEN i > 2 THEN 'é\",' || i END",
        "part": "(i / 3)::FLOAT",
        "nothing": "NULL::DOUBLE",
    }
    sql = ", ".join(f'{cell} AS "{name}"' for name, cell in cells.items())
    sql = f"SELECT {sql} FROM range(100) AS t(i)"
    path = tmp_path / "no[d]es.parquet"
    duckdb.execute(f"COPY ({sql}) TO '{path}'")
    edges = tmp_path / "edges.parquet"
    duckdb.execute(f"COPY (SELECT 1 AS source, 2 AS target) TO '{edges}'")
    with read_by_spark("spark"), duckdb.connect() as connection:
        files = find_tables((path, edges), connection, tmp_path, columns={"label": "tiny"})
        nodes, _ = open_pair(connection, files, Columns(), is_fixed=False)
        whole = duckdb.sql(f"SELECT * FROM read_parquet('{tmp_path}/no[[]d]es.parquet')")
        assert list(nodes.names) == whole.columns
        assert list(nodes.types) == [str(kind) for kind in whole.types]
        assert nodes.shown == str(path)
        assert (
            connection.execute(f"SELECT * FROM {nodes.cells}", nodes.patterns).fetchall() == whole.fetchall()
        )


def test_texts_of_csv_are_read_as_they_are_without_spark(session: Any, tables: Tables) -> None:
    Path("n.csv").write_text('id;age;city;label;split\na;"1,5";"x ""y""\nz";0;train\n" b";2;"";1;val\n')
    options: dict[str, Any] = {"columns": {"delimiter": ";", "decimal": {"age": ","}, "hashed": {"city": 64}}}
    Path("e.csv").write_text("source;target\na; b\n")
    expected = hg.datasets.load_graph(("n.csv", "e.csv"), num_classes=2, **options)
    assert_same(load_by_spark(("n.csv", "e.csv"), num_classes=2, **options), expected)
    assert expected.num_edges == 1
    Path("n.csv").write_text("id,label,split,age\na,0,train,1\nb,1,train\n")
    before = list_files()
    with pytest.raises(GraphError, match=r"n\.csv: Spark cannot read it"):
        load_by_spark(("n.csv", tables[1]), num_classes=2)
    assert list_files() == before


@pytest.mark.parametrize("split_bytes", ["500", "1000000"])
def test_nodes_are_in_the_order_of_their_files(session: Any, tables: Tables, split_bytes: str) -> None:
    """Whatever splits Spark makes; files of a list are in the order of the list."""
    for name, rows in (("a", "id < 100"), ("b", "id BETWEEN 100 AND 250"), ("c", "id > 250")):
        part = f"SELECT * FROM '{tables[0]}' WHERE {rows} ORDER BY hash(id)"
        duckdb.execute(f"COPY ({part}) TO '{name}.parquet'")
    session.conf.set("spark.sql.files.maxPartitionBytes", split_bytes)
    try:
        for nodes in (["c.parquet", "a.parquet", "b.parquet"], "?.parquet"):
            data = (nodes, tables[1])
            assert_same(load_by_spark(data, **IGNORE), hg.datasets.load_graph(data, **IGNORE))
    finally:
        session.conf.unset("spark.sql.files.maxPartitionBytes")


def test_frames_catalogs_addresses_and_folders_are_one_graph(session: Any, tables: Tables) -> None:
    """What has no order is in that of its identifiers; a DataFrame may be in any number of parts."""
    Path("sorted").mkdir()
    duckdb.execute(f"COPY (SELECT * FROM '{tables[0]}' ORDER BY id) TO 'sorted/nodes.parquet'")
    shutil.copy(tables[1], "sorted/edges.parquet")
    expected = hg.datasets.load_graph("sorted", **IGNORE)
    here = Path("sorted").absolute()
    frames = [session.read.parquet(f"file://{here}/{name}.parquet") for name in ("nodes", "edges")]
    shuffled = frames[0].repartition(3, "age"), frames[1].repartition(4, "target")
    shuffled[0].createOrReplaceTempView("people")
    named = f'nodes = "spark-table:people"\nedges = "file://{here}/edges.parquet"'
    Path("graph.toml").write_text(f'{named}\n[columns]\nignore = ["notes"]\n')
    catalog = "spark-table:people", f"spark-table:parquet.`{here}/edges.parquet`"
    for data in (
        "sorted",
        shuffled,
        catalog,
        (f"file://{here}/nodes.parquet", [f"file://{here}/edges.parquet"]),
    ):
        assert_same(load_by_spark(data, **IGNORE), expected)
    assert_same(load_by_spark("graph.toml"), expected)
    with pytest.raises(GraphError, match=r"people: Spark alone reads it; add --engine spark"):
        hg.datasets.load_graph(catalog)
    with pytest.raises(GraphError, match="a DataFrame of Spark: Spark alone reads it"):
        hg.datasets.load_graph(shuffled)
    with pytest.raises(GraphError, match=r"hdfs://a/b: one table; expected nodes and edges"):
        load_by_spark("hdfs://a/b")


def test_columns_without_a_role_are_not_read(session: Any, tables: Tables, tmp_path: Path) -> None:
    with read_by_spark("spark"), duckdb.connect() as connection:
        files = find_tables(tables, connection, tmp_path, columns={"features": ["age"]})
        cells = connection.execute(f"SELECT * FROM '{files.nodes[0]}/*.parquet'").fetchnumpy()
        names = [name for name in cells if not np.ma.getmaskarray(cells[name]).all()]
        assert names == ["id", "age", "label", "split"]
        assert [*cells] == [*names, "notes"]
        # What is missing is told before rows are read.
        wrong = find_tables(tables, connection, tmp_path / "other", columns={"label": "lable"})
        assert next(iter(wrong.origins.values())).rows == 0
    before = list_files()
    with pytest.raises(GraphError, match=r"nodes\.parquet: no column 'lable'.*did you mean 'label'"):
        hg.train(tables, engine="spark", out="run", columns={"label": "lable"}, **SETTINGS)
    with pytest.raises(GraphError, match="'notes' holds VARCHAR; expected numbers"):
        hg.train(tables, engine="spark", out="run", **SETTINGS)
    assert list_files() == before


def test_no_row_passes_through_this_process(
    session: Any, tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = type(session.range(1))

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("rows were collected")

    for name in ("collect", "toPandas", "toArrow", "toLocalIterator", "take", "head", "first", "tail", "rdd"):
        monkeypatch.setattr(frame, name, refuse)
    run = hg.train(tables, engine="spark", out="run", **IGNORE, **SETTINGS)
    assert run.result["guarantee"] == "holds"
    assert charges("run") == (4, 3)


def test_settings_of_the_callers_session_stay(session: Any, tables: Tables) -> None:
    session.conf.set("spark.sql.parquet.outputTimestampType", "INT96")
    old = {name: session.conf.get(name, None) for name in spark_module._WRITING}
    load_by_spark(tables, **IGNORE)
    assert {name: session.conf.get(name, None) for name in spark_module._WRITING} == old
    session.conf.unset("spark.sql.parquet.outputTimestampType")
    assert session.range(3).count() == 3


def test_train_predict_and_new_nodes_with_the_flags_of_memory(
    session: Any, tables: Tables, capsys: pytest.CaptureFixture[str]
) -> None:
    data = [str(tables[0]), "--edges", str(tables[1])]
    assert (
        main(["train", *data, *FLAGS, "--ignore", "notes", "--engine", "spark", "--out", "run", "--quiet"])
        == 0
    )
    duckdb.execute("COPY (SELECT 'n' || i AS id, i / 9.0 AS age FROM range(40) AS t(i)) TO 'new.parquet'")
    lists = "SELECT 'n' || i % 40 AS source, (i * 7 % 310)::VARCHAR AS target FROM range(200) AS t(i)"
    duckdb.execute(f"COPY ({lists}) TO 'lists.parquet'")
    new = ["new.parquet", "--edges", "lists.parquet", "--new"]
    for kind, given in (("own", data), ("new", new)):
        for engine in ("memory", "spark"):
            call = ["predict", "run", *given, "--probabilities", "--engine", engine, "--quiet"]
            assert main([*call, "--out", f"{kind}-{engine}.csv"]) == 0, capsys.readouterr().err
        assert Path(f"{kind}-spark.csv").read_text() == Path(f"{kind}-memory.csv").read_text()
    assert len(Path("own-spark.csv").read_text().splitlines()) == 301
    before = list_files()
    assert (
        main(["train", *data, *FLAGS, "--ignore", "notes", "--engine", "spark", "--dry-run", "--quiet"]) == 0
    )
    assert main(["train", *data, "--resume", "run", "--engine", "spark", "--quiet"]) == 0
    assert list_files() == before


def test_what_executors_wrote_elsewhere_is_told_before_anything_is_charged(
    session: Any, tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No file, or some of them: executors and driver do not see one folder."""
    from pyspark.sql import DataFrameWriter

    write = DataFrameWriter.parquet
    before = list_files()

    def lose(self: Any, path: str) -> None:
        write(self, path)
        written = sorted(Path(path.removeprefix("file://")).glob("*.parquet"))
        for each in written[: 1 if len(written) > 1 else None]:
            each.unlink()

    monkeypatch.setattr(DataFrameWriter, "parquet", lose)
    for parts in (1, 3):
        frames = [session.read.parquet(f"file://{each.absolute()}") for each in tables]
        with pytest.raises(
            GraphError, match=r"executors of Spark wrote [\d,]+ rows to .* this process finds"
        ):
            hg.train((tables[0], frames[1].repartition(parts)), engine="spark", out="run", **SETTINGS)
    assert list_files() == before


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (
            ("nodes.parquet", "spark-table:no.table"),
            r"spark-table:no\.table: Spark cannot read it \(The table or",
        ),
        (("file:///nowhere/n", "edges.parquet"), r"n: Spark cannot read it \(Path does not exist"),
        (("hdfs://no-such-host/n", "edges.parquet"), r"Spark cannot read it \(java|no-such-host"),
        (("damaged.parquet", "edges.parquet"), "damaged.parquet: Spark cannot read it"),
        (("nanoseconds.parquet", "edges.parquet"), "Illegal Parquet type"),
    ],
)
def test_what_spark_cannot_read_is_one_line_and_leaves_nothing(
    session: Any, tables: Tables, names: tuple[str, str], message: str
) -> None:
    Path("people/damaged.parquet").write_text("no table")
    duckdb.execute("COPY (SELECT 1 AS id, now()::TIMESTAMP_NS AS t) TO 'people/nanoseconds.parquet'")
    before = list_files()
    data = tuple(name if ":" in name else f"people/{name}" for name in names)
    with pytest.raises(GraphError, match=message) as failure:
        hg.train(data, engine="spark", out="run", **SETTINGS)
    assert "\n" not in str(failure.value)
    assert "org.apache" not in str(failure.value)
    assert list_files() == before


def test_a_folder_where_executors_cannot_write_is_one_line(session: Any, tables: Tables) -> None:
    with (
        read_by_spark("spark"),
        pytest.raises(WriteError, match=r"/proc: executors of Spark cannot write there \(Mkdirs failed"),
    ):
        find_tables(tables, None, Path("/proc"), columns={})


def test_what_spark_lacks_is_one_line_with_the_remedy(
    session: Any, tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyspark.sql import SparkSession

    before = list_files()

    def check(engine: str, message: str) -> None:
        with pytest.raises(InputError, match=message) as failure:
            hg.train(tables, engine=engine, out="run", **IGNORE, **SETTINGS)
        assert "\n" not in str(failure.value)
        assert list_files() == before

    check("local[2]", "a session of Spark is open already; give engine='spark' to use it")
    check("sprak", "did you mean 'spark'")
    check("yarn:8", "or a master of Spark, such as local")
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: None)
    check(
        "spark://127.0.0.1:9", r"cannot be reached \(Connection refused\); start it, or correct the address"
    )
    check("spark://127.0.0.1:x", "cannot be reached")
    check("sc://127.0.0.1:9/;token=x", r"cannot be reached \(Connection refused\)")
    monkeypatch.setenv("SPARK_REMOTE", "sc://127.0.0.1:9")
    check("spark", r"cannot be reached \(Connection refused\)")
    monkeypatch.delenv("SPARK_REMOTE")
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    check("spark", r"Spark needs Java 17 or newer.*apt-get install default-jre")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    check("spark", r"not installed; pip install 'hushgraph\[spark\]'")
    with pytest.raises(InputError, match="it reads tables"):
        hg.train("demo", engine="spark", out="run", epsilon=4.0)


def test_errors_of_spark_lose_classes_tasks_and_traces() -> None:
    text = (
        "An error occurred while calling o69.parquet.\n: org.apache.spark.SparkException: Job aborted due to "
        "stage failure: Task 1 in stage 2.0 failed 1 times, most recent failure: Lost task 1.0 in stage 2.0 "
        "(TID 4) (192.0.2.2 executor driver): java.io.IOException: Mkdirs failed to create file:/a\n\tat "
        "org.apache.x\n"
    )
    assert spark_module._shorten(text) == "Mkdirs failed to create file:/a"
    assert spark_module._shorten("[PATH_NOT_FOUND] No path: a/b. SQLSTATE: 42K03") == "No path: a/b"
    assert spark_module._shorten("") == ""
    assert len(str(spark_module._explain("a", Path("/b"), "x" * 1_000))) < 300


# Processes of their own: what ends in a kill, and sessions that hushgraph opens itself.

TRAIN = """
import sys
sys.path.insert(0, {benchmarks!r})
from engine_settings import test_keys
import numba, torch
import hushgraph as hg
torch.set_num_threads(1); numba.set_num_threads(1)
engine, out, *data = sys.argv[1:]
with test_keys(5):
    hg.train(tuple(data), engine=engine, out=out, columns={{"ignore": ["notes"]}}, **{settings!r})
"""


def start(engine: str, out: str, data: Tables, **environment: str) -> subprocess.Popen[str]:
    """Train in a process of its own, under test keys."""
    code = TRAIN.format(benchmarks=str(ROOT / "benchmarks"), settings=SETTINGS)
    home = str(Path(pyspark.__file__).parent)
    return subprocess.Popen(
        [sys.executable, "-c", code, engine, out, *map(str, data)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "SPARK_HOME": home, "SPARK_LOCAL_IP": "127.0.0.1", **environment},
    )


def end(process: subprocess.Popen[str]) -> tuple[str, str]:
    """What it printed; fails where it did not succeed."""
    printed = process.communicate(timeout=500)
    assert process.returncode == 0, printed[1]
    return printed


def assert_like_memory(out: str, tables: Tables) -> None:
    """One board, one charge, the numbers of memory, nothing beside it."""
    end(start("memory", "expected", tables))
    assert charges(out) == charges("expected") == (4, 3)
    settings = script("engine_settings")
    for path in settings.list_releases(RunFolder.open("expected")):
        assert settings.same_release(path, Path(out) / path.name), path.name
    assert sorted(path.name for path in Path().iterdir()) == ["expected", "people", out]


def write_conf(**settings: str) -> str:
    """A folder of Spark's own settings."""
    Path("people/conf").mkdir()
    lines = [f"{name.replace('_', '.')} {value}\n" for name, value in settings.items()]
    Path("people/conf/spark-defaults.conf").write_text("".join(lines))
    return str(Path("people/conf").absolute())


def test_an_executor_killed_while_it_writes_costs_time_alone(tables: Tables) -> None:
    conf = write_conf(spark_sql_files_maxPartitionBytes="500", spark_sql_files_openCostInBytes="1")
    process = start("local-cluster[2,1,1024]", "run", tables, SPARK_CONF_DIR=conf)
    wait_until(lambda: [*Path("run.work").rglob("_temporary/0/_temporary/*/*.parquet")] or process.poll())
    assert process.poll() is None, process.communicate()
    executors = find_executors(process.pid)
    assert executors
    os.kill(executors[0], signal.SIGKILL)
    end(process)
    assert_like_memory("run", tables)


def test_a_driver_killed_while_spark_writes_leaves_what_the_next_call_removes(tables: Tables) -> None:
    """Then two drivers at once: one of them has the run, and the other is refused in one line."""
    process = start("local[2]", "run", tables)
    wait_until(lambda: [*Path("run.work").rglob("*.parquet")] or process.poll())
    process.kill()
    process.communicate()
    assert not Path("run").exists()
    assert Path("run.work").exists()
    both = [start("local[2]", "run", tables) for _ in range(2)]
    printed = [each.communicate(timeout=500) for each in both]
    codes = [each.returncode for each in both]
    assert sorted(codes) == [0, 1], printed
    refused = printed[codes.index(1)][1].strip().splitlines()[-1]
    assert "RunError: out=run: it holds" in refused
    # The log of Java is not shown.
    assert printed[codes.index(0)] == ("", "")
    assert_like_memory("run", tables)


def test_a_spark_that_cannot_start_is_one_line(tables: Tables) -> None:
    """Settings that no Spark can have; what Java says of it is not shown."""
    conf = write_conf(spark_driver_memory="1")
    process = start("local[2]", "run", tables, SPARK_CONF_DIR=conf)
    out, err = process.communicate(timeout=300)
    assert out == ""
    last = err.strip().splitlines()[-1]
    assert "InputError: engine='local[2]': Spark cannot be started (" in last
    assert "org.apache" not in err
    assert sorted(path.name for path in Path().iterdir()) == ["people"]


def test_spark_connect_reads_where_its_server_and_this_process_see_one_folder(tables: Tables) -> None:
    for name in ("grpc", "grpc_status", "pandas", "pyarrow"):
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"Spark Connect needs {name}")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    home = Path(pyspark.__file__).parent
    command = [f"{home}/bin/spark-submit", "--master", "local[2]", "--conf", "spark.ui.enabled=false"]
    command += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]
    command += ["--conf", f"spark.connect.grpc.binding.port={port}", "spark-internal"]
    own = {**os.environ, "SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1"}
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=own)

    def is_up() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    try:
        wait_until(is_up)
        end(start(f"sc://127.0.0.1:{port}", "run", tables))
    finally:
        server.terminate()
        server.wait()
    assert_like_memory("run", tables)
