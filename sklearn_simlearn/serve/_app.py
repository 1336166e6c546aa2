"""ASGI application that serves indexes."""

import asyncio
import hmac
import logging
import os
import signal
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.routing import Route

import sklearn_simlearn
from sklearn_simlearn._core.storage import DamagedError
from sklearn_simlearn.index import SimilarityIndex
from sklearn_simlearn.index._journal import ReplacedError
from sklearn_simlearn.serve import _messages as messages
from sklearn_simlearn.serve._actions import ACTIONS
from sklearn_simlearn.serve._metrics import Metrics
from sklearn_simlearn.serve._openapi import BATCHES, describe
from sklearn_simlearn.serve._page import HEADERS, PAGES, SafeHeaders
from sklearn_simlearn.serve._served import ServedIndex, UnknownIdError

logger = logging.getLogger("sklearn_simlearn.serve")

JSON = "application/json"

# Seconds between two checks whether another index was saved in a folder.
WATCH = 1.0


@dataclass(frozen=True)
class Limits:
    """Largest requests that a service accepts.

    Parameters
    ----------
    body : int, default=16 MiB
        Largest size of a request, in bytes.

    k : int, default=1000
        Largest number of results per query.

    batch : int, default=100
        Largest number of queries, items, ids or excluded ids per request.

    seconds : float, default=30
        Largest time until a request is answered, in seconds.

    pixels : int, default=50_000_000
        Largest number of pixels of all photographs of a request.

    waiting : int, default=100
        Largest number of requests that wait for a thread or run in one. Further
        requests are refused.

    Examples
    --------
    >>> from sklearn_simlearn.serve import Limits
    >>> Limits(k=100).k
    100
    """

    body: int = 2**24
    k: int = 1000
    batch: int = 100
    seconds: float = 30
    pixels: int = 50_000_000
    waiting: int = 100


def create_app(
    index: SimilarityIndex | str | os.PathLike | Mapping,
    *,
    token: str | None = None,
    trusted: Sequence[str] = (),
    limits: Limits | None = None,
    allowed_hosts: Sequence[str] | None = None,
) -> Starlette:
    """Return an ASGI application that serves indexes. Read more in :ref:`serve`.

    Parameters
    ----------
    index : SimilarityIndex, path-like, or dict of them
        Index, or folder of a saved index; or a dict of several by their names in
        addresses. Without a dict, a folder gives the index its name. If another index
        is saved in the folder later, it replaces the served one.

    token : str, default=None
        Token that a request needs to change an index. Without a token, the service is
        read-only. With a token, all indexes must be folders, and only one process may
        serve them.

    trusted : sequence of str, default=()
        Types in stored estimators to trust, as for
        :meth:`~sklearn_simlearn.index.SimilarityIndex.load`.

    limits : Limits, default=None
        Largest requests. None uses the defaults of :class:`Limits`.

    allowed_hosts : sequence of str, default=None
        Host names that requests may use. None allows all.

    Returns
    -------
    app : Starlette
        Application for any ASGI server that runs asyncio.

    Examples
    --------
    >>> from sklearn_simlearn.index import SimilarityIndex
    >>> from sklearn_simlearn.serve import create_app
    >>> from sklearn_simlearn.similarities import CosineSimilarity
    >>> index = SimilarityIndex(CosineSimilarity()).fit([[1.0, 0.0], [0.0, 1.0]])
    >>> app = create_app(index)
    """
    if token is not None and not token:
        raise ValueError("token must not be empty. Pass None for a read-only service.")
    limits = limits or Limits()
    if not isinstance(index, Mapping):
        is_memory = isinstance(index, SimilarityIndex)
        index = {"index" if is_memory else Path(index).resolve().name: index}
    for name in index:
        if not isinstance(name, str) or not name or "/" in name:
            raise ValueError(
                'Names of indexes must be strings without "/", because they are parts '
                f"of addresses; got {name!r}."
            )
    indexes: dict = {}
    try:
        for name, source in index.items():
            indexes[name] = ServedIndex(
                name,
                source,
                trusted=trusted,
                is_writable=token is not None,
                max_pixels=limits.pixels,
            )
    except BaseException:
        for served in indexes.values():
            served.close()
        raise
    service = Service(indexes, token, limits)
    middleware = [Middleware(SafeHeaders)]
    if allowed_hosts is not None:
        hosts = list(allowed_hosts)
        middleware.append(Middleware(TrustedHostMiddleware, allowed_hosts=hosts))
    return Starlette(
        routes=[*service.list_routes(), *PAGES],
        middleware=middleware,
        exception_handlers={HTTPException: _answer_refusal, Exception: _answer_error},
        lifespan=service.run,
    )


class Service:
    """Indexes, and the threads that search in them.

    Parameters
    ----------
    indexes : dict of ServedIndex
    token : str or None
    limits : Limits
    """

    def __init__(self, indexes, token, limits):
        self._indexes, self._token, self._limits = indexes, token, limits
        self._metrics = Metrics(indexes)
        self._pool = ThreadPoolExecutor(os.cpu_count() or 1, "simlearn")
        self._n_waiting = 0
        self._decoders = {
            action.request: msgspec.json.Decoder(action.request)
            for action in ACTIONS
            if action.request is not None
        }

    def list_routes(self):
        """Return the routes of all actions."""
        routes = [
            Route(action.path, partial(self.answer, action), methods=[action.method])
            for action in ACTIONS
        ]
        return [*routes, Route("/openapi.json", self.show_description)]

    @asynccontextmanager
    async def run(self, app):
        """Watch the folders while the application runs, then close the indexes."""
        loop = asyncio.get_running_loop()
        watch = loop.create_task(self._watch())
        if hasattr(signal, "SIGHUP"):
            # Signals can be handled only in the main thread.
            with suppress(RuntimeError, ValueError):
                loop.add_signal_handler(signal.SIGHUP, self._refresh_all, True)
        try:
            yield
        finally:
            watch.cancel()
            # Threads of requests that timed out may still be running.
            self._pool.shutdown()
            for served in self._indexes.values():
                served.close()

    async def _watch(self):
        while True:
            await asyncio.sleep(WATCH)
            await asyncio.gather(*self._refresh_all())

    def _refresh_all(self, force=False):
        loop = asyncio.get_running_loop()
        return [
            loop.run_in_executor(None, served.refresh, force)
            for served in self._indexes.values()
        ]

    # -- requests --

    async def answer(self, action, request):
        """Answer a request within the limits."""
        start, status = time.perf_counter(), 500
        self._metrics.start()
        try:
            async with asyncio.timeout(self._limits.seconds):
                response = await self._answer(action, request)
            status = response.status_code
            return response
        except HTTPException as error:
            status = error.status_code
            raise
        except TimeoutError:
            status = 503
            end = " The change may have been stored." if action.is_change else ""
            raise HTTPException(
                503, f"The request took more than {self._limits.seconds} s.{end}"
            ) from None
        finally:
            seconds = time.perf_counter() - start
            self._metrics.finish(action.name, status, seconds)

    async def _answer(self, action, request):
        if action.is_change:
            self._check_token(request)
        arguments = []
        if action.request is not None:
            body = await self._read_body(request)
            arguments.append(self._decode(action, body))
        if action.parameter is not None:
            arguments.append(_read_parameter(request, action.parameter))
        target = self
        if "index" in request.path_params:
            target = self._indexes.get(request.path_params["index"])
            if target is None:
                raise HTTPException(404, "There is no index with this name.")
        call = getattr(target, action.name)
        if action.is_quick:
            return Response(call(), media_type=action.content_type)
        content = await self._run(call, *arguments)
        return Response(content, media_type=action.content_type)

    def _check_token(self, request):
        if self._token is None:
            raise HTTPException(403, "The service is read-only: it has no token.")
        kind, _, given = request.headers.get("authorization", "").partition(" ")
        # Starlette decodes the bytes of a header as Latin-1.
        given = given.strip().encode("latin-1")
        is_right = hmac.compare_digest(given, self._token.encode())
        if not (kind.lower() == "bearer" and is_right):
            raise HTTPException(
                401,
                "The token is missing or wrong.",
                headers={"WWW-Authenticate": "Bearer"},
            )

    async def _read_body(self, request):
        content_type = request.headers.get("content-type", "").partition(";")[0]
        if content_type.strip().lower() != JSON:
            raise HTTPException(415, f"The body must have the content type {JSON}.")
        parts, size = [], 0
        try:
            async for part in request.stream():
                size += len(part)
                if size > self._limits.body:
                    raise HTTPException(
                        413, f"The body has more than {self._limits.body} bytes."
                    )
                parts.append(part)
        except ClientDisconnect:
            raise HTTPException(400, "The body is incomplete.") from None
        return b"".join(parts)

    def _decode(self, action, body):
        try:
            request = self._decoders[action.request].decode(body)
        except msgspec.ValidationError as error:
            raise HTTPException(422, f"{error}.") from None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise HTTPException(400, f"The body is not JSON: {error}.") from None
        limits = self._limits
        if getattr(request, "k", 0) > limits.k:
            raise HTTPException(422, f"k must be at most {limits.k}.")
        for name in BATCHES:
            if len(getattr(request, name, ())) > limits.batch:
                raise HTTPException(
                    422, f"{name} must have at most {limits.batch} entries."
                )
        return request

    async def _run(self, call, *arguments):
        """Call a function in a thread; return its result as bytes."""
        if self._n_waiting >= self._limits.waiting:
            raise HTTPException(
                503, "Too many requests are waiting.", headers={"Retry-After": "1"}
            )
        self._n_waiting += 1
        loop = asyncio.get_running_loop()
        future = self._pool.submit(_call, call, arguments)
        # A thread whose request timed out counts until it ends.
        future.add_done_callback(lambda _: loop.call_soon_threadsafe(self._leave))
        return await asyncio.wrap_future(future)

    def _leave(self):
        self._n_waiting -= 1

    # -- actions without an index --

    def list_indexes(self):
        """Return the descriptions of all indexes."""
        found = [served.describe() for served in self._indexes.values()]
        return messages.Descriptions(found)

    def check_health(self):
        """Return the state of the service as JSON."""
        sizes = {name: len(served.index) for name, served in self._indexes.items()}
        health = messages.Health("ok", sklearn_simlearn.__version__, sizes)
        return msgspec.json.encode(health)

    def show_metrics(self):
        """Return the metrics of this process as text."""
        return self._metrics.show()

    async def show_description(self, request):
        """Answer with the OpenAPI description of the indexes that are served now."""
        return Response(await self._run(self._describe), media_type=JSON)

    def _describe(self):
        inputs = {name: one.describe_input() for name, one in self._indexes.items()}
        return describe(ACTIONS, self._limits, inputs)


def _read_parameter(request, name):
    value = request.query_params.get(name)
    if value is None:
        raise HTTPException(422, f"The parameter {name!r} is missing in the address.")
    return value


def _call(call, arguments):
    """Call a method of an index in a thread; convert its errors to HTTP errors."""
    try:
        answer = call(*arguments)
        return answer if isinstance(answer, bytes) else msgspec.json.encode(answer)
    except UnknownIdError as error:
        raise HTTPException(404, str(error)) from None
    except ReplacedError as error:
        raise HTTPException(409, str(error)) from None
    except DamagedError:
        raise
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise HTTPException(422, str(error)) from None
    except OSError:
        logger.exception("A request failed.")
        # The message may contain a path of this machine.
        detail = "A file of the index could not be read or written. See the log."
        raise HTTPException(503, detail) from None


def _answer_refusal(request, error):
    content = msgspec.json.encode(messages.Failure(str(error.detail)))
    return Response(content, error.status_code, error.headers, JSON)


def _answer_error(request, error):
    """Answer without details. Starlette logs the error.

    Starlette calls this function outside of the middleware that adds `HEADERS`.
    """
    content = msgspec.json.encode(messages.Failure("The request failed. See the log."))
    return Response(content, 500, HEADERS, JSON)
