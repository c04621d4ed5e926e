"""What a session calls for everything that a guarantee rests on: real by default, replaced by audits.

Each part is a function. A fault is a `Parts` with one of them changed; the session is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor, nn

from hushgraph._arrays import Int64Array
from hushgraph.billboard import ballots, board, reading
from hushgraph.billboard.ballots import Ballots
from hushgraph.billboard.board import Board
from hushgraph.figures import tables
from hushgraph.figures.tables import Counts, NoisyTables
from hushgraph.gradients.clip import Clipping
from hushgraph.gradients.sums import sum_error
from hushgraph.graph.graph import Graph
from hushgraph.noise import normal
from hushgraph.noise.counts import NoisyCounts
from hushgraph.noise.normal import seeded_keys
from hushgraph.noise.rounded import Draws
from hushgraph.noise.source import ExactNoise, NoiseSource
from hushgraph.privacy.charges import Charge
from hushgraph.privacy.ledger import Ledger
from hushgraph.privacy.plans import PrivacyPlan
from hushgraph.sampling.lists import BoundedLists
from hushgraph.scaling import histograms
from hushgraph.scaling.histograms import NoisyHistograms
from hushgraph.tasks.task import Task
from hushgraph.training.tree_batches import draw_lists

ClippedSum = Callable[[nn.Module, Any, Clipping], dict[str, Tensor]]
"""From a model, a piece of a batch and a clipping rule to the clipped sum, per parameter."""


def choose_draws(seed: int | None, place: int) -> Draws:
    """The draws of a board: of the operating system's; of a seeded run, such as can be drawn again."""
    if seed is None:
        return normal.draw
    # Apart from the stream of the steps, which starts from the seed itself, and from that of another board.
    return partial(normal.draw, keys=seeded_keys(f"board {place} of {seed}"))


def choose_scaling_draws(seed: int | None) -> Draws:
    """The draws of the histograms: of the operating system's; of a seeded run, a stream of their own."""
    return normal.draw if seed is None else partial(normal.draw, keys=seeded_keys(f"scaling of {seed}"))


def choose_table_draws() -> Draws:
    """The draws of the tables of figures: always of the operating system's; seeded runs have none."""
    return normal.draw


def make_noise(plan: PrivacyPlan, *, num_nodes: int, num_parameters: int, seed: int | None) -> NoiseSource:
    """Exact noise: one stream for all steps, of which nothing is used twice."""
    num_roots, num_rows = plan.num_train_nodes, plan.most_lines(num_nodes)
    noise = ExactNoise(
        sigma_over_clip=plan.sigma_over_clip,
        sum_error=sum_error(num_roots=num_roots, num_rows=num_rows),
        seed=seed,
    )
    # Too much noise for its grid is refused before a step is charged.
    noise.widening(num_parameters)
    return noise


def charge_ledger(ledger: Ledger, charge: Charge, **given: int | None) -> None:
    """Write a charge to the ledger, or to what stands for one."""
    ledger.charge(charge, **given)


def keep_sum(clipped_sum: ClippedSum) -> ClippedSum:
    """The clipped sum that suits plan, model and device, as it is."""
    return clipped_sum


@dataclass(frozen=True, kw_only=True)
class Parts:
    """The collaborators of a session.

    Attributes:
        label_ballots: what rows with a training label cast.
        soft_ballots: adds the ballots of everybody else, from the outputs of the model, for a second board.
        board_draws: the randomness of a board, by the seed of the run and the place of the board.
        cast_and_release: casts ballots and adds noise; charges nothing.
        save_board: makes a board visible.
        load_board: finds a board that was released, by its file and its plan.
        read_board: what rows read of the boards together.
        make_lists: bounded lists of a graph, by the plan and the seed of their keys.
        adapt_sum: from the clipped sum that training chose to the one that is used.
        make_noise: the noise of the steps.
        count_numbers: counts the numbers of training rows in histograms, by graph and columns.
        scaling_draws: the randomness of the histograms, by the seed of the run.
        release_histograms: adds noise to the histograms.
        count_rows: counts evaluated rows in tables.
        table_draws: the randomness of the tables.
        release_tables: adds noise to the tables.
        save_counts: makes histograms, or tables, visible.
        charge: writes to the ledger.
    """

    label_ballots: Callable[..., Ballots] = ballots.label_ballots
    soft_ballots: Callable[[Ballots, Tensor, Task], Ballots] = ballots.with_predictions
    board_draws: Callable[[int | None, int], Draws] = choose_draws
    cast_and_release: Callable[..., Board] = board.cast_and_release
    save_board: Callable[[Board, Path, Callable[[], None]], None] = board.save_board
    load_board: Callable[..., Board] = board.load_board
    read_board: Callable[..., npt.NDArray[np.float32]] = reading.read_scaled
    make_lists: Callable[[Graph, PrivacyPlan, int], BoundedLists] = draw_lists
    adapt_sum: Callable[[ClippedSum], ClippedSum] = keep_sum
    make_noise: Callable[..., NoiseSource] = make_noise
    count_numbers: Callable[[Graph, Sequence[str]], Int64Array] = histograms.count_numbers
    scaling_draws: Callable[[int | None], Draws] = choose_scaling_draws
    release_histograms: Callable[..., NoisyHistograms] = histograms.release_histograms
    count_rows: Callable[..., Counts] = tables.count_rows
    table_draws: Callable[[], Draws] = choose_table_draws
    release_tables: Callable[..., NoisyTables] = tables.release_tables
    save_counts: Callable[[NoisyCounts, Path, Callable[[], None]], None] = NoisyCounts.save
    charge: Callable[..., None] = charge_ledger
