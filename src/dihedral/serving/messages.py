"""What the API is asked and what it answers: the shapes that /openapi.json describes."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag

from dihedral.graph.triples import Split

MAX_TOP = 1000
MAX_QUESTIONS = 256
MAX_ANSWERS = 25_600  # of a batch together: a few megabytes
MAX_STEPS = 16

Name = Annotated[str, Field(min_length=1)]  # as long as names of a graph are; the body's limit is limit enough
ModelName = Annotated[str | None, Field(description="A model's name; the first one if not given.")]
Top = Annotated[int, Field(ge=1, le=MAX_TOP, description="How many answers.")]
Steps = Annotated[
    list[Name], Field(min_length=1, max_length=MAX_STEPS, description="Relations in order; ~name walks backwards.")
]


class RequestModel(BaseModel):
    """A misspelt field is an error, not nothing."""

    model_config = ConfigDict(extra="forbid")


# --- asked ----------------------------------------------------------------------------------------


class PredictQuestion(RequestModel):
    """Give two of head, relation and tail: the third is predicted."""

    head: Name | None = None
    relation: Name | None = None
    tail: Name | None = None
    top: Top = 10
    known: Literal["include", "exclude"] = Field("include", description="Facts that the graph holds already.")
    among: Literal["range"] | None = Field(
        None, description="range: only entities that training has in that place of the relation."
    )


class PredictOne(PredictQuestion):
    """One question."""

    model: ModelName = None


class PredictMany(RequestModel):
    """A batch of questions."""

    questions: list[PredictQuestion] = Field(min_length=1, max_length=MAX_QUESTIONS)
    model: ModelName = None


def _which(content: Any) -> str:
    return (
        "many" if isinstance(content, PredictMany) or (isinstance(content, dict) and "questions" in content) else "one"
    )


Predict = Annotated[Annotated[PredictOne, Tag("one")] | Annotated[PredictMany, Tag("many")], Discriminator(_which)]


class Triple(RequestModel):
    head: Name
    relation: Name
    tail: Name


class Classify(RequestModel):
    """Triples to call true or false."""

    triples: list[Triple] = Field(min_length=1, max_length=MAX_QUESTIONS)
    model: ModelName = None


class Explain(RequestModel):
    """A triple, known or predicted."""

    head: Name
    relation: Name
    tail: Name
    top: Annotated[int, Field(ge=1, le=50, description="How many paths and similar facts.")] = 5
    model: ModelName = None


class Query(RequestModel):
    """Where relations lead from an entity."""

    start: Name
    via: Steps
    top: Top = 10
    mode: Literal["product", "beam"] = Field(
        "product", description="product: the whole path at once; beam: step by step, and says through which entities."
    )
    model: ModelName = None


class Compose(RequestModel):
    """Relations and inverses to multiply."""

    steps: Steps
    top: Top = 5
    model: ModelName = None


# --- answered -------------------------------------------------------------------------------------


class Problem(BaseModel):
    """What was wrong, in one sentence."""

    detail: str
    suggestions: list[str] = []


class Predicted(BaseModel):
    head: str
    relation: str
    tail: str
    score: float
    probability: float | None = None  # where the model is calibrated
    known: bool


class Predictions(BaseModel):
    model: str
    predictions: list[Predicted]


class PredictionLists(BaseModel):
    model: str
    answers: list[list[Predicted]]


class Judgement(BaseModel):
    head: str
    relation: str
    tail: str
    true: bool
    probability: float


class Judgements(BaseModel):
    model: str
    judgements: list[Judgement]


class Path(BaseModel):
    relations: list[str]
    entities: list[str]
    support: float
    confidence: float
    pairs: int


class Alike(BaseModel):
    head: str
    relation: str
    tail: str
    likeness: float


class Explained(BaseModel):
    model: str
    head: str
    relation: str
    tail: str
    known: bool
    split: Split | None  # that holds it
    score: float
    probability: float | None
    ranks: dict[str, float]
    supported: bool
    paths: list[Path]
    alike: list[Alike]
    elements: dict[str, float]


class PathAnswer(BaseModel):
    entity: str
    score: float
    through: list[str]


class PathAnswers(BaseModel):
    model: str
    answers: list[PathAnswer]


class Share(BaseModel):
    """A share of components: weighted by what each adds to scores, and as a plain count."""

    weighted: float
    count: float


class Nearest(BaseModel):
    relation: str
    share: Share


class RelationSummary(BaseModel):
    name: str
    facts: int
    symmetry: Share | None
    skewness: Share | None
    inverses: list[Nearest]


class Relations(BaseModel):
    model: str
    relations: list[RelationSummary]


class Rule(BaseModel):
    kind: str
    body: list[str]
    head: str
    score: float
    count: float
    support: int
    body_pairs: int
    confidence: float
    pca_confidence: float
    order_matters: bool | None
    examples: list[list[str]]


class RelationDetail(RelationSummary):
    model: str
    K: int | None  # null, and no elements: a model without group elements
    elements: dict[str, int]
    compositions: list[Rule]


class Product(BaseModel):
    model: str
    steps: list[str]
    K: int
    elements: dict[str, int]
    identity: Share
    symmetry: Share
    skewness: Share
    nearest: list[Nearest]


class Rules(BaseModel):
    model: str
    rules: list[Rule]


class Entity(BaseModel):
    name: str
    facts: int


class Entities(BaseModel):
    model: str
    total: int
    entities: list[Entity]


class Fact(BaseModel):
    direction: Literal["out", "in"]
    relation: str
    entity: str
    split: Split


class SimilarEntity(BaseModel):
    entity: str
    similarity: float  # cosine


class EntityFacts(BaseModel):
    model: str
    name: str
    total: int
    facts: list[Fact]
    similar: list[SimilarEntity]


class ModelSummary(BaseModel):
    name: str
    kind: str
    K: int | None
    dimension: int
    graph: str
    entities: int
    relations: int
    facts: int


class Models(BaseModel):
    default: str
    models: list[ModelSummary]


class Info(ModelSummary):
    prefixes: dict[str, str]  # of names that are IRIs: ex:ann may be asked for http://example.org/ann
    recipe: dict[str, Any]
    metrics: dict[str, Any]
    curve: list[dict[str, Any]]


class Health(BaseModel):
    status: Literal["ok"] = "ok"
