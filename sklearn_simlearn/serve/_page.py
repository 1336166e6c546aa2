"""Search page, and headers of all answers."""

from importlib.resources import files

from starlette.datastructures import MutableHeaders
from starlette.responses import Response
from starlette.routing import Route

# The page loads its own files and nothing else.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' blob: data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}


class SafeHeaders:
    """Middleware that adds headers for browsers to all answers."""

    def __init__(self, app):
        self._app = app

    async def __call__(self, scope, receive, send):
        async def send_with_headers(message):
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        await self._app(scope, receive, send_with_headers)


def _read(name, media_type):
    content = files(__package__).joinpath(name).read_bytes()

    async def answer(request):
        return Response(content, media_type=media_type)

    return answer


PAGES = [
    Route("/", _read("page.html", "text/html")),
    Route("/page.css", _read("page.css", "text/css")),
    Route("/page.js", _read("page.js", "text/javascript")),
]
