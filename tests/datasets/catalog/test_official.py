"""The published facts of the official datasets: which downloads are pinned, and to which checksums."""

from __future__ import annotations

import re
from functools import reduce
from operator import xor
from pathlib import PurePosixPath

import pytest

from hushgraph.datasets.catalog.official import SHA256, SOURCES, STATISTICS

# MLDatasets.jl pins several files at once: the exclusive or of their SHA-256.
COMBINED = {
    ("cora",): "81de017067dc045ebdb8ffd5c0e69a209973ffdb1fe2d5b434e94d3614f3f5c7",
    ("citeseer",): "7f7ec4df97215c573eee316de35754d89382011dfd9fb2b954a4a491057e3eb3",
    ("pubmed",): "0b8bf8e80564611b540655e9cbb8c5900dd3728d4ababe0b990b6f27144bd76c",
    ("amazon-computers", "amazon-photo"): "ceda5f611b7aa82c9e81eea9625526f2d7560e72e5c24dc010082915e52fb8b6",
}


@pytest.mark.parametrize(("names", "combined"), COMBINED.items())
def test_checksums_agree_with_a_second_source(names: tuple[str, ...], combined: str) -> None:
    checksums = [SHA256[PurePosixPath(path).name] for name in names for path in SOURCES[name].downloads]
    assert f"{reduce(xor, (int(checksum, 16) for checksum in checksums)):064x}" == combined


def test_everything_but_the_files_on_google_drive_is_pinned() -> None:
    assert {name for name, source in SOURCES.items() if not source.is_pinned} == {"reddit"}
    assert all(re.fullmatch("[0-9a-f]{64}", checksum) for checksum in SHA256.values())
    assert len(set(SHA256.values())) == len(SHA256)


def test_every_source_has_statistics() -> None:
    assert set(SOURCES) <= set(STATISTICS)
    assert all(source.size > 0 for source in SOURCES.values())
