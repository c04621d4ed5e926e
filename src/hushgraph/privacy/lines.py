"""Lines of ledgers and budgets: JSON objects, each chained to the one before by a checksum."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from hushgraph.errors import HushgraphError

# What reading an entry raises that something else wrote.
MALFORMED = (KeyError, TypeError, ValueError, AttributeError, OverflowError, HushgraphError)


def write_line(entry: dict[str, Any], *, after: str) -> tuple[bytes, str]:
    """Return the line of an entry and its checksum, which also covers the checksum of the line before."""
    body = json.dumps(entry, allow_nan=False)
    checksum = hashlib.sha256(f"{after}\n{body}".encode()).hexdigest()[:32]
    return f'{body[:-1]}, "sum": "{checksum}"}}\n'.encode(), checksum


def read_line(raw: bytes, *, after: str) -> tuple[dict[str, Any], str] | None:
    """Return the entry of a line and its checksum; None if the line is torn, damaged or out of place."""
    try:
        entry = json.loads(raw)
        del entry["sum"]
        line, checksum = write_line(entry, after=after)
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError):
        return None
    return (entry, checksum) if line == raw + b"\n" else None
