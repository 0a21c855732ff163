"""Recipes: what they hold, how they are read, and what they refuse."""

from __future__ import annotations

import dataclasses

import pytest

from dihedral import DihedralError, Recipe, load_recipe
from dihedral.models import MODELS
from dihedral.objectives.recipe import recipe_names, write_recipe


def test_the_defaults_are_the_papers():
    recipe = Recipe()
    assert (recipe.model, recipe.K) == ("dihedral-gumbel", 4)
    assert (recipe.temperature, recipe.temperature_floor, recipe.cooling) == (3.0, 0.5, 0.001)
    assert (recipe.objective, recipe.regulariser) == ("logistic", "none")
    assert Recipe(regulariser_weight=0.1).regulariser == "l2"


def test_a_recipe_cannot_be_changed_in_place():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Recipe().epochs = 3


def test_a_written_recipe_is_read_as_it_was(tmp_path):
    about = 'says "K = 4" \\ and τ'
    recipe = Recipe(name="mine", about=about, entity_lr=1e-05, relation_scale=True, regulariser_weight=0.0123)
    write_recipe(recipe, tmp_path / "other.toml")
    assert load_recipe(tmp_path / "other.toml") == recipe


def test_replace_makes_a_copy():
    recipe = Recipe(epochs=10)
    assert recipe.replace(epochs=20).epochs == 20
    assert recipe.epochs == 10


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("epochs", "7", 7),
        ("entity_lr", "0.5", 0.5),
        ("entity_lr", "1e-3", 0.001),
        ("relation_scale", "true", True),
        ("relation_scale", "False", False),
        ("model", "complex", "complex"),
    ],
)
def test_text_is_read_as_the_type_of_the_setting(key, text, value):
    found = getattr(Recipe().replace(**{key: text}), key)
    assert found == value
    assert type(found) is type(value)


def test_a_whole_number_is_a_number():
    found = Recipe().replace(entity_lr=1).entity_lr
    assert found == 1.0
    assert isinstance(found, float)


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("epochs", "many", "a whole number"),
        ("epochs", 2.5, "a whole number"),
        ("cooling", 10**400, "a number"),
        ("epochs", True, "a whole number"),
        ("entity_lr", "fast", "a number"),
        ("entity_lr", None, "a number"),
        ("relation_scale", "maybe", "true or false"),
        ("relation_scale", 1, "true or false"),
        ("model", 2.5, "text"),
    ],
)
def test_a_value_of_the_wrong_type_is_refused(key, value, expected):
    with pytest.raises(DihedralError, match=f"{key} is {value!r:.80}; it must be {expected}"):
        Recipe().replace(**{key: value})


@pytest.mark.parametrize("key", ["K", "dimension", "negatives", "batch_size", "epochs", "entity_init", "entity_lr"])
@pytest.mark.parametrize("value", [0, -2])
def test_some_settings_must_be_more_than_zero(key, value):
    with pytest.raises(DihedralError, match=rf"{key} is {value}(\.0)?; it must be more than 0"):
        Recipe().replace(**{key: value})


@pytest.mark.parametrize("key", ["cooling", "skew_probability", "component_weight", "regulariser_weight", "patience"])
def test_some_settings_must_not_be_negative(key):
    with pytest.raises(DihedralError, match=rf"{key} is -1(\.0)?; it must be 0 or more"):
        Recipe().replace(**{key: -1})


def test_not_a_number_is_refused():
    with pytest.raises(DihedralError, match="entity_lr is nan"):
        Recipe().replace(entity_lr="nan")


def test_an_odd_dimension_is_refused():
    with pytest.raises(DihedralError, match="dimension is 7; it must be even, because it is 2L"):
        Recipe(dimension=7)


def test_a_probability_is_at_most_one():
    with pytest.raises(DihedralError, match=r"skew_probability is 1\.5"):
        Recipe(skew_probability=1.5)


@pytest.mark.parametrize(
    ("key", "value", "offered"),
    [
        ("model", "complx", "complex"),
        ("objective", "softmx", "softmax"),
        ("regulariser", "l3", "l2"),
        ("precision", "double", "float32"),
    ],
)
def test_an_unknown_choice_is_answered_with_the_known_ones(key, value, offered):
    with pytest.raises(DihedralError, match=f"{key} is '{value}'; choose one of .*{offered}"):
        Recipe(**{key: value})


def test_an_unknown_setting_is_answered_with_a_close_one():
    with pytest.raises(DihedralError, match="'entity_rl' does not exist; did you mean 'entity_lr'"):
        Recipe().replace(entity_rl=0.1)


@pytest.mark.parametrize("model", ["dihedral-ste", "cyclic-ste"])
def test_signs_need_k_of_4_or_6(model):
    with pytest.raises(DihedralError, match="K is 8 with model"):
        Recipe(model=model, K=8)
    assert Recipe(model=model, K=6).K == 6


@pytest.mark.parametrize("key", ["skew_probability", "component_weight", "share_negatives", "negatives"])
def test_settings_of_sampled_negatives_are_refused_with_softmax(key):
    with pytest.raises(DihedralError, match=f"{key} is 1(.0)? with objective 'softmax'.*'logistic'"):
        Recipe(objective="softmax", **{key: 1})
    assert getattr(Recipe(objective="logistic", **{key: 1}), key) == 1


def test_the_component_loss_cannot_share_negatives():
    with pytest.raises(DihedralError, match="share_negatives = 0"):
        Recipe(component_weight=1.0, share_negatives=8)


@pytest.mark.parametrize("key", ["dropout", "averaging"])
@pytest.mark.parametrize("value", [1, 1.5])
def test_dropout_and_averaging_are_less_than_one(key, value):
    with pytest.raises(DihedralError, match=rf"{key} is {float(value)}; it must be less than 1"):
        Recipe(objective="softmax", **{key: value})


@pytest.mark.parametrize("key", ["dropout", "averaging"])
def test_dropout_and_averaging_are_not_negative(key):
    with pytest.raises(DihedralError, match=rf"{key} is -0.1; it must be 0 or more"):
        Recipe(objective="softmax", **{key: -0.1})


@pytest.mark.parametrize(
    "settings",
    [
        {"dropout": 0.1},
        {"relation_weight": 1.0},
        {"paths": 0.5},
        {"precision": "tf32"},
        {"regulariser": "dura", "regulariser_weight": 0.1},
    ],
)
def test_settings_of_the_softmax_are_refused_with_sampled_negatives(settings):
    key, value = next(iter(settings.items()))
    message = f"{key} is {value!r} with objective 'logistic'; it applies only to objective 'softmax': remove {key} or"
    with pytest.raises(DihedralError, match=message):
        Recipe(**settings)
    assert getattr(Recipe(objective="softmax", **settings), key) == value


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"model": "complex", "K": 6}, r"K is 6 with model 'complex'; it applies only to models over D_K \(dihedral-g"),
        ({"model": "complex", "relation_scale": True}, "relation_scale is True with model 'complex'"),
        ({"model": "dihedral-ste", "temperature": 1.0}, "temperature is 1.0 with model 'dihedral-ste'"),
        ({"model": "orthogonal", "temperature_floor": 0.1}, "temperature_floor is 0.1 with model 'orthogonal'"),
        ({"model": "transe", "cooling": 0.1}, "cooling is 0.1 .* applies only to models with a temperature"),
        ({"model": "hole", "component_weight": 1.0}, "component_weight is 1.0 .* applies only to models of 2x2 blocks"),
        ({"objective": "softmax", "path_length": 3}, "path_length is 3 with paths 0.0"),
        ({"regulariser": "none", "regulariser_weight": 0.1}, "regulariser_weight is 0.1 with regulariser 'none'"),
    ],
)
def test_settings_that_the_recipe_ignores_are_refused(settings, message):
    with pytest.raises(DihedralError, match=message):
        Recipe(**settings)


def test_inherited_settings_that_no_longer_apply_fall_back_to_their_defaults():
    recipe = Recipe(K=6, cooling=0.05, relation_scale=True, negatives=6, share_negatives=8, regulariser_weight=0.1)
    other = recipe.replace(model="complex", objective="softmax")
    assert (other.K, other.cooling, other.relation_scale) == (4, 0.001, False)
    assert (other.negatives, other.share_negatives, other.regulariser_weight) == (10, 0, 0.1)
    assert recipe.replace(model="dihedral-argmax").cooling == 0.05
    softmax = Recipe(objective="softmax", paths=0.5, path_length=3, regulariser="dura", regulariser_weight=0.1)
    logistic = softmax.replace(objective="logistic")
    assert (logistic.paths, logistic.path_length, logistic.regulariser) == (0.0, 2, "l2")


def test_given_settings_that_do_not_apply_are_refused_by_replace_and_dropped_by_adapt():
    with pytest.raises(DihedralError, match="K is 6 with model 'complex'"):
        Recipe().replace(model="complex", K=6)
    with pytest.raises(DihedralError, match=r"cooling is 0\.5 with model 'complex'"):
        Recipe(model="complex").replace(cooling=0.5)
    assert Recipe().adapt(model="complex", K=6, cooling=0.5) == Recipe(model="complex")


def test_the_initial_spread_of_relations_depends_on_the_model():
    assert Recipe(model="transe").relation_init == 0.1 and Recipe(model="complex").relation_init == 1.0
    assert Recipe().replace(model="transe").relation_init == 0.1
    assert Recipe(model="transe").replace(model="complex").relation_init == 1.0
    assert Recipe(relation_init=0.5).replace(model="transe").relation_init == 0.5
    assert Recipe().replace(model="transe", relation_init=1.0).relation_init == 1.0


def test_no_regulariser_and_no_weight_are_the_same_recipe():
    none = Recipe(regulariser="none")
    assert none == Recipe(regulariser="l2") == Recipe(regulariser="n3") == Recipe(regulariser_weight=0.0)
    weighted = none.replace(regulariser_weight=0.1)
    assert (weighted.regulariser, weighted.regulariser_weight) == ("l2", 0.1)
    assert weighted.replace(regulariser="none") == weighted.replace(regulariser_weight=0) == none


def test_every_setting_has_a_help_text():
    assert all(field.metadata["help"].endswith(".") for field in dataclasses.fields(Recipe))


@pytest.mark.parametrize("objective", ["logistic", "softmax"])
def test_averaging_is_for_every_objective(objective):
    assert Recipe(objective=objective).averaging == 0.0
    assert Recipe(objective=objective, averaging="0.9").averaging == 0.9


def test_a_recipe_comes_back_from_its_settings():
    recipe = Recipe(name="mine", model="dihedral-gumbel", K=6, dimension=12, relation_scale=True, cooling=0.5)
    assert Recipe.from_dict(recipe.to_dict()) == recipe


def test_a_stored_recipe_may_have_settings_of_another_version():
    recipe = Recipe(K=6, epochs=7)
    assert Recipe.from_stored(recipe.to_dict() | {"adversarial": 0.5, "lr": 0.1}) == recipe
    assert Recipe.from_stored({"adversarial": 0.5}) is None and Recipe.from_stored({"epochs": "many"}) is None


def test_walks_need_one_operator_per_relation():
    with pytest.raises(DihedralError, match=r"paths is 0\.5 with reciprocal True"):
        Recipe(model="complex", objective="softmax", reciprocal=True, paths=0.5)


# --- files -----------------------------------------------------------------------------------------


def test_a_toml_file_is_a_recipe_named_after_it(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text('model = "dihedral-ste"\nK = 6\nentity_lr = 1\nrelation_scale = false\n')
    expected = Recipe(name="mine", model="dihedral-ste", K=6, entity_lr=1.0, relation_scale=False)
    assert load_recipe(file) == load_recipe(str(file)) == expected


def test_a_recipe_is_its_own_recipe():
    recipe = Recipe(epochs=3)
    assert load_recipe(recipe) is recipe


def test_every_recipe_of_the_library_can_be_read_and_says_what_it_is_for():
    for name in recipe_names():
        recipe = load_recipe(name)
        assert recipe.name == name and recipe.about and recipe.model in MODELS, name


def test_the_library_comes_with_recipes():
    assert "demo/family" in recipe_names()


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(DihedralError, match=r"nowhere\.toml' does not exist"):
        load_recipe(tmp_path / "nowhere.toml")


@pytest.mark.parametrize("content", [b"model = ", b"\xff\xfe"])
def test_a_file_that_is_not_toml_is_named(tmp_path, content):
    file = tmp_path / "broken.toml"
    file.write_bytes(content)
    with pytest.raises(DihedralError, match=r"broken\.toml' is not TOML"):
        load_recipe(file)


def test_a_setting_that_a_file_should_not_have_is_named(tmp_path):
    file = tmp_path / "odd.toml"
    file.write_text("epoch = 3\n")
    with pytest.raises(DihedralError, match="'epoch' does not exist; did you mean 'epochs'"):
        load_recipe(file)


def test_an_unknown_recipe_is_answered_with_a_close_one():
    with pytest.raises(DihedralError, match="'demo/familly' is unknown; did you mean 'demo/family'"):
        load_recipe("demo/familly")


@pytest.mark.parametrize("settings", [{"regulariser": "dura", "regulariser_weight": 0.1}, {"dropout": 0.1}])
def test_settings_for_bilinear_models_are_refused_with_transe(settings):
    with pytest.raises(DihedralError, match="bilinear models"):
        Recipe(model="transe", objective="softmax", **settings)
