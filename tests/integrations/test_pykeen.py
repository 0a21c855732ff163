"""DihEdral in PyKEEN: training, and agreement of both libraries on the same model."""

from __future__ import annotations

import pytest
import torch
from pykeen.datasets import Nations
from pykeen.evaluation import RankBasedEvaluator
from pykeen.hpo import hpo_pipeline
from pykeen.models import DistMult, model_resolver
from pykeen.nn.modules import interaction_resolver
from pykeen.pipeline import pipeline
from pykeen.triples import CoreTriplesFactory, TriplesFactory

import dihedral as dh
from dihedral import DihedralError
from dihedral.elements.group import DihedralGroup
from dihedral.integrations.pykeen import DihEdral, DihEdralInteraction, from_predictor, to_predictor
from dihedral.models import build_model

CHANCE_LEVEL = 0.38  # approximate filtered MRR of untrained models on Nations, which has 14 entities


@pytest.fixture(scope="module")
def nations():
    return Nations()


def run(dataset, epochs=2, model_kwargs=None, loop="slcwa", **options):
    """Run a short pipeline of 50 steps an epoch."""
    return pipeline(
        dataset=dataset,
        model="DihEdral",
        model_kwargs={"embedding_dim": 32, "cooling_steps": 50, **(model_kwargs or {})},
        optimizer_kwargs={"lr": 0.05},
        training_loop=loop,
        negative_sampler_kwargs={"num_negs_per_pos": 6} if loop == "slcwa" else None,
        training_kwargs={"num_epochs": epochs, "batch_size": 32, "use_tqdm": False},
        evaluation_kwargs={"use_tqdm": False},
        random_seed=1,
        **{"loss": "softplus", **options},
    )


@pytest.fixture(scope="module")
def result(nations):
    """A model trained by PyKEEN; tests must not change it."""
    return run(nations)


@pytest.fixture(scope="module")
def converted(result, nations):
    """That model as a predictor."""
    return to_predictor(result, nations.training, nations.validation, nations.testing, name="nations")


def untrained(nations, **options):
    torch.manual_seed(0)
    return DihEdral(triples_factory=nations.training, embedding_dim=8, **options)


def relations_of(model):
    return model.relation_representations[0]


def pykeen_mrr(model, test, *known):
    found = RankBasedEvaluator().evaluate(model, test, additional_filter_triples=list(known), use_tqdm=False)
    return {side: found.get_metric(f"{side}.realistic.inverse_harmonic_mean_rank") for side in ("head", "tail", "both")}


def our_mrr(predictor):
    report = dh.evaluate(predictor).to_dict()
    return {side: report[side]["mrr"] for side in ("head", "tail", "both")}


# --- training in PyKEEN -----------------------------------------------------------------------------------


def test_model_and_interaction_are_registered_with_pykeen():
    assert model_resolver.lookup("DihEdral") is DihEdral
    assert interaction_resolver.lookup("dihedral") is DihEdralInteraction


def test_default_pipeline_runs():
    found = pipeline(dataset="Nations", model="DihEdral", training_kwargs={"num_epochs": 1})
    assert isinstance(found.model, DihEdral)


def test_pipeline_learns(result):
    assert result.get_metric("mrr") > CHANCE_LEVEL + 0.1
    assert result.losses[-1] < result.losses[0]


@pytest.mark.thorough
@pytest.mark.parametrize("estimator", ["gumbel", "ste", "argmax", "projection"])
@pytest.mark.parametrize("loop", ["slcwa", "lcwa"])
def test_every_estimator_learns_in_both_loops(nations, estimator, loop):
    found = run(nations, model_kwargs={"estimator": estimator}, loop=loop)
    assert found.get_metric("mrr") > CHANCE_LEVEL + 0.1


@pytest.mark.thorough
@pytest.mark.parametrize("loss", ["crossentropy", "marginranking", "nssa"])
def test_pykeen_losses_train_the_model(nations, loss):
    loop = "lcwa" if loss == "crossentropy" else "slcwa"
    found = run(nations, epochs=3, loss=loss, loop=loop, regularizer="LP", regularizer_kwargs={"weight": 1e-4})
    assert found.get_metric("mrr") > CHANCE_LEVEL + 0.06


def test_early_stopping_restores_the_best_model(nations):
    options = {"frequency": 1, "patience": 1, "relative_delta": 0.1, "metric": "mrr"}
    found = run(nations, epochs=20, model_kwargs={"cooling_steps": 1}, stopper="early", stopper_kwargs=options)
    assert len(found.losses) < 20
    restored = pykeen_mrr(found.model, nations.validation.mapped_triples, nations.training.mapped_triples)
    assert restored["both"] == pytest.approx(found.stopper.best_metric, abs=1e-6)


def test_same_seed_gives_the_same_elements(result, nations):
    again = run(nations)
    assert torch.equal(relations_of(again.model).relations.codes, relations_of(result.model).relations.codes)


def test_hyperparameters_can_be_searched():
    found = hpo_pipeline(
        n_trials=1,
        dataset="Nations",
        model="DihEdral",
        training_kwargs={"num_epochs": 1, "batch_size": 256, "use_tqdm": False},
        evaluator_kwargs={},
        sampler_kwargs={"seed": 0},
    )
    assert found.study.best_params["model.embedding_dim"] % 2 == 0


# --- relations ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("estimator", "K"), [("gumbel", 5), ("argmax", 7), ("projection", 3), ("ste", 4), ("ste", 6)])
def test_relations_are_group_elements_in_evaluation(nations, estimator, K):
    model = untrained(nations, estimator=estimator, K=K).eval()
    blocks = relations_of(model)().transpose(1, 2).reshape(-1, 2, 2)  # [R * L, 2, 2]
    matrices = torch.as_tensor(DihedralGroup(K).matrices, dtype=torch.float32)
    nearest = (blocks[:, None] - matrices).abs().amax(dim=(2, 3)).amin(dim=1)
    assert nearest.max() < 1e-6


def test_gumbel_samples_in_training_and_not_in_evaluation(nations):
    batch = nations.training.mapped_triples[:50]
    model = untrained(nations)
    assert not torch.equal(model.train().score_hrt(batch), model.score_hrt(batch))
    assert torch.equal(model.eval().score_hrt(batch), model.score_hrt(batch))


def test_relation_is_sampled_once_per_call(nations):
    drawn = relations_of(untrained(nations).train())(torch.tensor([3, 5, 3]))
    assert torch.equal(drawn[0], drawn[2]) and not torch.equal(drawn[0], drawn[1])


def test_temperature_falls_to_its_floor_over_the_cooling_steps(nations):
    model = untrained(nations, temperature=2.0, temperature_floor=0.5, cooling_steps=10)
    seen = [float(relations_of(model).temperature)]
    for _ in range(15):
        model.post_parameter_update()
        seen.append(float(relations_of(model).temperature))
    assert seen[0] == pytest.approx(2.0) and seen[5] == pytest.approx(1.0) and seen[10:] == pytest.approx([0.5] * 6)
    assert float(relations_of(model.reset_parameters_()).temperature) == pytest.approx(2.0)


def test_state_of_a_model_includes_the_temperature(result, nations):
    other = DihEdral(triples_factory=nations.training, embedding_dim=32, cooling_steps=100)
    other.load_state_dict(result.model.state_dict())
    assert float(relations_of(other).temperature) == pytest.approx(0.5)


def test_reset_initialises_all_parameters_again(nations):
    model = untrained(nations, relation_init=0.01)
    before = {name: parameter.clone() for name, parameter in model.named_parameters()}
    model.reset_parameters_()
    for name, parameter in model.named_parameters():
        assert not torch.equal(before[name], parameter), name
    assert relations_of(model).relations.logits.detach().std() == pytest.approx(0.01, rel=0.1)


def test_scores_of_all_heads_relations_and_tails_match_single_triples(nations):
    model = untrained(nations).eval()
    triples = nations.training.mapped_triples[:20]
    every = {
        0: model.score_h(triples[:, 1:]),
        1: model.score_r(triples[:, [0, 2]]),
        2: model.score_t(triples[:, :2]),
    }
    for column, scores in every.items():
        for candidate in range(scores.shape[1]):
            single = triples.clone()
            single[:, column] = candidate
            torch.testing.assert_close(scores[:, candidate], model.score_hrt(single)[:, 0])
    torch.testing.assert_close(model.score_t(triples[:, :2], slice_size=5), every[2])


def test_interaction_accepts_any_2x2_blocks(nations):
    """The interaction also works with relations that are plain embeddings."""
    found = pipeline(
        dataset=nations,
        interaction="DihEdral",
        dimensions={"d": 8, "b": 4, "l": 4},
        training_kwargs={"num_epochs": 1, "use_tqdm": False},
        evaluation_kwargs={"use_tqdm": False},
    )
    assert isinstance(found.model.interaction, DihEdralInteraction)


# --- from PyKEEN to a predictor -------------------------------------------------------------------------------


def test_both_libraries_give_the_same_scores(result, converted, nations):
    for factory in (nations.training, nations.testing):
        theirs = result.model.predict_hrt(factory.mapped_triples)[:, 0]
        torch.testing.assert_close(converted.scorer.score(factory.mapped_triples), theirs, atol=1e-5, rtol=0)
    head, relation, tail = nations.testing.triples[0]
    assert converted.score(head, relation, tail) == pytest.approx(
        result.model.predict_hrt(nations.testing.mapped_triples[:1]).item(), abs=1e-5
    )


def test_both_libraries_give_the_same_metrics(result, converted, nations):
    known = nations.training.mapped_triples, nations.validation.mapped_triples
    theirs = pykeen_mrr(result.model, nations.testing.mapped_triples, *known)
    assert our_mrr(converted) == pytest.approx(theirs, abs=1e-5)
    assert theirs["both"] == pytest.approx(result.get_metric("mrr"), abs=1e-6)


def test_graph_has_the_facts_of_the_dataset(converted, nations):
    graph = converted.graph
    for split, factory in (("train", nations.training), ("valid", nations.validation), ("test", nations.testing)):
        assert set(graph.names_of(graph.split(split))) == set(map(tuple, factory.triples.tolist())), split
    assert graph.name == "nations"


def test_converted_model_can_be_saved_queried_and_explained(converted, tmp_path):
    converted.save(tmp_path / "nations")
    loaded = dh.load(tmp_path / "nations")
    question = {"head": "brazil", "relation": "embassy", "top": 3}
    assert loaded.predict(**question) == converted.predict(**question)
    a = dh.algebra(loaded)
    assert (a["embassy"] @ ~a["embassy"]).identity() == 1.0
    assert dh.find_rules(loaded, kinds=("symmetric",), top=3)
    assert dh.explain(loaded, "brazil", "embassy", "uk")


def test_result_includes_its_training_facts(result, nations):
    predictor = to_predictor(result)
    assert len(predictor.graph.train) == nations.training.num_triples and not len(predictor.graph.test)


def test_conversion_copies_the_model(result):
    predictor = to_predictor(result)
    with torch.no_grad():
        predictor.model.entities.zero_()
    assert result.model.entity_representations[0]().abs().sum() > 0


@pytest.mark.thorough
def test_result_saved_by_pykeen_is_loaded_by_another_process(result, converted, tmp_path, python):
    result.save_to_directory(tmp_path)
    script = (
        "import sys, torch; folder = sys.argv[1];"
        "model = torch.load(folder + '/trained_model.pkl', weights_only=False);"
        "from dihedral.integrations.pykeen import to_predictor; from pykeen.triples import TriplesFactory;"
        "training = TriplesFactory.from_path_binary(folder + '/training_triples');"
        "print('score', to_predictor(model, training).score('brazil', 'embassy', 'uk'))"
    )
    done = python("-c", script, tmp_path)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout.split()[-1]) == pytest.approx(converted.score("brazil", "embassy", "uk"), abs=1e-5)


def test_inverse_relations_are_trained_in_pykeen_and_omitted_in_the_predictor():
    dataset = Nations(create_inverse_triples=True)
    found = run(dataset)
    assert found.get_metric("mrr") > CHANCE_LEVEL
    predictor = to_predictor(found, dataset.training, dataset.validation, dataset.testing)
    assert predictor.model.num_relations == dataset.training.real_num_relations == 55
    test = dataset.testing.mapped_triples
    theirs = found.model.predict_hrt(test)[:, 0]
    torch.testing.assert_close(predictor.scorer.score(test), theirs, atol=1e-5, rtol=0)
    known = dataset.training.mapped_triples, dataset.validation.mapped_triples
    assert our_mrr(predictor)["tail"] == pytest.approx(pykeen_mrr(found.model, test, *known)["tail"], abs=1e-5)


# --- from a predictor to PyKEEN -------------------------------------------------------------------------------


def test_pykeen_gives_the_same_metrics_for_our_model(predictor, family):
    model = from_predictor(predictor)
    splits = [torch.from_numpy(part).long() for part in (family.test, family.train, family.valid)]
    torch.testing.assert_close(model.predict_hrt(splits[0])[:, 0], predictor.scorer.score(splits[0]), atol=1e-5, rtol=0)
    assert pykeen_mrr(model, *splits) == pytest.approx(our_mrr(predictor), abs=1e-5)


def test_relation_factors_are_converted_both_ways(family):
    model = build_model("dihedral-gumbel", family.num_entities, family.num_relations, dimension=8, scaled=True)
    with torch.no_grad():
        model.relations.log_scales.normal_()
    ours = dh.Predictor(dh.TrainedModel(model, family))
    factory = TriplesFactory(
        torch.from_numpy(family.train).long(),
        entity_to_id={name: i for i, name in enumerate(family.entities)},
        relation_to_id={name: i for i, name in enumerate(family.relations)},
    )
    back = to_predictor(from_predictor(ours), factory)
    torch.testing.assert_close(back.scorer.operators, ours.scorer.operators)
    assert torch.equal(back.model.entities, ours.model.entities)
    assert back.graph.entities == family.entities


# --- bad arguments ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"embedding_dim": 7}, "dimension is 7; it is 2L, an even number of 2 or more"),
        ({"embedding_dim": 0}, "dimension is 0; it is 2L, an even number"),
        ({"K": 0}, "K is 0; codes are stored as bytes, so K must be 1 to 128"),
        ({"K": 5, "estimator": "ste"}, "the sign parametrisation exists for K = 4 and 6"),
        (
            {"estimator": "ste", "levels": "1, 0"},
            "levels is '1, 0' with estimator 'ste'; use gumbel, argmax or projection",
        ),
        ({"estimator": "gumble"}, "estimator is 'gumble'; choose one of gumbel, ste, argmax, projection"),
        ({"temperature_floor": 0.0}, "temperature_floor is 0.0; it must be above 0 and at most temperature, 3.0"),
        ({"temperature": 0.1}, "temperature_floor is 0.5; it must be above 0 and at most temperature, 0.1"),
        ({"cooling_steps": 0}, "cooling_steps is 0; it must be 1 or more"),
    ],
)
def test_invalid_settings_are_named(nations, options, message):
    with pytest.raises(DihedralError) as error:
        DihEdral(triples_factory=nations.training, **options)
    assert message in str(error.value)


def test_graded_relations_are_converted_both_ways(nations):
    torch.manual_seed(0)
    model = untrained(nations, levels="1, 1/2, 0").eval()
    splits = nations.training, nations.validation, nations.testing
    predictor = to_predictor(model, *splits)
    codes = relations_of(model).relations.codes
    assert (codes < 0).any() and (codes >= 8).any() and torch.equal(predictor.model.codes, codes)
    triples = nations.testing.mapped_triples
    torch.testing.assert_close(predictor.scorer.score(triples), model.score_hrt(triples)[:, 0].detach())
    again = from_predictor(predictor)
    torch.testing.assert_close(again.score_hrt(triples), model.score_hrt(triples))


def test_only_dihedral_models_are_converted(nations, family):
    with pytest.raises(DihedralError, match=r"a DistMult; pass a dihedral\.integrations\.pykeen\.DihEdral or a result"):
        to_predictor(DistMult(triples_factory=nations.training), nations.training)
    with pytest.raises(DihedralError, match="model is 'distmult'; only DihEdral models can be converted"):
        from_predictor(dh.Predictor(dh.TrainedModel(build_model("distmult", 40, 6, dimension=4), family)))


def test_names_and_facts_must_match_the_model(nations, result):
    model = result.model
    with pytest.raises(DihedralError, match=r"training is None; it must be a .*TriplesFactory"):
        to_predictor(model)
    with pytest.raises(DihedralError, match=r"training is CoreTriplesFactory.*it must be a"):
        to_predictor(model, CoreTriplesFactory.create(nations.training.mapped_triples))
    other = TriplesFactory.from_labeled_triples(nations.training.triples[:5])
    with pytest.raises(DihedralError, match=r"training has \d+ entities and \d+ relations; the model has 14 and 55"):
        to_predictor(model, other)
    with pytest.raises(DihedralError, match="testing and training number their names differently"):
        to_predictor(model, nations.training, testing=other)


def test_missing_pykeen_names_the_extra(python):
    script = "import sys; sys.modules['pykeen'] = None\nimport dihedral, dihedral.integrations.pykeen"
    done = python("-c", script)
    assert done.returncode == 1
    assert done.stderr.strip().endswith("dihedral.integrations.pykeen needs PyKEEN: pip install 'dihedral[pykeen]'")
