"""Entities in two dimensions: principal components as numpy finds them, and UMAP only where it is installed."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from dihedral import DihedralError
from dihedral.serve.projection import available_methods, project


def vectors(count: int = 300, dimension: int = 12) -> torch.Tensor:
    spread = torch.linspace(3, 0.1, dimension)
    return torch.randn(count, dimension, generator=torch.Generator().manual_seed(0)) * spread + 5


def test_the_axes_are_the_principal_components():
    table = vectors()
    found = project(table)
    centred = table.numpy() - table.numpy().mean(axis=0)
    left, values, _ = np.linalg.svd(centred, full_matrices=False)
    expected = left[:, :2] * values[:2]
    expected /= np.abs(expected).max()
    for axis in range(2):
        sign = np.sign(found.points[0, axis] * expected[0, axis])
        assert found.points[:, axis] == pytest.approx(sign * expected[:, axis], abs=1e-3)
    assert found.variance == pytest.approx(values[:2] ** 2 / (values**2).sum(), rel=1e-4)


def test_the_same_vectors_give_the_same_points_in_half_precision_too():
    table = vectors()
    assert np.array_equal(project(table).points, project(table.clone()).points)
    assert project(table.half()).points == pytest.approx(project(table).points, abs=0.02)


@pytest.mark.parametrize("shape", [(1, 4), (2, 1), (5, 2)])
def test_few_entities_and_dimensions_have_points(shape):
    found = project(torch.randn(shape, generator=torch.Generator().manual_seed(1)))
    assert found.points.shape == (shape[0], 2) and np.isfinite(found.points).all()
    assert np.abs(found.points).max() <= 1 + 1e-6


def test_equal_vectors_are_at_the_centre():
    found = project(torch.ones(7, 4))
    assert not found.points.any() and found.variance == (0, 0)


def test_umap_is_offered_only_where_it_is_installed(tmp_path, monkeypatch):
    if "umap" not in available_methods():
        with pytest.raises(DihedralError, match="needs the package umap-learn; install it, or use 'pca'"):
            project(vectors(), "umap")
    (tmp_path / "umap.py").write_text(  # stands for the library, with the part of its interface that is used
        "class UMAP:\n"
        "    def __init__(self, n_components, metric, random_state): self.columns = slice(n_components)\n"
        "    def fit_transform(self, table): return table[:, self.columns]\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(__import__("sys").modules, "umap", raising=False)
    assert available_methods() == ["pca", "umap"]
    found = project(vectors(), "umap")
    assert found.points.shape == (300, 2) and found.variance == ()
