"""Relations that grow: known ones keep their operators exactly, whatever the noise and the temperature."""

from __future__ import annotations

import pytest
import torch

from dihedral.models import build_model, restore_relations
from dihedral.models.registry import grow, joined, known_rows

MODELS = {
    "dihedral-gumbel": {"K": 6, "levels": "1, 1/2, 0", "scaled": True},
    "dihedral-argmax": {"K": 5},
    "dihedral-projection": {"K": 8, "levels": "1, 1/2, 0"},
    "cyclic-gumbel": {"K": 4},
    "cyclic-argmax": {"K": 5},
    "dihedral-ste": {"K": 4},
    "cyclic-ste": {"K": 6},
    "complex": {"reciprocal": True},
    "orthogonal": {},
    "hole": {},
}


@pytest.mark.parametrize("name", MODELS)
def test_known_relations_keep_their_operators(name):
    options = {"name": name, "dimension": 12, **MODELS[name]}
    relations = build_model(num_entities=3, num_relations=4, seed=1, **options).relations
    stored = restore_relations(name, relations.stored(), 4, 12, relations.settings())
    grown = grow(stored, 6, options, seed=2)
    known = known_rows(grown, 4)
    noisy = grown.operators(None, torch.Generator().manual_seed(0), 3.0)
    torch.testing.assert_close(noisy[known], stored.exact(), rtol=1e-6, atol=1e-6)
    after = joined(stored.stored(), grown.stored(), known)
    for key, tensor in stored.stored().items():
        assert torch.equal(after[key][known], tensor)
