"""Numba kernels for the CPU: the sampled logistic loss, Adagrad on rows, and rank counts, each in one pass.

Each processes the range start..stop that `compiled` gives its thread: numba's own threads would compete with torch's.
An output is written by one thread, in an order that does not depend on the number of threads.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

FAST = {"contract", "reassoc", "nsz", "arcp"}  # sums may be vectorised; NaN and infinity are preserved


@njit(nogil=True, fastmath=FAST, error_model="numpy", cache=True)
def block_logistic(
    start, stop, entities, operators, index, anchors, half, targets, negatives, decay,
    losses, vectors, weights, query_gradients,
):  # fmt: skip
    """Losses, gradients and weights of queries start to stop; `compiled.block_logistic` documents the arrays."""
    size, k = negatives.shape
    width = entities.shape[1]
    L = width // 2
    scale = np.float32(1.0 / size)
    decay = np.float32(decay / size)
    for i in range(start, stop):
        h = entities[anchors[i]]
        a, b, c, d = operators[index[i]]
        if i >= half:  # a head query: R t instead of Rᵀ h
            b, c = c, b
        q = vectors[2 * size + i]
        for j in range(L):
            x, y = h[j], h[L + j]
            q[j] = a[j] * x + c[j] * y
            q[L + j] = b[j] * x + d[j] * y
        t = entities[targets[i]]
        score = np.float32(0.0)
        for j in range(width):
            score += q[j] * t[j]
        loss = _softplus(-score)
        weight = -scale / (np.float32(1.0) + math.exp(score))
        dq = query_gradients[i]
        dt = vectors[size + i]
        for j in range(width):
            dq[j] = weight * t[j]
            dt[j] = weight * q[j] + decay * t[j]
        for n in range(k):
            e = entities[negatives[i, n]]
            score = np.float32(0.0)
            for j in range(width):
                score += q[j] * e[j]
            loss += _softplus(score)
            weight = scale / (np.float32(1.0) + math.exp(-score))
            weights[i, n] = weight
            for j in range(width):
                dq[j] += weight * e[j]
        dh = vectors[i]
        for j in range(L):
            u, v = dq[j], dq[L + j]
            dh[j] = a[j] * u + b[j] * v + decay * h[j]
            dh[L + j] = c[j] * u + d[j] * v + decay * h[L + j]
        losses[i] = loss


@njit(fastmath=FAST, error_model="numpy", cache=True)
def _softplus(x):
    return max(x, np.float32(0.0)) + math.log1p(math.exp(-abs(x)))


@njit(nogil=True, fastmath=FAST, error_model="numpy", cache=True)
def operator_gradient(start, stop, entities, operators, index, anchors, half, query_gradients, gradient):
    """Sum the gradient of components start to stop of each operator over the queries that use it."""
    size, width = query_gradients.shape
    L = width // 2
    for i in range(size):
        h = entities[anchors[i]]
        dq = query_gradients[i]
        a, b, c, d = gradient[index[i]]
        if i >= half:
            b, c = c, b
        for j in range(start, stop):
            x, y, u, v = h[j], h[L + j], dq[j], dq[L + j]
            a[j] += x * u
            c[j] += y * u
            b[j] += x * v
            d[j] += y * v


@njit(nogil=True, cache=True)
def chain(ids, last, before, rows):
    """Link the uses of each row: before[i] is the previous use of the row of use i, or -1. Returns the number of rows.

    `last` [all rows], all -1 on entry, gets the last use of each row, and `rows` the distinct rows, mostly in order.
    """
    count = 0
    for use in range(len(ids)):
        row = ids[use]
        before[use] = last[row]
        if last[row] < 0:
            rows[count] = row
            count += 1
        last[row] = use
    if len(last) < 16 * len(ids):
        count = 0
        for row in range(len(last)):
            if last[row] >= 0:
                rows[count] = row
                count += 1
    return count


@njit(nogil=True, fastmath=FAST, error_model="numpy", cache=True)
def adagrad_rows(start, stop, parameter, total, last, before, rows, source, weights, vectors, lr, epsilon):
    """Add up the uses of rows[start:stop], update the rows and reset their entries in `last` to -1."""
    width = parameter.shape[1]
    rate, eps = np.float32(lr), np.float32(epsilon)
    g = np.empty(width, np.float32)
    for i in range(start, stop):
        row = rows[i]
        g[:] = 0
        use = last[row]
        while use >= 0:
            weight, v = weights[use], vectors[source[use]]
            for j in range(width):
                g[j] += weight * v[j]
            use = before[use]
        last[row] = -1
        x, s = parameter[row], total[row]
        for j in range(width):
            s[j] += g[j] * g[j]
            x[j] -= rate * g[j] / (math.sqrt(s[j]) + eps)


@njit(nogil=True, cache=True)
def count_ranks(start, stop, scores, true, greater, equal):
    """Count, per column start to stop of scores [N, B], the scores greater than true [B] and those equal to it."""
    limit = true[start:stop]
    above, same = np.zeros(stop - start, np.int32), np.zeros(stop - start, np.int32)
    for i in range(len(scores)):
        row = scores[i, start:stop]
        for j in range(stop - start):
            above[j] += row[j] > limit[j]
            same[j] += row[j] == limit[j]
    greater[start:stop] = above
    equal[start:stop] = same
