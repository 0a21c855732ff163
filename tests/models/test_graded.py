"""Graded relations: estimators over elements and sizes, stored codes, and their way through files and scores."""

from __future__ import annotations

import os
from unittest.mock import patch

import numpy as np
import pytest
import torch

import dihedral as dh
from dihedral import DihedralError
from dihedral.elements.group import GradedMonoid, parse_levels
from dihedral.learn import Recipe, Trainer
from dihedral.models import build_model
from dihedral.models.dihedral import ArgmaxRelations, CodeRelations, CyclicGumbelRelations, GumbelRelations

LEVELS = "1, 1/2, 1/4, 0"
GRADES = parse_levels(LEVELS)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def dense(codes: torch.Tensor, K: int) -> np.ndarray:
    """Block entries [R, 4, L], written out from the definition 2⁻ᵉ · D_g."""
    m = GradedMonoid(K)
    blocks = np.zeros((*codes.shape, 4))
    for place, code in np.ndenumerate(codes.numpy()):
        if code >= 0:
            blocks[place] = 2.0 ** -(code // (2 * K)) * m.group.matrices[code % (2 * K)].ravel()
    return blocks.transpose(0, 2, 1)


@pytest.mark.parametrize("K", [1, 4, 6, 8])
@pytest.mark.parametrize("model", [GumbelRelations, ArgmaxRelations, CyclicGumbelRelations])
def test_exact_operators_are_the_matrices_of_the_codes(model, K):
    relations = model(5, 200, K, grades=GRADES, generator=seeded())
    codes = relations.codes
    assert codes.dtype == torch.int8 and set(codes.flatten().tolist()) <= set(relations.choices.tolist())
    assert (codes < 0).any() and (codes >= 2 * K).any()
    np.testing.assert_allclose(relations.exact().numpy(), dense(codes, K), atol=1e-6)


def test_the_gumbel_operator_is_the_weighted_sum_of_all_choices():
    relations = GumbelRelations(2, 6, 4, grades=GRADES, generator=seeded())
    found = relations.operators(generator=seeded(1), temperature=0.7)
    noise = -torch.empty_like(relations.logits).exponential_(generator=seeded(1)).log()
    weights = torch.softmax((relations.logits + noise) / 0.7, dim=1).detach()
    expected = np.zeros((2, 4, 3))
    for number, choice in enumerate(relations.choices.tolist()):
        block = dense(torch.tensor([[choice]]), 4)[0, :, 0]
        expected += weights[:, number, None].numpy() * block[None, :, None]
    np.testing.assert_allclose(found.detach().numpy(), expected, atol=1e-6)


def test_argmax_applies_the_codes_in_training():
    relations = ArgmaxRelations(3, 8, 4, grades=GRADES, generator=seeded())
    torch.testing.assert_close(relations.operators(temperature=0.5), relations.exact())
    relations.operators().square().sum().backward()
    assert relations.logits.grad.abs().sum() > 0


def test_level_1_alone_is_the_strict_model():
    strict, same = (build_model("dihedral-gumbel", 5, 3, dimension=8, seed=2, **more) for more in ({}, {"levels": "1"}))
    assert torch.equal(strict.codes, same.codes) and strict.codes.dtype == torch.uint8
    assert strict.relations.settings() == {"K": 4}


@pytest.mark.parametrize("code", [-1, 24])
def test_stored_codes_outside_their_levels_are_refused(code):
    CodeRelations(torch.tensor([[23]], dtype=torch.int8), 4, grades=GRADES)
    with pytest.raises(DihedralError, match=f"element {code}; levels 1, 1/2, 1/4 do not have it"):
        CodeRelations(torch.tensor([[code]], dtype=torch.int8), 4, grades=GRADES[:-1])


@pytest.mark.parametrize("model", ["dihedral-ste", "cyclic-ste", "complex"])
def test_levels_are_refused_where_they_do_not_apply(model):
    with pytest.raises(DihedralError, match="levels is '1, 0' with model"):
        Recipe(model=model, levels="1, 0")


@pytest.mark.parametrize("model", ["dihedral-ste", "complex"])
def test_a_model_is_not_built_with_levels_that_it_would_ignore(model):
    with pytest.raises(DihedralError, match=f"model '{model}' has no levels; leave it out"):
        build_model(model, 5, 2, dimension=4, levels="1, 0")


RECIPE = Recipe(levels=LEVELS, dimension=16, epochs=2, batch_size=256, relation_lr=1.0, validate_every=0)


@pytest.fixture(scope="module")
def trained(family):
    return dh.train(family, RECIPE.replace(objective="softmax", relation_scale=True), progress=False)


def test_a_stored_model_gives_the_same_scores(trained, tmp_path):
    trained.save(tmp_path / "m")
    loaded = dh.load(tmp_path / "m")
    assert loaded.model.relations.settings() == {"K": 4, "levels": "1, 1/2, 1/4, 0"}
    assert loaded.model.codes.dtype == torch.int8 and torch.equal(loaded.model.codes, trained.model.codes)
    triples = torch.from_numpy(trained.graph.test[:20])
    assert torch.equal(loaded.scorer.score(triples), trained.scorer.score(triples))
    assert "graded with the sizes 1, 1/2, 1/4, 0" in (tmp_path / "m" / "README.md").read_text()


def test_damaged_codes_are_an_error(trained, tmp_path):
    from dihedral.io.files import read_tensors, write_tensors

    trained.save(tmp_path / "m")
    tensors = read_tensors(tmp_path / "m" / "relations.safetensors")
    tensors["codes"] = tensors["codes"].clone()
    tensors["codes"][0, 0] = 24
    write_tensors(tmp_path / "m" / "relations.safetensors", tensors)
    with pytest.raises(DihedralError, match="codes hold the element 24"):
        dh.load(tmp_path / "m")


def test_exports_name_graded_elements(trained, tmp_path):
    trained.export(tmp_path / "m.npz")
    stored = np.load(tmp_path / "m.npz")
    names, m = stored["element_names"][stored["codes"]], GradedMonoid(4)
    assert names.tolist() == [[m.name(code) for code in row] for row in trained.model.codes.numpy()]
    assert {"0", "O4^0·½"} <= set(stored["element_names"].tolist())


def test_contributions_of_elements_sum_to_the_score(trained):
    head, relation, tail = next(iter(trained.graph.names_of(trained.graph.test)))
    found = dh.explain(trained, head, relation, tail)
    assert sum(found.elements.values()) == pytest.approx(trained.score(head, relation, tail), rel=1e-4)
    assert "0" not in found.elements


@pytest.mark.parametrize("model", ["dihedral-gumbel", "dihedral-argmax"])
def test_compiled_kernels_and_plain_torch_give_the_same_run(family, model):
    def losses() -> list[float]:
        trainer = Trainer(family, RECIPE.replace(model=model), seed=0)
        return [float(trainer.train_on(batch)) for batch in trainer.triples.split(256)]

    with patch.dict(os.environ, DIHEDRAL_COMPILED="0"):
        plain = losses()
    np.testing.assert_allclose(losses(), plain, rtol=1e-4)
