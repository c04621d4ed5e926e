"""Tables as people have them: own names, gaps, unknown ids, repeats, and a split among the columns."""

from __future__ import annotations

import random
from pathlib import Path

CITIES = ("Oslo", "Bergen", "Bodø")
SCHOOLS = ("north", "south")


def write_messy_tables(folder: Path, *, count: int = 150, seed: int = 1) -> Path:
    """Write nodes.csv and edges.csv; return the folder."""
    rng = random.Random(seed)
    folder.mkdir(parents=True, exist_ok=True)
    lines = ["person,age,income,city,remark,school,part"]
    for n in range(count):
        age = "" if n % 13 == 0 else "NA" if n % 17 == 0 else str(20 + n % 7)
        income = "unknown" if n % 29 == 0 else f"{1000 + 37 * (n % 11)}.5"
        city = "" if n % 19 == 0 else CITIES[n % 3]
        school = "" if n % 23 == 0 else SCHOOLS[n % 2]
        lines.append(f"p{n:03},{age},{income},{city},remark {n},{school},{(0, 0, 0, 1, 2)[n % 5]}")
    (folder / "nodes.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    edges = ["from,to,weight"]
    for _ in range(3 * count):
        n, step = rng.randrange(count), rng.choice((2, 4, 6))
        edges.append(f"p{n:03},p{(n + step) % count:03},{rng.randrange(1, 9)}")
    edges += ["p001,x999,1", "p002,,2", "p003,p003,1", edges[1]]
    (folder / "edges.csv").write_text("\n".join(edges) + "\n", encoding="utf-8")
    return folder
