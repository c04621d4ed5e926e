"""Recorded work: the same results as before, from tensors that are read anew."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from hushgraph.models.recording import Recording, choose_room


@pytest.mark.parametrize(
    "device",
    [
        "cpu",
        pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")),
    ],
)
def test_every_call_computes_with_what_the_tensors_hold(device: str) -> None:
    numbers = torch.zeros(3, device=device)
    doubled = Recording(lambda: 2 * numbers, torch.device(device))
    for call in range(6):
        numbers.fill_(call)
        assert doubled().tolist() == [2 * call] * 3


def test_errors_of_the_work_come_through() -> None:
    calls: list[int] = []

    def fail() -> None:
        calls.append(1)
        raise ValueError("no such work")

    recording = Recording(fail, torch.device("cpu"))
    for _ in range(4):
        with pytest.raises(ValueError, match="no such work"):
            recording()
    assert len(calls) == 4


def test_nearly_every_draw_has_room_and_none_needs_more_than_all() -> None:
    rng = np.random.default_rng(0)
    for most, mean in ((100, 3.0), (1000, 500.0), (90_941, 10_000.0)):
        room = choose_room(mean, most)
        assert mean < room <= most
        assert (rng.binomial(most, mean / most, 10_000) <= room).all()
    assert choose_room(10.0, 10) == 10
