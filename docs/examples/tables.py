"""Tables as people have them, made up: the data of the tutorials.

    python docs/examples/tables.py bank             accounts, transfers and logins; 1.5% are fraudulent
    python docs/examples/tables.py hospital         patients, contacts, and days that they stayed
    python docs/examples/tables.py social           users, whom they follow, and the genres that they like
    python docs/examples/tables.py views            channels, whom they mention, and how often they are seen

Each writes a folder of that name where you are; a number after the name says how many rows. Nobody in them
exists.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable, Iterable, Sequence
from datetime import date, timedelta
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt

Columns = dict[str, npt.NDArray[Any]]
Ints = npt.NDArray[np.int64]
SEED = 7
FRAUDULENT = 0.015
# How much of what decides fraud no column tells, of somebody alone and of somebody whom a ring has recruited.
LUCK, LUCK_IN_RINGS = 0.9, 3.0
# The part of fraud that is organised, and how many accounts and phones a ring has.
ORGANISED, RING_SIZES, RING_PHONES = 0.6, (5, 30), (2, 4)
HOUSEHOLDS = (0.45, 0.35, 0.12, 0.08)
# Devices that anybody may use, and how many people do.
PUBLIC_DEVICES, USE_PUBLIC = 60, 0.04


def write_bank(folder: Path, accounts: int = 30_000) -> None:
    """Write accounts.csv, with semicolons and decimal commas, three months of transfers, and logins.csv."""
    rng = np.random.default_rng(SEED)
    columns = draw_accounts(rng, accounts)
    ring, is_fraud = draw_fraud(rng, columns)
    channel = rng.choice(["app", "branch", "web"], accounts)
    last = date(2024, 12, 31)
    names = np.array([f"account{n:06}" for n in range(accounts)])
    rows = [
        [
            f"Holder {n % (accounts - 12)}",
            names[n],
            european(columns["income"][n]),
            int(columns["age"][n]),
            european(columns["balance"][n]),
            european(columns["largest_transfer"][n]),
            f"{last - timedelta(days=min(int(columns['days_open'][n]), 20_000)):%d.%m.%Y}",
            int(columns["logins"][n]),
            int(columns["countries"][n]),
            european(100 * columns["share_in_cash"][n]) + "%",
            channel[n],
            "yes" if is_fraud[n] else "no",
        ]
        for n in range(accounts)
    ]
    head = ["holder", "account", "income", "age", "balance", "largest transfer", "opened", "logins"]
    head += ["countries", "paid in cash", "channel", "fraud"]
    write(folder / "accounts.csv", head, rows, ";")
    source, target, amount = draw_transfers(rng, ring, is_fraud)
    users, devices = draw_logins(rng, ring)
    times = 1 + rng.poisson(7, (3, len(users)))
    # Logins are in the columns of transfers, as a warehouse exports both: the amount is how often.
    head = ["booked", "payer", "payee", "amount"]
    for month, delimiter in ((1, ";"), (2, ","), (3, ";")):
        mine = range(month - 1, len(source), 3)
        booked = f"{date(2024, month, 28)}"
        moved = ([booked, names[source[n]], names[target[n]], european(amount[n])] for n in mine)
        write(folder / f"transfers_{month:02}.csv", head, moved, delimiter)
        each = zip(users, devices, times[month - 1], strict=True)
        used = ([booked, names[n], f"device{device:06}", often] for n, device, often in each)
        write(folder / f"logins_{month:02}.csv", head, used, ";")


def draw_fraud(rng: np.random.Generator, columns: Columns) -> tuple[Ints, npt.NDArray[np.bool_]]:
    """The ring of every account, -1 of most, and who is fraudulent: rings, and some alone.

    Whoever acts alone has the highest sum of what the columns say, each by its rank, and of luck. A ring
    looks for the same, and has to take what it finds: there is more luck in it.
    """
    signs = {"income": -0.6, "age": -0.7, "balance": -0.5, "largest_transfer": 1.0, "days_open": -1.0}
    signs |= {"logins": 0.6, "countries": 0.9, "share_in_cash": 1.0}
    told = np.sum([sign * normal_rank(columns[name]) for name, sign in signs.items()], axis=0)
    told = told / np.std(told)
    count = round(FRAUDULENT * len(told))
    recruited = told + LUCK_IN_RINGS * rng.normal(size=len(told))
    members = np.argsort(-recruited)[: round(ORGANISED * count)]
    ring = np.full(len(told), -1)
    ring[rng.permutation(members)] = draw_groups(rng, len(members), *RING_SIZES)
    alone = told + LUCK * rng.normal(size=len(told))
    alone[members] = -np.inf
    is_fraud = ring >= 0
    is_fraud[np.argsort(-alone)[: count - len(members)]] = True
    return ring, is_fraud


def draw_groups(rng: np.random.Generator, count: int, least: int, most: int) -> Ints:
    """Numbers of groups, one behind the other, each of a size between these; the last may be smaller."""
    sizes = rng.integers(least, most + 1, count // least + 1)
    return np.repeat(np.arange(len(sizes)), sizes)[:count]


def draw_transfers(
    rng: np.random.Generator, ring: Ints, is_fraud: npt.NDArray[np.bool_]
) -> tuple[Ints, Ints, npt.NDArray[np.float64]]:
    """Who pays whom how much: everybody five times, one in seven large, as rents are.

    Three in ten payments of a fraudulent account go to another one, in a ring to one of the ring, and pass on
    what was taken: about a thousand euros.
    """
    source = np.repeat(np.arange(len(ring)), 5)
    target = rng.integers(0, len(ring), len(source))
    amount = np.where(
        rng.random(len(source)) < 1 / 7,
        rng.lognormal(6.8, 0.4, len(source)),
        rng.lognormal(3.5, 1.2, len(source)),
    )
    passed_on = is_fraud[source] & (rng.random(len(source)) < 0.3)
    target[passed_on] = rng.choice(np.flatnonzero(is_fraud), int(passed_on.sum()))
    for number in range(ring.max() + 1):
        inside = passed_on & (ring[source] == number)
        target[inside] = rng.choice(np.flatnonzero(ring == number), int(inside.sum()))
    amount[passed_on] = rng.lognormal(7.0, 0.5, int(passed_on.sum()))
    return source, target, amount


def draw_logins(rng: np.random.Generator, ring: Ints) -> tuple[Ints, Ints]:
    """Which account was used from which device: its owner's, the household's, a public one, a ring's.

    Everybody has a phone. Of a household with several accounts, half use a device of the household too. An
    account of a ring is used from two of the ring's phones; half of them from their owner's phone as well.
    """
    count = len(ring)
    everybody = np.arange(count)
    sizes = rng.choice([1, 2, 3, 4], count, p=HOUSEHOLDS)
    household = rng.permutation(np.repeat(everybody, sizes)[:count])
    is_shared = (np.bincount(household, minlength=count)[household] > 1) & (rng.random(count) < 0.5)
    has_own = (ring < 0) | (rng.random(count) < 0.5)
    is_public = rng.random(count) < USE_PUBLIC
    uses = [
        (everybody[has_own], everybody[has_own]),
        (everybody[is_shared], count + household[is_shared]),
        (everybody[is_public], 2 * count + rng.integers(0, PUBLIC_DEVICES, int(is_public.sum()))),
    ]
    first = 2 * count + PUBLIC_DEVICES
    for number in range(ring.max() + 1):
        members = np.flatnonzero(ring == number)
        phones = int(rng.integers(RING_PHONES[0], RING_PHONES[1] + 1))
        for member in members:
            uses.append((np.full(2, member), first + rng.choice(phones, 2, replace=False)))
        first += phones
    users, devices = (np.concatenate(each) for each in zip(*uses, strict=True))
    # What a device is called says nothing about who uses it.
    return users, rng.permutation(first)[devices]


def draw_accounts(rng: np.random.Generator, count: int) -> Columns:
    """The numbers of an account: euros, years, days, counts and a share."""
    income = rng.lognormal(10.4, 0.6, count)
    return {
        "income": income.round(2),
        "age": np.clip(rng.normal(46, 15, count), 18, 95).round(),
        "balance": (rng.normal(0.1, 1, count) * income * 0.3).round(2),
        "largest_transfer": (rng.lognormal(-1.5, 1.0, count) * income).round(2),
        "days_open": rng.exponential(1_500, count).round(),
        "logins": rng.negative_binomial(2, 0.02, count),
        "countries": rng.poisson(1.2, count),
        "share_in_cash": rng.beta(1.2, 6, count).round(4),
    }


def normal_rank(values: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Ranks as quantiles of a normal distribution; equal values have their mean rank."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks = np.cumsum(counts) - (counts - 1) / 2
    shares = (ranks - 0.5) / len(values)
    return np.array([NormalDist().inv_cdf(share) for share in shares])[place]


def write_hospital(folder: Path, patients: int = 4_000) -> None:
    """Write patients.csv and contacts.csv: whoever shared a room with somebody infected stays longer."""
    rng = np.random.default_rng(SEED)
    born = [date(1935, 1, 1) + timedelta(days=int(day)) for day in rng.integers(0, 30_000, patients)]
    came = [date(2023, 1, 1) + timedelta(days=int(day)) for day in rng.integers(0, 365, patients)]
    severity = rng.integers(1, 6, patients)
    ward = rng.integers(0, 4, patients)
    room = rng.integers(0, 200, patients)
    # An infection lives in a room for a while; no column tells which rooms have one.
    is_infected = rng.random(200)[room] < 0.35
    temperature = rng.normal(37.0, 0.5, patients) + 0.2 * severity
    age = np.array([(day - first).days / 365 for day, first in zip(came, born, strict=True)])
    mean = 1 + 1.3 * severity + 0.04 * age + 1.5 * ward + 9 * is_infected
    stay = np.clip(mean + rng.normal(0, 2, patients), 0.5, 59.5).round(1)
    rows = [
        [
            7_000 + n,
            f"Patient {rng.integers(0, patients)}",
            "FM"[int(rng.integers(2))],
            born[n].strftime("%m/%d/%Y"),
            f"{came[n]} {int(rng.integers(24)):02}:15",
            ("medicine", "surgery", "cardiology", "intensive care")[ward[n]],
            severity[n],
            "" if rng.random() < 0.04 else f"{temperature[n]:.1f}",
            stay[n],
        ]
        for n in range(patients)
    ]
    head = ["patient no", "name", "sex", "date of birth", "admitted", "ward", "severity", "temperature"]
    write(folder / "patients.csv", [*head, "length of stay"], rows, ",")
    order = np.argsort(room, kind="stable")
    where = np.split(order, np.searchsorted(room[order], np.arange(1, 200)))
    links = []
    for n in range(patients):
        mates = where[room[n]]
        for mate in rng.choice(mates, min(len(mates), 6), replace=False):
            links.append([f"{came[n]}", 7_000 + n, 7_000 + mate, int(rng.integers(5, 600))])
    write(folder / "contacts.csv", ["day", "patient", "met", "minutes"], links, ",")


GENRES = ("classical", "electronic", "folk", "hip hop", "jazz", "metal", "pop", "rock")


def write_social(folder: Path, users: int = 4_000) -> None:
    """Write users.tsv, with lists of genres, and follows.csv: friends have a scene in common."""
    rng = np.random.default_rng(SEED)
    scene = rng.integers(0, 4, users)
    likes = rng.random((users, len(GENRES))) < 0.06
    for step in (0, 1):
        likes[np.arange(users), 2 * scene + step] |= rng.random(users) < 0.6
    rows = [
        [
            f"u{n:05}",
            f"@{('sun', 'moon', 'star')[n % 3]}{n % (users - 12)}",
            int(np.clip(rng.normal(24 + 4 * scene[n], 9), 14, 90)),
            ("NO", "SE", "DK", "FI")[int(rng.integers(4))],
            ("true", "false")[int(rng.integers(2))],
            "" if rng.random() < 0.1 else "|".join(np.array(GENRES)[likes[n]]) or "none",
        ]
        for n in range(users)
    ]
    write(folder / "users.tsv", ["user", "handle", "age", "country", "premium", "genres"], rows, "\t")
    follower = np.repeat(np.arange(users), 10)
    same = np.argsort(scene, kind="stable")
    begin = np.searchsorted(scene[same], np.arange(5))
    inside = (
        begin[scene[follower]] + rng.integers(0, 1 << 30, len(follower)) % np.diff(begin)[scene[follower]]
    )
    followee = np.where(rng.random(len(follower)) < 0.7, same[inside], rng.integers(0, users, len(follower)))
    links = ([f"u{u:05}", f"u{w:05}"] for u, w in zip(follower, followee, strict=True))
    write(folder / "follows.csv", ["follower", "followee"], links, ",")


def write_views(folder: Path, channels: int = 4_000) -> None:
    """Write channels.csv, with views from 1 to millions, and mentions.csv."""
    rng = np.random.default_rng(SEED)
    fame = rng.normal(0, 1, channels)
    months = rng.integers(1, 120, channels)
    videos = rng.poisson(np.exp(1.5 + 0.4 * fame) * (1 + months / 40)) + 1
    views = 10 ** np.clip(3.2 + 0.9 * fame + 0.5 * np.log10(videos) + rng.normal(0, 0.4, channels), 0, 8)
    rows = [
        [
            f"c{n}",
            f"Channel {n % (channels - 12)}",
            months[n],
            videos[n],
            f"{int(views[n]):,}",
            ("de", "en", "fr")[int(rng.integers(3))],
            ("yes", "no")[int(rng.random() < 0.5 + 0.1 * fame[n])],
        ]
        for n in range(channels)
    ]
    write(
        folder / "channels.csv",
        ["channel", "title", "months", "videos", "views", "language", "mature"],
        rows,
        ",",
    )
    # Channels mention others about as famous as they are.
    order = np.argsort(fame)
    rank = np.empty(channels, np.int64)
    rank[order] = np.arange(channels)
    near = np.repeat(rank, 8) + rng.normal(0, channels / 12, 8 * channels).round().astype(np.int64)
    mentioned = order[np.clip(near, 0, channels - 1)]
    links = ([f"c{n // 8}", f"c{mentioned[n]}"] for n in range(8 * channels))
    write(folder / "mentions.csv", ["who", "whom"], links, ",")


def european(number: float) -> str:
    """A number with a point between thousands and a comma before two decimals."""
    return f"{number:,.2f}".translate(str.maketrans(",.", ".,"))


def write(path: Path, head: Sequence[str], rows: Iterable[Sequence[Any]], delimiter: str) -> None:
    """Write one CSV file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, delimiter=delimiter, lineterminator="\n")
        writer.writerow(head)
        writer.writerows(rows)


TABLES: dict[str, Callable[..., None]] = {
    "bank": write_bank,
    "hospital": write_hospital,
    "social": write_social,
    "views": write_views,
}


def main() -> None:
    """Write the folder that the command line names."""
    name, *counts = sys.argv[1:] or [""]
    if name not in TABLES or len(counts) > 1 or not all(count.isdecimal() for count in counts):
        sys.exit(f"expected one of {', '.join(TABLES)}, as: python docs/examples/tables.py bank")
    TABLES[name](Path(name), *map(int, counts))


if __name__ == "__main__":
    main()
