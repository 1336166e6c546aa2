"""Table of the requests that the service answers."""

from typing import NamedTuple

from sklearn_simlearn.serve import _messages as messages


class Action(NamedTuple):
    """Kind of request.

    Attributes
    ----------
    name : str
        Name of the method that answers: of the index if the path names one, otherwise
        of the service.

    method, path : str
        HTTP method and path.

    request, response : type or None
        Types of the bodies.

    summary : str
        Sentence for the OpenAPI description.

    is_change : bool
        True if the action changes an index and requires the token.

    is_quick : bool
        True if the method is called without a thread, so that it answers even if all
        threads are busy. Such a method returns bytes.

    content_type : str
        Content type of the answer.

    parameter : str or None
        Name of a required query parameter, which is passed to the method.
    """

    name: str
    method: str
    path: str
    request: type | None
    response: type | None
    summary: str
    is_change: bool = False
    is_quick: bool = False
    content_type: str = "application/json"
    parameter: str | None = None


ACTIONS = [
    Action(
        "search",
        "POST",
        "/indexes/{index}/search",
        messages.Search,
        messages.Results,
        "Search for the best items.",
    ),
    Action(
        "explain",
        "POST",
        "/indexes/{index}/explain",
        messages.Explain,
        messages.Explanations,
        "Explain the scores of items.",
    ),
    Action(
        "add",
        "POST",
        "/indexes/{index}/add",
        messages.Items,
        messages.Changed,
        "Add items.",
        is_change=True,
    ),
    Action(
        "upsert",
        "POST",
        "/indexes/{index}/upsert",
        messages.NamedItems,
        messages.Changed,
        "Add items, or replace those with the same ids.",
        is_change=True,
    ),
    Action(
        "remove",
        "POST",
        "/indexes/{index}/remove",
        messages.Ids,
        messages.Changed,
        "Remove items.",
        is_change=True,
    ),
    Action(
        "save",
        "POST",
        "/indexes/{index}/save",
        None,
        messages.Changed,
        "Save the index with all changes, and empty its journal.",
        is_change=True,
    ),
    Action(
        "describe",
        "GET",
        "/indexes/{index}",
        None,
        messages.Description,
        "Describe an index.",
    ),
    Action(
        "thumbnail",
        "GET",
        "/indexes/{index}/thumbnail",
        None,
        None,
        "Show a small picture of an item, if items are photographs.",
        content_type="image/jpeg",
        parameter="id",
    ),
    Action(
        "list_indexes",
        "GET",
        "/indexes",
        None,
        messages.Descriptions,
        "Describe all indexes.",
    ),
    Action(
        "check_health",
        "GET",
        "/health",
        None,
        messages.Health,
        "Check that the service answers.",
        is_quick=True,
    ),
    Action(
        "show_metrics",
        "GET",
        "/metrics",
        None,
        None,
        "Show metrics in the format of Prometheus.",
        is_quick=True,
        content_type="text/plain",
    ),
]
