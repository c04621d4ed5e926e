"""Tables of counts of evaluated rows with classes, and figures of quality as functions of such tables.

Every function takes a batch of tables, which may be noisy: counts may be negative, and `noise_std` is the
standard deviation of the noise on every cell. A sum of k cells has noise of noise_std * sqrt(k). No function
cuts its result to the range that it has without noise: cutting hides how uncertain a figure is.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import special

from hushgraph._arrays import FloatArray

# Edges between score bins, as log-odds of class 1: equal steps of 0.5 from -10 to 10, with 0 (probability
# one half) among them. Scores of private models are far from calibrated: of a rare class most are between -10
# and -4, hence the range. Noise grows with the root of the number of bins, the error of binning with the
# square of the step. With steps of 0.5 the error of ROC-AUC is small against its noise on tolokers at epsilon
# 1 and 4; with steps of 1 it is not at epsilon 4 (benchmarks/figure_noise.py, docs/figures.md).
_STEP, _STEPS_ABOVE = 0.5, 20
_LOG_ODDS = np.arange(-_STEPS_ABOVE, _STEPS_ABOVE + 1) * _STEP
SCORE_EDGES: FloatArray = 1 / (1 + np.exp(-_LOG_ODDS))
"""float64: public edges between bins of the probability of class 1; a bin contains its upper edge."""
SCORE_CENTRES: FloatArray = 1 / (1 + np.exp(-np.append(_LOG_ODDS - _STEP / 2, _LOG_ODDS[-1] + _STEP / 2)))
# Calibration sums differences over whole groups of score bins: 2 units of log-odds each.
_BINS_OF_A_GROUP = 4

# Confidences pile up near 1, where bins of one width would be too coarse for their centres.
CONFIDENCE_EDGES: FloatArray = np.array([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99])
"""float64: public edges between bins of the probability of the predicted class, as those of scores."""
CONFIDENCE_CENTRES: FloatArray = (np.append(0.0, CONFIDENCE_EDGES) + np.append(CONFIDENCE_EDGES, 1.0)) / 2

# A denominator is taken as no smaller than this many standard deviations of its own noise. Without it, a few
# classes without rows decide macro-F1: on ogbn-arxiv it is then 1.6 standard errors too high.
_LEAST_STDS = 2.0


def find_bins(probabilities: npt.NDArray[np.floating[Any]], edges: FloatArray) -> npt.NDArray[np.int64]:
    """int64: how many edges lie below each probability."""
    return np.searchsorted(edges, probabilities.astype(np.float64), side="left").astype(np.int64)


def bound_denominator(denominator: FloatArray, std: float | FloatArray) -> FloatArray:
    """The denominator, or twice the standard deviation of its noise where that is larger."""
    bounded: FloatArray = np.maximum(denominator, _LEAST_STDS * np.asarray(std))
    return bounded


def divide(numerator: FloatArray, denominator: FloatArray, std: float | FloatArray) -> FloatArray:
    """The ratio, with a bounded denominator; NaN where the denominator is not positive."""
    is_positive = denominator > 0
    bounded = np.where(is_positive, bound_denominator(denominator, std), 1.0)
    return np.where(is_positive, numerator / bounded, np.nan)


def compute_confusion_figures(confusion: FloatArray, noise_std: float) -> dict[str, FloatArray]:
    """macro_f1 [batch] and recall, precision, f1, share [batch, c], from [batch, label, predicted class].

    macro_f1 is the mean over all c classes: noisy counts do not tell whether a class occurs. A class that
    does not counts as 0. NaN where all rows together are no more than noise.
    """
    c = confusion.shape[-1]
    hits = np.diagonal(confusion, axis1=1, axis2=2)
    labelled, predicted, total = confusion.sum(2), confusion.sum(1), confusion.sum((1, 2))
    std = noise_std * np.sqrt(c)
    either = labelled + predicted
    # Cells on the diagonal are in both sums.
    std_either = noise_std * np.sqrt(2 * c + 2)
    bounded = bound_denominator(either, std_either)
    each = np.where(bounded > 0, 2 * hits / np.where(bounded > 0, bounded, 1.0), 0.0)
    return {
        "macro_f1": np.where(total > _LEAST_STDS * noise_std * c, each.mean(1), np.nan),
        "recall": divide(hits, labelled, std),
        "precision": divide(hits, predicted, std),
        "f1": divide(2 * hits, either, std_either),
        "share": divide(labelled, total[:, None], noise_std * c),
    }


def compute_calibration_figures(calibration: FloatArray, noise_std: float) -> dict[str, FloatArray]:
    """accuracy and calibration_error, [batch] each, from [batch, confidence bin, wrong or right]."""
    wrong, right = calibration[..., 0], calibration[..., 1]
    cells = np.prod(calibration.shape[1:])
    total = calibration.sum((1, 2))
    centres = CONFIDENCE_CENTRES
    differences = right - centres * (right + wrong)
    variances = noise_std**2 * ((1 - centres) ** 2 + centres**2)
    return {
        "accuracy": divide(right.sum(1), total, noise_std * np.sqrt(cells)),
        "calibration_error": _average_sizes(differences, variances, total, noise_std * np.sqrt(cells)),
    }


def compute_score_figures(scores: FloatArray, noise_std: float) -> dict[str, FloatArray]:
    """Figures [batch] of the ranking and of the probabilities, from [batch, score bin, label 0 or 1]."""
    negative, positive = scores[..., 0], scores[..., 1]
    total, std = scores.sum((1, 2)), noise_std * np.sqrt(scores[0].size)
    differences = positive - SCORE_CENTRES * (positive + negative)
    variances = noise_std**2 * (SCORE_CENTRES**2 + (1 - SCORE_CENTRES) ** 2)
    starts = np.arange(1, scores.shape[1] - 1, _BINS_OF_A_GROUP)
    starts[0] = 0
    return {
        "accuracy": divide(_sum_right(scores), total, std),
        "calibration_error": _average_sizes(
            np.add.reduceat(differences, starts, axis=1), np.add.reduceat(variances, starts), total, std
        ),
        "roc_auc": compute_roc_auc(positive, negative, noise_std),
        "average_precision": compute_average_precision(positive, negative, noise_std),
    }


def sum_to_confusion(scores: FloatArray) -> FloatArray:
    """[batch, label, predicted class], each cell a sum over score bins."""
    half = _STEPS_ABOVE + 1
    confusion: FloatArray = np.stack([scores[:, :half].sum(1), scores[:, half:].sum(1)], axis=2)
    return confusion


def choose_threshold(scores: FloatArray, share: float) -> npt.NDArray[np.int64]:
    """int64 [batch]: the lowest edge that at most this share of the rows is above, as its place.

    The last edge where every one has more rows above it.
    """
    rows = scores.sum(2)
    above = np.cumsum(rows[:, ::-1], axis=1)[:, ::-1][:, 1:]
    is_few = above <= share * rows.sum(1)[:, None]
    is_few[:, -1] = True
    lowest: npt.NDArray[np.int64] = is_few.argmax(1)
    return lowest


def compute_threshold_figures(
    scores: FloatArray, threshold: npt.NDArray[np.int64], noise_std: float
) -> tuple[FloatArray, FloatArray]:
    """Recall of class 1 above an edge, and the share of all rows above it; [batch] each."""
    bins = scores.shape[1]
    is_above = np.arange(bins) > threshold[:, None]
    positive = scores[..., 1]
    recall = divide((positive * is_above).sum(1), positive.sum(1), noise_std * np.sqrt(bins))
    rows = scores.sum(2)
    return recall, divide((rows * is_above).sum(1), rows.sum(1), noise_std * np.sqrt(2 * bins))


def _sum_right(scores: FloatArray) -> FloatArray:
    confusion = sum_to_confusion(scores)
    return confusion[:, 0, 0] + confusion[:, 1, 1]


def _average_sizes(
    differences: FloatArray, variances: FloatArray, total: FloatArray, std: float | FloatArray
) -> FloatArray:
    """Sum of the sizes of differences, over the total.

    The size of a noisy difference is too large on average, the more so the nearer the difference is to 0. A
    factor that is 0 there and 1 far from it takes most of that off. No estimate of a size is right on average
    everywhere: docs/figures.md has what is left.
    """
    stds = 2 * np.sqrt(variances)
    factors = np.sign(differences) if not stds.all() else special.erf(differences / stds)
    return divide((differences * factors).sum(1), total, std)


def compute_roc_auc(positive: FloatArray, negative: FloatArray, noise_std: float) -> FloatArray:
    """The probability that a row of class 1 has the higher score than one of class 0.

    Of two rows in one bin either may be higher. Each is taken to be as often, corrected by how the counts of
    class 0 change from the bin below to the bin above: of two densities that are lines within a bin, the
    correction is exact. Products of different cells only, so that noise adds no bias.
    """
    beside = np.pad(negative, ((0, 0), (1, 1)))
    lower = np.cumsum(negative, axis=1) - negative / 2 + (beside[:, :-2] - beside[:, 2:]) / 12
    std = noise_std * np.sqrt(positive.shape[1])
    return divide(divide((positive * lower).sum(1), positive.sum(1), std), negative.sum(1), std)


def compute_average_precision(positive: FloatArray, negative: FloatArray, noise_std: float) -> FloatArray:
    """Mean precision over the recall: within a bin, that of its two ends.

    Precision at the lower end alone, which is right where scores are tied, is 0.01 to 0.02 too low on
    tolokers: scores of one bin are not tied. Bins at the top are taken together as long as noise may be all
    that they hold. A precision from noise alone is near 0 on average, which makes the mean too low.
    """
    positive, negative = positive[:, ::-1], negative[:, ::-1]
    places = np.arange(positive.shape[1])
    rows = np.cumsum(positive + negative, axis=1)
    bounded = bound_denominator(rows, noise_std * np.sqrt(2 * (places + 1)))
    is_told = (rows >= bounded) & (rows > 0)
    # From the first told place on, all are: a few empty bins may exceed their noise by chance.
    first = np.where(is_told, -1, places).max(1, keepdims=True) + 1
    first = np.minimum(first, places[-1])
    precision = np.cumsum(positive, axis=1) / np.where(bounded > 0, bounded, 1.0)
    precision = np.where(places < first, np.take_along_axis(precision, first, axis=1), precision)
    before = np.concatenate([precision[:, :1], precision[:, :-1]], axis=1)
    sums = (positive * (before + precision) / 2).sum(1)
    return divide(sums, positive.sum(1), noise_std * np.sqrt(positive.shape[1]))
