"""The trials behind the billboard's defaults: validation and test accuracy of one setting after another.

    python benchmarks/billboard_trials.py --data FOLDER --out trials.jsonl --plan rule [--graphs NAME ...]

FOLDER holds the .npz graphs. The script needs torch, numpy and scipy only, and trains many settings and
seeds side by side: every tensor has a dimension for the members of such a group. Its noise is float32 from
torch, so it serves for accuracies, not for private training. A trial reads the validation labels of a public
graph; on a private graph choosing settings this way would have to be paid for.

Plans: "search"; "around", which starts from what the search found; "ceilings"; "rule"; or a JSON file, a list
of parts: graphs, splits, seeds, and settings as "changes" of a "base", or "rule": true for the rule that the
trials led to. "clear" adds predictions averaged over neighbours, "new" takes the test nodes out before board
and training, "private": false leaves clipping and noise out, "ceilings" are GCNs and MLPs without privacy.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.optimize import brentq
from scipy.special import log_ndtr, ndtr
from torch import Tensor

BUDGETS = {
    "facebook_32_schools": (1.0, 4.0, 12.0),
    "ogbn_arxiv_hints": (1.0, 4.0, 12.0),
    "amazon_computers": (1.0, 4.0, 8.0),
    "coauthor_physics": (1.0, 4.0, 8.0),
    "planetoid_pubmed": (1.0, 4.0, 8.0),
    "planetoid_cora": (1.0, 4.0, 8.0),
    "planetoid_citeseer": (1.0, 4.0, 8.0),
}
GIVEN_SPLIT = ("facebook_32_schools", "ogbn_arxiv_hints")
# Members that train side by side: at most so many hidden activations.
MOST_ACTIVATIONS = {"cpu": 1 << 22, "cuda": 1 << 27}


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One choice of everything.

    Attributes:
        boards: 0 (features alone) or more.
        shares: of mu squared: first board, first training, second board, second training. With three boards
            or more: all boards, all trainings, in equal parts.
        damping: power of the damped reading, 0 for the plain one.
        scale, radius: the reading enters as z / sqrt(1 + |z|^2 / radius^2), z = scale * S / s.
        skip: initial weight of the path from reading to scores; None leaves the path out.
        place: scale of the node's own place of the board as a further input; 0 leaves it out.
        degree: weight of log(1 + own degree) as a further input; 0 leaves it out.
        combine: one reading of both boards, weighted by precision, instead of a reading of each.
        warm: the second training goes on from the first one's weights.
        first_steps: part of the steps that the first training takes.
        loudness: norm of a ballot cast by a row without a training label.
        travel, half_noise: learning rate times steps where noise is negligible, and the noise that halves it.
    """

    boards: int = 1
    shares: tuple[float, float, float, float] = (0.5, 0.5, 0.0, 0.0)
    damping: float = 1.0
    scale: float = 0.3
    radius: float = math.inf
    skip: float | None = None
    place: float = 0.0
    degree: float = 0.0
    combine: bool = True
    warm: bool = True
    first_steps: float = 0.5
    loudness: float = 1.0
    steps: int = 300
    hidden: int = 64
    travel: float = 8.0
    half_noise: float = 6e-4
    feature_norm: float = 6.0
    stability: float = 0.1
    average: float = 0.98
    momentum: float = 0.7
    activation: str = "tanh"
    zero_output: bool = False

    def shape(self) -> tuple[Any, ...]:
        """Members of one group agree on this."""
        return (
            self.boards,
            self.skip is None,
            self.place > 0,
            self.degree > 0,
            self.combine,
            self.warm,
            self.first_steps,
            self.shares[1] > 0,
            self.steps,
            self.hidden,
            self.activation,
        )


@dataclass(eq=False)
class Data:
    """A graph on the device: undirected, without repeats and self-loops; rows of features have norm 1."""

    name: str
    x: Tensor
    y: Tensor
    edges: Tensor
    num_classes: int
    train: Tensor
    val: Tensor
    test: Tensor
    adjacency: Tensor = field(init=False)
    degree: Tensor = field(init=False)

    def __post_init__(self) -> None:
        self.adjacency = csr(self.edges, len(self.y))
        self.degree = torch.bincount(self.edges[0], minlength=len(self.y)).float()

    @property
    def delta(self) -> float:
        return 1 / (10 * len(self.train))


def csr(edges: Tensor, size: int) -> Tensor:
    """Sparse matrix of ones; edges are sorted by row."""
    rows = torch.zeros(size + 1, dtype=torch.int64, device=edges.device)
    rows[1:] = torch.bincount(edges[0], minlength=size).cumsum(0)
    ones = torch.ones(edges.shape[1], device=edges.device)
    # A column with strides is read wrongly on a GPU.
    return torch.sparse_csr_tensor(rows, edges[1].contiguous(), ones, (size, size), check_invariants=True)


def load(path: Path, split_seed: int, device: torch.device) -> Data:
    """Read one .npz; a random 60/20/20 split of the labelled nodes where none is to be used."""
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files}
    y = arrays["y"].astype(np.int64)
    ends = torch.from_numpy(arrays["edge_index"].astype(np.int64)).to(device)
    ends = ends[:, ends[0] != ends[1]]
    keys = torch.unique(torch.cat([ends[0] * len(y) + ends[1], ends[1] * len(y) + ends[0]]))
    edges = torch.stack([keys // len(y), keys % len(y)])
    if path.stem in GIVEN_SPLIT:
        parts = [arrays[f"{part}_idx"].astype(np.int64) for part in ("train", "val", "test")]
    else:
        order = np.random.default_rng(split_seed).permutation(np.flatnonzero(y >= 0))
        ends_at = [int(0.6 * len(order)), int(0.8 * len(order))]
        parts = np.split(order, ends_at)
    x = features(arrays).to(device)
    x = x / torch.linalg.vector_norm(x, dim=1, keepdim=True).clamp(min=1e-12)
    train, val, test = (torch.from_numpy(part).to(device) for part in parts)
    labels = torch.from_numpy(y).to(device)
    return Data(path.stem, x, labels, edges, int(y.max()) + 1, train, val, test)


def features(arrays: dict[str, np.ndarray]) -> Tensor:
    """Dense features of either kind of file."""
    if "x" in arrays:
        return torch.from_numpy(arrays["x"].astype(np.float32))
    rows, columns = (int(n) for n in arrays["x_shape"])
    indptr, indices = arrays["x_indptr"].astype(np.int64), arrays["x_indices"].astype(np.int64)
    values = np.broadcast_to(arrays["x_data"].astype(np.float32), indices.shape)
    x = np.zeros((rows, columns), np.float32)
    x[np.repeat(np.arange(rows), np.diff(indptr)), indices] = values
    return torch.from_numpy(x)


def without_test(data: Data) -> tuple[Data, Tensor]:
    """The graph before its test nodes arrive, and what everybody reads once they are there."""
    is_new = torch.zeros(len(data.y), dtype=torch.bool, device=data.y.device)
    is_new[data.test] = True
    known = ~is_new[data.edges[1]]
    before = data.edges[:, known & ~is_new[data.edges[0]]]
    smaller = replace_data(data, before)
    return smaller, csr(data.edges[:, known], len(data.y))


def replace_data(data: Data, edges: Tensor) -> Data:
    return Data(data.name, data.x, data.y, edges, data.num_classes, data.train, data.val, data.test)


def gaussian_mu(epsilon: float, delta: float) -> float:
    """mu of the Gaussian mechanism that is exactly (epsilon, delta)-private."""

    def excess(mu: float) -> float:
        second = math.exp(epsilon + float(log_ndtr(-mu / 2 - epsilon / mu)))
        return float(ndtr(mu / 2 - epsilon / mu)) - second - delta

    return float(brentq(excess, 1e-6, 50.0, xtol=1e-12))


@dataclass(eq=False)
class Group:
    """Settings of one shape and their seeds, trained side by side at one epsilon."""

    data: Data
    epsilon: float
    settings: list[Setting]
    seeds: list[int]
    private: bool = True

    def __post_init__(self) -> None:
        self.device = self.data.x.device
        self._cache: dict[str, Tensor] = {}
        torch.manual_seed(zlib.crc32(repr((self.epsilon, self.settings, self.seeds)).encode()))
        self.mu = gaussian_mu(self.epsilon, self.data.delta)
        shares = torch.tensor([s.shares for s in self.settings], dtype=torch.float64)
        self.mus = (self.mu * (shares / shares.sum(1, keepdim=True)).sqrt()).float().to(self.device)

    def of(self, name: str) -> Tensor:
        """One number for each member."""
        if name not in self._cache:
            values = [float(getattr(s, name)) for s in self.settings]
            self._cache[name] = torch.tensor(values, device=self.device)
        return self._cache[name]

    def normal(self, *shape: int) -> Tensor:
        return torch.randn(*shape, device=self.device)


@dataclass(eq=False)
class Tally:
    """A released board [nodes, members, classes], its noise [members], and what each row cast."""

    board: Tensor
    noise: Tensor
    cast: Tensor


def label_ballots(data: Data, members: int) -> Tensor:
    """Ballots [nodes, members, classes] of the training rows; zeros for the others."""
    c = data.num_classes
    ballots = torch.zeros(len(data.y), c, device=data.y.device)
    rows = data.train[data.y[data.train] >= 0]
    ballots[rows] = -1 / c
    ballots[rows, data.y[rows]] += 1
    return (ballots / math.sqrt(1 - 1 / c))[:, None, :].expand(-1, members, -1)


def matmul(adjacency: Tensor, values: Tensor) -> Tensor:
    """Sums of [nodes, ...] over everybody's list."""
    flat = values.reshape(len(values), -1)
    return (adjacency @ flat).reshape(values.shape)


def tally(group: Group, cast: Tensor, mu: Tensor) -> Tally:
    """Spread ballots over the places that rows list, add noise; take off the part no ballot can have."""
    root = group.data.degree.clamp(min=1).sqrt()[:, None, None]
    board = matmul(group.data.adjacency, cast / root)
    if group.private:
        board = board + group.normal(*board.shape) / mu[:, None]
    board = board - board.mean(2, keepdim=True)
    return Tally(board, 1 / mu, cast)


def combined(first: Tally, second: Tally) -> Tally:
    """Both boards weighted by precision."""
    precision = first.noise**-2 + second.noise**-2
    weight = (first.noise**-2 / precision)[:, None]
    board = weight * first.board + (1 - weight) * second.board
    return Tally(board, precision**-0.5, weight * first.cast + (1 - weight) * second.cast)


def read(group: Group, tallied: Tally, listed: Tensor | None = None) -> Tensor:
    """Readings [nodes, members, classes], scaled and squashed; `listed` where others read than cast."""
    adjacency = group.data.adjacency if listed is None else listed
    c = group.data.num_classes
    loud = (tallied.board / tallied.noise[:, None]).square().sum(2)
    weight = (1 + (loud - (c - 1)).clamp(min=0) / c) ** (-group.of("damping") / 2)
    total = matmul(adjacency, weight[:, :, None] * tallied.board)
    root = group.data.degree.clamp(min=1).sqrt()[:, None, None]
    own = matmul(group.data.adjacency, weight)[:, :, None] * tallied.cast / root
    norm = matmul(adjacency, weight.square()).clamp(min=1e-12).sqrt()
    return squash(group, (total - own) / norm[:, :, None] / tallied.noise[:, None], "scale")


def squash(group: Group, z: Tensor, scale: str) -> Tensor:
    z = z * group.of(scale)[:, None]
    radius = group.of("radius")
    return z / (1 + z.square().sum(2, keepdim=True) / radius.square()[:, None]).sqrt()


def extras(group: Group, tallied: Tally) -> list[Tensor]:
    """Further inputs that are functions of the own row and the board."""
    columns = []
    if group.settings[0].place:
        columns.append(squash(group, tallied.board / tallied.noise[:, None], "place"))
    if group.settings[0].degree:
        column = torch.log1p(group.data.degree)[:, None] * group.of("degree")
        columns.append(column[:, :, None])
    return columns


Weights = dict[str, Tensor]


def initial(group: Group, inputs: int) -> Weights:
    """As torch's Linear; the skip path starts as a multiple of the identity."""
    first, m, c = group.settings[0], len(group.settings), group.data.num_classes
    d, hidden = group.data.x.shape[1], first.hidden

    def uniform(fan_in: int, *shape: int) -> Tensor:
        values = torch.rand(*shape, device=group.device)
        return (2 * values - 1) / math.sqrt(fan_in)

    weights = {
        "x": uniform(d + inputs, d, m, hidden),
        "hidden_bias": uniform(d + inputs, m, hidden),
        "output": uniform(hidden, m, hidden, c),
        "output_bias": uniform(hidden, m, c),
    }
    quiet = group.of("zero_output")
    weights["output"] *= (1 - quiet)[:, None, None]
    if inputs:
        weights["reading"] = uniform(d + inputs, m, inputs, hidden)
        if first.skip is not None:
            eye = torch.eye(c, device=group.device)
            repeats = [eye] * (inputs // c) + [torch.zeros(inputs % c, c, device=group.device)]
            weights["skip"] = torch.cat(repeats)[None] * group.of("skip")[:, None, None]
    return weights


def hidden_layer(group: Group, weights: Weights, x: Tensor, reading: Tensor | None) -> Tensor:
    d, m, h = weights["x"].shape
    z = (x @ weights["x"].reshape(d, m * h)).reshape(len(x), m, h) * group.of("feature_norm")[:, None]
    z += weights["hidden_bias"]
    if reading is not None:
        z += torch.bmm(reading.transpose(0, 1), weights["reading"]).transpose(0, 1)
    return z.relu_() if group.settings[0].activation == "relu" else z.tanh_()


def scores(weights: Weights, h: Tensor, reading: Tensor | None) -> Tensor:
    """[nodes, members, classes]."""
    out = torch.bmm(h.transpose(0, 1), weights["output"])
    if "skip" in weights and reading is not None:
        out += torch.bmm(reading.transpose(0, 1), weights["skip"])
    return out.transpose(0, 1) + weights["output_bias"]


def blocks(left: Tensor, right: Tensor) -> Tensor:
    """Per member, left^T right, summed over rows: the blocks on the diagonal of one large product."""
    n, m, a = left.shape
    b = right.shape[2]
    if left.device.type == "cpu":
        return torch.bmm(left.permute(1, 2, 0), right.transpose(0, 1))
    product = (left.reshape(n, m * a).T @ right.reshape(n, m * b)).reshape(m, a, m, b)
    return torch.diagonal(product, dim1=0, dim2=2).permute(2, 0, 1)


def clipped_sum(
    group: Group, weights: Weights, x: Tensor, x_square: Tensor, reading: Tensor | None, target: Tensor
) -> Weights:
    """Sum over rows of normalised gradients: every row's gradient has norm below 1."""
    h = hidden_layer(group, weights, x, reading)
    error = scores(weights, h, reading).softmax(2) - target
    back = torch.bmm(error.transpose(0, 1), weights["output"].transpose(1, 2)).transpose(0, 1)
    back = back * ((h > 0) if group.settings[0].activation == "relu" else (1 - h * h))
    norm = group.of("feature_norm")
    r_square = 0.0 if reading is None else reading.square().sum(2)
    inner = 1 + x_square[:, None] * norm.square() + r_square
    outer = 1 + h.square().sum(2) + (r_square if "skip" in weights else 0.0)
    square = back.square().sum(2) * inner + error.square().sum(2) * outer
    factor = 1 / (square.sqrt() + group.of("stability")) if group.private else torch.ones_like(square)
    back, error = back * factor[:, :, None], error * factor[:, :, None]
    n, m, hidden = back.shape
    sums = {
        "x": (x.T @ back.reshape(n, m * hidden)).reshape(-1, m, hidden) * norm[:, None],
        "hidden_bias": back.sum(0),
        "output": blocks(h, error),
        "output_bias": error.sum(0),
    }
    if reading is not None:
        sums["reading"] = blocks(reading, back)
        if "skip" in weights:
            sums["skip"] = blocks(reading, error)
    return sums


class Training:
    """Private full-batch training of all members; goes on where it stopped."""

    def __init__(self, group: Group, inputs: int, steps: int, rates: Tensor) -> None:
        self.group, self.steps, self.rates = group, steps, rates
        # A tensor, because a captured step is replayed.
        self.done = torch.zeros((), device=group.device)
        self.weights = initial(group, inputs)
        self.average = {name: value.clone() for name, value in self.weights.items()}
        self.first = {name: torch.zeros_like(value) for name, value in self.weights.items()}
        self.second = {name: torch.zeros_like(value) for name, value in self.weights.items()}

    def run(self, reading: Tensor | None, steps: int, mu: Tensor) -> None:
        """So many steps that together have mu [members]."""
        group, data = self.group, self.group.data
        x = data.x[data.train]
        x_square = x.square().sum(1)
        rows = None if reading is None else reading[data.train].contiguous()
        target = torch.nn.functional.one_hot(data.y[data.train], data.num_classes).float()[:, None]
        sigma = math.sqrt(max(1, steps)) / mu
        beta, decay = group.of("momentum"), group.of("average")

        def step() -> None:
            sums = clipped_sum(group, self.weights, x, x_square, rows, target)
            self._update(sums, sigma, beta, decay, len(x))

        repeat(step, steps, group.device)

    def _update(self, sums: Weights, sigma: Tensor, beta: Tensor, decay: Tensor, rows: int) -> None:
        self.done += 1
        rate = self.rates * (1 + torch.cos(math.pi * (self.done - 1) / self.steps)) / 2
        keep = torch.minimum(decay, self.done / (9 + self.done))
        for name, value in self.weights.items():
            side = (1, -1, 1) if name == "x" else (-1,) + (1,) * (value.dim() - 1)
            gradient = sums[name]
            if self.group.private:
                gradient = gradient + self.group.normal(*value.shape) * sigma.view(side)
            gradient = gradient / rows
            b = beta.view(side)
            self.first[name].mul_(b).add_(gradient * (1 - b))
            self.second[name].mul_(0.999).addcmul_(gradient, gradient, value=0.001)
            slope = self.first[name] / (1 - b**self.done)
            size = (self.second[name] / (1 - 0.999**self.done)).sqrt() + 1e-8
            value -= rate.view(side) * slope / size
            self.average[name].lerp_(value, 1 - keep.view(side))

    def probabilities(self, reading: Tensor | None) -> Tensor:
        """Of all nodes, by the averaged weights: [nodes, members, classes]."""
        h = hidden_layer(self.group, self.average, self.group.data.x, reading)
        return scores(self.average, h, reading).softmax(2)


def repeat(step: Callable[[], None], times: int, device: torch.device) -> None:
    """Call a function so often; on a GPU the launches are recorded once and replayed."""
    if device.type == "cpu" or times < 20:
        for _ in range(times):
            step()
        return
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    for _ in range(times - 3):
        graph.replay()
    torch.cuda.synchronize()


def learning_rates(group: Group, mu: Tensor, steps: int) -> Tensor:
    """Lower where noise is larger; without noise the travel is the rate itself."""
    if not group.private:
        return group.of("travel")
    noise = 1 / (len(group.data.train) * mu)
    return group.of("travel") / (1 + noise / group.of("half_noise")) / steps


def train_group(group: Group, listed: Tensor | None = None) -> Tensor:
    """Boards and trainings of a group; probabilities of everybody, [nodes, members, classes].

    `listed` says what everybody reads at the end, where that is not what was there during training.
    """
    setting = group.settings[0]
    if not setting.boards:
        mu = group.mus[:, 1]
        training = Training(group, 0, setting.steps, learning_rates(group, mu, setting.steps))
        training.run(None, setting.steps, mu)
        return training.probabilities(None)
    return refine(group, listed)


def phases(group: Group) -> list[tuple[Tensor, Tensor, int]]:
    """For every board: its mu, the mu of the training after it, and the steps of that."""
    setting, mus = group.settings[0], group.mus
    count, steps = setting.boards, setting.steps
    if count == 1:
        return [(mus[:, 0], mus[:, 1], steps)]
    if count == 2:
        early = round(setting.first_steps * steps) if setting.shares[1] else 0
        late = steps - early if setting.warm else steps
        return [(mus[:, 0], mus[:, 1], early), (mus[:, 2], mus[:, 3], late)]
    part = count**-0.5
    return [(mus[:, 0] * part, mus[:, 1] * part, steps // count)] * count


def refine(group: Group, listed: Tensor | None) -> Tensor:
    """One training, and in the midst of it further boards onto which everybody casts.

    Rows with a training label cast it again, the others what the model thinks of them by then.
    """
    setting, data = group.settings[0], group.data
    labels = label_ballots(data, len(group.settings))
    plan = phases(group)
    # One training goes through all phases, unless every phase has one of its own.
    together = plan if setting.warm else plan[:1]
    mu = torch.stack([mu_train for _, mu_train, _ in together]).square().sum(0).sqrt()
    total = max(1, sum(steps for *_, steps in together))
    training: Training | None = None
    tallies: list[Tally] = []
    inputs = torch.empty(0)
    for mu_board, mu_train, steps in plan:
        casts = labels
        if training is not None:
            guesses = ballots_of(group, training.probabilities(inputs))
            casts = torch.where(labels.abs().sum(2, keepdim=True) > 0, labels, guesses)
            if listed is not None:
                casts[data.test] = 0
        new = tally(group, casts, mu_board)
        tallies = [combined(tallies[0], new)] if tallies and setting.combine else [*tallies, new]
        inputs = inputs_of(group, tallies, None)
        if training is None:
            training = Training(group, inputs.shape[2], total, learning_rates(group, mu, total))
        elif not setting.warm:
            rates = learning_rates(group, mu_train, steps)
            training = Training(group, inputs.shape[2], steps, rates)
        training.run(inputs, steps, mu_train)
    assert training is not None
    return training.probabilities(inputs_of(group, tallies, listed))


def inputs_of(group: Group, tallies: list[Tally], listed: Tensor | None) -> Tensor:
    """The reading of one board, or of each of two (zeros for one that is still to come)."""
    columns = [read(group, t, listed) for t in tallies]
    if not group.settings[0].combine:
        columns += [torch.zeros_like(columns[0])] * (group.settings[0].boards - len(columns))
    return torch.cat([*columns, *extras(group, tallies[-1])], 2)


def ballots_of(group: Group, probabilities: Tensor) -> Tensor:
    """Centred probabilities, scaled so that a certain one has norm 1."""
    c = group.data.num_classes
    return (probabilities - 1 / c) / math.sqrt(1 - 1 / c) * group.of("loudness")[:, None]


def in_the_clear(data: Data, probabilities: Tensor) -> dict[str, Tensor]:
    """Outputs averaged over the own row and its neighbours', not covered."""
    degree = data.degree[:, None, None]
    logs = probabilities.clamp(min=1e-9).log()
    near, near_logs = matmul(data.adjacency, probabilities), matmul(data.adjacency, logs)
    some = degree.clamp(min=1)
    return {
        "mean": probabilities + near / some,
        "sum": (probabilities + near) / (1 + degree),
        "logs": logs + near_logs / some,
        "logs2": logs + (near_logs + matmul(data.adjacency, near_logs / some)) / some,
    }


class Symmetric(torch.autograd.Function):
    """Product with a symmetric sparse matrix, whose gradient is the same product."""

    @staticmethod
    def forward(context: Any, adjacency: Tensor, values: Tensor) -> Tensor:
        context.adjacency = adjacency
        return adjacency @ values

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[None, Tensor]:
        return None, context.adjacency @ gradients[0]


def ceiling(data: Data, choice: dict[str, Any], seed: int) -> dict[str, Any]:
    """A two-layer GCN or MLP without privacy: accuracy at the end and at the best validation accuracy."""
    torch.manual_seed(seed)
    drop = torch.nn.Dropout(choice["dropout"])
    sizes = (data.x.shape[1], choice["hidden"], data.num_classes)
    layers = torch.nn.ModuleList(torch.nn.Linear(a, b) for a, b in itertools.pairwise(sizes)).to(
        data.x.device
    )
    rate, decay = choice["learning_rate"], choice.get("weight_decay", 0.0)
    optimizer = torch.optim.Adam(layers.parameters(), lr=rate, weight_decay=decay)
    x, root = choice["feature_norm"] * data.x, (data.degree + 1).rsqrt()[:, None]

    def pass_on(values: Tensor) -> Tensor:
        if choice["model"] == "mlp":
            return values
        near: Tensor = Symmetric.apply(data.adjacency, root * values)
        return root * (near + root * values)

    def forward() -> Tensor:
        h = drop(pass_on(layers[0](drop(x))).relu())
        return pass_on(layers[1](h))

    found = []
    for step in range(1, choice["steps"] + 1):
        drop.train()
        loss = torch.nn.functional.cross_entropy(forward()[data.train], data.y[data.train])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            with torch.no_grad():
                drop.eval()
                best = forward().argmax(1, keepdim=True)
                found.append((accuracy(best, data, data.val)[0], accuracy(best, data, data.test)[0], step))
    top = max(found)
    return {
        "graph": data.name,
        "epsilon": "inf",
        "seed": seed,
        "new_nodes": False,
        "val": round(found[-1][0], 3),
        "test": round(found[-1][1], 3),
        "best_val": round(top[0], 3),
        "test_at_best_val": round(top[1], 3),
        "best_step": top[2],
        "setting": choice,
    }


def accuracy(best: Tensor, data: Data, nodes: Tensor) -> list[float]:
    right = best[nodes] == data.y[nodes][:, None]
    return (100 * right.double().mean(0)).tolist()


def grouped(
    settings: Iterable[tuple[Setting, int]], units: int, limit: int
) -> Iterator[list[tuple[Setting, int]]]:
    """Members of one shape, with at most so many hidden units together."""
    by_shape: dict[tuple[Any, ...], list[tuple[Setting, int]]] = {}
    for setting, seed in settings:
        by_shape.setdefault(setting.shape(), []).append((setting, seed))
    for members in by_shape.values():
        most = max(1, min(limit, units // members[0][0].hidden))
        for begin in range(0, len(members), most):
            yield members[begin : begin + most]


@torch.no_grad()
def trials(
    data: Data,
    epsilon: float,
    members: list[tuple[Setting, int]],
    *,
    clear: bool = False,
    new: bool = False,
    private: bool = True,
) -> Iterator[dict[str, Any]]:
    """Accuracies of all members, one record each."""
    units = MOST_ACTIVATIONS[data.x.device.type] // len(data.train)
    listed = None
    if new:
        data, listed = without_test(data)
    for part in grouped(members, units, max(4, 480 // data.num_classes)):
        begin = time.monotonic()
        group = Group(data, epsilon, [s for s, _ in part], [seed for _, seed in part], private)
        probabilities = train_group(group, listed)
        found = {"": probabilities}
        if clear:
            found |= {f"_{name}": p for name, p in in_the_clear(data, probabilities).items()}
        table: dict[str, list[float]] = {}
        for name, values in found.items():
            best = values.argmax(2)
            table[f"val{name}"] = accuracy(best, data, data.val)
            table[f"test{name}"] = accuracy(best, data, data.test)
        seconds = (time.monotonic() - begin) / len(part)
        for index, (setting, seed) in enumerate(part):
            record = {
                "graph": data.name,
                "epsilon": epsilon if private else "inf",
                "seed": seed,
                "new_nodes": new,
            }
            record |= {name: round(values[index], 3) for name, values in table.items()}
            yield record | {"seconds": round(seconds, 3), "setting": changes(setting)}


def changes(setting: Setting) -> dict[str, Any]:
    """What of a setting is not the default of this script."""
    usual = asdict(Setting())
    return {name: value for name, value in asdict(setting).items() if value != usual[name]}


def billboard_defaults(*, num_train_nodes: int, num_classes: int, epsilon: float, delta: float) -> Setting:
    """The rule that the trials led to; it sees public numbers only."""
    strength = num_train_nodes * gaussian_mu(epsilon, delta) / math.sqrt(num_classes)
    boards = min(0.75, max(0.4, 0.4 + 0.25 * math.log(strength / 3000)))
    each, half = round(boards / 2, 4), round((1 - boards) / 2, 4)
    return Setting(
        boards=2,
        shares=(each, half, each, half),
        radius=6.0,
        skip=2.0,
        zero_output=True,
        travel=5.6,
        half_noise=2.6e-3,
    )


def parse(change: dict[str, Any]) -> Setting:
    """A setting from JSON."""
    values: dict[str, Any] = {n: tuple(v) if isinstance(v, list) else v for n, v in change.items()}
    return Setting(**values)


def one(boards: float) -> tuple[float, float, float, float]:
    """Shares of one board, or of boards and trainings in equal parts."""
    return (boards, round(1 - boards, 4), 0.0, 0.0)


def two(boards: float, first: float, training: float) -> tuple[float, float, float, float]:
    """Shares of two boards: `first` of the boards' part and `training` of the rest come first."""
    rest = 1 - boards
    parts = (boards * first, rest * training, boards * (1 - first), rest * (1 - training))
    a, b, c, d = (round(part, 4) for part in parts)
    return (a, b, c, d)


def search_plan(name: str) -> list[dict[str, Any]]:
    """One setting changed at a time, with one board and with two."""
    seeds = [0, 1] if name in GIVEN_SPLIT else [0, 1, 2]
    base = {"skip": 1.0, "zero_output": True}
    changed: list[dict[str, Any]] = [{}]
    grid = {
        "skip": (0.3, 2.0),
        "zero_output": (False,),
        "radius": (3.0, 6.0, 12.0),
        "scale": (0.1, 0.6),
        "damping": (0.0, 1.5, 2.0),
        "shares": tuple(one(b) for b in (0.25, 0.35, 0.65, 0.75, 0.85)),
        "travel": (4.0, 5.6, 12.0, 16.0),
        "feature_norm": (3.0, 9.0),
        "stability": (0.01, 0.5),
        "average": (0.95, 0.99),
        "momentum": (0.5, 0.9),
        "place": (0.3,),
        "degree": (0.3,),
        "hidden": (128,),
        "steps": (600,),
    }
    changed += [{key: value} for key, values in grid.items() for value in values]
    changed += [{"scale": 0.6, "radius": 6.0}, {"scale": 1.0, "radius": 6.0}]
    changed += [{"radius": 6.0, "shares": one(0.75), "travel": travel} for travel in (8.0, 12.0)]
    pairs = [(0.75, 0.5, 0.25), (0.6, 0.5, 0.25), (0.45, 0.5, 0.25), (0.75, 0.33, 0.25)]
    pairs += [(0.6, 0.33, 0.4), (0.6, 0.5, 0.5), (0.6, 0.67, 0.4)]
    pairs += [(0.5, 0.5, 0.0), (0.7, 0.5, 0.0), (0.7, 0.33, 0.0)]
    changed += [{"boards": 2, "shares": two(*pair)} for pair in pairs]
    more = [{"radius": 6.0}, {"loudness": 1.4}, {"travel": 12.0}]
    changed += [{"boards": 2, "shares": two(0.6, 0.5, 0.25)} | extra for extra in more]
    changed += [{"boards": 2, "shares": two(0.7, 0.5, 0.0), "skip": 2.0}]
    apart = {"boards": 2, "shares": two(0.75, 0.5, 0.25), "warm": False}
    changed += [apart, apart | {"combine": False}]
    part = {"graphs": [name], "seeds": seeds, "clear": True}
    plainest = [{"boards": 0, "shares": one(0.0)}, {}]
    return [part | {"base": base, "changes": changed}, part | {"changes": plainest}]


def around_plan(name: str) -> list[dict[str, Any]]:
    """Around two boards with one training; new nodes; the method without noise; GCN and MLP."""
    base = {"skip": 1.0, "zero_output": True, "boards": 2, "shares": two(0.6, 0.5, 0.5)}
    base |= {"travel": 5.6, "half_noise": 2.6e-3}
    old = {"travel": 8.0, "half_noise": 6e-4}
    changed: list[dict[str, Any]] = [{}, old, {"half_noise": 6e-4}, {"travel": 4.5, "half_noise": 4e-3}]
    changed += [{"shares": two(boards, 0.5, 0.5)} for boards in (0.3, 0.45, 0.75, 0.85)]
    changed += [old | {"shares": two(0.75, 0.5, 0.5)}, {"shares": two(0.6, 0.33, 0.5)}]
    changed += [{"shares": two(0.6, 0.5, 0.3), "first_steps": 0.3}, {"loudness": 1.3}, {"combine": False}]
    changed += [{"radius": 6.0}, {"skip": 2.0}, {"stability": 0.01}, {"average": 0.99}]
    changed += [{"boards": 3, "shares": one(b)} for b in (0.6, 0.75)] + [{"boards": 4, "shares": one(0.6)}]
    changed += [{"steps": 600}, {"steps": 200}, {"hidden": 128}]
    changed += [{"boards": 0, "shares": one(0.0)}]
    changed += [{"boards": 1, "shares": one(b)} for b in (0.5, 0.25)]
    new = [{}, {"boards": 1, "shares": one(0.5)}, {"shares": two(0.75, 0.5, 0.5)}]
    quiet = [{"travel": rate, "steps": steps, "hidden": 128} for rate, steps in ((0.01, 100), (0.003, 300))]
    part = placed(name) | {"base": base}
    return [
        part | {"changes": changed, "clear": True},
        part | {"changes": new, "new": True},
        part | {"changes": quiet, "private": False, "epsilons": [12.0], "splits": [0], "clear": True},
        *ceiling_plan(name),
    ]


def ceiling_plan(name: str) -> list[dict[str, Any]]:
    """GCN and MLP without privacy."""
    usual: dict[str, Any] = {"hidden": 256, "learning_rate": 0.01, "feature_norm": 6, "steps": 300}
    choices = [{"model": m, "dropout": d} | usual for m in ("gcn", "mlp") for d in (0.0, 0.2, 0.5)]
    return [{"graphs": [name], "splits": [0], "seeds": [0], "epsilons": [], "ceilings": choices}]


def rule_plan(name: str) -> list[dict[str, Any]]:
    """The rule, with everybody there from the start and with the test nodes new."""
    part = placed(name) | {"rule": True}
    return [part | {"clear": True}, part | {"new": True}]


def placed(name: str) -> dict[str, Any]:
    """Three seeds of a given split, or three random splits."""
    given = name in GIVEN_SPLIT
    splits, seeds = ([0], [0, 1, 2]) if given else ([0, 1, 2], [0])
    return {"graphs": [name], "splits": splits, "seeds": seeds}


PLANS = {"search": search_plan, "around": around_plan, "ceilings": ceiling_plan, "rule": rule_plan}


def run_plan(plan: list[dict[str, Any]], folder: Path, out: Path, device: torch.device, limit: float) -> None:
    """Every part of a plan: graphs, seeds, settings; the time limit is looked at between graphs."""
    begin = time.monotonic()
    names = list(dict.fromkeys(name for part in plan for name in part["graphs"]))
    with out.open("a") as file:
        for name, split in itertools.product(names, range(5)):
            parts = [p for p in plan if name in p["graphs"] and split in p.get("splits", [0])]
            if not parts or (name in GIVEN_SPLIT and split):
                continue
            data = load(folder / f"{name}.npz", split, device)
            print(f"{time.monotonic() - begin:.1f} s: {name}, split {split}", flush=True)
            for part in parts:
                for choice, seed in itertools.product(part.get("ceilings", []), part["seeds"]):
                    if time.monotonic() - begin < limit:
                        file.write(json.dumps(ceiling(data, choice, seed)) + "\n")
                        file.flush()
                for epsilon in part.get("epsilons", BUDGETS[name]):
                    if time.monotonic() - begin > limit:
                        print("time is up", flush=True)
                        return
                    settings = [parse(part.get("base", {}) | change) for change in part.get("changes", [])]
                    if part.get("rule"):
                        settings.append(
                            billboard_defaults(
                                num_train_nodes=len(data.train),
                                num_classes=data.num_classes,
                                epsilon=epsilon,
                                delta=data.delta,
                            )
                        )
                    members = list(itertools.product(settings, part["seeds"]))
                    options = {key: part[key] for key in ("clear", "new", "private") if key in part}
                    for record in trials(data, epsilon, members, **options):
                        record["split"] = "given" if name in GIVEN_SPLIT else split
                        file.write(json.dumps(record) + "\n")
                    file.flush()
            print(f"{time.monotonic() - begin:.1f} s: done", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--plan", required=True, help=f"a JSON file, or {', '.join(PLANS)}")
    parser.add_argument("--graphs", nargs="+", default=list(BUDGETS), choices=BUDGETS)
    parser.add_argument("--limit", type=float, default=math.inf)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = True
    if args.plan in PLANS:
        plan = [part for name in args.graphs for part in PLANS[args.plan](name)]
    else:
        plan = json.loads(Path(args.plan).read_text())
    run_plan(plan, args.data, args.out, torch.device(args.device), args.limit)


if __name__ == "__main__":
    main()
