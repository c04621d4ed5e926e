"""The rooms of the package: imports follow the flow, and modules keep to the rules that make them readable.

The checks read the source with `ast`, so that imports inside functions and under TYPE_CHECKING count too.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "hushgraph"

# The flow, from low to high. A room imports itself, rooms on lower lines and nothing else of the package.
# Rooms on one line do not import each other. Names with a leading "/" are modules at the root.
FLOW = (
    ("/errors",),
    ("/_arrays", "/_files", "/_stores", "/_text", "/_threads", "/_validate"),
    ("tasks",),
    ("accounting", "graph"),
    ("privacy",),
    ("datasets",),
    ("models",),
    ("inputs",),
    ("noise",),
    ("scaling",),
    ("sampling",),
    ("billboard",),
    ("figures",),
    ("gradients",),
    ("inference",),
    ("runs",),
    ("plots",),
    ("report",),
    ("export",),
    ("/settings",),
    ("methods",),
    ("training",),
    ("comparison", "/estimator"),
    ("audit", "reproduction"),
    ("cli",),
    ("/__main__",),
)
# The public surface imports what it exports; nothing in the package imports it.
EXEMPT = "/__init__"

# Not names of functions or variables: they do not say what a value is or what a function does.
RETIRED_NAMES = frozenset({"found", "made", "lived", "whole", "plain", "said", "decided"})


class Import(NamedTuple):
    """One import of a module of the package: the importing file, the line and the imported module."""

    file: str
    line: int
    module: str


@cache
def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


@cache
def source_files() -> tuple[Path, ...]:
    return tuple(sorted(PACKAGE.rglob("*.py")))


def module_of(path: Path) -> str:
    """The dotted name of a file, such as hushgraph.graph.columns."""
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def known_modules() -> frozenset[str]:
    return frozenset(module_of(path) for path in source_files())


def room_of(module: str) -> str:
    """The room of a module of the package, or "/NAME" for a module at the root."""
    parts = module.split(".")
    if len(parts) == 1:
        return EXEMPT
    return parts[1] if (PACKAGE / parts[1]).is_dir() else f"/{parts[1]}"


def imported_modules(node: ast.AST, package: str) -> Iterator[str]:
    """The modules of hushgraph that one statement imports."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            if alias.name.split(".")[0] == "hushgraph":
                yield alias.name
    elif isinstance(node, ast.ImportFrom):
        base = node.module or ""
        if node.level:
            base = ".".join([*package.split(".")[: len(package.split(".")) - node.level + 1], base]).rstrip(
                "."
            )
        if base.split(".")[0] != "hushgraph":
            return
        for alias in node.names:
            submodule = f"{base}.{alias.name}"
            # The version is the one name of the public surface that rooms may read.
            if submodule != "hushgraph.__version__":
                yield submodule if submodule in known_modules() else base


def imports_of(path: Path) -> Iterator[Import]:
    file, module = path.relative_to(PACKAGE).as_posix(), module_of(path)
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(parse(path)):
        for imported in imported_modules(node, package):
            yield Import(file, getattr(node, "lineno", 0), imported)


@cache
def all_imports() -> tuple[Import, ...]:
    return tuple(each for path in source_files() for each in imports_of(path))


def room_of_file(file: str) -> str:
    return room_of(module_of(PACKAGE / file))


def levels() -> dict[str, int]:
    return {room: level for level, rooms in enumerate(FLOW) for room in rooms}


def against_the_flow(imports: Iterable[Import]) -> list[str]:
    """The imports that do not go from a room to itself or to a lower one."""
    level = levels()
    wrong = []
    for each in imports:
        importer, imported = room_of_file(each.file), room_of(each.module)
        if EXEMPT in (importer, imported):
            is_allowed = importer == EXEMPT
        else:
            is_allowed = importer == imported or level[imported] < level[importer]
        if not is_allowed:
            wrong.append(f"{each.file}:{each.line} imports {each.module}: {importer} -> {imported}")
    return sorted(wrong)


def find_cycle(edges: dict[str, set[str]]) -> list[str]:
    """One cycle of a directed graph, as a list of rooms; empty if there is none."""
    finished: set[str] = set()

    def visit(room: str, path: list[str]) -> list[str]:
        if room in path:
            return [*path[path.index(room) :], room]
        if room in finished:
            return []
        for other in sorted(edges.get(room, ())):
            if cycle := visit(other, [*path, room]):
                return cycle
        finished.add(room)
        return []

    return next((cycle for room in sorted(edges) if (cycle := visit(room, []))), [])


def room_graph(imports: Iterable[Import]) -> dict[str, set[str]]:
    edges: dict[str, set[str]] = {}
    for each in imports:
        importer, imported = room_of_file(each.file), room_of(each.module)
        if importer != imported and EXEMPT not in (importer, imported):
            edges.setdefault(importer, set()).add(imported)
    return edges


def test_every_room_is_in_the_flow() -> None:
    rooms = {room_of(module) for module in known_modules()} - {EXEMPT}
    assert rooms <= set(levels())
    assert len(levels()) == sum(len(rooms) for rooms in FLOW), "a room is listed twice"


def test_imports_follow_the_flow() -> None:
    assert against_the_flow(all_imports()) == []


def test_rooms_have_no_cycle() -> None:
    assert find_cycle(room_graph(all_imports())) == []


def test_the_checks_of_imports_can_fail() -> None:
    upward = Import("graph/columns.py", 1, "hushgraph.training.train")
    sideways = Import("accounting/events.py", 1, "hushgraph.graph.graph")
    surface = Import("graph/columns.py", 1, "hushgraph")
    assert len(against_the_flow([upward, sideways, surface])) == 3
    assert against_the_flow([Import("training/train.py", 1, "hushgraph.graph.columns")]) == []
    assert find_cycle({"a": {"b"}, "b": {"c"}, "c": {"a"}}) == ["a", "b", "c", "a"]
    assert find_cycle({"a": {"b", "c"}, "b": {"c"}}) == []
    nested = "def f():\n    from hushgraph.graph import columns\n"
    guarded = "if TYPE_CHECKING:\n    import hushgraph.noise.gaussian\n"
    code = nested + guarded
    modules = [each for node in ast.walk(ast.parse(code)) for each in imported_modules(node, "hushgraph.cli")]
    assert sorted(modules) == ["hushgraph.graph.columns", "hushgraph.noise.gaussian"]
    (relative,) = imported_modules(ast.parse("from .graph import columns").body[0], "hushgraph")
    assert relative == "hushgraph.graph.columns"


def test_every_room_says_what_it_is() -> None:
    silent = []
    for folder in sorted({path.parent for path in source_files()}):
        init = folder / "__init__.py"
        text = ast.get_docstring(parse(init)) if init.is_file() else None
        if not text:
            silent.append(folder.relative_to(PACKAGE.parent).as_posix())
    assert silent == []


def test_accounting_never_imports_torch() -> None:
    """Neither directly nor through a module of the package that it imports."""
    by_module: dict[str, set[str]] = {}
    for each in all_imports():
        by_module.setdefault(module_of(PACKAGE / each.file), set()).add(each.module)
    pending = {module for module in known_modules() if module.startswith("hushgraph.accounting")}
    reached: set[str] = set()
    while pending:
        module = pending.pop()
        reached.add(module)
        pending |= by_module.get(module, set()) - reached
    wrong = []
    for path in source_files():
        if module_of(path) in reached:
            for node in ast.walk(parse(path)):
                names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
                names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
                if any(name.split(".")[0] == "torch" for name in names):
                    wrong.append(path.relative_to(PACKAGE).as_posix())
    assert wrong == []


def module_aliases(tree: ast.Module, package: str) -> set[str]:
    """The names that a file binds to modules of the package."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == "hushgraph":
                    names.add(alias.asname or "hushgraph")
        elif isinstance(node, ast.ImportFrom):
            for alias, module in zip(node.names, imported_modules(node, package), strict=False):
                if module in known_modules() and module.rpartition(".")[2] == alias.name:
                    names.add(alias.asname or alias.name)
    return names


def first_name(node: ast.expr) -> str | None:
    """The name at the start of an attribute, such as `a` of a.b.c."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None


def assignments_to_modules(tree: ast.Module, package: str) -> Iterator[int]:
    """The lines that assign to, delete or set an attribute of another module of the package."""
    aliases = module_aliases(tree, package)
    for node in ast.walk(tree):
        targets: list[ast.expr] = []
        if isinstance(node, (ast.Assign, ast.Delete)):
            targets = list(node.targets)
        elif isinstance(node, (ast.AugAssign, ast.AnnAssign, ast.For, ast.AsyncFor)):
            targets = [node.target]
        elif isinstance(node, (ast.With, ast.AsyncWith)):
            targets = [item.optional_vars for item in node.items if item.optional_vars is not None]
        elif isinstance(node, ast.Call):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called in ("setattr", "delattr", "__setattr__", "__delattr__") and node.args:
                first = node.args[0]
                if isinstance(first, (ast.Name, ast.Attribute)) and first_name(first) in aliases:
                    yield node.lineno
        flat = [each for target in targets for each in ast.walk(target)]
        for each in flat:
            is_attribute = isinstance(each, ast.Attribute) and isinstance(each.ctx, (ast.Store, ast.Del))
            if is_attribute and first_name(each) in aliases:
                yield each.lineno


def test_no_module_assigns_to_another() -> None:
    wrong = []
    for path in source_files():
        module = module_of(path)
        package = module if path.name == "__init__.py" else module.rpartition(".")[0]
        lines = assignments_to_modules(parse(path), package)
        wrong += [f"{path.relative_to(PACKAGE).as_posix()}:{line}" for line in sorted(set(lines))]
    assert wrong == []


@pytest.mark.parametrize(
    ("code", "count"),
    [
        ("from hushgraph.graph import columns\ncolumns.Columns = None", 1),
        ("from hushgraph.graph import columns as other\nother.Columns, x = None, 1", 1),
        ("import hushgraph.graph.columns\nhushgraph.graph.columns.Columns = None", 1),
        ("from hushgraph.graph import columns\nsetattr(columns, 'Columns', None)", 1),
        ("from hushgraph.graph import columns\nmonkeypatch.setattr(columns, 'Columns', None)", 1),
        ("from hushgraph.graph import columns\nfor columns.Columns in ():\n    pass", 1),
        ("from hushgraph.graph.columns import Columns\nColumns.x = 1\nx = columns = 3", 0),
        ("from hushgraph.graph import columns\nx = columns.Columns", 0),
    ],
)
def test_the_check_of_assignments_can_fail(code: str, count: int) -> None:
    assert len(set(assignments_to_modules(ast.parse(code), "hushgraph.cli"))) == count


def defined_names(tree: ast.Module) -> Iterator[str]:
    """The names of functions, arguments, variables and attributes that a file defines."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr
        elif isinstance(node, ast.alias) and node.asname:
            yield node.asname


def retired_names(tree: ast.Module) -> set[str]:
    return {name for name in defined_names(tree) if name.strip("_").lower() in RETIRED_NAMES}


def test_retired_names_are_gone() -> None:
    left = {
        path.relative_to(PACKAGE).as_posix(): names
        for path in source_files()
        if (names := retired_names(parse(path)))
    }
    assert left == {}


def test_the_check_of_names_can_fail() -> None:
    code = "def _made(whole):\n    found = [said for said in ()]\n    self.plain = (decided := found)\n"
    names = {"_made", "whole", "found", "said", "plain", "decided"}
    assert retired_names(ast.parse(code)) == names
    assert retired_names(ast.parse("def find(whole_part):\n    return founded")) == set()


def test_the_page_of_the_architecture_names_what_there_is() -> None:
    """Of "`path`: `name`" the file defines the name; every path leads to a file or a room."""
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    paths = set(re.findall(r"`([a-z_]+/(?:[a-z_/]+\.[a-z]+)?|[a-z_]+\.py)`", text)) - {"release/"}
    assert [path for path in paths if not any((top / path).exists() for top in (PACKAGE, ROOT))] == []
    pairs = re.findall(r"`([a-z_/]+\.py)`: (?:one entry of )?`(?:[A-Za-z]+\.)?([A-Za-z_]+)`", text)
    assert len(pairs) > 20
    for path, name in pairs:
        source = (PACKAGE / path).read_text(encoding="utf-8")
        defined = re.search(rf"^ *(?:class|def) {name}\b|^{name}\b.* = ", source, re.MULTILINE)
        assert defined, f"{path}: {name}"
