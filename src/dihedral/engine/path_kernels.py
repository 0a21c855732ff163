"""Numba kernels of path models: one question at a time, from its entity outwards and back again for the gradient.

The states of a question are numbered in the order in which its steps reach them, so those after t steps are the first
`counts[t]`. Messages are never stored: each is computed, added to the state of its target and forgotten, and the
backward pass reads the same edges again. `engine.path_engine` assigns questions to threads; the memory of a question is
used by one thread only, and its gradients are its own, so results do not depend on the number of threads.

`lanes` is a tuple of L zeros: its length is known when a kernel is compiled, which makes loops over components fast.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba import njit

FAST = {"contract", "reassoc", "nsz", "arcp"}  # sums may be vectorised; NaN and infinity are preserved
OPTIONS: Any = {"nogil": True, "fastmath": FAST, "error_model": "numpy", "cache": True}
ZERO, ONE, HALF, TINY = np.float32(0), np.float32(1), np.float32(0.5), np.float32(1e-12)


class Edges(NamedTuple):
    """A graph in both directions, as in `graph.index.GraphIndex`: the steps of an entity, and where each leads."""

    rows: Any  # int64 [N + 1]: the steps of entity v are rows[v] to rows[v + 1]
    steps: Any  # int32 [rows]
    starts: Any  # int64 [rows + 1]: the edges of a row
    ends: Any  # int32 [edges]


class Weights(NamedTuple):
    """What all questions share: T steps, L components."""

    blocks: Any  # [2R, 4, L]: the elements of steps, as entries a, b, c, d
    keep: Any  # [T]: what a state keeps of itself
    restart: Any  # [T]: how much of the question vector the first state gets again
    target: Any  # [T]: exponent of the degree of the entity that a message reaches
    fan: Any  # [T]: exponent of the number of entities that the step leads to from its source


class Questions(NamedTuple):
    """A batch of B questions, and what is known of them."""

    entities: Any  # int64 [B]
    steps: Any  # int64 [B]
    answers: Any  # int64 [B]: the answer whose fact leaves the graph; -1 leaves it complete
    starts: Any  # int64 [B + 1]: the known answers of a question
    known: Any  # int64 [known]: other answers do not count as wrong
    vectors: Any  # [B, 2L]
    gates: Any  # [U, T, 2R, L]: of the distinct steps that are asked
    which: Any  # int64 [B]: the gates of a question
    reading: Any  # [B, 3, L]: weights of the first and second coordinates of components and of their lengths
    bias: Any  # [B]


class Memory(NamedTuple):
    """What a thread needs for one question at a time."""

    place: Any  # int32 [N]: the number of an entity's state; -1 if it has none
    reached: Any  # int32 [N]: the entity of each state
    counts: Any  # int64 [T + 1]
    first: Any  # int64 [T + 1]: where the states after t steps begin in `states`
    degrees: Any  # [N]: log(1 + degree) of each state
    states: Any  # [(T + 1) N, 2L]
    slopes: Any  # [2, N, 2L]
    scores: Any  # [N]
    message: Any  # [2L]


class Gradients(NamedTuple):
    """Of the loss of each question; all start at 0."""

    losses: Any  # float64 [B]
    vectors: Any  # [B, 2L]
    gates: Any  # [B, T, 2R, L]
    blocks: Any  # [B, 2R, 4, L]
    shared: Any  # [B, 4, T]: of keep, restart, target and fan
    reading: Any  # [B, 3, L]
    bias: Any  # [B]


class Asked(NamedTuple):
    """One question; `answer` is -1 if its graph is complete."""

    entity: int
    step: int
    inverse: int
    answer: int
    pair: bool  # all edges between entity and answer leave the graph, not only the fact


@njit(**OPTIONS)
def _asked(b, questions, num_relations, pair):
    step = questions.steps[b]
    inverse = step - num_relations if step >= num_relations else step + num_relations
    return Asked(questions.entities[b], step, inverse, questions.answers[b], pair)


@njit(**OPTIONS)
def _is_removed(asked, source, step, end):
    there = source == asked.entity and end == asked.answer and (asked.pair or step == asked.step)
    return there or (source == asked.answer and end == asked.entity and (asked.pair or step == asked.inverse))


@njit(**OPTIONS)
def _explore(asked, edges, memory):
    """Number the entities within T steps, and take their degrees without the removed edges."""
    place, reached, counts = memory.place, memory.reached, memory.counts
    reached[0] = asked.entity
    place[asked.entity] = 0
    counts[0] = 1
    count, first = 1, 0
    for t in range(1, len(counts)):
        last = count
        for i in range(first, last):
            source = reached[i]
            is_near = source == asked.entity or source == asked.answer
            for row in range(edges.rows[source], edges.rows[source + 1]):
                for e in range(edges.starts[row], edges.starts[row + 1]):
                    end = edges.ends[e]
                    if place[end] < 0 and not (is_near and _is_removed(asked, source, edges.steps[row], end)):
                        place[end] = count
                        reached[count] = end
                        count += 1
        first = last
        counts[t] = count
    for i in range(count):
        source = reached[i]
        degree = edges.starts[edges.rows[source + 1]] - edges.starts[edges.rows[source]]
        if source == asked.entity or source == asked.answer:
            for row in range(edges.rows[source], edges.rows[source + 1]):
                for e in range(edges.starts[row], edges.starts[row + 1]):
                    degree -= _is_removed(asked, source, edges.steps[row], edges.ends[e])
        memory.degrees[i] = math.log(ONE + degree)
    return count


@njit(**OPTIONS)
def _forget(memory, count):
    for i in range(count):
        memory.place[memory.reached[i]] = -1


@njit(**OPTIONS)
def _fan(asked, edges, source, row, exponent):
    """The factor of the messages along a row of edges, and the logarithm of their number, without removed edges."""
    count = edges.starts[row + 1] - edges.starts[row]
    if source == asked.entity or source == asked.answer:
        for e in range(edges.starts[row], edges.starts[row + 1]):
            count -= _is_removed(asked, source, edges.steps[row], edges.ends[e])
    size = math.log(np.float32(max(1, count)))
    return np.float32(math.exp(-exponent * size)), np.float32(size)


@njit(**OPTIONS)
def _walk(asked, edges, weights, gates, vector, memory, lanes):
    """The states after each number of steps: what a state keeps, plus the messages of its edges."""
    L, width = len(lanes), 2 * len(lanes)
    message, states = memory.message, memory.states
    states[0] = vector
    memory.first[0] = 0
    for t in range(len(weights.keep)):
        num_sources, count = memory.counts[t], memory.counts[t + 1]
        before = states[memory.first[t] : memory.first[t] + num_sources]
        memory.first[t + 1] = memory.first[t] + num_sources
        after = states[memory.first[t + 1] : memory.first[t + 1] + count]
        after[:] = ZERO
        for i in range(num_sources):
            source, x = memory.reached[i], before[i]
            is_near = source == asked.entity or source == asked.answer
            for row in range(edges.rows[source], edges.rows[source + 1]):
                step = edges.steps[row]
                factor, _ = _fan(asked, edges, source, row, weights.fan[t])
                for j in range(L):  # γ Dᵀ x
                    gate = gates[t, step, j] * factor
                    first, second = x[j] * gate, x[L + j] * gate
                    message[j] = weights.blocks[step, 0, j] * first + weights.blocks[step, 2, j] * second
                    message[L + j] = weights.blocks[step, 1, j] * first + weights.blocks[step, 3, j] * second
                for e in range(edges.starts[row], edges.starts[row + 1]):
                    end = edges.ends[e]
                    if is_near and _is_removed(asked, source, step, end):
                        continue
                    total = after[memory.place[end]]
                    for j in range(width):
                        total[j] += message[j]
        for i in range(count):
            scale, y = np.float32(math.exp(-weights.target[t] * memory.degrees[i])), after[i]
            if i < num_sources:
                x = before[i]
                for j in range(width):
                    y[j] = scale * y[j] + weights.keep[t] * x[j]
            else:
                for j in range(width):
                    y[j] *= scale
        for j in range(width):
            after[0, j] += weights.restart[t] * vector[j]


@njit(**OPTIONS)
def _read(states, count, reading, bias, scores, lanes):
    """Σ over components of ⟨w, x⟩ + ω‖x‖, divided by √(1 + ‖x‖), for each state."""
    L = len(lanes)
    for i in range(count):
        x, score = states[i], ZERO
        for j in range(L):
            a, b = x[j], x[L + j]
            length = math.sqrt(a * a + b * b + TINY)
            score += (a * reading[0, j] + b * reading[1, j] + length * reading[2, j]) / math.sqrt(ONE + length)
        scores[i] = score + bias


@njit(**OPTIONS)
def _score(b, asked, edges, weights, questions, memory, lanes):
    """Scores of all states of a question; returns how many there are."""
    count = _explore(asked, edges, memory)
    _walk(asked, edges, weights, questions.gates[questions.which[b]], questions.vectors[b], memory, lanes)
    last = memory.states[memory.first[-1] : memory.first[-1] + count]
    _read(last, count, questions.reading[b], questions.bias[b], memory.scores, lanes)
    return count


@njit(**OPTIONS)
def score_questions(start, stop, edges, weights, questions, num_relations, pair, memory, lanes, rows):
    """Write the scores [B, N] of questions start to stop; entities that no path reaches have the score 0."""
    for b in range(start, stop):
        count = _score(b, _asked(b, questions, num_relations, pair), edges, weights, questions, memory, lanes)
        rows[b] = ZERO
        for i in range(count):
            rows[b, memory.reached[i]] = memory.scores[i]
        _forget(memory, count)


@njit(**OPTIONS)
def _cross_entropy(b, asked, questions, memory, count, num_entities):
    """The loss of the answer among all entities without other known answers; the slopes replace the scores."""
    scores, others = memory.scores, num_entities - count  # entities without a state, whose score is 0
    place = memory.place[asked.answer]
    true = scores[place] if place >= 0 else ZERO
    for k in range(questions.starts[b], questions.starts[b + 1]):
        if questions.known[k] != asked.answer:
            known = memory.place[questions.known[k]]
            if known >= 0:
                scores[known] = -np.inf
            else:
                others -= 1
    largest = max(ZERO, true)
    for i in range(count):
        largest = max(largest, scores[i])
    total = others * math.exp(-largest)
    for i in range(count):
        total += math.exp(scores[i] - largest)
    for i in range(count):
        scores[i] = math.exp(scores[i] - largest) / total
    if place >= 0:
        scores[place] -= ONE
    return math.log(total) + largest - true


@njit(**OPTIONS)
def _read_back(states, slopes, count, reading, scores, gradient, lanes):
    """The slopes of the loss by the states, from those by the scores; adds up the gradient of the reading."""
    L = len(lanes)
    for i in range(count):
        x, d, slope = states[i], slopes[i], scores[i]
        for j in range(L):
            a, b = x[j], x[L + j]
            length = math.sqrt(a * a + b * b + TINY)
            shrink = ONE / math.sqrt(ONE + length)
            gradient[0, j] += slope * shrink * a
            gradient[1, j] += slope * shrink * b
            gradient[2, j] += slope * shrink * length
            linear = a * reading[0, j] + b * reading[1, j] + length * reading[2, j]
            radial = (shrink * reading[2, j] - HALF * shrink * shrink * shrink * linear) / length
            d[j] = slope * (shrink * reading[0, j] + radial * a)
            d[L + j] = slope * (shrink * reading[1, j] + radial * b)


@njit(**OPTIONS)
def _states_back(b, t, weights, vector, memory, gradients, slopes, earlier, lanes):
    """From the slopes by states after a step to those by the sums of messages, and to those by what states keep."""
    width = 2 * len(lanes)
    num_sources, count = memory.counts[t], memory.counts[t + 1]
    before, after = memory.states[memory.first[t] :], memory.states[memory.first[t + 1] :]
    restart, kept, target = ZERO, ZERO, ZERO
    for j in range(width):
        gradients.vectors[b, j] += weights.restart[t] * slopes[0, j]
        restart += slopes[0, j] * vector[j]
    for i in range(count):
        d, y, own, sent = slopes[i], after[i], ZERO, ZERO
        for j in range(width):
            sent += d[j] * y[j]
        if i < num_sources:
            x, e = before[i], earlier[i]
            for j in range(width):
                own += d[j] * x[j]
                e[j] = weights.keep[t] * d[j]
            kept += own
        if i == 0:
            sent -= weights.restart[t] * restart
        target -= (sent - weights.keep[t] * own) * memory.degrees[i]
        scale = np.float32(math.exp(-weights.target[t] * memory.degrees[i]))
        for j in range(width):
            d[j] *= scale
    gradients.shared[b, 0, t], gradients.shared[b, 1, t], gradients.shared[b, 2, t] = kept, restart, target


@njit(**OPTIONS)
def _edges_back(b, t, asked, edges, weights, gates, memory, gradients, slopes, earlier, lanes):
    """Add the slopes by the states before a step, and the gradients of gates and blocks, from those by messages."""
    L, width = len(lanes), 2 * len(lanes)
    message, before, fan = memory.message, memory.states[memory.first[t] :], ZERO
    for i in range(memory.counts[t]):
        source, x, e = memory.reached[i], before[i], earlier[i]
        is_near = source == asked.entity or source == asked.answer
        for row in range(edges.rows[source], edges.rows[source + 1]):
            step = edges.steps[row]
            message[:] = ZERO  # the slope by the message of this row, which all its edges carry
            for k in range(edges.starts[row], edges.starts[row + 1]):
                end = edges.ends[k]
                if is_near and _is_removed(asked, source, step, end):
                    continue
                d = slopes[memory.place[end]]
                for j in range(width):
                    message[j] += d[j]
            block, gradient = weights.blocks[step], gradients.blocks[b, step]
            factor, size = _fan(asked, edges, source, row, weights.fan[t])
            for j in range(L):
                gate, p, q = gates[t, step, j] * factor, message[j], message[L + j]
                first, second = block[0, j] * p + block[1, j] * q, block[2, j] * p + block[3, j] * q
                e[j] += gate * first
                e[L + j] += gate * second
                dot = x[j] * first + x[L + j] * second
                gradients.gates[b, t, step, j] += dot * factor
                fan -= dot * gate * size
                one, two = x[j] * gate, x[L + j] * gate
                gradient[0, j] += one * p
                gradient[1, j] += one * q
                gradient[2, j] += two * p
                gradient[3, j] += two * q
    gradients.shared[b, 3, t] = fan


@njit(**OPTIONS)
def train_questions(start, stop, edges, weights, questions, num_relations, pair, memory, lanes, gradients):
    """The losses of questions start to stop, each without its own fact in the graph, and all their gradients."""
    for b in range(start, stop):
        asked = _asked(b, questions, num_relations, pair)
        count = _score(b, asked, edges, weights, questions, memory, lanes)
        gradients.losses[b] = _cross_entropy(b, asked, questions, memory, count, len(edges.rows) - 1)
        for i in range(count):
            gradients.bias[b] += memory.scores[i]
        last = memory.states[memory.first[-1] : memory.first[-1] + count]
        _read_back(
            last, memory.slopes[0], count, questions.reading[b], memory.scores, gradients.reading[b], lanes
        )  # fmt: skip
        gates, vector = questions.gates[questions.which[b]], questions.vectors[b]
        for t in range(len(weights.keep) - 1, -1, -1):
            is_odd = (len(weights.keep) - 1 - t) % 2
            slopes, earlier = memory.slopes[is_odd], memory.slopes[1 - is_odd]
            _states_back(b, t, weights, vector, memory, gradients, slopes, earlier, lanes)
            _edges_back(b, t, asked, edges, weights, gates, memory, gradients, slopes, earlier, lanes)
        for j in range(len(vector)):
            gradients.vectors[b, j] += memory.slopes[len(weights.keep) % 2, 0, j]
        _forget(memory, count)
