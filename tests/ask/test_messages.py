"""Evaluation of queries: compared with all choices of the variables, one by one."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch

import dihedral as dh
from dihedral import DihedralError
from dihedral.ask import Fact, OneOf, Query, Variable
from dihedral.ask import messages as message_module
from dihedral.ask.messages import (
    MAX_UNKNOWN,
    UNKNOWN,
    WIDTH,
    Semantics,
    Transitions,
    complement,
    evaluate,
    noisy_or,
    trace,
)
from dihedral.ask.query_plan import compile_query
from dihedral.ask.tree import And, Not, Or, check_size, variables

X, Y, Z = map(Variable, "xyz")
EXACT = {"width": 10_000, "floor": 0.0, "share": 0.0}

SHAPES = {
    "1p": lambda a, r: Fact(a[0], r[0], X),
    "2p": lambda a, r: Fact(a[0], r[0], Y) & Fact(Y, r[1], X),
    "3p": lambda a, r: Fact(a[0], r[0], Z) & Fact(Z, r[1], Y) & Fact(Y, r[2], X),
    "2i": lambda a, r: Fact(a[0], r[0], X) & Fact(X, r[1], a[1]),
    "3i": lambda a, r: Fact(a[0], r[0], X) & Fact(X, r[1], a[1]) & Fact(a[2], r[2], X),
    "ip": lambda a, r: Fact(a[0], r[0], Y) & Fact(a[1], r[1], Y) & Fact(Y, r[2], X),
    "pi": lambda a, r: Fact(a[0], r[0], Y) & Fact(Y, r[1], X) & Fact(a[1], r[2], X),
    "2u": lambda a, r: Fact(a[0], r[0], X) | Fact(a[1], r[1], X),
    "up": lambda a, r: (Fact(a[0], r[0], Y) | Fact(a[1], r[1], Y)) & Fact(Y, r[2], X),
    "2in": lambda a, r: Fact(a[0], r[0], X) & ~Fact(a[1], r[1], X),
    "inp": lambda a, r: Fact(a[0], r[0], Y) & ~Fact(a[1], r[1], Y) & Fact(Y, r[2], X),
    "pin": lambda a, r: Fact(a[0], r[0], Y) & Fact(Y, r[1], X) & ~Fact(a[1], r[2], X),
    "pni": lambda a, r: ~(Fact(a[0], r[0], Y) & Fact(Y, r[1], X)) & Fact(a[1], r[2], X),
    "one of": lambda a, r: OneOf(Y, (a[0], a[1])) & Fact(X, r[0], Y),
    "free": lambda a, r: Fact(a[0], r[0], X) & Fact(X, r[1], Y),
    "union of two variables": lambda a, r: (Fact(Y, r[0], X) | Fact(X, r[1], Y)) & Fact(a[0], r[2], Y),
}


@pytest.fixture(scope="module", params=["umls", "family-neural-lp"])
def benchmark(request, benchmark_graph):
    """A model of umls, or a small one of the facts about the first entities of a larger graph."""
    if request.param == "umls":
        return request.getfixturevalue("umls_predictor")
    graph = benchmark_graph(request.param)
    few = [graph.split(split)[(graph.split(split)[:, [0, 2]] < 40).all(1)] for split in ("train", "valid", "test")]
    train, valid, test = (list(graph.names_of(part)) for part in few)
    graph = dh.Graph.from_names(train, valid=valid, test=test)
    return dh.train(graph, "demo/umls", dimension=16, epochs=5, progress=False, device="cpu")


def holds(pattern, chosen, matrices, semantics):
    """The probability of a pattern for one choice of all variables, by the definition."""
    if isinstance(pattern, Fact):
        head, tail = (chosen.get(term, term) for term in (pattern.subject, pattern.object))
        return matrices[pattern.relation][head, tail]
    if isinstance(pattern, OneOf):
        return float(chosen[pattern.variable] in pattern.entities)
    if isinstance(pattern, Not):
        own = sorted(variables(pattern) - chosen.keys(), key=str)
        return 1 - some(pattern.part, own, chosen, matrices, semantics)
    parts = [holds(part, chosen, matrices, semantics) for part in pattern.parts]
    if isinstance(pattern, And):
        return math.prod(parts) if semantics.conjunction == "product" else min(parts)
    return 1 - math.prod(1 - part for part in parts) if semantics.ways == "noisy-or" else max(parts)


def some(pattern, free, chosen, matrices, semantics):
    """The probability that a pattern holds for some choice of the free variables: all choices are tried."""
    size = len(next(iter(matrices.values())))
    found = [
        holds(pattern, chosen | dict(zip(free, choice, strict=True)), matrices, semantics)
        for choice in itertools.product(range(size), repeat=len(free))
    ]
    if semantics.ways == "max":
        return max(found)
    return 1 - math.prod(1 - value for value in found)


def matrices_of(predictor, rows):
    """The probabilities of all facts of each relation, from heads to tails."""
    ids = torch.arange(predictor.graph.num_entities)
    return {
        name: rows.log_probabilities(ids, torch.full_like(ids, number)).double().exp().numpy()
        for number, name in enumerate(predictor.graph.relations)
    }


class Symmetric:
    """Rows of a fixed probability per fact, whichever way a step walks it."""

    def __init__(self, predictor, facts):
        self.rows = Transitions(predictor.scorer, facts)
        self.facts, self.num_entities, self.device = facts, self.rows.num_entities, self.rows.device
        self.matrices = matrices_of(predictor, self.rows)
        self.tables = [torch.from_numpy(table).float() for table in self.matrices.values()]

    def log_probabilities(self, entities, steps):
        count = len(self.tables)
        pairs = zip(entities.tolist(), steps.tolist(), strict=True)
        return torch.stack([self.tables[s][e] if s < count else self.tables[s - count][:, e] for e, s in pairs]).log()


@pytest.fixture(scope="module")
def symmetric(benchmark):
    return Symmetric(benchmark, benchmark.graph.index)


def by_id(pattern, graph):
    """The pattern with ids in place of the names of entities."""
    if isinstance(pattern, Fact):
        subject, end = (
            t if isinstance(t, Variable) else graph.entities.id(t) for t in (pattern.subject, pattern.object)
        )
        copy = object.__new__(Fact)
        for name, value in (("subject", subject), ("relation", pattern.relation), ("object", end)):
            object.__setattr__(copy, name, value)
        return copy
    if isinstance(pattern, OneOf):
        copy = object.__new__(OneOf)
        object.__setattr__(copy, "variable", pattern.variable)
        object.__setattr__(copy, "entities", tuple(map(graph.entities.id, pattern.entities)))
        return copy
    if isinstance(pattern, Not):
        return Not(by_id(pattern.part, graph))
    return type(pattern)(tuple(by_id(part, graph) for part in pattern.parts))


def some_query(graph, shape, seed):
    rng = np.random.default_rng(seed)
    entities = [graph.entities[int(i)] for i in rng.choice(graph.num_entities, 3, replace=False)]
    relations = [graph.relations[int(i)] for i in rng.choice(graph.num_relations, 3, replace=False)]
    return Query(X, SHAPES[shape](entities, relations))


def positive_variables(pattern):
    """The variables outside of negations."""
    if isinstance(pattern, Not):
        return set()
    inside = getattr(pattern, "parts", ())
    return variables(pattern) if not inside else set().union(*map(positive_variables, inside))


@pytest.mark.parametrize("conjunction", ["product", "minimum"])
@pytest.mark.parametrize("shape", SHAPES)
def test_the_best_way_is_the_best_of_all_choices(benchmark, symmetric, shape, conjunction):
    """With `ways="max"` the probability is the highest of all choices of the variables, answer for answer."""
    graph, semantics = benchmark.graph, Semantics(conjunction, "max", **EXACT)
    for seed in range(1):
        query = some_query(graph, shape, seed)
        plan = compile_query(query, graph.entities, graph.relations)
        ((_, messages),) = evaluate([plan], symmetric, semantics)
        pattern = by_id(query.where, graph)
        free = sorted(positive_variables(pattern) - {X}, key=str)
        answers = range(0, graph.num_entities, 1 if len(free) < 2 else 67)
        expected = [some(pattern, free, {X: answer}, symmetric.matrices, semantics) for answer in answers]
        np.testing.assert_allclose(messages[plan].likely.exp()[list(answers)], expected, rtol=2e-4, atol=1e-6)
        assert messages[plan].exact


@pytest.mark.parametrize("shape", [shape for shape in SHAPES if shape not in ("3p", "up", "union of two variables")])
def test_noisy_or_counts_all_choices_of_a_variable(benchmark, symmetric, shape):
    """Of one variable in between, the ways are all its choices, and those of a union are counted first."""
    graph, semantics = benchmark.graph, Semantics(**EXACT)
    for seed in range(1):
        query = some_query(graph, shape, seed)
        plan = compile_query(query, graph.entities, graph.relations)
        ((_, messages),) = evaluate([plan], symmetric, semantics)
        pattern = by_id(query.where, graph)
        split = shape in ("pi", "pin", "free")  # the other facts about x are not part of the choice of y
        parts = pattern.parts if split and isinstance(pattern, And) else (pattern,)
        chosen = [part for part in parts if Y in positive_variables(part)] or [pattern]
        others = [part for part in parts if part not in chosen]
        free = sorted(positive_variables(And(tuple(chosen))) - {X}, key=str)
        for answer in range(graph.num_entities):
            one = some(And(tuple(chosen)), free, {X: answer}, symmetric.matrices, semantics)
            expected = one * math.prod(holds(part, {X: answer}, symmetric.matrices, semantics) for part in others)
            assert float(messages[plan].likely[answer].exp()) == pytest.approx(expected, rel=1e-3, abs=1e-6)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_witness_has_the_probability_of_the_best_choice(benchmark, symmetric, shape):
    graph, semantics = benchmark.graph, Semantics(**EXACT)
    query = some_query(graph, shape, 0)
    plan = compile_query(query, graph.entities, graph.relations)
    ((_, messages),) = evaluate([plan], symmetric, semantics)
    best = Semantics("product", "max", **EXACT)
    pattern = by_id(query.where, graph)
    for answer in messages[plan].likely.topk(3).indices.tolist():
        witness = trace(plan, messages, answer)
        chosen = {X: answer} | {Variable(name): entity for name, entity in witness.variables.items()}
        missing = sorted(positive_variables(pattern) - chosen.keys(), key=str)
        found = some(pattern, missing, chosen, symmetric.matrices, best)
        if not any(isinstance(part, Not) for part in getattr(pattern, "parts", ())):
            assert found == pytest.approx(math.exp(float(messages[plan].best[answer])), rel=1e-3, abs=1e-7)
        assert 1 <= len(witness.facts) <= check_size(query.where)


def test_queries_together_have_the_messages_of_single_ones(benchmark, monkeypatch):
    graph = benchmark.graph
    rows = Transitions(benchmark.scorer, graph.index)
    plans = [compile_query(some_query(graph, shape, 3), graph.entities, graph.relations) for shape in SHAPES]
    together = [messages[plan] for plan, messages in evaluate(plans, rows, Semantics())]
    monkeypatch.setattr(message_module, "TILE", graph.num_entities * 5)
    for plan, message in zip(plans, together, strict=True):
        ((_, apart),) = evaluate([plan], rows, Semantics())
        torch.testing.assert_close(apart[plan].likely, message.likely, rtol=1e-4, atol=1e-5)


def test_what_queries_share_is_scored_once(benchmark):
    graph, asked = benchmark.graph, []

    class Counted(Transitions):
        def log_probabilities(self, entities, steps):
            asked.extend(zip(entities.tolist(), steps.tolist(), strict=True))
            return super().log_probabilities(entities, steps)

    names, kinds = graph.entities, graph.relations
    shared = Fact(names[0], kinds[0], Y) & Fact(Y, kinds[1], X)
    queries = [
        Query(X, shared),
        Query(X, shared & Fact(names[1], kinds[0], X)),
        Query(X, shared | Fact(X, kinds[2], Y)),
    ]
    plans = [compile_query(query, names, kinds) for query in queries]
    list(evaluate(plans, Counted(benchmark.scorer, graph.index), Semantics()))
    assert len(asked) == len(set(asked))


def test_a_narrow_beam_says_so_and_still_follows_known_facts():
    facts = [("hub", "has", f"m{i}") for i in range(40)] + [(f"m{i}", "in", f"e{i % 7}") for i in range(40)]
    graph = dh.Graph.from_names(facts)
    rows = Transitions(dh.Predictor(dh.TrainedModel(_untrained(graph), graph)).scorer, graph.index)
    plan = compile_query(Query(X, Fact("hub", "has", Y) & Fact(Y, "in", X)), graph.entities, graph.relations)
    for width, ways in itertools.product((1, 3, 100), ("noisy-or", "max")):
        ((_, messages),) = evaluate([plan], rows, Semantics(width=width, ways=ways))
        certain = (messages[plan].best == 0).nonzero()[:, 0].tolist()
        assert {graph.entities[i] for i in certain} == {f"e{i}" for i in range(7)}
        assert messages[plan].exact == (width == 100)


@pytest.mark.parametrize("kind", ["predictor", "path_predictor"])
def test_entities_that_are_not_known_answers_share_what_is_expected(request, kind):
    """By hand: the softmax of the scores of what is left; no step leads to its own entity unless a fact does."""
    made = request.getfixturevalue(kind)
    graph = made.graph
    loop = graph.replace(train=np.concatenate([graph.train, [[3, 1, 3]]]).astype(graph.train.dtype))
    rows, relations = Transitions(made.scorer, loop.train_index), graph.num_relations
    facts = {(h, r, t) for h, r, t in loop.train.tolist()}
    facts |= {(t, r + relations, h) for h, r, t in facts}
    for entity, step in itertools.product((0, 3, 5), (0, 1, relations, relations + 1)):
        asked = torch.tensor([entity]), torch.tensor([step])
        scores, likely = made.scorer.rows()(*asked)[0].double(), rows.log_probabilities(*asked)[0].double().exp()
        known = [t for h, s, t in facts if (h, s) == (entity, step)]
        others = [t for t in range(graph.num_entities) if t not in known and (t != entity or step % relations == 1)]
        expected = torch.zeros_like(likely)
        share = torch.softmax(scores[others], 0) * UNKNOWN * max(1, len(known))
        expected[others] = share.clamp(max=MAX_UNKNOWN)
        expected[known] = 1.0
        torch.testing.assert_close(likely, expected, rtol=1e-4, atol=1e-9)


def test_facts_that_the_model_has_not_seen_change_nothing_about_other_answers(path_predictor):
    graph = path_predictor.graph
    asked = torch.from_numpy(graph.valid[:, 0]).long(), torch.from_numpy(graph.valid[:, 1]).long()
    seen = Transitions(path_predictor.scorer, graph.train_index).log_probabilities(*asked)
    both = Transitions(path_predictor.scorer, graph.evidence_index, graph.train_index).log_probabilities(*asked)
    new = torch.zeros_like(both, dtype=torch.bool)
    new[graph.evidence_index.answers(*asked)] = True
    assert (both[new] == 0).all() and (seen[new] < 0).any() and torch.equal(both[~new], seen[~new])


def test_where_all_entities_are_known_answers_nothing_else_is_one():
    graph = dh.Graph.from_names([("a", "knows", "b"), ("b", "knows", "a")])
    rows = Transitions(dh.Predictor(dh.TrainedModel(_untrained(graph), graph)).scorer, graph.index)
    assert rows.log_probabilities(torch.tensor([0, 1]), torch.tensor([0, 0])).tolist() == [
        [-math.inf, 0.0],
        [0.0, -math.inf],
    ]


def _untrained(graph):
    from dihedral.models import build_model

    return build_model("dihedral-ste", graph.num_entities, graph.num_relations, dimension=8)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"conjunction": "sum"}, "conjunction is 'sum'; choose product or minimum"),
        ({"ways": "all"}, "ways is 'all'; choose noisy-or or max"),
        ({"width": 0}, "width is 0; it must be a whole number from 1 to"),
        ({"floor": 2.0}, "floor is 2.0; it must be from 0 to less than 1"),
    ],
)
def test_invalid_semantics_are_named(options, message):
    with pytest.raises(DihedralError, match=message):
        Semantics(**options)


def test_complements_are_accurate_near_zero_and_one():
    logs = torch.tensor([0.0, -1e-7, -0.5, -20.0, -math.inf])
    expected = np.array([-math.inf, math.log(1e-7), math.log(-math.expm1(-0.5)), -math.exp(-20), 0.0])
    np.testing.assert_allclose(complement(logs).numpy(), expected, rtol=1e-4)


def test_unions_of_an_or_are_flat():
    assert isinstance(Fact("a", "r", X) | Fact("b", "r", X) | Fact("c", "r", X), Or)
    assert len((Fact("a", "r", X) | Fact("b", "r", X) | Fact("c", "r", X)).parts) == 3


def test_two_ways_combine_as_their_complements_say():
    """The short form of noisy-or, against the definition in double precision, from impossible to certain."""
    logs = torch.tensor([-math.inf, -80.0, -20.0, -5.0, -0.7, -0.1, -1e-5, 0.0])
    first, second = torch.cartesian_prod(logs, logs).unbind(1)
    expected = complement(complement(first.double()) + complement(second.double()))
    torch.testing.assert_close(noisy_or(first, second).double(), expected, rtol=1e-5, atol=1e-12)


def test_predictions_are_not_followed_from_much_less_probable_entities(benchmark):
    """With `share` they count as entities outside of the width do: only their known facts are followed."""
    graph = benchmark.graph
    rows = Transitions(benchmark.scorer, graph.index)
    for seed in range(3):
        plan = compile_query(some_query(graph, "2p", seed), graph.entities, graph.relations)
        ((_, messages),) = evaluate([plan], rows, Semantics(share=0.5))
        first = messages[plan.source].likely
        count = int((first >= first.max() + math.log(0.5)).sum())
        ((_, narrow),) = evaluate([plan], rows, Semantics(share=0.0, width=min(count, WIDTH)))
        assert messages[plan].followed == narrow[plan].followed == min(count, WIDTH)
        torch.testing.assert_close(messages[plan].likely, narrow[plan].likely)
        torch.testing.assert_close(messages[plan].best, narrow[plan].best)
