"""Requests and answers of the service, which also define the schemas of OpenAPI."""

from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType

Id = int | str
# JSON does not distinguish between 5 and 5.0.
GivenId = int | float | str
Value = str | int | float | bool | None
Record = dict[str, Value]

# Forms of a query or an item. An index takes one of them.
FORMS = ("vector", "text", "photograph", "record")


class Message(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Base class of the messages. Unknown fields raise an error."""


class Query(Message):
    """A query. Exactly one field is given."""

    vector: Annotated[
        list[float] | dict[str, float] | UnsetType,
        Meta(
            description="Features: a list of numbers, or an object with the non-zero "
            "numbers by the number of the feature, from 0."
        ),
    ] = UNSET
    text: str | UnsetType = UNSET
    photograph: Annotated[
        bytes | UnsetType,
        Meta(description="Content of a JPEG, PNG, WebP, TIFF, BMP or GIF file."),
    ] = UNSET
    record: Annotated[
        Record | UnsetType, Meta(description="Values by the name of their column.")
    ] = UNSET
    id: Annotated[
        GivenId | UnsetType, Meta(description="Id of an item as the query.")
    ] = UNSET

    def __post_init__(self):
        _check_forms(self, (*FORMS, "id"))
        self.id = _as_integer(self.id)


class Item(Message):
    """An item to store: one of vector, text, photograph and record."""

    vector: list[float] | dict[str, float] | UnsetType = UNSET
    text: str | UnsetType = UNSET
    photograph: bytes | UnsetType = UNSET
    record: Record | UnsetType = UNSET
    id: Annotated[
        GivenId | UnsetType,
        Meta(description="Id. Required unless the index numbers its items."),
    ] = UNSET
    metadata: Annotated[
        dict[str, Any] | UnsetType,
        Meta(description="Required if the items of the index have metadata."),
    ] = UNSET

    def __post_init__(self):
        _check_forms(self, FORMS)
        self.id = _as_integer(self.id)


class Search(Message):
    """Search for the best items."""

    queries: Annotated[list[Query], Meta(min_length=1)]
    k: Annotated[float, Meta(ge=1, description="Number of items per query.")] = 10
    combine: Annotated[
        bool,
        Meta(description="Combine all queries into one, and return one list."),
    ] = False
    filter: Annotated[
        dict[str, Value | list[Value] | dict[str, Value]] | None,
        Meta(
            description="Conditions on the metadata by column, all of which must hold: "
            'a value, a list of values, or comparisons such as {"<": 10}.'
        ),
    ] = None
    exclude: Annotated[
        list[GivenId], Meta(description="Ids of items to exclude from the results.")
    ] = []

    def __post_init__(self):
        self.k = _as_integer(self.k)
        self.exclude = list(map(_as_integer, self.exclude))


class Explain(Message):
    """Explain the scores of items for the combination of all queries."""

    queries: Annotated[list[Query], Meta(min_length=1)]
    ids: Annotated[list[GivenId], Meta(min_length=1)]

    def __post_init__(self):
        self.ids = list(map(_as_integer, self.ids))


class Items(Message):
    """Items to add. Either all of them have ids, or none."""

    items: Annotated[list[Item], Meta(min_length=1)]


class NamedItems(Items):
    """Items with ids, to add or to replace."""


class Ids(Message):
    """Ids of items."""

    ids: Annotated[list[GivenId], Meta(min_length=1)]

    def __post_init__(self):
        self.ids = list(map(_as_integer, self.ids))


class Result(Message):
    """An item that was found."""

    id: Id
    score: float
    text: str | UnsetType = UNSET
    metadata: dict[str, Any] | UnsetType = UNSET
    thumbnail: Annotated[
        str | UnsetType, Meta(description="Address of a small picture.")
    ] = UNSET


class Results(Message):
    """Items per query, the best first."""

    results: list[list[Result]]


class Contribution(Message):
    """Part of a score: a word, a column, or a part of a union."""

    name: str
    value: float
    parts: list["Contribution"] = []


class Explanation(Message):
    """Contributions to the score of an item, the largest first."""

    id: Id
    score: float
    parts: list[Contribution]


class Explanations(Message):
    """Explanations of the scores of some items."""

    explanations: list[Explanation]


class Changed(Message):
    """Result of a change that is on the disk."""

    n_items: Annotated[int, Meta(description="Number of items after the change.")]
    ids: list[Id] = []


class Column(Message):
    """A column of the metadata, for filters."""

    name: str
    kind: Annotated[
        str,
        Meta(description='"number", "text", "boolean", or "other" if not filterable.'),
    ]
    values: Annotated[
        list[Value], Meta(description="All values, if the column has only a few.")
    ] = []
    minimum: float | None = None
    maximum: float | None = None


class Description(Message):
    """An index that is served."""

    name: str
    n_items: int
    query: Annotated[
        str,
        Meta(
            description='Form of queries: "vector", "text", "photograph" or "record".'
        ),
    ]
    accepts_ids: Annotated[bool, Meta(description="Whether an item can be a query.")]
    is_writable: bool
    has_thumbnails: bool
    n_features: int | None = None
    columns: list[Column] = []


class Descriptions(Message):
    """All indexes that are served."""

    indexes: list[Description]


class Health(Message):
    """State of the service."""

    status: str
    version: str
    indexes: Annotated[dict[str, int], Meta(description="Number of items by name.")]


class Failure(Message):
    """Reason why a request was refused."""

    error: str


def _as_integer(value):
    """Return a number without a fraction as an integer; other values unchanged."""
    if not isinstance(value, float):
        return value
    if not value.is_integer():
        raise ValueError(f"{value} is not an integer")
    return int(value)


def _check_forms(message, forms):
    given = [form for form in forms if getattr(message, form) is not UNSET]
    if len(given) != 1:
        names = ", ".join(forms)
        raise ValueError(f"exactly one of {names} is required; got {len(given)}")
