"""Shell completion: commands, flags, values and names of datasets, in three shells and without torch."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

# What the installed command does, and whether it cost more than it may.
COMPLETE = """
import sys
from hushgraph.cli.app import main
try:
    main([])
finally:
    print([name for name in ("torch", "torch_geometric", "numba") if name in sys.modules], file=sys.stderr)
"""


def completed(shell: str, line: str, folder: Path) -> list[str]:
    words = line.split(" ")
    variables = {
        "_HUSHGRAPH_COMPLETE": f"complete_{shell}",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(words) - 1),
        "_TYPER_COMPLETE_ARGS": line,
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
    }
    done = subprocess.run(
        [sys.executable, "-c", COMPLETE],
        env={**os.environ, **variables},
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    assert done.stderr == "[]\n"
    return [line.split("\t")[0] for line in done.stdout.split("\n") if line]


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
def test_bash(line: str, wanted: list[str], tmp_path: Path) -> None:
    for name in ("demography.npz", "demotape.mp3", "other.npz", "broken.toml"):
        (tmp_path / name).touch()
    assert completed("bash", line, tmp_path) == wanted


def test_zsh(tmp_path: Path) -> None:
    found = completed("zsh", "hushgraph train demo --model g", tmp_path)
    assert found == ['_arguments \'*: :(("gcn"', '"gin"', '"gat"))\'']
    assert completed("zsh", "hushgraph report ", tmp_path) == ["_files"]


def test_fish(tmp_path: Path) -> None:
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
