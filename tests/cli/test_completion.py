"""Shell completion: commands, flags, values and names of datasets, in three shells and without torch."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

# What the installed command does, and whether it cost more than it may. Every line of JSON is one completion,
# by a child that need not import the commands.
COMPLETE = """
import json, os, sys
from hushgraph.cli.app import build_app, main
build_app()
for line in sys.stdin:
    order = json.loads(line)
    child = os.fork()
    if not child:
        os.chdir(order["folder"])
        os.environ.update(order["variables"])
        for number, name in ((1, "out"), (2, "err")):
            os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
        try:
            main([])
        finally:
            heavy = [name for name in ("torch", "torch_geometric", "numba") if name in sys.modules]
            print(heavy, file=sys.stderr)
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(0)
    os.waitpid(child, 0)
    print("done", flush=True)
"""
Complete = Callable[[str, str, Path], list[str]]


@pytest.fixture(scope="module")
def completed() -> Iterator[Complete]:
    """Completes a line in a folder, as a shell would ask for it."""
    with subprocess.Popen(
        [sys.executable, "-c", COMPLETE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        commands, answers = process.stdin, process.stdout

        def call(shell: str, line: str, folder: Path) -> list[str]:
            variables = {
                "_HUSHGRAPH_COMPLETE": f"complete_{shell}",
                "COMP_WORDS": line,
                "COMP_CWORD": str(len(line.split(" ")) - 1),
                "_TYPER_COMPLETE_ARGS": line,
                "_TYPER_COMPLETE_FISH_ACTION": "get-args",
            }
            print(json.dumps({"variables": variables, "folder": str(folder)}), file=commands, flush=True)
            assert answers.readline() == "done\n"
            assert (folder / "err").read_text() == "[]\n"
            return [line.split("\t")[0] for line in (folder / "out").read_text().split("\n") if line]

        yield call


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("hushgraph tr", ["train"]),
        ("hushgraph train --enc", ["--encoder-layers"]),
        ("hushgraph train demo --model g", ["gcn", "gin", "gat"]),
        ("hushgraph compare demo --model ", ["gcn", "gin", "gat"]),
        ("hushgraph plan --edge-owner r", ["reader"]),
        ("hushgraph train dem", ["demo", "demography.npz"]),
        ("hushgraph train --epsilon 4 dem", ["demo", "demography.npz"]),
        ("hushgraph train --config broken.toml --epsi", ["--epsilon"]),
        # Other paths are left to the shell, which knows them better.
        ("hushgraph train data/", []),
        ("hushgraph report ", []),
    ],
)
def test_bash(line: str, wanted: list[str], completed: Complete, tmp_path: Path) -> None:
    for name in ("demography.npz", "demotape.mp3", "other.npz", "broken.toml"):
        (tmp_path / name).touch()
    assert completed("bash", line, tmp_path) == wanted


def test_zsh(completed: Complete, tmp_path: Path) -> None:
    found = completed("zsh", "hushgraph train demo --model g", tmp_path)
    assert found == ['_arguments \'*: :(("gcn"', '"gin"', '"gat"))\'']
    assert completed("zsh", "hushgraph report ", tmp_path) == ["_files"]


def test_fish(completed: Complete, tmp_path: Path) -> None:
    assert completed("fish", "hushgraph train demo --model g", tmp_path) == ["gcn", "gin", "gat"]
    assert completed("fish", "hushgraph tr", tmp_path) == ["train"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_shell_has_a_script(shell: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "hushgraph"],
        env={**os.environ, "_HUSHGRAPH_COMPLETE": f"source_{shell}"},
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    assert f"_HUSHGRAPH_COMPLETE=complete_{shell}" in done.stdout


def test_installed_in_bash_it_completes(tmp_path: Path) -> None:
    command = Path(sys.executable).parent / "hushgraph"
    if shutil.which("bash") is None or not command.exists():
        pytest.skip("needs bash and hushgraph installed beside this Python")
    script = """
    hushgraph --install-completion || exit 1
    source ~/.bashrc
    COMP_WORDS=(hushgraph train --model g) COMP_CWORD=3
    _hushgraph_completion hushgraph
    echo "${COMPREPLY[@]}"
    """
    path = f"{command.parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "--norc", "-c", script],
        env={**os.environ, "HOME": str(tmp_path), "PATH": path},
        capture_output=True,
        text=True,
        timeout=300,
    )
    if "not supported" in done.stderr or "Shell detection failed" in done.stderr:
        pytest.skip("the shell could not be found out here")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "gcn gin gat"
