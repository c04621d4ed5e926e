"""Turn settings into flags, check their choices, and read `--config FILE.toml`.

A new flag is an entry of `settings.py`, not of this file.
"""

from __future__ import annotations

import difflib
import inspect
import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ForwardRef, TypeVar, get_args

import typer

from hushgraph._files import read_toml
from hushgraph._text import is_elsewhere, write_toml
from hushgraph.errors import InputError
from hushgraph.privacy import choices
from hushgraph.settings import SECTIONS, SYNONYMS, TABLE, Command, Setting

if TYPE_CHECKING:
    from hushgraph.cli import terminal

CONFIG_PATH = "hushgraph.config"
"""Key of `context.meta` under which `--config` keeps the path of its file."""
UNUSED = "hushgraph.config.unused"
"""Key of `context.meta` for the parameters in the file that belong to another command."""

_Function = TypeVar("_Function", bound=Callable[..., Any])
_EXPECTED: dict[Any, tuple[str, tuple[type, ...]]] = {
    bool: ("true or false", (bool,)),
    int: ("a whole number", (int,)),
    float: ("a number", (int, float)),
    str: ("a string", (str,)),
    Path: ("a string, the path", (str,)),
}
# These describe one call, not the settings of a run.
_NO_KEYS = {"config", "print_config", "help"}
_NOT_PRINTED = {*_NO_KEYS, "as_json", "quiet", "resume", "dry_run"}
_CHOICE_LIST = re.compile(r"[a-z0-9-]+(\|[a-z0-9-]+)+")
_DATA_FILES = (".npz", ".pt", ".csv", ".parquet")
_NON_PRIVATE = "non-private"
# Similarity of two flags from which one is suggested for the other. Suggesting --non-private switches
# privacy off for whoever follows the hint, so it needs a clearer case.
_SIMILAR, _ALMOST_EQUAL = 0.75, 0.9


def list_choices(literal: Any) -> str:
    """The values of a `Literal` as a metavar such as `gcn|gin|gat`."""
    return "|".join(get_args(literal))


def section(heading: str) -> Callable[..., Any]:
    """Return a function that declares an option under `heading`.

    The help text states the default itself, in brackets, with the reason for it. An option whose metavar is
    a list such as `adam|sgd` accepts these values alone, and the shell completes them.
    """

    def declare(help: str, *names: str, metavar: str | None = None, **more: Any) -> Any:
        allowed = parse_choices(metavar)
        if allowed:
            more["autocompletion"] = lambda: list(allowed)
        more |= {"metavar": metavar, "rich_help_panel": heading, "show_default": False}
        return typer.Option(*names, help=help, **more)

    return declare


def data_argument(help: str) -> Any:
    """Declare the argument DATA; the shell completes the names of datasets."""
    return typer.Argument(metavar="DATA", help=help, autocompletion=_complete_data)


def parse_choices(metavar: str | None) -> tuple[str, ...]:
    """The values that a metavar such as `gcn|gin|gat` lists; empty for a metavar of another kind."""
    return tuple(metavar.split("|")) if metavar and _CHOICE_LIST.fullmatch(metavar) else ()


def check_choices(context: Any) -> None:
    """Raise InputError listing every value that the metavar of its option does not list."""
    wrong = []
    for parameter in context.command.params:
        allowed = parse_choices(parameter.metavar)
        value = context.params.get(parameter.name)
        values = value if isinstance(value, (list, tuple)) else [value]
        for each in values if allowed else []:
            if each is not None and each not in allowed:
                what = f"{config_prefix(context, parameter.name)}{parameter.name}={each!r}"
                *first, last = map(repr, allowed)
                wrong.append(f"{what}: expected {', '.join(first)} or {last}{suggest_value(each, allowed)}")
    if wrong:
        raise InputError("; ".join(wrong))


def suggest_value(word: str, known: Iterable[str]) -> str:
    """` (did you mean ...?)` with the known word nearest to `word`; empty where none is near."""
    near = difflib.get_close_matches(word, list(known))
    # Letters in another order are the likelier mistake: gnc is gcn, not gin.
    near.sort(key=lambda other: sorted(other) != sorted(word))
    return f" (did you mean {near[0]!r}?)" if near else ""


def nearest_flag(word: str, known: Iterable[str]) -> str | None:
    """The known flag that `word` stands for, both without leading dashes; None where that is a guess."""
    flags = list(known)
    meant = SYNONYMS.get(word)
    meant = meant[0] if isinstance(meant, tuple) else meant
    if meant in flags:
        return meant
    for near in difflib.get_close_matches(word, flags, cutoff=_SIMILAR):
        similarity = difflib.SequenceMatcher(None, word, near).ratio()
        if near != _NON_PRIVATE or similarity >= _ALMOST_EQUAL:
            return near
    return None


def conversion_note(word: str) -> str:
    """Say how to convert a value of `word` for the suggested flag; empty where it stays the same."""
    meant = SYNONYMS.get(word)
    return f" ({meant[1]})" if isinstance(meant, tuple) else ""


def is_given(context: Any, name: str) -> bool:
    """Whether the command line or the file of `--config` sets this parameter."""
    return _source(context, name) in ("COMMANDLINE", "DEFAULT_MAP")


def config_prefix(context: Any, name: str) -> str:
    """`FILE: ` where the file of `--config` sets this parameter; otherwise empty."""
    return f"{context.meta[CONFIG_PATH]}: " if _source(context, name) == "DEFAULT_MAP" else ""


def name_flag(context: Any, name: str) -> str:
    """The flag of a parameter, with the file of `--config` before it where that sets it."""
    opts = {parameter.name: parameter.opts[0] for parameter in context.command.params}
    return config_prefix(context, name) + str(opts[name])


def list_given(context: Any, names: Iterable[str]) -> list[str]:
    """The flags of those of these parameters that the command line or the file of `--config` sets."""
    return [name_flag(context, name) for name in names if name in context.params and is_given(context, name)]


def _source(context: Any, name: str) -> str:
    source = context.get_parameter_source(name)
    return "" if source is None else str(source.name)


def _complete_data(incomplete: str) -> list[str]:
    """Dataset names that start so and data files beside them; an empty list leaves it to the shell."""
    from hushgraph.datasets.catalog import registry as catalog

    names = [name for name in catalog.names() if name.startswith(incomplete)]
    if not names:
        return []
    files = [path.name for path in sorted(Path().iterdir()) if path.suffix in _DATA_FILES]
    return names + [name for name in files if name.startswith(incomplete)]


def _choose_data_root(context: typer.Context, value: Path | None) -> None:
    if value is not None and not context.resilient_parsing:
        from hushgraph.datasets.catalog.data_root import override_data_root

        context.call_on_close(override_data_root(value))


_data, _output = section("Data"), section("Run and output")

Data = Annotated[str, data_argument("A name (demo), an .npz or .pt, a folder of tables or its .toml.")]
Edges = Annotated[
    list[Path] | None,
    _data(
        "The edges, where DATA is the nodes: a file, folder or 'pattern*'; repeat it. [edges.*]",
        parser=lambda text: text if is_elsewhere(str(text)) else Path(text),
    ),
]
DataRoot = Annotated[
    Path | None,
    _data(
        "Files of named datasets. [HUSHGRAPH_DATA, or the user's cache]",
        "--data-root",
        metavar="DIR",
        callback=_choose_data_root,
        expose_value=False,
    ),
]
Device = Annotated[str, _output("[auto: a GPU if there is one]", metavar=list_choices(choices.Device))]
Json = Annotated[bool, _output("One JSON object as the last line of output.", "--json")]
Quiet = Annotated[bool, _output("Print errors and --json alone.", "--quiet")]


def with_flags(
    command: Command, *, required: Collection[str] = (), more: Iterable[Setting] = ()
) -> Callable[[_Function], _Function]:
    """Return a decorator that puts the flags of a command in place of the `**flags` of its function.

    Args:
        command: whose flags, by the table of settings. Parameters of the function itself come after those.
        required: settings that must be given.
        more: settings that this command tells in other words; they come first.
    """

    def spell_out(function: _Function) -> _Function:
        signature = inspect.signature(function, eval_str=True)
        own = [each for each in signature.parameters.values() if each.kind is not each.VAR_KEYWORD]
        added = [
            declare_flag(entry, command, is_required=entry.name in required)
            for entry in (*more, *sorted(TABLE.values(), key=lambda entry: SECTIONS.index(entry.section)))
            if command in entry.commands
        ]
        positional = [each for each in own if each.kind is not each.KEYWORD_ONLY]
        named = [each for each in own if each.kind is each.KEYWORD_ONLY]
        function.__dict__["__signature__"] = signature.replace(parameters=[*positional, *added, *named])
        return function

    return spell_out


def declare_flag(entry: Setting, command: Command, *, is_required: bool = False) -> inspect.Parameter:
    """The parameter of a command that a setting is."""
    kind: Any = entry.type
    if entry.repeats:
        kind = list[str] | None
    elif entry.values or entry.read is not None or str in get_args(kind):
        kind = str | None
    elif isinstance(kind, ForwardRef):
        kind = Path | None
    default = False if entry.negated else entry.default
    names = [f"--{entry.key}"] if kind is bool or entry.flag else []
    taken = [value for value in entry.values if value not in entry.excluded.get(command, ())]
    metavar = entry.metavar or "|".join(taken) or None
    option = section(entry.section)(entry.help, *names, metavar=metavar)
    return inspect.Parameter(
        entry.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=inspect.Parameter.empty if is_required else default,
        annotation=Annotated[kind, option],
    )


def read_settings(flags: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that the flags of a command stand for; those of tables together, as `columns`."""
    settings: dict[str, Any] = {}
    columns: dict[str, Any] = {}
    for name, value in flags.items():
        entry = TABLE.get(name)
        if entry is None:
            continue
        # Of a flag that may be repeated.
        is_given = value is not None and value not in ([], ())
        if entry.negated:
            value = not value
        elif entry.read is not None:
            # An empty text is a mistake that reading names; without the flag there is nothing to read.
            value = entry.read(value) if is_given else None
        if entry.column is None:
            settings[name] = value
        elif is_given:
            if value in ("", [], {}):
                raise InputError(f"{name}='': it is empty; give a value, or leave it out")
            columns[entry.column] = value
    return settings | {"columns": columns or None}


def choose_engine(flags: Mapping[str, Any], line: terminal.StatusLine, *, is_silent: bool) -> dict[str, Any]:
    """`engine` and `memory` as functions take them; what --engine auto chose is told before it starts."""
    from hushgraph.datasets.engine import choose_engine

    def tell(text: str) -> None:
        line.clear()
        if not is_silent:
            typer.echo(text, err=True)

    data = join_edges(flags["data"], flags["edges"])
    engine = choose_engine(flags["engine"], data, memory=flags["memory"], tell=tell)
    # With auto, it is what there is: too little for memory may be more than the engine needs.
    return {"engine": engine, "memory": None if engine == "memory" else flags["memory"]}


def join_edges(data: str, edges: Sequence[Path] | None) -> Any:
    """DATA, with its table of edges where one is given, as `load_graph` accepts it."""
    return (data, edges[0] if len(edges) == 1 else list(edges)) if edges else data


def _fill_defaults(context: typer.Context, value: Path | None) -> None:
    """Make the values in the file the defaults, so that the command line wins."""
    if value is not None and not context.resilient_parsing:
        context.meta[CONFIG_PATH] = value
        settings = read_file(value, context.command.params, also=_foreign_parameters(context))
        names = {parameter.name for parameter in context.command.params}
        context.meta[UNUSED] = sorted(settings.keys() - names)
        used = {name: settings[name] for name in settings if name in names}
        context.default_map = {**(context.default_map or {}), **used}


def _foreign_parameters(context: typer.Context) -> list[Any]:
    """Parameters of `train` for `plan`, which prices the run that a file for `train` describes."""
    commands = getattr(context.parent and context.parent.command, "commands", {})
    is_plan = context.command.name == "plan" and "train" in commands
    return list(commands["train"].params) if is_plan else []


ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE.toml",
        help="Flags from a file, as epsilon = 4; the command line wins.",
        callback=_fill_defaults,
        is_eager=True,
        expose_value=False,
        rich_help_panel="Run and output",
    ),
]
PrintConfig = Annotated[
    bool,
    typer.Option(
        "--print-config",
        help="Print these flags as a file for --config and stop.",
        rich_help_panel="Run and output",
    ),
]


def read_file(path: Path, parameters: list[Any], *, also: Sequence[Any] = ()) -> dict[str, Any]:
    """Read a TOML file; return its values by the names of the parameters they are for.

    Args:
        path: the file. Keys are flags without their dashes, `data` among them. A relative path in it is
            relative to the folder of the file.
        parameters: of the command.
        also: parameters of another command, whose keys are allowed too.
    """
    known = {_key(each): each for each in [*also, *parameters] if each.name not in _NO_KEYS}
    settings: dict[str, Any] = {}
    for written, value in read_toml(path, f"config={path}").items():
        key = written.replace("_", "-")
        if key not in known:
            near = nearest_flag(key, known)
            hint = "" if near is None else f" (did you mean {near!r}{conversion_note(key)}?)"
            raise InputError(f"{path}: unknown key {written!r}{hint}; see --help for the flags")
        name = known[key].name
        if name in settings:
            raise InputError(f"{path}: {key} is given twice, with - and with _; keep one")
        settings[name] = _value(f"{path}: {written}", known[key], value, path.parent)
    return settings


def print_settings(context: Any) -> None:
    """With --print-config, print the flags of this call as TOML with absolute paths, and end the command."""
    if not context.params.get("print_config"):
        return
    typer.echo(f"# hushgraph {context.info_name} --config FILE.toml")
    for parameter in context.command.params:
        value = context.params.get(parameter.name)
        if parameter.name in _NOT_PRINTED or value is None or value == [] or value == ():
            continue
        if isinstance(value, Path):
            value = value.absolute()
        elif isinstance(value, (list, tuple)):
            paths = [each.absolute() if isinstance(each, Path) else each for each in value]
            value = paths[0] if len(paths) == 1 and isinstance(paths[0], Path) else paths
        elif parameter.name == "data" and _is_path(value, Path()):
            value = Path(value).absolute()
        typer.echo(f"{_key(parameter)} = {write_toml(value)}")
    raise typer.Exit


def _key(parameter: Any) -> str:
    longest: str = max(parameter.opts, key=len)
    return longest.lstrip("-").replace("_", "-")


def _value(where: str, parameter: Any, value: Any, folder: Path) -> Any:
    kind = parameter.type_descriptor.annotation
    if parameter.multiple:
        if isinstance(value, str) and (get_args(kind)[0] is Path or parameter.name in TABLE):
            value = [value]
        if not isinstance(value, list):
            raise InputError(f"{where}={_show_value(value)}: expected a list, as [{_show_value(value)}]")
        return [_single(where, parameter.name, get_args(kind)[0], each, folder) for each in value]
    return _single(where, parameter.name, kind, value, folder)


def _single(where: str, name: str, kind: Any, value: Any, folder: Path) -> Any:
    expected, types = _EXPECTED.get(kind, ("", (object,)))
    # A TOML boolean is a Python int as well.
    if not isinstance(value, types) or (isinstance(value, bool) and kind is not bool):
        raise InputError(f"{where}={_show_value(value)}: expected {expected}")
    if kind is Path:
        return value if is_elsewhere(str(value)) else folder / Path(str(value)).expanduser()
    if name == "data" and _is_path(str(value), folder):
        return str(folder / Path(str(value)).expanduser())
    return value


def _is_path(data: str, folder: Path) -> bool:
    """Whether DATA is a path: it may be the name of a dataset, even one that is mistyped."""
    from hushgraph.datasets.catalog import registry as catalog

    path = Path(data).expanduser()
    if is_elsewhere(data):
        return False
    looks_like_path = path.suffix != "" or len(path.parts) > 1 or (folder / path).exists()
    return data not in catalog.names() and looks_like_path


def _show_value(value: Any) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 60 else text[:57] + "..."
