"""Values an option may take: checked, completed by the shell, and suggested when mistyped."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from hushgraph.cli.sources import where_given
from hushgraph.errors import InputError

_LIST = re.compile(r"[a-z0-9-]+(\|[a-z0-9-]+)+")
# Flags as other libraries spell them.
_SPELLINGS = {
    "learning-rate": "lr",
    "num-layers": "layers",
    "target-epsilon": "epsilon",
    "eps": "epsilon",
    "target-delta": "delta",
    "max-grad-norm": "clip",
    "hidden-dim": "hidden",
    "hidden-size": "hidden",
    "hidden-channels": "hidden",
    "output": "out",
}
# How alike a flag must be to be suggested; who is told to take --non-private may well do so.
_ALIKE, _ALMOST_EQUAL = 0.75, 0.9
_NO_PRIVACY = "non-private"
_DATA_FILES = (".npz", ".pt", ".csv", ".parquet")


def choices_in(metavar: str | None) -> tuple[str, ...]:
    """The values that a metavar such as `gcn|gin|gat` lists; none where it is a word of another kind."""
    return tuple(metavar.split("|")) if metavar and _LIST.fullmatch(metavar) else ()


def check_choices(context: Any) -> None:
    """Refuse every value that the help of its option does not list, all in one message."""
    wrong = []
    for parameter in context.command.params:
        allowed = choices_in(parameter.metavar)
        value = context.params.get(parameter.name)
        given = value if isinstance(value, (list, tuple)) else [value]
        for each in given if allowed else []:
            if each is not None and each not in allowed:
                what = f"{where_given(context, parameter.name)}{parameter.name}={each!r}"
                wrong.append(f"{what}: expected {_listed(allowed)}{hint(each, allowed)}")
    if wrong:
        raise InputError("; ".join(wrong))


def hint(word: str, known: Iterable[str]) -> str:
    """` (did you mean ...?)` with the known word nearest to `word`, or nothing where none is near."""
    near = difflib.get_close_matches(word, list(known))
    # Letters in another order are the likelier mistake: gnc is gcn, not gin.
    near.sort(key=lambda other: sorted(other) != sorted(word))
    return f" (did you mean {near[0]!r}?)" if near else ""


def nearest_flag(word: str, known: Iterable[str]) -> str | None:
    """The flag that was meant, both without dashes in front; None where that is no more than a guess."""
    there = list(known)
    if _SPELLINGS.get(word) in there:
        return _SPELLINGS[word]
    for near in difflib.get_close_matches(word, there, cutoff=_ALIKE):
        alike = difflib.SequenceMatcher(None, word, near).ratio()
        if near != _NO_PRIVACY or alike >= _ALMOST_EQUAL:
            return near
    return None


def complete_data(incomplete: str) -> list[str]:
    """Names of datasets that begin so, and data files beside them; none leaves it to the shell."""
    from hushgraph.datasets.catalog import registry as catalog

    names = [name for name in catalog.names() if name.startswith(incomplete)]
    if not names:
        return []
    files = [path.name for path in sorted(Path().iterdir()) if path.suffix in _DATA_FILES]
    return names + [name for name in files if name.startswith(incomplete)]


def _listed(words: tuple[str, ...]) -> str:
    quoted = [repr(word) for word in words]
    return f"{', '.join(quoted[:-1])} or {quoted[-1]}"
