"""A model on another device gives the answers that it gives on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import dihedral as dh
from dihedral.ask import Fact, Query, Variable

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif("not torch.cuda.is_available()"))]
X, Y = Variable("x"), Variable("y")

USES: dict[str, Callable[[dh.Predictor], Any]] = {
    "score": lambda p: p.score("man_0000", "spouse", "woman_0011"),
    "predict": lambda p: [each.tail for each in p.predict(head="man_0000", relation="spouse", top=3)],
    "predict by score": lambda p: [e.tail for e in p.predict(head="man_0000", relation="spouse", top=3, order="score")],
    "predict a relation": lambda p: [e.relation for e in p.predict(head="man_0000", tail="woman_0011", top=2)],
    "signature": lambda p: p.predict(tail="man_0000", relation="parent", among="signature", top=1)[0].head,
    "classify": lambda p: [each.true for each in p.classify([("man_0000", "spouse", "woman_0011")])],
    "similar": lambda p: [each.entity for each in p.similar("man_0000", top=3)],
    "ask": lambda p: [e.entity for e in p.ask(Query(X, Fact("man_0000", "spouse", Y) & Fact(Y, "parent", X)), top=3)],
    "complete": lambda p: dh.complete(p, [("man_0000", "spouse", None)], top=3).column("tail").to_pylist(),
    "missing facts": lambda p: max(dh.missing_facts(p, top=5).column("score").to_pylist()),
    "evaluate": lambda p: dh.evaluate(p, split="valid").mrr,
    "explain": lambda p: len(dh.explain(p, "man_0000", "spouse", "woman_0011").paths),
    "rules": lambda p: [str(rule) for rule in dh.find_rules(p, min_support=2, top=5)],
    "algebra": lambda p: dh.algebra(p)["spouse"].symmetry(),
    "update": lambda p: p.update(add=[("new", "spouse", "woman_0011")]).predict(
        head="new", relation="spouse", top=1
    )[0].tail,
}  # fmt: skip


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("use", list(USES))
def test_a_loaded_model_answers_alike_on_every_device(predictor, model_folder, device, use):
    there = dh.load(model_folder, device=device)
    assert there.device == torch.device(device, 0 if device == "cuda" else None)
    found, wanted = USES[use](there), USES[use](predictor)
    assert found == (pytest.approx(wanted, rel=1e-3) if isinstance(wanted, float) else wanted)
