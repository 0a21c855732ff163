"""Grouped questions: each distinct question once, with all of its answers, is the loss of all facts."""

from __future__ import annotations

import pytest
import torch

from dihedral import DihedralError, Recipe
from dihedral.graph import GraphIndex
from dihedral.objectives.base import grouped
from dihedral.objectives.regularisers import make_regulariser
from dihedral.objectives.softmax import SoftmaxLoss
from tests.objectives.written_out import BLOCK_MODELS, ENTITIES, EVERY_KIND, RELATIONS, Example, assert_agree, seeded

# questions with one answer and with several, and about an entity and itself
FACTS = torch.tensor([[0, 2, 1], [3, 0, 4], [0, 2, 3], [5, 0, 5], [0, 0, 1], [3, 0, 1], [1, 2, 1]])
INDEX = GraphIndex.build([FACTS.int().numpy()], ENTITIES, RELATIONS)


def test_every_question_has_all_of_its_answers():
    asked, relations = grouped(INDEX, INDEX.keys)
    found: dict[tuple[int, int, bool], list[int]] = {}
    for owner, answer in zip(asked.owners.tolist(), asked.answers.tolist(), strict=True):
        question = int(asked.anchors[owner]), int(relations[owner]), owner < asked.half
        found.setdefault(question, []).append(answer)
    expected: dict[tuple[int, int, bool], list[int]] = {}
    for head, relation, tail in FACTS.tolist():
        expected.setdefault((head, relation, True), []).append(tail)
        expected.setdefault((tail, relation, False), []).append(head)
    assert found == {question: sorted(answers) for question, answers in expected.items()}
    assert len(found) == len(INDEX.keys) == len(asked.anchors)
    assert asked.counts.tolist() == torch.bincount(asked.owners).tolist()
    assert asked.size == len(FACTS)


@pytest.mark.parametrize("name", EVERY_KIND)
@pytest.mark.parametrize("regulariser", ["none", "l2", "n3"])
@pytest.mark.parametrize("candidates", [0, 1])
def test_the_loss_and_its_gradients_are_those_of_the_facts(name, regulariser, candidates):
    assert_same_loss(Example(name), regulariser, candidates=candidates)


@pytest.mark.parametrize("name", BLOCK_MODELS)
def test_dura_is_that_of_the_facts(name):
    assert_same_loss(Example(name), "dura")


def test_reciprocal_relations_are_asked_for_heads():
    assert_same_loss(Example("complex", reciprocal=True), "n3")


def assert_same_loss(example: Example, regulariser: str, **options: int) -> None:
    operators = example.relations.operators(None, seeded(3)).detach()
    loss = SoftmaxLoss(example.relations, regulariser=make_regulariser(regulariser, 0.3), **options)
    expected = loss(example.entities, operators, FACTS[:, 1], FACTS, seeded())
    asked, relations = grouped(INDEX, INDEX.keys[torch.randperm(len(INDEX.keys), generator=seeded(1))])
    found = loss(example.entities, operators, relations, asked, seeded())
    table = expected.entities.dense(ENTITIES) if options.get("candidates") else expected.entities
    assert_agree(found, (expected.loss.double(), expected.operators.double(), table.double()))


def test_a_part_of_the_questions_has_its_share_of_the_facts():
    parts = [grouped(INDEX, part)[0] for part in INDEX.keys.split(3)]
    assert sum(part.size for part in parts) == pytest.approx(len(FACTS))
    assert sum(len(part.answers) for part in parts) == 2 * len(FACTS)


@pytest.mark.parametrize(("other", "value"), [("paths", 0.5), ("relation_weight", 0.5), ("objective", "logistic")])
def test_settings_about_single_facts_are_refused(other, value):
    settings = {"objective": "softmax", "model": "dihedral-ste", other: value}
    with pytest.raises(DihedralError, match="group_questions is True with"):
        Recipe(**settings, group_questions=True)
