"""Files that describe the project agree: workflow, metadata, citation, hooks, templates, make targets."""

from __future__ import annotations

import importlib.util
import json
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


WORKFLOWS = sorted((ROOT / ".github" / "workflows").iterdir())


def list_pythons() -> list[str]:
    prefix = "Programming Language :: Python :: 3."
    return [line.split()[-1] for line in read_project()["classifiers"] if line.startswith(prefix)]


def list_commands(job: dict[str, Any]) -> list[str]:
    return [step["run"] for step in job["steps"] if "run" in step]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_pin_actions_and_may_only_read(path: Path) -> None:
    workflow = read_yaml(path)
    assert workflow["permissions"] == {"contents": "read"}
    for name, job in workflow["jobs"].items():
        assert job["timeout-minutes"] <= 60, name
        for step in job["steps"]:
            # A tag of an action can be moved to other code; the digest of a commit cannot.
            assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", step.get("uses", f"a/b@{40 * '0'}")), step
            versions = step.get("with", {}).get("python-version", "3.11")
            assert versions == "${{ matrix.python-version }}" or versions in list_pythons()
    text = path.read_text(encoding="utf-8")
    assert "secrets." not in text
    # The version of every action is beside its digest.
    assert text.count("uses:") == len(re.findall(r"uses: \S+ # v\d+\.\d+\.\d+\n", text))


def test_the_workflow_tests_every_supported_python_and_system() -> None:
    jobs = read_yaml(ROOT / ".github" / "workflows" / "test.yml")["jobs"]
    matrix = jobs["test"]["strategy"]["matrix"]
    assert matrix["python-version"] == list_pythons()
    assert all(isinstance(version, str) for version in list_pythons()), (
        "3.10 without quotes is the number 3.1"
    )
    systems = {"Operating System :: POSIX :: Linux": "ubuntu", "Operating System :: MacOS": "macos"}
    declared = [line for line in read_project()["classifiers"] if line.startswith("Operating System")]
    assert sorted(f"{systems[line]}-latest" for line in declared) == sorted(matrix["os"])
    assert list_commands(jobs["test"]) == ["make test PYTHON=python"]
    for job, target in (("kernels", "kernel-test"), ("lowest", "test-lowest"), ("spark", "spark-test")):
        assert list_commands(jobs[job]) == [f"make {target} PYTHON=python"]
        assert target in read_targets()


def test_a_tag_publishes_what_was_checked_and_installed() -> None:
    workflow = read_yaml(ROOT / ".github" / "workflows" / "release.yml")
    # YAML 1.1 reads the word `on` as true.
    assert workflow[True] == {"push": {"tags": ["v[0-9]+.[0-9]+.[0-9]+"]}}
    build, install, publish = (workflow["jobs"][name] for name in ("build", "install", "publish"))
    commands = list_commands(build)
    assert commands.index("python -m build") < commands.index("python -m twine check --strict dist/*")
    assert "scripts/check_release.py" in commands[0]
    matrix = install["strategy"]["matrix"]
    assert (
        matrix == read_yaml(ROOT / ".github" / "workflows" / "test.yml")["jobs"]["test"]["strategy"]["matrix"]
    )
    assert any(command.startswith("hushgraph demo") for command in list_commands(install))
    assert (install["needs"], publish["needs"]) == ("build", "install")
    # Trusted publishing: a short-lived token of the host, in an environment that people approve.
    assert (publish["permissions"], publish["environment"]) == ({"id-token": "write"}, "pypi")
    assert "with" not in publish["steps"][-1]


def test_everything_names_one_version(tmp_path: Path) -> None:
    spec = importlib.util.spec_from_file_location("check_release", ROOT / "scripts" / "check_release.py")
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    version = read_project()["version"]
    for name in ("pyproject.toml", "CITATION.cff"):
        shutil.copy(ROOT / name, tmp_path / name)
    changelog = tmp_path / "CHANGELOG.md"
    changelog.write_text(f"# Changelog\n\n## {version}\n")
    assert script.find_problems(f"v{version}", tmp_path) == []
    assert len(script.find_problems("v9.9.9", tmp_path)) == 1
    # What is under Unreleased would be published and not told.
    changelog.write_text(f"# Changelog\n\n## Unreleased\n\n- A change.\n\n## {version}\n")
    assert len(script.find_problems(f"v{version}", tmp_path)) == 1
    changelog.write_text("# Changelog\n\n## Unreleased\n")
    (tmp_path / "CITATION.cff").write_text("version: 0.0.1\n")
    assert len(script.find_problems(f"v{version}", tmp_path)) == 2


def test_the_readme_has_the_coverage_of_the_record() -> None:
    record = ROOT / "benchmarks" / "records" / "coverage.json"
    spec = importlib.util.spec_from_file_location("coverage_script", ROOT / "scripts" / "measure_coverage.py")
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    assert script.render(json.loads(record.read_text())) in (ROOT / "README.md").read_text(encoding="utf-8")


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
