"""Who sees noisy sums and knows two candidates for the sum is right no more often than the guarantee allows.

torch makes float32 noise in pairs, 8 places apart, on rings: 2^24 exp(-r^2 / 2) is an integer for the squared
radius r^2 of a pair. Only the right sum, taken away from what was seen, leaves integers.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy import stats

from benchmark_scripts import script
from effort import choose
from hushgraph.audit.faults import FloatNoise
from hushgraph.noise.source import ExactNoise, NoiseSource

number_attacks = script("number_attacks")

TRIALS, SIZE = choose(200, 400), 8192
CLIP = 1.0


def ring_score(noise: np.ndarray) -> float:
    """High where 2^24 exp(-r^2 / 2) is near an integer for pairs 8 places apart."""
    pairs = noise.reshape(-1, 2, 8)
    counts = 2.0**24 * np.exp(-np.square(pairs).sum(1).ravel() / 2)
    return float(np.cos(2 * np.pi * counts[counts < 3e4]).sum())


def grid_score(noise: np.ndarray) -> float:
    """High where the noise is a multiple of 2^-24 or coarser, as float32 numbers of size 1 are."""
    return float(np.cos(2 * np.pi * noise * 2.0**24).sum())


def likelihood_score(noise: np.ndarray) -> float:
    """The best there is against real Gaussian noise."""
    return -float(np.square(noise).sum())


def successes(source: NoiseSource, sigma: float, score: Callable[[np.ndarray], float]) -> int:
    """How often the candidate with the higher score is the sum that the noise was added to."""
    rng, right = np.random.default_rng(0), 0
    for _ in range(TRIALS):
        sums = [torch.from_numpy(rng.standard_normal(SIZE)).float().double()]
        direction = rng.standard_normal(SIZE)
        moved = sums[0] + torch.from_numpy(direction / np.linalg.norm(direction) * CLIP)
        sums.append(moved.float().double())
        truth = int(rng.integers(2))
        seen = source.add_noise({"w": sums[truth]}, {"w": sigma})["w"]
        scores = [score((seen - candidate).numpy() / sigma) for candidate in sums]
        right += int(np.argmax(scores)) == truth
    return right


def at_least(right: int) -> float:
    """A lower confidence bound, wrong once in ten thousand, for the chance of being right."""
    return float(stats.binomtest(right, TRIALS, alternative="greater").proportion_ci(0.9999).low)


def allowed(sigma: float) -> float:
    """Nobody is right more often about two Gaussians whose means are C apart."""
    return float(stats.norm.cdf(CLIP / (2 * sigma)))


def exact(sigma: float) -> ExactNoise:
    return ExactNoise(sigma_over_clip=sigma / CLIP, sum_error=0.0)


@pytest.mark.parametrize("score", [ring_score, grid_score, likelihood_score])
@pytest.mark.parametrize("sigma", [1.0, 50.0])
def test_exact_noise_withstands(score: Callable[[np.ndarray], float], sigma: float) -> None:
    right = successes(exact(sigma), sigma, score)
    assert at_least(right) <= allowed(sigma)
    assert right > TRIALS * 0.35


def test_float_noise_is_found_out() -> None:
    right = successes(FloatNoise(torch.Generator()), 50.0, ring_score)
    assert allowed(50.0) < 0.51
    assert at_least(right) > 0.9


def test_the_best_attack_on_exact_noise_is_as_good_as_the_guarantee_says() -> None:
    """So the trials can tell: at sigma = C it is right in 69 of 100, neither less nor more."""
    right = successes(exact(1.0), 1.0, likelihood_score)
    assert stats.binomtest(right, TRIALS, allowed(1.0)).pvalue > 1e-4


NEEDS_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=NEEDS_GPU)])
@pytest.mark.parametrize("setting", number_attacks.SETTINGS)
def test_steps_of_training_withstand(setting: str, device: str) -> None:
    """Updates, checkpoints, averaged weights and moments of whole steps: three attacks on each."""
    results, limit = number_attacks.attack(setting, exact=True, trials=TRIALS, device=device, hidden=32)
    assert {result.view for result in results} == set(number_attacks.VIEWS)
    assert limit < 0.52
    for result in results:
        assert result.at_least <= limit, result


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=NEEDS_GPU)])
@pytest.mark.parametrize("setting", number_attacks.SETTINGS)
def test_steps_with_float_noise_are_found_out(setting: str, device: str) -> None:
    """In every view, or the test above would show nothing about it."""
    # In half of the batches the canary is not drawn, and nobody can tell: right in 3 of 4 at best, in 71 of
    # 100 by averaged weights. Of 200 trials too few would be right once in a hundred tests.
    trials = TRIALS if setting == "half of the roots" else 60
    results, limit = number_attacks.attack(setting, exact=False, trials=trials, device=device, hidden=32)
    for view in number_attacks.VIEWS:
        assert max(result.at_least for result in results if result.view == view) > limit, results
