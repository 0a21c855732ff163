"""Request and response schemas of the HTTP API, as described by /openapi.json."""

from __future__ import annotations

from inspect import getdoc
from typing import Annotated, Any, Literal, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, GetCoreSchemaHandler, create_model, field_validator, model_validator
from pydantic_core import CoreSchema, PydanticCustomError

from dihedral.ask import asking
from dihedral.ask.messages import WIDTH
from dihedral.elements import shares
from dihedral.graph import patterns
from dihedral.graph.triples import Split
from dihedral.interpretation import MinedRule, explanations
from dihedral.predict import predictor
from dihedral.store import reviews
from dihedral.store.reviews import MAX_NOTE, MAX_REVIEWER

MAX_TOP = 1000
MAX_RELATIONS = 2000  # in one answer
MAX_BATCH_ITEMS = 256  # questions or triples in one request
MAX_BATCH_ANSWERS = 25_600  # answers to all questions of one request: a few megabytes
MAX_STEPS = 16
MAX_ATOMS = 16  # facts of a query
MAX_WIDTH = 256  # entities of a variable from which predictions are followed
MAX_NEIGHBOURS, MAX_SHOWN = 500, 1000  # neighbours to add, and entities in a drawing
MAX_NEW_ENTITIES, MAX_NEW_FACTS = 100, 1000  # in one fold-in

Name = Annotated[str, Field(min_length=1)]  # no maximum length: the limit on the body bounds it
ModelName = Annotated[str | None, Field(description="Name of the model. Default: the first model.")]
Top = Annotated[int, Field(ge=1, le=MAX_TOP, description="Maximum number of answers.")]
Steps = Annotated[
    list[Name], Field(min_length=1, max_length=MAX_STEPS, description="Relations in order; ~name is the inverse.")
]


# --- requests -------------------------------------------------------------------------------------


class RequestModel(BaseModel):
    """Rejects unknown fields, so that a misspelled one is an error; one error, however many there are."""

    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _has_no_unknown_field(cls, content: Any) -> Any:
        if isinstance(content, dict):
            unknown = next((name for name in content if name not in cls.model_fields), None)
            if unknown is not None:
                text = f"field {unknown!r:.100} is not known; {', '.join(cls.model_fields)} are"
                raise PydanticCustomError("plain", "{text}", {"text": text})
        return content


class PredictQuestion(RequestModel):
    """Two of head, relation and tail; the third is predicted."""

    head: Name | None = None
    relation: Name | None = None
    tail: Name | None = None
    top: Top = 10
    known: Literal["include", "exclude"] = Field("include", description="Whether to include facts of any split.")
    among: Literal["signature", "range", "all"] = Field(
        "all",
        description="Only entities whose facts fit this side of the relation (signature), or that occur on it (range).",
    )
    order: Literal["auto", "probability", "score"] = Field(
        "auto", description="Order of the answers; auto is the one that ranked the valid triples better."
    )


class PredictRequest(PredictQuestion):
    """One question."""

    model: ModelName = None


class PredictBody(PredictRequest):
    """One question, or a batch of questions, which have their own options."""

    questions: list[PredictQuestion] | None = Field(None, min_length=1, max_length=MAX_BATCH_ITEMS)


class Triple(RequestModel):
    head: Name
    relation: Name
    tail: Name


class ClassifyRequest(RequestModel):
    """Triples to classify as true or false."""

    triples: list[Triple] = Field(min_length=1, max_length=MAX_BATCH_ITEMS)
    model: ModelName = None


class ExplainRequest(Triple):
    """A triple to explain, known or predicted."""

    top: Annotated[int, Field(ge=1, le=50, description="Maximum number of paths and of similar facts.")] = 5
    model: ModelName = None


class PathQueryRequest(RequestModel):
    """A path of relations that starts at an entity."""

    start: Name
    via: Steps
    top: Top = 10
    model: ModelName = None


class AskRequest(RequestModel):
    """A query of several facts."""

    query: str | dict[str, Any] = Field(description="SPARQL, or the JSON form of a query.")
    top: Top | None = Field(None, description="Maximum number of answers. Default: the limit of the query, or 10.")
    known: Literal["include", "exclude"] = Field(
        "include", description="Whether to include answers that known facts alone give."
    )
    facts: Literal["all", "train"] = Field("all", description="The facts that are certain.")
    conjunction: Literal["product", "minimum"] = Field("product", description="How facts that must all hold combine.")
    ways: Literal["noisy-or", "max"] = Field("noisy-or", description="How several ways to an answer combine.")
    width: int = Field(
        WIDTH, ge=1, le=MAX_WIDTH, description="Entities of a variable from which predictions are followed."
    )
    model: ModelName = None

    @field_validator("query", mode="before")
    @classmethod
    def _is_text_or_object(cls, query: Any) -> Any:
        if not isinstance(query, (str, dict)):
            raise PydanticCustomError("query_type", "It should be SPARQL as text, or an object with select and where")
        return query


class FoldInRequest(RequestModel):
    """Questions about entities that the model does not know, and the facts that place them. Nothing is stored."""

    entities: list[Name] = Field(min_length=1, max_length=MAX_NEW_ENTITIES, description="The new entities.")
    facts: list[Triple] = Field(
        min_length=1, max_length=MAX_NEW_FACTS, description="Each names a new entity, as head or as tail."
    )
    questions: list[PredictQuestion] = Field(min_length=1, max_length=MAX_BATCH_ITEMS)
    model: ModelName = None


class NeighbourhoodRequest(RequestModel):
    """An entity whose neighbours to draw."""

    name: Name
    relation: Name | None = Field(None, description="Only neighbours through this relation.")
    top: int = Field(50, ge=1, le=MAX_NEIGHBOURS, description="Maximum number of neighbours to add.")
    shown: list[Name] = Field([], max_length=MAX_SHOWN, description="Entities that are drawn already.")
    model: ModelName = None


class ComposeRequest(RequestModel):
    """Relations and inverses to multiply."""

    steps: Steps
    top: Top = 5
    model: ModelName = None


# --- responses ------------------------------------------------------------------------------------


class ErrorResponse(BaseModel):
    """What is wrong with the request, in one sentence, and similar names if a name is unknown."""

    detail: str
    suggestions: list[str] = []


class ModelResponse(BaseModel):
    """`ServedModel.labelled` fills in these two."""

    model_config = ConfigDict(json_schema_serialization_defaults_required=True)

    model: str = ""  # the name of the model that answers
    labels: dict[str, str] = {}  # labels by name, for the names in the answer


class Fact(BaseModel):
    head: str
    relation: str
    tail: str


def named(fact: tuple[str, str, str]) -> dict[str, Any]:
    return dict(zip(Fact.model_fields, fact, strict=True))


class Fields:
    """Marks a class of the library whose fields are those of a JSON object, so that they are defined once.

    name: in the OpenAPI document, if it is not that of the class. changes: fields of another type than in the class,
    or properties of it; None leaves a field out.
    """

    def __init__(self, name: str = "", **changes: Any) -> None:
        self.name, self.changes = name, changes
        self.model: type[BaseModel] | None = None

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        if self.model is None:
            types = get_type_hints(source, include_extras=True) | self.changes
            fields: dict[str, Any] = {name: (type_, ...) for name, type_ in types.items() if type_ is not None}
            about = (getdoc(source) or "").split("\n\n")[0]
            config = ConfigDict(from_attributes=True)
            self.model = create_model(self.name or source.__name__, __config__=config, __doc__=about, **fields)
        return handler.generate_schema(self.model)


Prediction = Annotated[predictor.Prediction, Fields()]
Judgement = Annotated[predictor.Judgement, Fields()]
SimilarEntity = Annotated[predictor.Similar, Fields("SimilarEntity")]
AnswerFact = Annotated[asking.AnswerFact, Fields()]
Answer = Annotated[asking.Answer, Fields(facts=list[AnswerFact])]
Interval = Annotated[patterns.Interval, Fields()]
Counted = Annotated[
    patterns.RuleCount, Fields("Counted", confidence=float | None, interval=Interval | None, pca_pairs=None)
]
_Real = Annotated[float, Field(validation_alias="real")]  # a share is a float, whose real part is the share itself
Share = Annotated[shares.ComponentShare, Fields("Share", share=_Real, kappa=float, significant=bool, comparisons=None)]
Rule = Annotated[MinedRule, Fields("Rule", agreement=Share, interval=Interval | None)]
SupportingPath = Annotated[
    explanations.SupportingPath, Fields(interval=Interval | None, facts=None, main_fact=list[str] | None)
]
ReviewDecision = Annotated[
    reviews.Decision, Fields("ReviewDecision", decision=reviews.Verdict, fact=None, probability=None, uncorrected=None)
]


class PredictResponse(ModelResponse):
    predictions: list[Prediction]


class MissingFact(Fact):
    rank: int
    score: float
    probability: float | None = None  # that it holds, if the model is calibrated
    precision: float | None = None  # the share of the facts down to this one that are expected to hold
    precision_low: float | None = None  # its 95 % confidence interval
    precision_high: float | None = None
    decision: Literal["accept"] | None = None  # what a reviewer decided; rejected facts are not listed


class MissingResponse(ModelResponse):
    facts: list[MissingFact]


class PredictBatchResponse(ModelResponse):
    answers: list[list[Prediction]]


class ClassifyResponse(ModelResponse):
    judgements: list[Judgement]


class SimilarFact(Fact):
    similarity: float


class ExplainResponse(Fact, ModelResponse):
    known: bool  # in any split
    split: Split | None  # the split that contains it
    score: float
    probability: float | None
    ranks: dict[str, float]
    supported: bool
    paths: list[SupportingPath]
    complete: bool  # whether all paths between head and tail were counted
    kinds: int  # distinct sequences of relations between the two
    more: int  # kinds of paths that hold for other pairs too and are not listed
    longest: int  # facts of the paths that were looked for
    added: float | None  # what all paths together add to the score of a path model
    unsupported: str | None  # what was looked for, if nothing was found
    note: str  # why the probability differs from what the best path holds for; empty if it does not
    similar_facts: list[SimilarFact]
    elements: dict[str, float]


class AskResponse(ModelResponse):
    query: dict[str, Any]  # the JSON form of the query
    answers: list[Answer]
    plan: list[str]  # a line per step, with its number of candidates
    exact: bool  # no variable had more entities than predictions were followed from


class NearestRelation(BaseModel):
    relation: str
    agreement: Share
    counted: Counted | None  # null for products of more than two relations


class RelationSummary(BaseModel):
    name: str
    facts: int
    mutual: Counted  # pairs that the relation holds in both directions
    symmetry: Share | None
    skewness: Share | None
    inverses: list[NearestRelation]


class RelationsResponse(ModelResponse):
    total: int  # relations of the model
    relations: list[RelationSummary]


class RelationResponse(RelationSummary, ModelResponse):
    K: int | None  # null if the model has no group elements; `elements` is then empty
    elements: dict[str, int]
    components: list[str]  # the element of each component
    carried: list[float]  # the share of the scores of its facts that each component carries
    compositions: list[Rule] | None  # null if the rules are not mined yet and `mine` is false


class ComposeResponse(ModelResponse):
    steps: list[str]
    K: int
    elements: dict[str, int]
    identity: Share
    symmetry: Share
    skewness: Share
    nearest: list[NearestRelation]


class RulesResponse(ModelResponse):
    mined: bool  # false if the rules are not mined yet and `mine` is false; there are none then
    rules: list[Rule]


class EntitySummary(BaseModel):
    name: str
    facts: int


class EntitiesResponse(ModelResponse):
    total: int
    entities: list[EntitySummary]


class SearchMatch(BaseModel):
    kind: Literal["entity", "relation"]
    name: str
    facts: int
    about: str  # its description or type, if it has one


class SearchResponse(ModelResponse):
    matches: list[SearchMatch]


class EntityFact(BaseModel):
    direction: Literal["out", "in"]
    relation: str
    entity: str
    split: Split


class EntityResponse(ModelResponse):
    name: str
    about: str  # its description or type, if it has one
    total: int  # known facts
    num_relations: int  # distinct relations of these facts
    facts: list[EntityFact]  # if there are too many, with as many relations as possible
    similar: list[SimilarEntity]


class KnownFact(Fact):
    split: Split


class RelationCount(BaseModel):
    relation: str
    facts: int


class NeighbourhoodResponse(ModelResponse):
    name: str
    neighbours: int  # distinct ones, through the relation where one is given
    drawn: int  # how many of these are drawn, with those in `shown`
    entities: list[EntitySummary]  # to add: the entity itself, unless it is shown already, then its neighbours
    facts: list[KnownFact]  # those of the entity and of what is added, between all that are shown; at most 2,000
    num_facts: int  # how many there are
    complete: bool  # whether all facts between neighbours were looked for; hubs have too many
    relations: list[RelationCount]  # relations of the entity, those with the most facts first


class TypeSummary(BaseModel):
    """A type of entities, and how many of those on the map, or of all, have it."""

    name: str
    entities: int


class MapResponse(ModelResponse):
    """Entities in two dimensions, by descending number of facts; lists of equal length."""

    method: Literal["pca", "umap"]
    methods: list[Literal["pca", "umap"]]  # that this server has
    total: int  # entities of the model
    variance: list[float]  # the share of the variance that each axis holds; empty for umap
    names: list[str]
    x: list[float]  # between -1 and 1
    y: list[float]
    facts: list[int]
    types: list[TypeSummary]  # the largest ones, from the labels or from a relation such as isa
    type: list[int]  # a place in `types`, or -1


class ModelSummary(BaseModel):
    name: str
    kind: str
    K: int | None
    dimension: int
    graph: str
    entities: int
    relations: int
    facts: int


class ModelsResponse(BaseModel):
    default: str
    models: list[ModelSummary]


class InfoResponse(ModelSummary):
    prefixes: dict[str, str]  # namespaces of names that are IRIs: a request may use ex:ann for http://example.org/ann
    recipe: dict[str, Any]
    metrics: dict[str, Any]
    calibration: dict[str, Any]  # what was measured of probabilities, or the reason why there are none
    curve: list[dict[str, Any]]


# --- reviews --------------------------------------------------------------------------------------


class ReviewRequest(RequestModel):
    """A decision about a fact that the graph does not hold. Undo without a fact takes back the reviewer's latest."""

    decision: Literal["accept", "reject", "skip", "undo"]
    reviewer: str = Field(min_length=1, max_length=MAX_REVIEWER, description="Who decides.")
    head: Name | None = None
    relation: Name | None = None
    tail: Name | None = None
    note: str = Field("", max_length=MAX_NOTE)
    model: ModelName = None


class ReviewFact(Fact):
    score: float | None = None
    probability: float | None = None  # that it holds, if the model is calibrated
    decision: ReviewDecision | None = None  # that stands, or else the skip of this reviewer


class ReviewCounts(BaseModel):
    """Of all facts of the model."""

    accepted: int
    rejected: int
    skipped: int  # by any reviewer, and not decided by another


class ReviewResponse(ModelResponse):
    found: bool  # false if the missing facts have not been looked for and `find` is false; there are none then
    total: int  # facts that match, on all pages
    facts: list[ReviewFact]
    counts: ReviewCounts
    types: list[TypeSummary]  # the largest types of entities
    writable: bool = True  # whether this server takes decisions


class DecidedResponse(ModelResponse):
    """What is known about the fact after the decision, which is on the disk."""

    fact: ReviewFact
    undone: ReviewDecision | None = None
    counts: ReviewCounts
