"""Projection: the nearest element by brute force, the straight-through gradient, and codes that training applies."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import dihedral as dh
from dihedral.elements.group import GradedMonoid, parse_levels
from dihedral.learn import Recipe
from dihedral.models.dihedral import ProjectionRelations


def relations(K: int, levels: str, *, init: float = 0.5, scaled: bool = False) -> ProjectionRelations:
    generator = torch.Generator().manual_seed(0)
    return ProjectionRelations(6, 80, K, init=init, scaled=scaled, grades=parse_levels(levels), generator=generator)


@given(
    K=st.integers(1, 16), levels=st.sampled_from(["1", "1, 0", "1, 1/2, 1/4, 0", "1/2, 1/8"]),
    init=st.sampled_from([0.1, 0.5, 2.0]),
)  # fmt: skip
def test_codes_are_the_nearest_elements(K, levels, init):
    model = relations(K, levels, init=init)
    monoid = GradedMonoid(K)
    ids = monoid.elements(model.grades)
    elements = monoid.matrices(model.max_grade)[ids].reshape(-1, 4)  # [choices, 4]
    free = model.matrices.detach().double().numpy()  # [R, 4, L]
    distances = np.square(free[:, None] - elements[None, :, :, None]).sum(2)  # [R, choices, L]
    chosen = np.argmax(model.codes.numpy()[:, None] == ids[None, :, None], axis=1)  # [R, L]
    found = np.take_along_axis(distances, chosen[:, None], 1)[:, 0]
    np.testing.assert_allclose(found, distances.min(1), atol=1e-5)


@pytest.mark.parametrize("levels", ["1", "1, 1/2, 0"])
def test_every_element_is_nearest_to_itself(levels):
    model = relations(8, levels)
    ids = torch.from_numpy(model.monoid.elements(model.grades)).to(model.code_dtype)
    codes = ids.repeat(3)[: model.dimension // 2].expand(3, -1)
    assert torch.equal(model.nearest(model.blocks[codes.long()].transpose(1, 2)), codes)


def test_training_applies_the_codes_and_the_gradient_passes_through():
    model = relations(4, "1, 1/2, 0")
    operators = model.operators(temperature=3.0)
    torch.testing.assert_close(operators, model.exact(), rtol=0, atol=0)
    slope = torch.randn(operators.shape, generator=torch.Generator().manual_seed(1))
    (gradient,) = torch.autograd.grad(operators, model.matrices, slope)
    torch.testing.assert_close(gradient, slope, rtol=0, atol=0)  # also where the element is zero
    some = torch.tensor([4, 1])
    torch.testing.assert_close(model.operators(some), model.exact()[some], rtol=0, atol=0)


def test_a_trained_model_is_stored_as_codes(family, tmp_path):
    recipe = Recipe(
        model="dihedral-projection", K=8, levels="1, 1/2, 0", relation_scale=True, dimension=32, epochs=3,
        objective="softmax", batch_size=256, entity_init=0.01,
    )  # fmt: skip
    predictor = dh.train(family, recipe, progress=False, device="cpu", out=tmp_path / "model")
    assert predictor.recipe.relation_init == 0.5
    loaded = dh.load(tmp_path / "model", device="cpu")
    assert torch.equal(loaded.model.codes, predictor.model.codes) and loaded.model.codes.dtype == torch.int8
    assert dh.evaluate(loaded).mrr == pytest.approx(dh.evaluate(predictor).mrr)
