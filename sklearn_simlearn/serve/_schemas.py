"""Schemas of the requests that the served indexes accept, for OpenAPI."""

from typing import NamedTuple

import numpy as np

from sklearn_simlearn.index._conditions import COMPARISONS
from sklearn_simlearn.serve._messages import Column

# Largest number of ids of an index in the examples.
N_EXAMPLES = 3

# Picture of 16 x 16 pixels as a PNG file in base64, an example of a photograph.
PICTURE = (
    "iVBORw0KGgoAAAANSUhEUgAAABAAAAAQCAAAAAA6mKC9AAAAHUlEQVQY02O0YYCAHijNxIAG6CPAeALK"
    "KBlYdwAAg/MCI9VmuhMAAAAASUVORK5CYII="
)

# JSON types of the values of a column, by the kind of the column.
TYPES = {"number": "number", "text": "string", "boolean": "boolean"}


class Input(NamedTuple):
    """Queries, items and filters that an index accepts.

    Attributes
    ----------
    form : str
        Form of queries and items.

    value, ids : dict
        Schemas of a query or item in this form, and of an id.

    accepts_ids : bool
        Whether an item can be a query.

    is_numbered : bool
        Whether the index numbers new items without ids.

    columns : list of Column or None
        Columns of the metadata.

    has_all_columns : bool
        Whether the metadata of new items must have all columns.

    has_thumbnails : bool
        Whether items have thumbnails.
    """

    form: str
    value: dict
    ids: dict
    accepts_ids: bool
    is_numbered: bool
    columns: list[Column] | None
    has_all_columns: bool
    has_thumbnails: bool


def restrict(schemas, inputs):
    """Restrict the schemas of requests to the inputs of the given indexes.

    Parameters
    ----------
    schemas : dict
        Schemas of the messages by name. They are changed.

    inputs : list of Input
    """
    ids = _join([taken.ids for taken in inputs])
    search = schemas["Search"]["properties"]
    search["exclude"]["items"] = ids
    search["filter"] = {
        "description": search["filter"]["description"],
        "default": None,
        **_join([_describe_filter(taken.columns or []) for taken in inputs]),
    }
    examples = [[id_] for taken in inputs for id_ in taken.ids.get("examples", [])]
    for name in ("Explain", "Ids"):
        field = schemas[name]["properties"]["ids"]
        field |= {"items": ids, "examples": examples}
    query = schemas["Query"]
    schemas["Query"] = _join([_describe_query(query, taken) for taken in inputs])
    _restrict_items(schemas, inputs)
    for name in ("Search", "Explain"):
        _add_examples(schemas[name]["properties"]["queries"], inputs)


def _restrict_items(schemas, inputs):
    """Restrict the items to add: either all of them have ids, or none."""
    item = schemas["Item"]
    schemas["Item"] = _join([_describe_item(item, taken) for taken in inputs])
    numbered = [taken for taken in inputs if taken.is_numbered]
    if numbered:
        items = schemas["Items"]["properties"]["items"]
        without = _join([_describe_item(item, taken, False) for taken in numbered])
        items["anyOf"] = [{"items": items.pop("items")}, {"items": without}]
        _add_examples(items, [taken for taken in numbered if taken.columns is None])


def _add_examples(schema, inputs):
    """Add examples to the schema of a list of queries or items."""
    values = [(one.form, one.value.get("examples", [])) for one in inputs]
    examples = [[{form: value}] for form, some in values for value in some]
    if examples:
        schema["examples"] = examples


def describe_ids(ids):
    """Return the schema of the ids of an index, with some of them as examples."""
    schema: dict = {"type": "integer", "minimum": -(2**63), "maximum": 2**63 - 1}
    if ids.values.dtype.kind == "U":
        schema = {"type": "string", "minLength": 1}
    rows = np.flatnonzero(ids.alive[:1000])[:N_EXAMPLES]
    return schema | ({"examples": ids.take(rows).tolist()} if len(rows) else {})


def describe_photograph():
    """Return the schema of photographs."""
    return {
        "type": "string",
        "contentEncoding": "base64",
        "pattern": "^([A-Za-z0-9+/]{4})+([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$",
        "examples": [PICTURE],
    }


def describe_vector(n_features, dtype):
    """Return the schema of vectors: lists, or dicts of the non-zero numbers."""
    # Larger numbers have squares whose sum may overflow.
    largest = float(np.sqrt(np.finfo(dtype).max / n_features))
    number = {"type": "number", "minimum": -largest, "maximum": largest}
    size = {"minItems": n_features, "maxItems": n_features}
    names = {"pattern": f"^[0-9]{{1,{len(str(n_features - 1))}}}$"}
    return {
        "anyOf": [
            {"type": "array", "items": number, **size},
            {"type": "object", "propertyNames": names, "additionalProperties": number},
        ],
        "examples": [{"0": 1, str(n_features - 1): 0.5}],
    }


def describe_record(columns):
    """Return the schema of records with these columns."""
    return {
        "type": "object",
        "properties": {column.name: _describe_value(column) for column in columns},
        "required": [column.name for column in columns],
        "additionalProperties": False,
    }


def _join(schemas):
    """Return a schema that is satisfied if one of several schemas is."""
    different: list = []
    for schema in schemas:
        if schema not in different:
            different.append(schema)
    return different[0] if len(different) == 1 else {"anyOf": different}


def _describe_query(base, taken):
    values = {taken.form: taken.value}
    if taken.accepts_ids:
        values["id"] = taken.ids
    return _select(base, values) | {"minProperties": 1, "maxProperties": 1}


def _describe_item(base, taken, with_id=True):
    values = {taken.form: taken.value}
    if with_id:
        # The examples are ids of items that exist already.
        values["id"] = {k: v for k, v in taken.ids.items() if k != "examples"}
    if taken.columns is not None:
        record = describe_record(taken.columns)
        if not taken.has_all_columns:
            record = {"type": "object", "properties": record["properties"]}
        values["metadata"] = record
    return _select(base, values) | {"required": list(values)}


def _select(base, values):
    """Return the schema of a message with some of its fields and their schemas."""
    known = base["properties"]
    properties = {
        name: {key: known[name][key] for key in ("description",) if key in known[name]}
        | value
        for name, value in values.items()
    }
    return base | {"properties": properties}


def _describe_filter(columns):
    """Return the schema of filters on columns."""
    return {
        "type": ["object", "null"],
        "properties": {column.name: _describe_condition(column) for column in columns},
        "additionalProperties": False,
    }


def _describe_condition(column):
    """Return the schema of conditions: a value, a list of values, or comparisons."""
    if column.kind not in TYPES:
        return {}
    value = {"type": TYPES[column.kind]}
    return {
        "anyOf": [
            _describe_value(column),
            {"type": "array", "items": value},
            {
                "type": "object",
                "properties": dict.fromkeys(COMPARISONS, value),
                "additionalProperties": False,
            },
        ]
    }


def _describe_value(column):
    """Return the schema of a value of a column, which may be missing."""
    if column.kind not in TYPES:
        return {}
    examples = {"examples": column.values[:N_EXAMPLES]} if column.values else {}
    return {"type": [TYPES[column.kind], "null"], **examples}
