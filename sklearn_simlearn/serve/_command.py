"""Function that runs the service with uvicorn, for the command line."""

import ipaddress
import json
import os
import socket
from pathlib import Path

from sklearn_simlearn._core.optional import install_command
from sklearn_simlearn.serve._app import Limits, create_app

# Environment variable that holds the arguments of `create_app` for the workers.
ARGUMENTS = "SIMLEARN_SERVICE"

# Environment variable that holds the token.
TOKEN = "SIMLEARN_TOKEN"

# Largest number of open connections. Further connections are refused.
MAX_CONNECTIONS = 1000


def run(folders, *, host, port, workers, token, trusted, limits, allowed_hosts):
    """Serve folders of indexes until the process is stopped.

    Parameters
    ----------
    folders : list of str
        Folders of saved indexes.

    host, port : str and int
        Address to listen on. Port 0 selects a free port.

    workers : int
        Number of processes. With a token, it must be 1.

    token, trusted, limits, allowed_hosts
        As for `create_app`. If `host` is a loopback address, only requests to its usual
        host names and to those in `allowed_hosts` are accepted.
    """
    try:
        import uvicorn
    except ImportError:
        command = install_command("serve")
        raise ImportError(f"serving requires uvicorn: {command}") from None
    if token is not None and workers > 1:
        raise ValueError(
            "a service with a token, which accepts changes, must be one process: use "
            "--workers without a token, or a PostgresIndex for several writers"
        )
    arguments = {
        "index": name_folders(folders),
        "token": token,
        "trusted": list(trusted),
        "limits": vars(limits),
        "allowed_hosts": list_hosts(host, allowed_hosts),
    }
    listener = _listen(host, port)
    options = {
        "http": "h11",  # it limits the size of headers
        "ws": "none",
        "log_level": "warning",
        "access_log": False,
        "limit_concurrency": MAX_CONNECTIONS,
        "server_header": False,
    }
    if workers == 1:
        app = make_app(arguments)
        server = uvicorn.Server(uvicorn.Config(app, **options))
        _announce(arguments, listener)
        server.run(sockets=[listener])
        return
    # If an index cannot be served, raise here instead of in each worker.
    make_app(arguments)
    os.environ[ARGUMENTS] = json.dumps(arguments)
    _announce(arguments, listener)
    uvicorn.run(
        f"{__name__}:make_app",
        factory=True,
        workers=workers,
        fd=listener.fileno(),
        **options,
    )


def make_app(arguments=None):
    """Return the application for the arguments in the environment."""
    arguments = dict(arguments or json.loads(os.environ[ARGUMENTS]))
    return create_app(**arguments | {"limits": Limits(**arguments["limits"])})


def name_folders(folders):
    """Return folders by their names; raise if two have the same name."""
    named: dict = {}
    for folder in folders:
        name = Path(folder).resolve().name
        if name in named:
            raise ValueError(
                f"two indexes have the name {name!r}: rename one of their folders"
            )
        named[name] = str(folder)
    return named


def read_token(path):
    """Return the token in a file, or in the environment if there is no file."""
    if path is None:
        return os.environ.get(TOKEN) or None
    token = Path(path).read_text(encoding="utf-8").strip()
    if not token:
        raise ValueError(f"{path} is empty: write a token into it")
    return token


def list_hosts(host, allowed_hosts):
    """Return the host names that requests may use; None for all host names."""
    # A page of another site could use a host name that resolves to the loopback
    # address. It must not reach a service that listens only on loopback.
    if allowed_hosts or _is_loopback(host):
        return ["localhost", "127.0.0.1", "[::1]", host, *allowed_hosts]
    return None


def _is_loopback(host):
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _listen(host, port):
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(2048)
    except OSError as error:
        listener.close()
        place = f"{host}:{port}"
        raise OSError(error.errno, error.strerror, place) from None
    return listener


def _announce(arguments, listener):
    host, port = listener.getsockname()[:2]
    names = ", ".join(arguments["index"])
    mode = "read-only" if arguments["token"] is None else "with changes"
    place = f"[{host}]" if ":" in host else host
    print(f"serving {names} ({mode}) on http://{place}:{port}/", flush=True)
