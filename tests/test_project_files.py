"""Files that describe the project agree: workflow, metadata, citation, hooks, templates, make targets."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parent.parent
MAKEFILE = ROOT / "Makefile"
TEMPLATES = ROOT / ".github" / "ISSUE_TEMPLATE"

if not (ROOT / ".github").is_dir():
    pytest.skip("the source archive has no files of the repository's host", allow_module_level=True)


def read_yaml(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def read_project() -> dict[str, Any]:
    with (ROOT / "pyproject.toml").open("rb") as file:
        project: dict[str, Any] = tomllib.load(file)["project"]
    return project


def read_recipe(target: str) -> list[str]:
    """The commands of a target, with the folder of programs written out."""
    (recipe,) = re.findall(rf"^{target}:.*\n((?:\t.*\n)+)", MAKEFILE.read_text(), re.MULTILINE)
    return [line.strip().replace("$(BIN)", ".venv/bin") for line in recipe.splitlines()]


def read_targets() -> list[str]:
    (targets,) = re.findall(r"^\.PHONY: (.+)$", MAKEFILE.read_text(), re.MULTILINE)
    return str(targets).split()


def test_the_workflow_tests_every_supported_python() -> None:
    jobs = read_yaml(ROOT / ".github" / "workflows" / "test.yml")["jobs"]
    job = jobs["test"]
    versions = job["strategy"]["matrix"]["python-version"]
    prefix = "Programming Language :: Python :: 3."
    assert versions == [line.split()[-1] for line in read_project()["classifiers"] if line.startswith(prefix)]
    assert all(isinstance(version, str) for version in versions), "3.10 without quotes is the number 3.1"
    assert [step["run"] for step in job["steps"] if "run" in step] == ["make test PYTHON=python"]
    assert [step["run"] for step in jobs["kernels"]["steps"] if "run" in step] == [
        "make kernel-test PYTHON=python"
    ]


def test_every_line_of_the_constraints_is_a_pin() -> None:
    for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines():
        assert line.startswith("#") or re.fullmatch(r"[\w.-]+==[\w.]+", line), line


def test_help_lists_every_target_with_a_sentence() -> None:
    if shutil.which("make") is None:
        pytest.skip("make is not installed")
    printed = subprocess.run(
        ["make", "--no-print-directory", "-C", str(ROOT)],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    lines = [re.fullmatch(r"make (\S+) +([A-Z].+\.)", line) for line in printed.stdout.splitlines()]
    assert all(lines), printed.stdout
    assert sorted(line[1] for line in lines if line) == sorted(read_targets())
    assert set(read_targets()) >= {"help", "demo", "test", "docs", "bench", "lint", "clean"}


def test_hooks_before_a_commit_run_what_make_lint_runs() -> None:
    (repository,) = read_yaml(ROOT / ".pre-commit-config.yaml")["repos"]
    # What is before the bars leaves mypy out on the oldest Python.
    commands = [line.rpartition(" || ")[2] for line in read_recipe("lint")]
    assert [hook["entry"] for hook in repository["hooks"]] == commands
    # Programs of .venv have the versions of constraints.txt; a hook from elsewhere would name one of its own.
    assert repository["repo"] == "local"
    assert not any(hook["pass_filenames"] for hook in repository["hooks"])


def test_the_citation_is_of_this_version() -> None:
    citation, project = read_yaml(ROOT / "CITATION.cff"), read_project()
    assert citation["version"] == project["version"]
    assert citation["license"] == project["license"]
    assert citation["keywords"] == project["keywords"]
    (paper,) = citation["references"]
    assert paper["title"] == "Node-Level Differentially Private Graph Neural Networks"
    names = [author["family-names"] for author in paper["authors"]]
    assert names == ["Daigavane", "Madan", "Sinha", "Thakurta", "Aggarwal", "Jain"]


@pytest.mark.parametrize("name", ["bug.yml", "guarantee.yml"])
def test_issues_ask_for_version_command_and_plan_but_never_for_data(name: str) -> None:
    form = read_yaml(TEMPLATES / name)
    fields = {part["id"]: part for part in form["body"] if part["type"] != "markdown"}
    required = {key for key, part in fields.items() if part["validations"]["required"]}
    assert required >= {"version", "command", "plan"}
    notes = " ".join(part["attributes"]["value"] for part in form["body"] if part["type"] == "markdown")
    assert "Never attach data" in notes
    assert not [
        part for part in fields.values() if re.search(r"\b(data|graph)\b", part["attributes"]["label"])
    ]
