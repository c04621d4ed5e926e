"""Check that everything that names the version names the one of a tag.

python scripts/check_release.py v0.2.0
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent


def find_problems(tag: str, root: Path = ROOT) -> list[str]:
    """Sentences about what is not of this tag; none where all is well."""
    with (root / "pyproject.toml").open("rb") as file:
        version = tomllib.load(file)["project"]["version"]
    changelog = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    cited = re.search(r"^version: (\S+)$", (root / "CITATION.cff").read_text(encoding="utf-8"), re.MULTILINE)
    problems = []
    if tag != f"v{version}":
        problems.append(f"the tag is {tag}, and pyproject.toml has version {version}: expected v{version}")
    if cited is None or cited[1] != version:
        problems.append(f"CITATION.cff names version {cited and cited[1]}: expected {version}")
    sections = re.findall(r"^## (.+)$", changelog, re.MULTILINE)
    if version not in sections or "Unreleased" in sections:
        problems.append(f"CHANGELOG.md: expected a section '{version}' and none 'Unreleased'; has {sections}")
    return problems


def main() -> None:
    """Print every problem; end with 1 where there is one."""
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    problems = find_problems(sys.argv[1])
    if problems:
        raise SystemExit("\n".join(problems))
    print(f"{sys.argv[1]}: metadata, citation and changelog agree")


if __name__ == "__main__":
    main()
