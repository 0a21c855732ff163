"""Decisions correct probabilities towards the share that holds, per relation, and little if they are few."""

from __future__ import annotations

import numpy as np
import pytest

from dihedral.probability.corrections import Corrections, fit_corrections
from dihedral.store.reviews import Decision


def decisions(relation: str, likely: np.ndarray, true: np.ndarray) -> list[Decision]:
    return [
        Decision((f"h{i}", relation, f"t{i}"), "accept" if held else "reject", "eve", "", "", float(p))
        for i, (p, held) in enumerate(zip(likely, true, strict=True))
    ]


def drawn(relation: str, count: int, odds: float, seed: int) -> tuple[list[Decision], np.ndarray]:
    """Proposals whose odds are so many times as high as the model says."""
    rng = np.random.default_rng(seed)
    likely = rng.uniform(0.02, 0.6, count)
    actual = odds * likely / (odds * likely + 1 - likely)
    return decisions(relation, likely, rng.random(count) < actual), actual


def test_many_decisions_find_the_factor_of_each_relation():
    found = fit_corrections(drawn("knows", 2000, 4.0, 0)[0] + drawn("likes", 2000, 0.3, 1)[0])
    assert np.exp(found.relations["knows"]) == pytest.approx(4.0, rel=0.25)
    assert np.exp(found.relations["likes"]) == pytest.approx(0.3, rel=0.25)
    assert found.accepted + found.rejected == 4000


def test_a_correction_improves_the_probabilities_of_facts_that_were_not_reviewed():
    found = fit_corrections(drawn("knows", 100, 4.0, 0)[0])
    new, actual = drawn("knows", 1000, 4.0, 1)
    before = np.array([each.probability for each in new])
    odds = np.exp(found.offsets(["knows"])[0]) * before / (1 - before)
    after = odds / (1 + odds)
    assert np.abs(after - actual).mean() < 0.25 * np.abs(before - actual).mean()


def test_few_decisions_change_little_and_other_relations_hardly():
    found = fit_corrections(drawn("knows", 3, 1.0, 0)[0][:1])
    assert abs(found.relations["knows"]) < 1 and abs(found.offset) < 0.3
    many = fit_corrections(drawn("knows", 500, 20.0, 0)[0])
    assert 0 < many.offset < 0.3 * many.relations["knows"]
    assert many.offsets(["knows", "other"]).tolist() == [many.relations["knows"], many.offset]


def test_right_probabilities_are_left_alone():
    found = fit_corrections(drawn("knows", 2000, 1.0, 3)[0])
    assert abs(found.relations["knows"]) < 0.15


def test_no_decision_is_no_correction():
    skipped = Decision(("a", "knows", "b"), "skip", "eve", "", "", 0.5)
    unknown = Decision(("a", "knows", "c"), "accept", "eve", "")
    found = fit_corrections([skipped, unknown])
    assert found == Corrections(0.0, {}, 0, 0) and found.offsets(["knows"]).tolist() == [0.0]


def test_the_probability_without_an_earlier_correction_counts():
    made = [Decision(("a", "r", str(i)), "reject", "eve", "", "", 0.9, 0.01) for i in range(50)]
    assert abs(fit_corrections(made).relations["r"]) < 0.5


def test_corrections_round_trip_and_damaged_ones_are_refused():
    found = fit_corrections(drawn("knows", 50, 4.0, 0)[0])
    again = Corrections.from_dict(found.to_dict())
    assert again.relations["knows"] == pytest.approx(found.relations["knows"], abs=1e-5)
    with pytest.raises(ValueError, match="finite"):
        Corrections.from_dict(found.to_dict() | {"offset": float("nan")})
