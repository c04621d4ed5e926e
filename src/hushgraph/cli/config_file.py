"""`--config run.toml`: settings of a command from a file, and `--print-config`, which writes one."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, get_args

import typer

from hushgraph.cli.options import CONFIG_PATH, conversion_note, nearest_flag
from hushgraph.errors import InputError

UNUSED = "hushgraph.config.unused"
"""Key of `context.meta` for the parameters in the file that belong to another command."""

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


def _fill_defaults(context: typer.Context, value: Path | None) -> None:
    """Make the values in the file the defaults, so that the command line wins."""
    if value is not None and not context.resilient_parsing:
        context.meta[CONFIG_PATH] = value
        settings = read_settings(value, context.command.params, also=_foreign_parameters(context))
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


def read_settings(path: Path, parameters: list[Any], *, also: Sequence[Any] = ()) -> dict[str, Any]:
    """Read a TOML file; return its values by the names of the parameters they are for.

    Args:
        path: the file. Keys are flags without their dashes, `data` among them. A relative path in it is
            relative to the folder of the file.
        parameters: of the command.
        also: parameters of another command, whose keys are allowed too.
    """
    known = {_key(each): each for each in [*also, *parameters] if each.name not in _NO_KEYS}
    settings: dict[str, Any] = {}
    for written, value in _read(path).items():
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
        elif parameter.name == "data" and _is_path(value, Path()):
            value = Path(value).absolute()
        typer.echo(f"{_key(parameter)} = {_toml(value)}")
    raise typer.Exit


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"config={path}: {error.strerror}; expected a TOML file") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"config={path}: not TOML ({error})") from None


def _key(parameter: Any) -> str:
    longest: str = max(parameter.opts, key=len)
    return longest.lstrip("-").replace("_", "-")


def _value(where: str, parameter: Any, value: Any, folder: Path) -> Any:
    kind = parameter.type_descriptor.annotation
    if parameter.multiple:
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
        return folder / Path(str(value)).expanduser()
    if name == "data" and _is_path(str(value), folder):
        return str(folder / Path(str(value)).expanduser())
    return value


def _is_path(data: str, folder: Path) -> bool:
    """Whether DATA is a path: it may be the name of a dataset, even one that is mistyped."""
    from hushgraph.datasets.catalog import registry as catalog

    path = Path(data).expanduser()
    looks_like_path = path.suffix != "" or len(path.parts) > 1 or (folder / path).exists()
    return data not in catalog.names() and looks_like_path


def _show_value(value: Any) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 60 else text[:57] + "..."


def _toml(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(_toml(each) for each in value)}]"
    if isinstance(value, (bool, int, float)):
        return repr(value).lower()
    # A JSON string is a TOML string, but for one control character.
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")
