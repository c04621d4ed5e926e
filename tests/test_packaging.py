"""What is shipped: the metadata, the wheel, the source archive, extras, and that Python 3.11 can run it."""

from __future__ import annotations

import ast
import functools
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest
import torch

import hushgraph
from hushgraph.cli.app import main
from hushgraph.errors import InputError
from hushgraph.plots import canvas

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "hushgraph"
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
OLDEST = (3, 11)
# Of the repository: what is in the source archive.
FOLDERS = ("src", "tests", "docs", "benchmarks", "scripts", ".github")
# Of the standard library, what came after the oldest Python and is tempting.
NEWER = {
    "builtins": {"PythonFinalizationError"},
    "copy": {"replace"},
    "itertools": {"batched"},
    "math": {"fma", "sumprod"},
    "sys": {"monitoring"},
    "typing": {"NoDefault", "ReadOnly", "TypeAliasType", "TypeIs", "override"},
    "warnings": {"deprecated"},
}


def newer_names(tree: ast.AST) -> Iterator[str]:
    """Names in a module that the oldest Python does not have."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if alias.name in NEWER.get(str(node.module), ()):
                    yield f"{node.module}.{alias.name}"
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if node.attr in NEWER.get(node.value.id, ()):
                yield f"{node.value.id}.{node.attr}"
        elif isinstance(node, ast.Name) and node.id in NEWER["builtins"]:
            yield node.id


@functools.cache
def parse(path: Path) -> ast.Module:
    """The syntax tree of a file, as the oldest Python would read it."""
    return ast.parse(path.read_text(encoding="utf-8"), str(path), feature_version=OLDEST)


def test_every_file_is_for_the_oldest_python() -> None:
    """Tests are not shipped to users of the oldest Python; ruff, which knows it, checks their syntax."""
    wrong = []
    for path in [path for name in ("src", "benchmarks") for path in (ROOT / name).rglob("*.py")]:
        wrong += [f"{path.relative_to(ROOT)}: {name}" for name in newer_names(parse(path))]
    assert wrong == []


def test_the_check_for_the_oldest_python_can_fail() -> None:
    for line in ("from typing import override", "import math\nmath.sumprod([1], [2])"):
        assert list(newer_names(ast.parse(line)))
    with pytest.raises(SyntaxError):
        ast.parse("type Pair = tuple[int, int]", feature_version=OLDEST)


def test_the_metadata() -> None:
    assert PROJECT["requires-python"] == ">=" + ".".join(map(str, OLDEST))
    versions = [line.rpartition(" ")[2] for line in PROJECT["classifiers"] if ":: Python :: 3." in line]
    assert versions == ["3.11", "3.12", "3.13"]
    assert {"dev", "pyg"} <= set(PROJECT["optional-dependencies"])
    for group in (PROJECT["dependencies"], *PROJECT["optional-dependencies"].values()):
        unbounded = [needed for needed in group if ">=" not in needed]
        assert all(needed.startswith("hushgraph[") for needed in unbounded), unbounded


def test_torch_geometric_is_needed_by_its_bridge_and_the_catalog_alone() -> None:
    assert not [needed for needed in PROJECT["dependencies"] if needed.startswith("torch-geometric")]
    importing = [
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        if "torch_geometric" in path.read_text(encoding="utf-8")
        for node in ast.walk(parse(path))
        if (isinstance(node, ast.ImportFrom) and str(node.module).startswith("torch_geometric"))
        or (isinstance(node, ast.Import) and node.names[0].name.startswith("torch_geometric"))
    ]
    assert set(importing) == {"datasets/pyg.py", "datasets/catalog/formats.py"}


def test_the_command_is_installed() -> None:
    found = [entry for entry in entry_points(group="console_scripts") if entry.name == "hushgraph"]
    if not found:
        pytest.skip("hushgraph is not installed for this Python")
    assert callable(found[0].load())
    assert hushgraph.__version__ == PROJECT["version"]


def test_the_module_runs() -> None:
    for arguments in (["-m", "hushgraph", "--version"], ["-m", "hushgraph", "--help"]):
        done = subprocess.run(
            [sys.executable, *arguments], capture_output=True, text=True, check=True, timeout=300
        )
        assert "hushgraph" in done.stdout


def shipped_files() -> set[str]:
    """What the package consists of, as paths inside the wheel."""
    files = (path for path in PACKAGE.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {str(path.relative_to(PACKAGE.parent)) for path in files}


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel and the source archive, made from a copy of what they are made from."""
    if importlib.util.find_spec("setuptools") is None:
        pytest.skip("setuptools is not installed")
    copy = tmp_path_factory.mktemp("source")
    leave_out = shutil.ignore_patterns("__pycache__", "*.egg-info", ".venv", "build", "dist", ".*")
    for name in FOLDERS:
        shutil.copytree(ROOT / name, copy / name, ignore=leave_out)
    for path in ROOT.iterdir():
        if path.is_file() and path.name not in (".git", ".gitignore"):
            shutil.copy(path, copy / path.name)
    build = "from setuptools import build_meta as b; b.build_sdist('dist'); b.build_wheel('dist')"
    subprocess.run([sys.executable, "-c", build], cwd=copy, capture_output=True, check=True, timeout=300)
    return copy / "dist"


def test_the_wheel_has_the_whole_package_and_nothing_else(archives: Path) -> None:
    (wheel,) = archives.glob("*.whl")
    assert wheel.name == f"hushgraph-{PROJECT['version']}-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    package = {name for name in names if ".dist-info/" not in name}
    assert package == shipped_files()
    assert "hushgraph/py.typed" in package
    assert any(name.endswith("licenses/LICENSE") for name in names)


def test_the_source_archive_has_all_that_its_tests_read(archives: Path) -> None:
    (source,) = archives.glob("*.tar.gz")
    with tarfile.open(source) as archive:
        names = {name.split("/", 1)[-1] for name in archive.getnames()}
    copy, compiled = archives.parent, (".nbi", ".nbc", ".pyc")
    files = [path for name in FOLDERS for path in (copy / name).rglob("*") if path.is_file()]
    assert {str(path.relative_to(copy)) for path in files if path.suffix not in compiled} <= names
    listed = {"pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "CITATION.cff", "Containerfile"}
    assert listed <= names
    assert {"Makefile", "constraints.txt", "mkdocs.yml", ".dockerignore", ".pre-commit-config.yaml"} <= names
    assert not [name for name in names if name.endswith(compiled)]


# Run outside of the source tree, with the wheel in front: every template and table must be in it.
FROM_WHEEL = """
import sys
import hushgraph as hg
assert hg.__file__.startswith(sys.argv[1]), hg.__file__
data = hg.datasets.synthetic(num_nodes=120, num_classes=3, num_features=4, seed=1)
run = hg.train(data, epsilon=4.0, steps=2, hidden=4, device="cpu", out="run")
run.report("report.html", data=data)
print(run.card("README.md").splitlines()[1], "The guarantee holds" in run._repr_html_())
from hushgraph.reproduction.spec import names
print(len(names()) > 5)
"""


def lend_kernels(installed: Path) -> None:
    """Put what numba has compiled beside the same sources; compiling takes longer than all that is tested."""
    for path in PACKAGE.rglob("*.nb[ci]"):
        target = installed / path.relative_to(PACKAGE.parent)
        target.parent.mkdir(exist_ok=True)
        shutil.copy(path, target)
    for path in PACKAGE.rglob("*.py"):
        # numba knows a source by its size and its time.
        shutil.copystat(path, installed / path.relative_to(PACKAGE.parent))


def test_the_wheel_works_by_itself(archives: Path, tmp_path: Path) -> None:
    (wheel,) = archives.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "installed")
    lend_kernels(tmp_path / "installed")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "installed")}
    done = subprocess.run(
        [sys.executable, "-c", FROM_WHEEL, str(tmp_path / "installed")],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "library_name: hushgraph True\nTrue\n"


def test_versions_and_authors_agree() -> None:
    cited = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {PROJECT['version']}\n" in cited
    assert f"- name: {PROJECT['authors'][0]['name']}\n" in cited
    # A pin outside of what the metadata allows would never be installed together.
    pins = dict(re.findall(r"^([\w.-]+)==([\w.]+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE))
    lowered = {name.lower().replace("_", "-"): value for name, value in pins.items()}
    for needed in PROJECT["dependencies"]:
        name, _, least = needed.partition(">=")
        pinned = tuple(map(int, re.findall(r"\d+", lowered[name])))
        assert pinned >= tuple(map(int, re.findall(r"\d+", least))), needed


def test_pyg_that_is_not_installed_names_its_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    data = pytest.importorskip("torch_geometric.data").Data
    torch.save(data(x=torch.ones(3, 2), y=torch.tensor([0, 1, 0])), tmp_path / "saved.pt")
    hide("torch_geometric", monkeypatch)
    monkeypatch.chdir(tmp_path)
    assert main(["train", "saved.pt", "--epsilon", "4"]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "pip install 'hushgraph[pyg]'" in err
    assert "pyg" in PROJECT["optional-dependencies"]


def test_matplotlib_that_is_not_installed_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    hide("matplotlib", monkeypatch)
    with pytest.raises(InputError, match=re.escape("pip install 'hushgraph[plots]'")), canvas.drawing():
        pass
    assert "plots" in PROJECT["optional-dependencies"]


def hide(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let it seem that this is not installed."""
    for name in [name for name in sys.modules if name.partition(".")[0] == module]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)
