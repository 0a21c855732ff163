"""Triton kernels of path models: one step of all questions, and its gradients.

States are rows of a table [rows, 2, L], one per entity and question: of all pairs, or only of those that paths reach,
which `row_of` numbers. A program has a segment of the edges of one entity, and some questions. It adds up the states at
the other ends in registers, and applies gate and element once per step of the entity. Messages are never stored. The
sums of entities with several segments are added atomically.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

DENSE = {"Q": 32, "AT_ONCE": 1, "num_warps": 1}  # questions of a program, and edges gathered at the same time
SPARSE = {"Q": 1, "AT_ONCE": 16, "num_warps": 1}
ROWS = 32  # that a program updates
TINY = tl.constexpr(1e-12)  # added to squares of lengths
LN2 = math.log(2)  # kernels take logarithms to the base 2
COPIES = 64  # of small gradients, so that few programs add to the same one


class Walk(NamedTuple):
    """The edges, questions and rows of a batch."""

    entities: Tensor  # int32 [segments]
    first_rows: Tensor  # int32 [segments + 1]: the first piece of a segment, all edges of which have one step
    is_part: Tensor  # bool [segments]: the entity has several
    steps: Tensor  # int32 [pieces]
    starts: Tensor  # int32 [pieces + 1]: the first edge of a piece
    ends: Tensor  # int32 [edges]
    fans: Tensor  # int32 [edges]: how many edges of its step leave the entity of an edge
    end_fans: Tensor  # int32 [edges]: how many edges of the inverse step leave the other end
    heads: Tensor  # int32 [B]
    answers: Tensor  # int32 [B]; -1 if nothing is removed
    removed: Tensor  # int32 [B, M]: the steps from head to answer that are removed, both ways; -1 fills up
    degrees: Tensor  # int32 [rows]: without the removed edges
    sources: Tensor  # int64 [B]: the rows of the heads
    places: Tensor  # int64 [rows]: question · N + entity; empty if all pairs have rows
    row_of: Tensor  # int32 [N, B]: the row of each pair, or -1; empty if all pairs have rows
    questions: Tensor  # int32 [rows]; empty if all pairs have rows
    programs: Tensor  # int32 [2, programs]: the row and the segment of each; empty if all pairs have rows

    @property
    def is_sparse(self) -> bool:
        return len(self.questions) > 0


@triton.jit
def _is_listed(removed, questions, asked, M, step):
    """Whether a step is among those that a question removes: [Q]."""
    found = tl.zeros(asked.shape, tl.int1)
    for m in range(M):
        found = found | (tl.load(removed + questions * M + m, mask=asked, other=-1) == step)
    return found


@triton.jit
def _gather(
    table, alive, index, ends, fans, exponent, e, stop, v, step, back, questions, asked, heads, answers, removed, M, B,
    L, j, FORWARD: tl.constexpr, IS_SPARSE: tl.constexpr, AT_ONCE: tl.constexpr,
):  # fmt: skip
    """Up to AT_ONCE states at the ends of edges of v, added up: both coordinates [Q, L], and which questions have any.

    Forwards, the edges are walked towards v by `step`, and each state is multiplied by the power of its entity's fan,
    which does not count removed facts.
    """
    edges = e + tl.arange(0, AT_ONCE)
    is_edge = edges < stop
    end = tl.load(ends + edges, mask=is_edge, other=-1)
    is_asked = is_edge[:, None] & asked[None, :]
    row = end[:, None].to(tl.int64) * B + questions[None, :]
    if IS_SPARSE:
        row = tl.load(index + row, mask=is_asked, other=-1).to(tl.int64)
    live = tl.load(alive + row, mask=is_asked & (row >= 0), other=0) > 0  # [edges, Q]
    is_head, is_answer = end[:, None] == heads[None, :], end[:, None] == answers[None, :]
    less = tl.zeros([AT_ONCE, heads.shape[0]], tl.int32)
    if tl.max(tl.max((is_head | is_answer).to(tl.int32), 1), 0) > 0:
        by_step = _is_listed(removed, questions, asked, M, step)[None, :]
        by_back = _is_listed(removed, questions, asked, M, back)[None, :]
        from_head, from_answer = is_head & by_step, is_answer & by_back
        less = from_head.to(tl.int32) + from_answer.to(tl.int32)
        gone = (from_head & (v == answers)[None, :]) | (from_answer & (v == heads)[None, :])
        live = live & (gone == 0)
    place = row[:, :, None] * (2 * L) + j[None, None, :]
    mask = live[:, :, None] & (j < L)[None, None, :]
    x, y = _both(table, place, L, mask)
    if FORWARD:
        fan = tl.load(fans + edges, mask=is_edge, other=1)
        log = tl.log2(fan.to(tl.float32))
        power = tl.exp2(-exponent[None, :] * log[:, None])[:, None, :]  # [edges, 1, L]
        x, y = x * power, y * power
        if tl.max(tl.max(less, 1), 0) > 0:
            left = tl.log2(tl.maximum(fan[:, None] - less, 1).to(tl.float32))
            change = tl.exp2(-exponent[None, None, :] * (left - log[:, None])[:, :, None])
            x, y = x * change, y * change
    return tl.sum(x, 0), tl.sum(y, 0), tl.max(live.to(tl.int32), 0) > 0


@triton.jit
def _place(programs, questions_of, num_programs, B, entities, Q: tl.constexpr, IS_SPARSE: tl.constexpr):
    """The segment of a program, its entity, its questions [Q] and which of them exist, and their rows [Q]."""
    if IS_SPARSE:
        row = tl.load(programs + tl.program_id(0)).to(tl.int64) + tl.arange(0, Q)
        segment = tl.load(programs + num_programs + tl.program_id(0))
        v = tl.load(entities + segment)
        questions = tl.load(questions_of + row)
        asked = questions >= 0
    else:
        segment = tl.program_id(0)
        v = tl.load(entities + segment)
        questions = tl.program_id(1) * Q + tl.arange(0, Q)
        asked = questions < B
        row = v.to(tl.int64) * B + questions
    return segment, v, questions, asked, row


@triton.jit
def _blocks(blocks, step, L, j):
    """The entries a, b, c and d of the element of a step, each [1, L]."""
    block, inside = blocks + step * 4 * L + j, j < L
    a, b = tl.load(block, mask=inside, other=0.0), tl.load(block + L, mask=inside, other=0.0)
    c, d = tl.load(block + 2 * L, mask=inside, other=0.0), tl.load(block + 3 * L, mask=inside, other=0.0)
    return a[None, :], b[None, :], c[None, :], d[None, :]


@triton.jit
def _messages(
    table, alive, sums, reached, gates, blocks, exponents,
    entities, first_rows, is_part, steps, starts, ends, fans, heads, answers, removed, index, questions_of, programs,
    num_programs, M, B, L, R,
    Q: tl.constexpr, LANES: tl.constexpr, AT_ONCE: tl.constexpr, IS_SPARSE: tl.constexpr,
):  # fmt: skip
    """Σ n^-f γ(q, s) D_sᵀ x over the edges that end in the entity of a segment, for Q questions."""
    segment, v, questions, asked, row = _place(programs, questions_of, num_programs, B, entities, Q, IS_SPARSE)
    head = tl.load(heads + questions, mask=asked, other=-2)
    answer = tl.load(answers + questions, mask=asked, other=-2)
    j = tl.arange(0, LANES)
    inside = asked[:, None] & (j < L)[None, :]
    exponent = tl.load(exponents + j, mask=j < L, other=0.0)
    one, two = tl.zeros([Q, LANES], tl.float32), tl.zeros([Q, LANES], tl.float32)
    hit = tl.zeros([Q], tl.int32)
    for piece in range(tl.load(first_rows + segment), tl.load(first_rows + segment + 1)):
        back = tl.load(steps + piece)
        step = tl.where(back >= R, back - R, back + R)  # into v
        p, q = tl.zeros([Q, LANES], tl.float32), tl.zeros([Q, LANES], tl.float32)
        found = tl.zeros([Q], tl.int32)
        stop = tl.load(starts + piece + 1)
        for e in range(tl.load(starts + piece), stop, AT_ONCE):
            x, y, any_live = _gather(
                table, alive, index, ends, fans, exponent, e, stop, v, step, back, questions, asked, head, answer,
                removed, M, B, L, j, True, IS_SPARSE, AT_ONCE,
            )  # fmt: skip
            p += x
            q += y
            found = found | any_live.to(tl.int32)
        hit = hit | found
        if tl.max(found, 0) > 0:
            place = (step * B + questions)[:, None] * L + j[None, :]
            gate = tl.load(gates + place, mask=inside, other=0.0).to(tl.float32)
            a, b, c, d = _blocks(blocks, step, L, j)
            one += gate * (a * p + c * q)
            two += gate * (b * p + d * q)
    if tl.max(hit, 0) > 0:
        is_hit = asked & (hit > 0)
        tl.store(reached + row, hit.to(tl.uint8), mask=is_hit)
        place = row[:, None] * (2 * L) + j[None, :]
        mask = inside & is_hit[:, None]
        if tl.load(is_part + segment):
            tl.atomic_add(sums + place, one, mask=mask, sem="relaxed")
            tl.atomic_add(sums + place + L, two, mask=mask, sem="relaxed")
        else:
            tl.store(sums + place, one, mask=mask)
            tl.store(sums + place + L, two, mask=mask)


@triton.jit
def _messages_backward(
    table, alive, slopes, reached, gates, blocks, exponents, by_state, by_gate, by_block, by_exponent,
    entities, first_rows, is_part, steps, starts, ends, fans, heads, answers, removed, index, questions_of, programs,
    num_programs, M, B, L, R,
    Q: tl.constexpr, LANES: tl.constexpr, AT_ONCE: tl.constexpr, IS_SPARSE: tl.constexpr, COPIES: tl.constexpr,
):  # fmt: skip
    """Add to the gradients by the states of a segment's entity, its gates and elements, from those by sums."""
    segment, v, questions, asked, row = _place(programs, questions_of, num_programs, B, entities, Q, IS_SPARSE)
    live = tl.load(alive + row, mask=asked, other=0) > 0
    if tl.max(live.to(tl.int32), 0) > 0:
        head = tl.load(heads + questions, mask=asked, other=-2)
        answer = tl.load(answers + questions, mask=asked, other=-2)
        is_near = tl.max(((head == v) | (answer == v)).to(tl.int32), 0) > 0
        j = tl.arange(0, LANES)
        inside = live[:, None] & (j < L)[None, :]
        exponent = tl.load(exponents + j, mask=j < L, other=0.0)
        own = row[:, None] * (2 * L) + j[None, :]
        x, y = _both(table, own, L, inside)
        dx, dy = tl.zeros([Q, LANES], tl.float32), tl.zeros([Q, LANES], tl.float32)
        by_fan = tl.zeros([LANES], tl.float32)
        copy = (tl.program_id(0) + tl.program_id(1)) % COPIES
        for piece in range(tl.load(first_rows + segment), tl.load(first_rows + segment + 1)):
            step = tl.load(steps + piece)
            back = tl.where(step >= R, step - R, step + R)
            p, q = tl.zeros([Q, LANES], tl.float32), tl.zeros([Q, LANES], tl.float32)
            start, stop = tl.load(starts + piece), tl.load(starts + piece + 1)
            for e in range(start, stop, AT_ONCE):
                one, two, _ = _gather(
                    slopes, reached, index, ends, fans, exponent, e, stop, v, back, step, questions, asked, head,
                    answer, removed, M, B, L, j, False, IS_SPARSE, AT_ONCE,
                )  # fmt: skip
                p += one
                q += two
            fan = tl.load(fans + start) + tl.zeros([Q], tl.int32)
            if is_near:
                fan -= ((head == v) & _is_listed(removed, questions, asked, M, step)).to(tl.int32)
                fan -= ((answer == v) & _is_listed(removed, questions, asked, M, back)).to(tl.int32)
            log = tl.log2(tl.maximum(fan, 1).to(tl.float32))  # [Q]
            power = tl.exp2(-exponent[None, :] * log[:, None])
            place = (step * B + questions)[:, None] * L + j[None, :]
            gate = tl.load(gates + place, mask=inside, other=0.0).to(tl.float32)
            a, b, c, d = _blocks(blocks, step, L, j)
            one, two = a * p + b * q, c * p + d * q  # D p
            weight = gate * power
            dx += weight * one
            dy += weight * two
            dot = x * one + y * two
            tl.atomic_add(by_gate + place, dot * power, mask=inside, sem="relaxed")
            by_fan += tl.sum(dot * weight * log[:, None], 0)
            u, w = x * weight, y * weight
            block = by_block + (copy * 2 * R + step) * 4 * L + j
            tl.atomic_add(block, tl.sum(u * p, 0), mask=j < L, sem="relaxed")
            tl.atomic_add(block + L, tl.sum(u * q, 0), mask=j < L, sem="relaxed")
            tl.atomic_add(block + 2 * L, tl.sum(w * p, 0), mask=j < L, sem="relaxed")
            tl.atomic_add(block + 3 * L, tl.sum(w * q, 0), mask=j < L, sem="relaxed")
        tl.atomic_add(by_exponent + copy * L + j, by_fan, mask=j < L, sem="relaxed")
        if tl.load(is_part + segment):
            tl.atomic_add(by_state + own, dx, mask=inside, sem="relaxed")
            tl.atomic_add(by_state + own + L, dy, mask=inside, sem="relaxed")
        else:
            tl.store(by_state + own, dx + tl.load(by_state + own, mask=inside, other=0.0), mask=inside)
            tl.store(by_state + own + L, dy + tl.load(by_state + own + L, mask=inside, other=0.0), mask=inside)


@triton.jit
def _both(pointer, place, L, mask):
    """Both coordinates of components."""
    x = tl.load(pointer + place, mask=mask, other=0.0).to(tl.float32)
    return x, tl.load(pointer + place + L, mask=mask, other=0.0).to(tl.float32)


@triton.jit
def _product(left, right):
    return tl.dot(left, right, input_precision="ieee")


@triton.jit
def _rows(questions_of, rows, B, L, ROWS: tl.constexpr, LANES: tl.constexpr, IS_SPARSE: tl.constexpr):
    """The rows of a program, their questions and which exist; components j, which are inside, and their places."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    exists = row < rows
    j = tl.arange(0, LANES)
    question = (row % B).to(tl.int32)
    if IS_SPARSE:
        question = tl.load(questions_of + row, mask=exists, other=0)
    return row, question, exists, j, exists[:, None] & (j < L)[None, :], row[:, None] * (2 * L) + j[None, :]


@triton.jit
def _matrix(mixing, part, L, j):
    """One of the three matrices that mix components [L, L]: of first and second coordinates, and of lengths."""
    place = (part * L + j)[:, None] * L + j[None, :]
    return tl.load(mixing + place, mask=(j < L)[:, None] & (j < L)[None, :], other=0.0)


@triton.jit
def _sizes(x, y):
    """What components rescale each other by: their coordinates shrunk to the length ‖x‖^¼, that length, and ‖x‖."""
    length = tl.sqrt(x * x + y * y + TINY)
    level = tl.sqrt(tl.sqrt(length))
    shrink = level / length
    return shrink * x, shrink * y, level, length


@triton.jit
def _rescaling_back(x, y, p, q, factor, mixing, by_mixing, by_bias, mask, L, j):
    """From the slopes (p, q) by rescaled states to those by states (x, y); adds to the other gradients."""
    first, second, level, length = _sizes(x, y)
    below = 1 - tl.abs(factor - 1)
    slope = tl.where(mask, (p * x + q * y) * below * below, 0.0)  # by z
    du = _product(slope, tl.trans(_matrix(mixing, 0, L, j)))
    dv = _product(slope, tl.trans(_matrix(mixing, 1, L, j)))
    by_level = _product(slope, tl.trans(_matrix(mixing, 2, L, j)))
    matrix = by_mixing + j[:, None] * L + j[None, :]
    square = (j < L)[:, None] & (j < L)[None, :]
    tl.atomic_add(matrix, _product(tl.trans(first), slope), mask=square, sem="relaxed")
    tl.atomic_add(matrix + L * L, _product(tl.trans(second), slope), mask=square, sem="relaxed")
    tl.atomic_add(matrix + 2 * L * L, _product(tl.trans(level), slope), mask=square, sem="relaxed")
    tl.atomic_add(by_bias, slope, mask=mask, sem="relaxed")
    shrink = level / length
    radial = (by_level * level / 4 - (du * x + dv * y) * shrink * 3 / 4) / (length * length)
    return p * factor + du * shrink + radial * x, q * factor + dv * shrink + radial * y


@triton.jit
def _update(
    sums, table, slopes, result, by_sum, by_state, by_vector, by_shared, by_mixing, by_bias,
    shared, vectors, mixing, biases, degrees, sources, questions_of, rows, B, L,
    ROWS: tl.constexpr, LANES: tl.constexpr, COPIES: tl.constexpr, IS_SPARSE: tl.constexpr, GATED: tl.constexpr,
    BACKWARD: tl.constexpr,
):  # fmt: skip
    """New states α x + β [v = u] e_q + (1 + d)^-c Σ, rescaled if gated; backwards, the slopes of all they come from."""
    row, question, is_row, j, mask, place = _rows(questions_of, rows, B, L, ROWS, LANES, IS_SPARSE)
    inside = j < L
    is_source = is_row & (tl.load(sources + question, mask=is_row, other=-1) == row)
    at_source = is_source[:, None] & inside[None, :]
    vector = question[:, None] * (2 * L) + j[None, :]
    e, f = _both(vectors, vector, L, at_source)
    keep = tl.load(shared + j, mask=inside, other=0.0)[None, :]
    restart = tl.load(shared + L + j, mask=inside, other=0.0)[None, :]
    exponent = tl.load(shared + 2 * L + j, mask=inside, other=0.0)[None, :]
    log = tl.log2(1 + tl.load(degrees + row, mask=is_row, other=0).to(tl.float32))[:, None]
    power = tl.exp2(-exponent * log)
    u, w = _both(table, place, L, mask)
    g, h = _both(sums, place, L, mask)
    x, y = keep * u + power * g + restart * e, keep * w + power * h + restart * f
    factor = tl.full([ROWS, LANES], 1.0, tl.float32)
    bias = question[:, None] * L + j[None, :]
    if GATED:
        first, second, level, _ = _sizes(x, y)
        z = _product(first, _matrix(mixing, 0, L, j)) + _product(second, _matrix(mixing, 1, L, j))
        z += _product(level, _matrix(mixing, 2, L, j)) + tl.load(biases + bias, mask=mask, other=0.0)
        factor = 1 + z / (1 + tl.abs(z))
    if not BACKWARD:
        tl.store(result + place, factor * x, mask=mask)
        tl.store(result + place + L, factor * y, mask=mask)
    else:
        p, q = _both(slopes, place, L, mask)
        copy = tl.program_id(0) % COPIES
        if GATED:
            matrices = by_mixing + copy * 3 * L * L
            p, q = _rescaling_back(x, y, p, q, factor, mixing, matrices, by_bias + bias, mask, L, j)
        tl.store(by_sum + place, power * p, mask=mask)
        tl.store(by_sum + place + L, power * q, mask=mask)
        tl.store(by_state + place, keep * p, mask=mask)
        tl.store(by_state + place + L, keep * q, mask=mask)
        tl.atomic_add(by_vector + vector, restart * p, mask=at_source, sem="relaxed")
        tl.atomic_add(by_vector + vector + L, restart * q, mask=at_source, sem="relaxed")
        small = by_shared + copy * 3 * L + j
        tl.atomic_add(small, tl.sum(p * u + q * w, 0), mask=inside, sem="relaxed")
        tl.atomic_add(small + L, tl.sum(p * e + q * f, 0), mask=inside, sem="relaxed")
        tl.atomic_add(small + 2 * L, tl.sum(power * (p * g + q * h) * log, 0), mask=inside, sem="relaxed")


@triton.jit
def _read(
    table, reached, slopes, scores, by_state, by_reading, by_bias, readings, biases, questions_of, rows, B, L,
    ROWS: tl.constexpr, LANES: tl.constexpr, IS_SPARSE: tl.constexpr, BACKWARD: tl.constexpr,
):  # fmt: skip
    """Scores of rows: Σ over components of (⟨w, x⟩ + ω‖x‖) / √(1 + ‖x‖), plus a bias; 0 if no path reaches a row."""
    row, question, exists, j, in_table, place = _rows(questions_of, rows, B, L, ROWS, LANES, IS_SPARSE)
    is_row = exists & (tl.load(reached + row, mask=exists, other=0) > 0)
    mask = in_table & is_row[:, None]
    reading = question[:, None] * (3 * L) + j[None, :]
    v, w = _both(readings, reading, L, mask)
    o = tl.load(readings + reading + 2 * L, mask=mask, other=0.0)
    x, y = _both(table, place, L, mask)
    length = tl.sqrt(x * x + y * y + TINY)
    shrink = 1 / tl.sqrt(1 + length)
    linear = x * v + y * w + length * o
    if not BACKWARD:
        score = tl.sum(linear * shrink, 1) + tl.load(biases + question, mask=is_row, other=0.0)
        tl.store(scores + row, tl.where(is_row, score, 0.0), mask=exists)
    else:
        slope = tl.load(slopes + row, mask=is_row, other=0.0)
        part = slope[:, None] * shrink
        radial = (part * o - part * shrink * shrink * linear / 2) / length
        tl.store(by_state + place, part * v + radial * x, mask=in_table)
        tl.store(by_state + place + L, part * w + radial * y, mask=in_table)
        tl.atomic_add(by_reading + reading, part * x, mask=mask, sem="relaxed")
        tl.atomic_add(by_reading + reading + L, part * y, mask=mask, sem="relaxed")
        tl.atomic_add(by_reading + reading + 2 * L, part * length, mask=mask, sem="relaxed")
        tl.atomic_add(by_bias + question, slope, mask=is_row, sem="relaxed")


class Step(torch.autograd.Function):
    """States [rows, 2, L] after one more step, and which rows it reaches.

    Only the states count that are marked in alive [rows]. gates [2R, B, L]; blocks [2R, 4, L]; shared [4, L]: α, β and
    the exponents of degrees and fans; vectors [B, 2, L]; mixing [3L, L] and biases [B, L], both empty without gates of
    entities.
    """

    @staticmethod
    def forward(
        ctx: Any, table: Tensor, gates: Tensor, blocks: Tensor, shared: Tensor, vectors: Tensor, mixing: Tensor,
        biases: Tensor, alive: Tensor, walk: Walk,
    ) -> Any:  # fmt: skip
        sums, reached = torch.zeros_like(table, dtype=torch.float32), torch.zeros_like(alive)
        grid, arguments, options = _messages_of(walk, table, blocks, walk.end_fans)
        _messages[grid](table, alive, sums, reached, gates, blocks, shared[3], *arguments, **options)
        result = torch.empty_like(table)
        about = shared, vectors, mixing, biases
        _each_row(_update, walk, table, (sums, table, *[result] * 8, *about), _gating(mixing))
        ctx.walk = walk
        ctx.save_for_backward(table, gates, blocks, *about, alive, sums, reached)
        ctx.mark_non_differentiable(reached)
        return result, reached

    @staticmethod
    def backward(ctx: Any, slopes: Tensor, _: Any) -> Any:
        table, gates, blocks, shared, vectors, mixing, biases, alive, sums, reached = ctx.saved_tensors
        walk, L = ctx.walk, table.shape[2]
        zeros = lambda *shape: torch.zeros(shape, device=table.device)  # noqa: E731
        by_sum, by_state = torch.empty_like(table), torch.empty_like(sums)
        small = zeros(*vectors.shape), zeros(COPIES, 3, L), zeros(COPIES, *mixing.shape), zeros(*biases.shape)
        inputs = sums, table, slopes.contiguous(), table, by_sum, by_state, *small, shared, vectors, mixing, biases
        _each_row(_update, walk, table, inputs, _gating(mixing) | {"BACKWARD": True})
        by_gate, by_block, by_fan = zeros(*gates.shape), zeros(COPIES, *blocks.shape), zeros(COPIES, 1, L)
        grid, arguments, options = _messages_of(walk, table, blocks, walk.fans)
        _messages_backward[grid](
            table, alive, by_sum, reached, gates, blocks, shared[3], by_state, by_gate, by_block, by_fan, *arguments,
            COPIES=COPIES, **options,
        )  # fmt: skip
        by_vector, by_shared, by_mixing, by_bias = small
        by_shared = torch.cat([by_shared, by_fan], 1).sum(0)
        by_shared[2:] *= -LN2
        return (
            by_state.to(table.dtype), by_gate.to(gates.dtype), by_block.sum(0), by_shared, by_vector, by_mixing.sum(0),
            by_bias, None, None,
        )  # fmt: skip


class Read(torch.autograd.Function):
    """The scores of rows [rows]; readings [B, 3, L], biases [B]."""

    @staticmethod
    def forward(ctx: Any, table: Tensor, reached: Tensor, readings: Tensor, biases: Tensor, walk: Walk) -> Tensor:
        scores = torch.empty(len(table), device=table.device)
        ctx.walk = walk
        ctx.save_for_backward(table, reached, readings, biases)
        outputs = scores, scores, scores, scores, scores
        _each_row(_read, walk, table, (table, reached, *outputs, readings, biases), {"BACKWARD": False})
        return scores

    @staticmethod
    def backward(ctx: Any, slopes: Tensor) -> Any:
        table, reached, readings, biases = ctx.saved_tensors
        found = torch.empty_like(table), torch.zeros_like(readings), torch.zeros_like(biases)
        inputs = table, reached, slopes.contiguous(), slopes, *found, readings, biases
        _each_row(_read, ctx.walk, table, inputs, {"BACKWARD": True})
        return found[0], None, *found[1:], None


def _messages_of(walk: Walk, table: Tensor, blocks: Tensor, fans: Tensor) -> Any:
    """The grid of a kernel of messages, its last arguments and its options."""
    R, B, L = len(blocks) // 2, len(walk.heads), table.shape[2]
    options = SPARSE if walk.is_sparse else DENSE
    grid = (walk.programs.shape[1], 1) if walk.is_sparse else (len(walk.entities), triton.cdiv(B, options["Q"]))
    asked = walk.heads, walk.answers, walk.removed, walk.row_of, walk.questions, walk.programs
    sizes = walk.programs.shape[1], walk.removed.shape[1], B, L, R
    more = {"LANES": triton.next_power_of_2(L), "IS_SPARSE": walk.is_sparse}
    return grid, (*walk[:6], fans, *asked, *sizes), options | more


def _gating(mixing: Tensor) -> dict[str, Any]:
    return {"GATED": mixing.numel() > 0, "COPIES": COPIES, "BACKWARD": False}


def _each_row(kernel: Any, walk: Walk, table: Tensor, arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
    """Run a kernel on all rows."""
    rows, _, L = table.shape
    lanes = max(16, triton.next_power_of_2(L))  # the smallest matrices that are multiplied
    of_rows = (walk.degrees, walk.sources) if kernel is _update else ()
    kernel[(triton.cdiv(rows, ROWS),)](
        *arguments, *of_rows, walk.questions, rows, len(walk.heads), L, ROWS=ROWS, LANES=lanes,
        IS_SPARSE=walk.is_sparse, **options,
    )  # fmt: skip
