"""`--config run.toml`: settings of a command from a file, and `--print-config`, which writes one."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Annotated, Any, get_args

import typer

from hushgraph.cli.choices import nearest_flag
from hushgraph.cli.sources import CONFIG
from hushgraph.errors import InputError

_EXPECTED: dict[Any, tuple[str, tuple[type, ...]]] = {
    bool: ("true or false", (bool,)),
    int: ("a whole number", (int,)),
    float: ("a number", (int, float)),
    str: ("a string", (str,)),
    Path: ("a string, the path", (str,)),
}
# How a command is run this once, which is no part of a file of settings.
_NO_KEYS = {"config", "print_config", "help"}
_NOT_PRINTED = {*_NO_KEYS, "as_json", "quiet", "resume"}


def _fill_defaults(context: typer.Context, value: Path | None) -> None:
    """Make the values in the file the defaults, so that what the command line gives wins."""
    if value is not None and not context.resilient_parsing:
        context.meta[CONFIG] = value
        context.default_map = {**(context.default_map or {}), **read_settings(value, context.command.params)}


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


def read_settings(path: Path, parameters: list[Any]) -> dict[str, Any]:
    """The values in a TOML file, under the names of the parameters they are for.

    Keys are flags without their dashes, `data` among them. A relative path is relative to the file's folder.
    """
    known = {_key(parameter): parameter for parameter in parameters if parameter.name not in _NO_KEYS}
    found: dict[str, Any] = {}
    for written, value in _read(path).items():
        key = written.replace("_", "-")
        if key not in known:
            near = nearest_flag(key, known)
            advice = "" if near is None else f" (did you mean {near!r}?)"
            raise InputError(f"{path}: unknown key {written!r}{advice}; see --help for the flags")
        name = known[key].name
        if name in found:
            raise InputError(f"{path}: {key} is given twice, with - and with _; keep one")
        found[name] = _value(f"{path}: {written}", known[key], value, path.parent)
    return found


def print_settings(context: Any) -> None:
    """With --print-config: the flags of this call as TOML, then the end. Paths are absolute."""
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
            raise InputError(f"{where}={_shown(value)}: expected a list, as [{_shown(value)}]")
        return [_single(where, parameter.name, get_args(kind)[0], each, folder) for each in value]
    return _single(where, parameter.name, kind, value, folder)


def _single(where: str, name: str, kind: Any, value: Any, folder: Path) -> Any:
    expected, types = _EXPECTED.get(kind, ("", (object,)))
    # A TOML boolean is a Python int as well.
    if not isinstance(value, types) or (isinstance(value, bool) and kind is not bool):
        raise InputError(f"{where}={_shown(value)}: expected {expected}")
    if kind is Path:
        return folder / Path(str(value)).expanduser()
    if name == "data" and _is_path(str(value), folder):
        return str(folder / Path(str(value)).expanduser())
    return value


def _is_path(data: str, folder: Path) -> bool:
    """Whether DATA is a path: it may be the name of a dataset, even one that is mistyped."""
    from hushgraph.datasets.catalog import registry as catalog

    path = Path(data).expanduser()
    looks_so = path.suffix != "" or len(path.parts) > 1 or (folder / path).exists()
    return data not in catalog.names() and looks_so


def _shown(value: Any) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 60 else text[:57] + "..."


def _toml(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(_toml(each) for each in value)}]"
    if isinstance(value, (bool, int, float)):
        return repr(value).lower()
    # A JSON string is a TOML string, but for one control character.
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")
