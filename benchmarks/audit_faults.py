"""Faults planted into the code itself, one at a time: which of them does `hushgraph audit --epsilon 4` catch?

    python benchmarks/audit_faults.py --out benchmarks/records/audit_faults.jsonl
    python benchmarks/audit_faults.py --only boards_noiseless

Every fault replaces functions in a process of its own, which then runs the command as it is. A fault is
caught where the command does not end with 0. Ends with 1 where fewer than 24 are caught, or correct code is.
"""

from __future__ import annotations

import argparse
import contextlib
import inspect
import io
import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

LEAST = 24


class Poisoned(BaseException):
    """Raised by functions that were made to raise."""


def set_part(**changed: Any) -> None:
    """Change what a session calls unless it is told otherwise."""
    from hushgraph.training.parts import Parts

    Parts.__init__.__kwdefaults__.update(changed)


def get_part(name: str) -> Any:
    from hushgraph.training.parts import Parts

    return getattr(Parts(), name)


def with_noise(factor: float) -> None:
    """Boards with so many times the noise."""
    real = get_part("cast_and_release")

    def cast_and_release(graph: Any, ballots: Any, *, noise_std: float, draws: Any, plan: str) -> Any:
        return real(graph, ballots, noise_std=factor * noise_std, draws=draws, plan=plan)

    set_part(cast_and_release=cast_and_release)


def boards_fixed_keys() -> None:
    """The noise of every board comes from one key."""
    from hushgraph.noise import normal

    set_part(board_draws=lambda *_: partial(normal.draw, keys=normal.seeded_keys("oops")))


def boards_uncharged() -> None:
    """Boards are counted in memory and never written to the ledger."""
    from hushgraph.privacy.ledger import Ledger

    real = Ledger.charge

    def charge(self: Any, event: Any, **given: Any) -> None:
        if not event.is_step:
            self._book_charge(event.once, given.get("count") or event.times, is_torn=False)
        else:
            real(self, event, **given)

    Ledger.charge = charge  # type: ignore[method-assign]


def ledger_half() -> None:
    """Half of the steps that are taken at a time are charged."""
    real = get_part("charge")

    def charge(ledger: Any, event: Any, *, step: int | None = None, count: int | None = None) -> None:
        real(ledger, event, step=step, count=None if count is None else max(1, count // 2))

    set_part(charge=charge)


def session_fixed_noise() -> None:
    """The noise of the steps has a constant seed."""
    real = get_part("make_noise")
    set_part(make_noise=lambda plan, **given: real(plan, **{**given, "seed": 7}))


def second_board_val_labels() -> None:
    """Rows of the validation split cast their labels onto the second board."""
    import numpy as np

    from hushgraph.training import boards

    real = boards.make_ballots

    def make_ballots(folder: Any, graph: Any, place: int, *given: Any, **named: Any) -> Any:
        if place:
            voters = np.union1d(graph.train_idx, graph.val_idx)
            graph = replace(graph, train_idx=voters, val_idx=graph.val_idx[:0])
            named["labels"] = None
        return real(folder, graph, place, *given, **named)

    boards.make_ballots = make_ballots


def without_noise(numbers: slice) -> None:
    """Some numbers of every board have no noise."""
    from hushgraph.billboard import board

    real = board.round_draws

    def units(draws: Any, divisor: int) -> Any:
        noise = real(draws, divisor)
        noise[numbers] = 0
        return noise

    board.round_draws = units


def sparse_norms_lost() -> None:
    """Squared norms forget sparse features, so that such rows are clipped far beyond C."""
    from hushgraph.inputs.rows import Rows

    real = Rows.feature_squares

    def feature_squares(self: Any) -> Any:
        squares = real(self)
        return 0.0 * squares if self.features.num_columns else squares

    Rows.feature_squares = feature_squares  # type: ignore[method-assign]


def skip_tensor(name: str) -> None:
    """One weight tensor has no noise."""
    from hushgraph.noise.source import ExactNoise

    real = ExactNoise.add_noise

    def add_noise(self: Any, sums: Any, sigmas: Any) -> Any:
        noisy = real(self, sums, sigmas)
        for each in noisy:
            if each.endswith(name):
                noisy[each] = sums[each].to(noisy[each].dtype).clone()
        return noisy

    ExactNoise.add_noise = add_noise  # type: ignore[method-assign]


def ahead_reused() -> None:
    """Noise that was drawn ahead is given out twice."""
    from hushgraph.noise.source import _Drawer

    real = _Drawer.take

    def take(self: Any) -> Any:
        last = getattr(self, "_last", None)
        if self._ahead and last is not None:
            self._last = None
            return last
        self._last = real(self).clone()
        return self._last

    _Drawer.take = take  # type: ignore[method-assign]


def same_noise_both_boards() -> None:
    """Every board starts the same stream of noise."""
    from hushgraph.billboard import board
    from hushgraph.noise import normal

    real = board.release

    def release(tally: Any, **given: Any) -> Any:
        return real(tally, **{**given, "draws": partial(normal.draw, keys=normal.seeded_keys("same"))})

    board.release = release


def board1_read_before_noise_one_row() -> None:
    """One row reads the tally of its place and not the board."""
    from hushgraph.billboard.ballots import GRID, label_ballots
    from hushgraph.billboard.board import cast

    real = get_part("read_board")

    def read_board(board: Any, graph: Any, owner: Any, **given: Any) -> Any:
        readings = real(board, graph, owner, **given)
        tally = cast(graph, label_ballots(graph, owner, task=graph.task)) / GRID
        row = int(graph.train_idx[0])
        readings[row] = tally[row][: readings.shape[1]]
        return readings

    set_part(read_board=read_board)


def second_soft_norm2() -> None:
    """Ballots made of probabilities have norm 2."""
    import numpy as np

    real = get_part("soft_ballots")

    def soft_ballots(*given: Any) -> Any:
        cast = real(*given)
        return replace(cast, soft=(2 * cast.soft).astype(np.int32))

    set_part(soft_ballots=soft_ballots)


def second_soft_norm2_unchecked() -> None:
    """The same, where ballots are rounded: their norm is checked for a shorter list."""
    import numpy as np

    from hushgraph.billboard import ballots

    real = ballots._round_onto_grid

    def round_onto_grid(cast: Any, sizes: Any) -> Any:
        return real(2 * cast, np.maximum(sizes // 4, 1))

    ballots._round_onto_grid = round_onto_grid


def tables_with_noise(factor: float) -> None:
    """Tables of figures with so many times the noise."""
    real = get_part("release_tables")

    def release_tables(counts: Any, *, noise_std: float, **given: Any) -> Any:
        if factor:
            return real(counts, noise_std=factor * noise_std, **given)
        return replace(real(counts, noise_std=noise_std, **given), splits=counts)

    set_part(release_tables=release_tables)


def tables_every_100th_noiseless() -> None:
    """Every 100th cell of every table has no noise: the first of each."""
    from hushgraph.noise import counts

    real = counts.round_draws

    def round_draws(draws: Any, divisor: int) -> Any:
        noise = real(draws, divisor)
        noise[::100] = 0
        return noise

    counts.round_draws = round_draws


def tables_fixed_keys() -> None:
    """The noise of the tables comes from one key."""
    from hushgraph.noise import normal

    set_part(table_draws=lambda: partial(normal.draw, keys=normal.seeded_keys("oops")))


def tables_count_training() -> None:
    """Training rows are counted with the rows of the validation split."""
    from hushgraph.training.memory import GraphView

    real = GraphView.score

    def score(self: Any, model: Any, split: str) -> Any:
        yield from real(self, model, split)
        if split == "val":
            yield from real(self, model, "train")

    GraphView.score = score  # type: ignore[method-assign]


def tables_count_twice() -> None:
    """The first row of every part is counted twice."""
    from hushgraph.figures.tables import Scored

    real = get_part("count_rows")

    def count_rows(task: Any, parts: Any, *, num_groups: int) -> Any:
        rows = list(parts)
        again = [Scored(*(None if each is None else each[:1] for each in part)) for part in rows]
        return real(task, [*rows, *again], num_groups=num_groups)

    set_part(count_rows=count_rows)


def tables_uncharged() -> None:
    """Tables are released without a charge."""
    real = get_part("charge")

    def charge(ledger: Any, event: Any, **given: Any) -> None:
        if event.name != "figures":
            real(ledger, event, **given)

    set_part(charge=charge)


def poison_training_path() -> None:
    """Everything in `training/boards.py` and `training/session.py` raises when it is called."""
    from hushgraph.training import boards, session

    def refuse(*_: Any, **__: Any) -> Any:
        raise Poisoned("the code of training was called")

    for module in (boards, session):
        for name, found in list(vars(module).items()):
            if getattr(found, "__module__", None) != module.__name__:
                continue
            if inspect.isfunction(found):
                setattr(module, name, refuse)
            elif inspect.isclass(found):
                for inner, method in list(vars(found).items()):
                    if inspect.isfunction(method):
                        setattr(found, inner, refuse)


FAULTS: dict[str, Callable[[], None]] = {
    "boards_noiseless": partial(with_noise, 0.0),
    "boards_tenth_noise": partial(with_noise, 0.1),
    "boards_fixed_keys": boards_fixed_keys,
    "boards_uncharged": boards_uncharged,
    "ledger_half": ledger_half,
    "session_fixed_noise": session_fixed_noise,
    "second_board_val_labels": second_board_val_labels,
    "one_place_noiseless": partial(without_noise, slice(0, 3)),
    "every_100th_noiseless": partial(without_noise, slice(None, None, 100)),
    "sparse_norms_lost": sparse_norms_lost,
    "no_noise_encoder_bias": partial(skip_tensor, "encoder.0.bias"),
    "no_noise_decoder_bias": partial(skip_tensor, "decoder.bias"),
    "no_noise_skip": partial(skip_tensor, "skip.weight"),
    "no_noise_decoder_weight": partial(skip_tensor, "decoder.weight"),
    "ahead_reused": ahead_reused,
    "same_noise_both_boards": same_noise_both_boards,
    "board1_read_before_noise_one_row": board1_read_before_noise_one_row,
    "second_soft_norm2": second_soft_norm2,
    "second_soft_norm2_unchecked": second_soft_norm2_unchecked,
    "tables_noiseless": partial(tables_with_noise, 0.0),
    "tables_half_noise": partial(tables_with_noise, 0.5),
    "tables_every_100th_noiseless": tables_every_100th_noiseless,
    "tables_fixed_keys": tables_fixed_keys,
    "tables_count_training": tables_count_training,
    "tables_count_twice": tables_count_twice,
    "tables_uncharged": tables_uncharged,
    "poison_training_path": poison_training_path,
}


def run_planted(name: str, arguments: list[str]) -> dict[str, Any]:
    """Plant a fault in this process and run the command; what came out."""
    from hushgraph.cli.app import main

    if name != "none":
        FAULTS[name]()
    output = io.StringIO()
    try:
        with contextlib.redirect_stdout(output):
            code = main(["audit", "--json", *arguments])
    except Poisoned as error:
        # Any other exception is a mistake in the fault, and ends this script.
        return {"code": 1, "caught_by": [f"the run ends: {error}"]}
    lines = output.getvalue().splitlines()
    if not lines:
        return {"code": code, "caught_by": ["the command ends without a result"]}
    record = json.loads(lines[-1])
    caught = [check["name"] for check in record["checks"] if check["failure"]]
    caught += [entry["name"] for entry in record["attacks"] if entry["exceeds"]]
    if max(record["lower_bound"], record["lower_bound_by_event"]) > record["claimed_epsilon"]:
        caught.append(record["attacked"])
    if record["others_changed"]:
        caught.append("others, same boards and weights")
    if record["numbers"]["exceeds"]:
        caught.append("digits")
    return {"code": code, "caught_by": caught}


def measure(name: str, arguments: list[str]) -> dict[str, Any]:
    """The record of one fault, from a process of its own."""
    begin = time.monotonic()
    command = [sys.executable, __file__, "--plant", name, "--", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    seconds = round(time.monotonic() - begin, 1)
    if done.returncode:
        # The command did not run, so that nothing was caught.
        raise RuntimeError(f"{name}: {done.stderr}")
    result = json.loads(done.stdout.splitlines()[-1])
    return {
        "fault": name,
        "arguments": arguments,
        "caught": result["code"] != 0,
        "caught_by": result["caught_by"],
        "seconds": seconds,
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path)
    parser.add_argument("--only", action="append", choices=["none", *FAULTS])
    parser.add_argument("--plant", choices=["none", *FAULTS], help="plant this one here and run the command")
    parser.add_argument("arguments", nargs="*", help="of the command [--epsilon 4]")
    args = parser.parse_args()
    arguments = args.arguments or ["--epsilon", "4"]
    if args.plant is not None:
        print(json.dumps(run_planted(args.plant, arguments)))
        return 0
    records = []
    for name in args.only or ["none", *FAULTS]:
        records.append(measure(name, arguments))
        print(json.dumps(records[-1]), flush=True)
        if args.out is not None:
            args.out.write_text("".join(json.dumps(record) + "\n" for record in records))
    caught = sum(record["caught"] for record in records if record["fault"] != "none")
    is_clean = not any(record["caught"] for record in records if record["fault"] == "none")
    return 0 if is_clean and (args.only or caught >= LEAST) else 1


if __name__ == "__main__":
    raise SystemExit(main())
