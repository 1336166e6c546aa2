"""OpenAPI description of the service, from its table of routes."""

import msgspec

import sklearn_simlearn
from sklearn_simlearn.serve import _messages as messages
from sklearn_simlearn.serve._schemas import restrict

# Descriptions of the errors that any request may return, by status.
REFUSALS = {
    400: "The body is not JSON, or the request is malformed.",
    404: "There is no such index, item or address.",
    413: "The body is too large.",
    415: "The body is not of type application/json.",
    422: "The request does not fit its schema or the index.",
    503: "The service is busy, or the request took too long.",
}
REFUSALS_OF_CHANGES = {
    401: "The token is missing or wrong.",
    403: "The service is read-only.",
    409: "Another index was saved in the folder in the meantime.",
}

# Fields of requests whose length is limited.
BATCHES = {"queries", "items", "ids", "exclude"}


def describe(routes, limits, inputs):
    """Return the description of routes as a dict for JSON.

    Parameters
    ----------
    routes : list of Action
    limits : Limits
    inputs : dict of Input
        Inputs that the indexes accept, by name.
    """
    types = {messages.Failure}
    for route in routes:
        types |= {kind for kind in (route.request, route.response) if kind is not None}
    types = sorted(types, key=lambda kind: kind.__name__)
    template = "#/components/schemas/{name}"
    _, schemas = msgspec.json.schema_components(types, ref_template=template)
    restrict(schemas, list(inputs.values()))
    _set_limits(schemas, limits)
    with_thumbnails = {
        name: taken for name, taken in inputs.items() if taken.has_thumbnails
    }
    paths: dict = {}
    for route in routes:
        answering = with_thumbnails if route.name == "thumbnail" else inputs
        if answering:
            described = _describe_route(route, answering)
            paths.setdefault(route.path, {})[route.method.lower()] = described
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Similarity search",
            "version": sklearn_simlearn.__version__,
            "description": "Search in indexes of sklearn_simlearn.",
        },
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _set_limits(schemas, limits):
    """Add the limits to the schemas."""
    k = {"type": "integer", "minimum": 1, "maximum": limits.k, "default": 10}
    schemas["Search"]["properties"]["k"] = k
    for name in ("Search", "Explain", "Items", "NamedItems", "Ids"):
        for field in BATCHES & schemas[name]["properties"].keys():
            schemas[name]["properties"][field]["maxItems"] = limits.batch


def _describe_route(route, inputs):
    refusals = REFUSALS | (REFUSALS_OF_CHANGES if route.is_change else {})
    described = {
        "operationId": route.name,
        "summary": route.summary,
        "responses": {
            "200": {
                "description": "Success.",
                "content": {
                    route.content_type: {"schema": _refer(route.response)},
                },
            },
        }
        | {
            str(status): {
                "description": reason,
                "content": {"application/json": {"schema": _refer(messages.Failure)}},
            }
            for status, reason in refusals.items()
        },
    }
    parameters = []
    if "{index}" in route.path:
        schema = {"type": "string", "enum": list(inputs)}
        parameters.append(_describe_parameter("index", "path", schema))
    if route.parameter is not None:
        ids = [id_ for one in inputs.values() for id_ in one.ids.get("examples", [])]
        schema = {"type": "string", "examples": [str(id_) for id_ in ids]}
        parameters.append(_describe_parameter(route.parameter, "query", schema))
    if parameters:
        described["parameters"] = parameters
    if route.request is not None:
        described["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": _refer(route.request)}},
        }
    if route.is_change:
        described["security"] = [{"token": []}]
    return described


def _describe_parameter(name, place, schema):
    return {"name": name, "in": place, "required": True, "schema": schema}


def _refer(kind):
    if kind is None:
        return {"type": "string"}
    return {"$ref": f"#/components/schemas/{kind.__name__}"}
