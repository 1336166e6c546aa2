"""Calls that fan out to shards: a question to each where it lives, changes of each."""

from contextlib import contextmanager, suppress
from uuid import uuid4

from scipy import sparse

from sklearn_simlearn._core.storage import DamagedError

# Seconds between two looks at whether the workers that were asked are still there.
LOOK = 0.5

# Seconds for answers to arrive once all of them are ready, doubled each time: a worker
# may be lost in between, or the answers be large.
ARRIVE = 1


def find_client():
    """The Dask client in force."""
    try:
        from distributed import get_client
    except ImportError:
        raise ImportError(
            "A ShardedIndex lives on a cluster of Dask: pip install "
            '"sklearn-simlearn[dask]".'
        ) from None
    try:
        return get_client()
    except ValueError:
        raise ValueError(
            "There is no Dask client in force: start one, such as "
            "dask.distributed.Client() for the cores of this machine."
        ) from None


def find_workers(client):
    """Addresses of the workers."""
    addresses = sorted(client.nthreads())
    if not addresses:
        raise ValueError("The Dask cluster has no workers: start some first.")
    return addresses


def count_bytes(Q):
    """Return the size of encoded queries in a message."""
    if sparse.issparse(Q):
        return Q.data.nbytes + Q.indices.nbytes + Q.indptr.nbytes
    return Q.nbytes


@contextmanager
def large_messages():
    """Without Dask's advice against data in messages, where they are meant to be."""
    import dask

    with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1TiB"}):
        yield


def ask(client, shards, function, arguments):
    """Call a function of each shard, on the worker that holds it.

    A call is bound to that worker, because Dask would otherwise move the shard to one
    with less to do. If a worker is lost, Dask makes its shards again elsewhere, and
    they are asked there.

    Parameters
    ----------
    client : distributed.Client

    shards : list of Future

    function : callable
        ``function(shard, *arguments[i])``.

    arguments : list of tuple
        For each shard.

    Returns
    -------
    results : list
        None for a shard that cannot be had.

    faults : dict of int to Exception
        Why, by the number of the shard.
    """
    from dask import config
    from distributed import wait

    lost = [shard for shard in shards if shard.status == "error"]
    if lost:
        # Dask answers with all that it retries, and stumbles over tasks in between.
        with suppress(KeyError):
            client.retry(lost)
    calls, homes = [None] * len(shards), [None] * len(shards)
    patience, n_moves = ARRIVE, 0
    while True:
        held_by = client.who_has(shards)
        for i, shard in enumerate(shards):
            home = frozenset(held_by.get(shard.key, ()))
            # One that is asked while it is made again may answer anywhere.
            if calls[i] is None or (homes[i] and homes[i].isdisjoint(home)):
                calls[i] = client.submit(
                    function,
                    shard,
                    *arguments[i],
                    key=f"{function.__name__}-{uuid4().hex}",
                    workers=list(home) or None,
                )
                n_moves += homes[i] is not None
                homes[i] = home
        if n_moves > config.get("distributed.scheduler.allowed-failures") * len(shards):
            raise RuntimeError(
                f"{n_moves} workers were lost while they were asked. The queries, or a "
                "function as filter, may take more memory than a worker has."
            )
        try:
            wait(calls, timeout=LOOK)
            failed = [i for i, call in enumerate(calls) if call.status == "error"]
            for i in failed:
                fault = calls[i].exception()
                # A block of a file is verified when a call first reads it.
                if shards[i].status != "error" and not isinstance(fault, DamagedError):
                    raise fault
            ready = [i for i in range(len(calls)) if i not in failed]
            patience *= 2
            answers = client.sync(
                client.gather, [calls[i] for i in ready], callback_timeout=patience
            )
        except TimeoutError:
            continue
        results = [None] * len(shards)
        for i, result in zip(ready, answers, strict=True):
            results[i] = result
        return results, {i: calls[i].exception() for i in failed}


def derive(client, shards, function, arguments):
    """New shards, each made from an old one, where that lives if it still does.

    Parameters are those of `ask`. All are there when this returns; an exception of
    one of them is raised.
    """
    from distributed import wait

    held_by = client.who_has(shards)
    with large_messages():
        made = [
            client.submit(
                function,
                shard,
                *more,
                key=f"{function.__name__}-{uuid4().hex}",
                workers=list(held_by.get(shard.key, ())) or None,
                allow_other_workers=True,
                # Before the queries that wait, lest a worker with less to do takes it.
                priority=1,
            )
            for shard, more in zip(shards, arguments, strict=True)
        ]
    wait(made)
    for future in made:
        if future.status == "error":
            raise future.exception()
    return made
