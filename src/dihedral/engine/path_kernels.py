"""Numba kernels of path models: one question at a time, from its entity outwards and back again for the gradient.

The entities of a question are numbered in the order in which its steps reach them, so the states after t steps are the
first `counts[t]`, and the edges between them are listed once. Messages are never stored: each is computed in
registers (`engine.lanes`), added to the state of its target and forgotten, and the backward pass reads the same edges
again. `engine.path_engine` assigns questions to threads; the memory of a question is used by one thread only, and its
gradients are its own, so results do not depend on the number of threads.
"""

# mypy: ignore-errors

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from dihedral.engine.lanes import fill, load, root, store, total

FAST = {"contract", "reassoc", "nsz", "arcp"}  # sums may be vectorised; NaN and infinity are preserved
OPTIONS: Any = {"nogil": True, "fastmath": FAST, "error_model": "numpy", "cache": True}
ZERO, ONE, HALF, QUARTER, THREE_QUARTERS, TINY = map(np.float32, (0, 1, 0.5, 0.25, 0.75, 1e-12))
FLOOR = np.float32(1 + 1e-6)  # keeps factors above 0, by which the gradient divides


class Edges(NamedTuple):
    """A graph in both directions, as in `graph.index.GraphIndex`: the steps of an entity, and where each leads."""

    rows: Any  # int64 [N + 1]: the steps of entity v are rows[v] to rows[v + 1]
    steps: Any  # int32 [rows]
    starts: Any  # int64 [rows + 1]: the edges of a row
    ends: Any  # int32 [edges]


class Weights(NamedTuple):
    """What all questions share: T steps, L components."""

    blocks: Any  # [2R, 4, L]: the elements of steps, as entries a, b, c, d
    keep: Any  # [T, L]: what a state keeps of itself
    restart: Any  # [T, L]: how much of the question vector the first state gets again
    degree_powers: Any  # [T, D, L]: (1 + degree)^-c
    fan_powers: Any  # [T, D, L]: n^-f for a row of n edges
    logs: Any  # [D]: log(max(1, n))
    mixing: Any  # [T, 3L, L], or [0, 3L, L]: how components that reach an entity rescale each other
    mixing_back: Any  # the same, transposed


class Questions(NamedTuple):
    """A batch of B questions, and what is known of them."""

    entities: Any  # int64 [B]
    steps: Any  # int64 [B]
    answers: Any  # int64 [B]: the answer whose fact leaves the graph; -1 leaves it complete
    starts: Any  # int64 [B + 1]: the known answers of a question
    known: Any  # int64 [known]: other answers do not count as wrong
    vectors: Any  # [B, 2L]
    gates: Any  # [U, T, 2R, L]: of the distinct steps that are asked
    rescaling: Any  # [U, T, L]: the bias of what rescales components
    which: Any  # int64 [B]: the gates of a question
    reading: Any  # [B, 3, L]: weights of the first and second coordinates of components and of their lengths
    bias: Any  # [B]


class Memory(NamedTuple):
    """What a thread needs for one question at a time."""

    place: Any  # int32 [N]: the number of an entity's state; -1 if it has none
    reached: Any  # int32 [N]: the entity of each state
    degrees: Any  # int32 [N]: of each state, without the removed edges
    counts: Any  # int64 [T + 1]: the number of states after t steps
    first: Any  # int64 [T + 1]: where they begin in `states`
    counters: Any  # int64 [3]: of states, of rows and of edges
    rows: Any  # int32 [N, 2]: the first row of a state's edges and the end; -1 before they are listed
    steps: Any  # int32 [rows]
    starts: Any  # int32 [rows, 2]
    ends: Any  # int32 [edges]: states
    states: Any  # [(T + 1) N, 2L]
    factors: Any  # [(T + 1) N, L]: what components were rescaled by
    slopes: Any  # [2, N, 2L]
    scores: Any  # [N]
    small: Any  # [2, 3L]


class Gradients(NamedTuple):
    """Of the loss of each question; all start at 0."""

    losses: Any  # float64 [B]
    vectors: Any  # [B, 2L]
    gates: Any  # [B, T, 2R, L]
    rescaling: Any  # [B, T, L]
    blocks: Any  # [B, 2R, 4, L]
    shared: Any  # [B, 4, T, L]: of keep, restart and the exponents of degrees and fans
    mixing: Any  # [B, T, 3L, L]
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
def _reach(entity, asked, edges, memory):
    """Number an entity, and count its edges without the removed ones."""
    number = memory.counters[0]
    memory.place[entity], memory.reached[number], memory.rows[number, 0] = number, entity, -1
    degree = edges.starts[edges.rows[entity + 1]] - edges.starts[edges.rows[entity]]
    if entity == asked.answer or (entity == asked.entity and asked.answer >= 0):
        for row in range(edges.rows[entity], edges.rows[entity + 1]):
            for e in range(edges.starts[row], edges.starts[row + 1]):
                degree -= _is_removed(asked, entity, edges.steps[row], edges.ends[e])
    memory.degrees[number] = degree
    memory.counters[0] = number + 1


@njit(**OPTIONS)
def _expand(number, asked, edges, memory):
    """List the edges of a state's entity by rows of one step each, without the removed ones."""
    entity, row, edge = memory.reached[number], memory.counters[1], memory.counters[2]
    is_near = entity == asked.entity or entity == asked.answer
    memory.rows[number, 0] = row
    for r in range(edges.rows[entity], edges.rows[entity + 1]):
        memory.steps[row], memory.starts[row, 0] = edges.steps[r], edge
        for e in range(edges.starts[r], edges.starts[r + 1]):
            end = edges.ends[e]
            if is_near and _is_removed(asked, entity, edges.steps[r], end):
                continue
            if memory.place[end] < 0:
                _reach(end, asked, edges, memory)
            memory.ends[edge] = memory.place[end]
            edge += 1
        memory.starts[row, 1] = edge
        row += 1
    memory.rows[number, 1] = row
    memory.counters[1], memory.counters[2] = row, edge


@njit(**OPTIONS)
def _forget(memory, count):
    for i in range(count):
        memory.place[memory.reached[i]] = -1


@njit(**OPTIONS)
def _levels(x, y, small, lanes):
    """Write what rescales components: x and y shrunk to the length ‖x‖^¼, and that length; returns both lengths."""
    L, length = len(lanes), root(x * x + y * y + TINY)
    level = root(root(length))
    shrink = level / length
    store(small, (0, 0), shrink * x)
    store(small, (0, L), shrink * y)
    store(small, (0, 2 * L), level)
    return length, level


@njit(**OPTIONS)
def _walk(asked, edges, weights, gates, rescaling, vector, memory, lanes):
    """The states after each number of steps: what a state keeps, plus the messages of its edges."""
    L, states, counts = len(lanes), memory.states, memory.counts
    before, after = 0, 0
    memory.first[0], counts[0] = 0, 1
    states[0] = vector
    memory.counters[:] = 0
    _reach(asked.entity, asked, edges, memory)
    for t in range(len(weights.keep)):
        for i in range(counts[t]):
            if memory.rows[i, 0] < 0:
                _expand(i, asked, edges, memory)
        counts[t + 1] = memory.counters[0]
        before, after = after, after + counts[t]
        memory.first[t + 1] = after
        states[after : after + counts[t + 1]] = ZERO
        for i in range(counts[t]):
            x, y = load(states, (before + i, 0), lanes), load(states, (before + i, L), lanes)
            for row in range(memory.rows[i, 0], memory.rows[i, 1]):
                step, start, stop = memory.steps[row], memory.starts[row, 0], memory.starts[row, 1]
                gate = load(gates, (t, step, 0), lanes) * load(weights.fan_powers, (t, stop - start, 0), lanes)
                p, q = gate * x, gate * y
                a, b = load(weights.blocks, (step, 0, 0), lanes), load(weights.blocks, (step, 1, 0), lanes)
                c, d = load(weights.blocks, (step, 2, 0), lanes), load(weights.blocks, (step, 3, 0), lanes)
                one, two = a * p + c * q, b * p + d * q  # γ Dᵀ x
                for e in range(start, stop):
                    end = after + memory.ends[e]
                    store(states, (end, 0), load(states, (end, 0), lanes) + one)
                    store(states, (end, L), load(states, (end, L), lanes) + two)
        keep, restart = load(weights.keep, (t, 0), lanes), load(weights.restart, (t, 0), lanes)
        for i in range(counts[t + 1]):
            scale = load(weights.degree_powers, (t, memory.degrees[i], 0), lanes)
            x, y = load(states, (after + i, 0), lanes) * scale, load(states, (after + i, L), lanes) * scale
            if i < counts[t]:
                x = x + load(states, (before + i, 0), lanes) * keep
                y = y + load(states, (before + i, L), lanes) * keep
            if i == 0:
                x = x + load(vector, (0,), lanes) * restart
                y = y + load(vector, (L,), lanes) * restart
            if len(weights.mixing):
                z = load(rescaling, (t, 0), lanes)
                _levels(x, y, memory.small, lanes)
                for k in range(3 * L):
                    z = z + load(weights.mixing, (t, k, 0), lanes) * memory.small[0, k]
                factor = z / (root(z * z) + ONE) + FLOOR
                x, y = x * factor, y * factor
                store(memory.factors, (after + i, 0), factor)
            store(states, (after + i, 0), x)
            store(states, (after + i, L), y)


@njit(**OPTIONS)
def _read(memory, count, reading, bias, lanes):
    """Σ over components of ⟨w, x⟩ + ω‖x‖, divided by √(1 + ‖x‖), for each state."""
    L, states, last = len(lanes), memory.states, memory.first[-1]
    v, w, o = load(reading, (0, 0), lanes), load(reading, (1, 0), lanes), load(reading, (2, 0), lanes)
    for i in range(count):
        x, y = load(states, (last + i, 0), lanes), load(states, (last + i, L), lanes)
        length = root(x * x + y * y + TINY)
        memory.scores[i] = total((x * v + y * w + length * o) / root(length + ONE)) + bias


@njit(**OPTIONS)
def _score(b, asked, edges, weights, questions, memory, lanes):
    """Scores of all states of a question; returns how many there are."""
    which = questions.which[b]
    gates, rescaling = questions.gates[which], questions.rescaling[which]
    _walk(asked, edges, weights, gates, rescaling, questions.vectors[b], memory, lanes)
    count = memory.counters[0]
    _read(memory, count, questions.reading[b], questions.bias[b], lanes)
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
    largest = max(ZERO, true) if others > 0 else true
    for i in range(count):
        largest = max(largest, scores[i])
    sum_ = others * math.exp(-largest) if others > 0 else 0.0
    for i in range(count):
        scores[i] = math.exp(scores[i] - largest)
        sum_ += scores[i]
    for i in range(count):
        scores[i] = scores[i] / sum_
    if place >= 0:
        scores[place] -= ONE
    return math.log(sum_) + largest - true


@njit(**OPTIONS)
def _read_back(memory, slopes, count, reading, gradient, lanes):
    """The slopes of the loss by the states, from those by the scores; adds up the gradient of the reading."""
    L, states, last = len(lanes), memory.states, memory.first[-1]
    v, w, o = load(reading, (0, 0), lanes), load(reading, (1, 0), lanes), load(reading, (2, 0), lanes)
    none = fill(ZERO, lanes)
    dv, dw, do = none, none, none
    for i in range(count):
        x, y, slope = load(states, (last + i, 0), lanes), load(states, (last + i, L), lanes), memory.scores[i]
        length = root(x * x + y * y + TINY)
        shrink = fill(ONE, lanes) / root(length + ONE)
        part = shrink * slope
        dv, dw, do = dv + part * x, dw + part * y, do + part * length
        radial = (part * o - part * shrink * shrink * (x * v + y * w + length * o) * HALF) / length
        store(slopes, (i, 0), part * v + radial * x)
        store(slopes, (i, L), part * w + radial * y)
    store(gradient, (0, 0), dv)
    store(gradient, (1, 0), dw)
    store(gradient, (2, 0), do)


@njit(**OPTIONS)
def _rescale_back(t, i, weights, memory, slopes, gradient, bias_gradient, lanes):
    """Turn the slope by a rescaled state into that by the state before; returns that state."""
    L, place = len(lanes), memory.first[t + 1] + i
    factor = load(memory.factors, (place, 0), lanes)
    x, y = load(memory.states, (place, 0), lanes) / factor, load(memory.states, (place, L), lanes) / factor
    p, q = load(slopes, (i, 0), lanes), load(slopes, (i, L), lanes)
    length, level = _levels(x, y, memory.small, lanes)
    above = factor - FLOOR  # z / (1 + |z|), whose slope is (1 - |…|)²
    below = fill(ONE, lanes) - root(above * above)
    slope = (p * x + q * y) * below * below  # by z
    store(memory.small, (1, 0), slope)
    du, dv, by_level = fill(ZERO, lanes), fill(ZERO, lanes), fill(ZERO, lanes)
    for k in range(L):
        s = memory.small[1, k]
        du = du + load(weights.mixing_back, (t, k, 0), lanes) * s
        dv = dv + load(weights.mixing_back, (t, k, L), lanes) * s
        by_level = by_level + load(weights.mixing_back, (t, k, 2 * L), lanes) * s
    for k in range(3 * L):
        store(gradient, (t, k, 0), load(gradient, (t, k, 0), lanes) + slope * memory.small[0, k])
    store(bias_gradient, (t, 0), load(bias_gradient, (t, 0), lanes) + slope)
    shrink = level / length
    radial = (by_level * level * QUARTER - (du * x + dv * y) * shrink * THREE_QUARTERS) / (length * length)
    store(slopes, (i, 0), p * factor + du * shrink + radial * x)
    store(slopes, (i, L), q * factor + dv * shrink + radial * y)
    return x, y


@njit(**OPTIONS)
def _states_back(b, t, weights, vector, memory, gradients, slopes, earlier, lanes):
    """From the slopes by states after a step to those by the sums of messages, and to those by what states keep."""
    L, before, after = len(lanes), memory.first[t], memory.first[t + 1]
    keep, restart = load(weights.keep, (t, 0), lanes), load(weights.restart, (t, 0), lanes)
    none = fill(ZERO, lanes)
    kept, restarted, target = none, none, none
    for i in range(memory.counts[t + 1]):
        if len(weights.mixing):
            x, y = _rescale_back(t, i, weights, memory, slopes, gradients.mixing[b], gradients.rescaling[b], lanes)
        else:
            x, y = load(memory.states, (after + i, 0), lanes), load(memory.states, (after + i, L), lanes)
        p, q = load(slopes, (i, 0), lanes), load(slopes, (i, L), lanes)
        if i == 0:
            one, two = load(vector, (0,), lanes), load(vector, (L,), lanes)
            restarted = p * one + q * two
            x, y = x - one * restart, y - two * restart
            g = gradients.vectors[b]
            store(g, (0,), load(g, (0,), lanes) + p * restart)
            store(g, (L,), load(g, (L,), lanes) + q * restart)
        if i < memory.counts[t]:
            one, two = load(memory.states, (before + i, 0), lanes), load(memory.states, (before + i, L), lanes)
            kept = kept + p * one + q * two
            x, y = x - one * keep, y - two * keep
            store(earlier, (i, 0), p * keep)
            store(earlier, (i, L), q * keep)
        degree = memory.degrees[i]
        target = target - (p * x + q * y) * weights.logs[degree + 1]
        scale = load(weights.degree_powers, (t, degree, 0), lanes)
        store(slopes, (i, 0), p * scale)
        store(slopes, (i, L), q * scale)
    shared = gradients.shared[b]
    store(shared, (0, t, 0), kept)
    store(shared, (1, t, 0), restarted)
    store(shared, (2, t, 0), target)


@njit(**OPTIONS)
def _edges_back(b, t, weights, gates, memory, gradients, slopes, earlier, lanes):
    """Add the slopes by the states before a step, and the gradients of gates and blocks, from those by messages."""
    L, states, none = len(lanes), memory.states, fill(ZERO, lanes)
    by_gate, by_block, by_fan = gradients.gates[b, t], gradients.blocks[b], none
    for i in range(memory.counts[t]):
        place = memory.first[t] + i
        x, y = load(states, (place, 0), lanes), load(states, (place, L), lanes)
        dx, dy = load(earlier, (i, 0), lanes), load(earlier, (i, L), lanes)
        for row in range(memory.rows[i, 0], memory.rows[i, 1]):
            step, start, stop = memory.steps[row], memory.starts[row, 0], memory.starts[row, 1]
            p, q = none, none  # the slope by the message of this row, which all its edges carry
            for e in range(start, stop):
                end = memory.ends[e]
                p, q = p + load(slopes, (end, 0), lanes), q + load(slopes, (end, L), lanes)
            a, b_ = load(weights.blocks, (step, 0, 0), lanes), load(weights.blocks, (step, 1, 0), lanes)
            c, d = load(weights.blocks, (step, 2, 0), lanes), load(weights.blocks, (step, 3, 0), lanes)
            factor = load(weights.fan_powers, (t, stop - start, 0), lanes)
            gate = load(gates, (t, step, 0), lanes) * factor
            one, two = a * p + b_ * q, c * p + d * q
            dx, dy = dx + gate * one, dy + gate * two
            dot = x * one + y * two
            store(by_gate, (step, 0), load(by_gate, (step, 0), lanes) + dot * factor)
            by_fan = by_fan - dot * gate * weights.logs[stop - start]
            one, two = x * gate, y * gate
            store(by_block, (step, 0, 0), load(by_block, (step, 0, 0), lanes) + one * p)
            store(by_block, (step, 1, 0), load(by_block, (step, 1, 0), lanes) + one * q)
            store(by_block, (step, 2, 0), load(by_block, (step, 2, 0), lanes) + two * p)
            store(by_block, (step, 3, 0), load(by_block, (step, 3, 0), lanes) + two * q)
        store(earlier, (i, 0), dx)
        store(earlier, (i, L), dy)
    store(gradients.shared[b], (3, t, 0), by_fan)


@njit(**OPTIONS)
def train_questions(start, stop, edges, weights, questions, num_relations, pair, memory, lanes, gradients):
    """The losses of questions start to stop, each without its own fact in the graph, and all their gradients."""
    for b in range(start, stop):
        asked = _asked(b, questions, num_relations, pair)
        count = _score(b, asked, edges, weights, questions, memory, lanes)
        gradients.losses[b] = _cross_entropy(b, asked, questions, memory, count, len(edges.rows) - 1)
        for i in range(count):
            gradients.bias[b] += memory.scores[i]
        slopes, earlier = memory.slopes[0], memory.slopes[1]
        _read_back(memory, slopes, count, questions.reading[b], gradients.reading[b], lanes)
        gates, vector = questions.gates[questions.which[b]], questions.vectors[b]
        for t in range(len(weights.keep) - 1, -1, -1):
            _states_back(b, t, weights, vector, memory, gradients, slopes, earlier, lanes)
            _edges_back(b, t, weights, gates, memory, gradients, slopes, earlier, lanes)
            slopes, earlier = earlier, slopes
        for j in range(len(vector)):
            gradients.vectors[b, j] += slopes[0, j]
        _forget(memory, count)
