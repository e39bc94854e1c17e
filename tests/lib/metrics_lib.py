"""Metrics by their definitions: over all pairs, and over all orders of items with equal scores."""

import itertools

import numpy as np


def auc(labels, scores, weights):
    """Over all pairs; None with one class."""
    right = every = 0.0
    for i in np.flatnonzero(labels == 1):
        for j in np.flatnonzero(labels == 0):
            pair = weights[i] * weights[j]
            every += pair
            right += pair * (1.0 if scores[i] > scores[j] else 0.5 if scores[i] == scores[j] else 0.0)
    return right / every if every else None


def gauc(groups, labels, scores, weights):
    """GAUC, and the number of groups with and without an AUC."""
    weights = np.asarray(weights, np.float64)
    total, impressions, found, left_out = 0.0, 0.0, 0, 0
    for group in np.unique(groups):
        mine = groups == group
        value = auc(labels[mine], scores[mine], weights[mine])
        if value is None:
            left_out += 1
            continue
        weight = weights[mine].sum()
        total, impressions, found = total + weight * value, impressions + weight, found + 1
    return total / impressions, found, left_out


def orders(scores):
    """All orders of the items in which scores do not rise."""
    for order in itertools.permutations(range(len(scores))):
        if all(scores[a] >= scores[b] for a, b in itertools.pairwise(order)):
            yield order


def recall(relevance, k):
    return lambda order: sum(relevance[i] > 0 for i in order[:k]) / sum(r > 0 for r in relevance)


def ndcg(relevance, k, gain):
    def dcg(items):
        return sum(gain(r) / np.log2(2 + place) for place, r in enumerate(items[:k]))

    best = dcg(sorted(relevance, reverse=True))
    return lambda order: dcg([relevance[i] for i in order]) / best


def reciprocal_rank(relevance, k):
    def value(order):
        rank = 1 + min(place for place, i in enumerate(order) if relevance[i] > 0)
        return 1 / rank if rank <= k else 0.0

    return value


def mean_over_orders(scores, value):
    return np.mean([value(order) for order in orders(scores)])
