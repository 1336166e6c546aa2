"""Calls of functions with all shards, on the workers that hold them."""

from contextlib import contextmanager, suppress
from uuid import uuid4

from scipy import sparse

from sklearn_simlearn._core.optional import import_optional
from sklearn_simlearn._core.storage import DamagedError

# Seconds between two checks that the called workers are still available.
LOOK = 0.5

# Seconds to wait for the transfer of finished results, doubled at each attempt. A
# worker may be lost during the transfer, or the results may be large.
ARRIVE = 1

LOST_WORKERS = (
    "Several workers were lost during the call. The queries or a filter function may "
    "need more memory than a worker has. Pass fewer queries per call."
)


def find_client():
    """Return the current Dask client."""
    distributed = import_optional("distributed", "dask", "A ShardedIndex")
    try:
        return distributed.get_client()
    except ValueError:
        raise ValueError(
            "There is no current Dask client. Start one, for example with "
            "dask.distributed.Client(), which uses the cores of this machine."
        ) from None


def find_workers(client):
    """Return the addresses of the workers."""
    addresses = sorted(client.nthreads())
    if not addresses:
        raise ValueError("The Dask cluster has no workers. Start workers first.")
    return addresses


def count_bytes(Q):
    """Return the size of encoded queries in a message."""
    if sparse.issparse(Q):
        return Q.data.nbytes + Q.indices.nbytes + Q.indptr.nbytes
    return Q.nbytes


@contextmanager
def large_messages():
    """Suppress Dask's warning about large messages, which are intended here."""
    import dask

    with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1TiB"}):
        yield


def ask(client, shards, function, arguments):
    """Call a function with each shard, on the worker that holds it.

    A call is bound to this worker, because Dask would otherwise move the shard to a
    worker with less load. If a worker is lost, Dask rebuilds its shards on other
    workers, and the calls are repeated there.

    Parameters
    ----------
    client : distributed.Client

    shards : list of Future

    function : callable
        ``function(shard, *arguments[i])``.

    arguments : list of tuple
        Arguments for each shard.

    Returns
    -------
    results : list
        Results; None for a shard that is not available.

    faults : dict of int to Exception
        Errors by the number of the shard.
    """
    from dask import config
    from distributed import KilledWorker, wait

    lost = [shard for shard in shards if shard.status == "error"]
    if lost:
        # Dask returns all retried futures, and fails on tasks in an intermediate state.
        with suppress(KeyError):
            client.retry(lost)
    calls, homes = [None] * len(shards), [None] * len(shards)
    patience, n_moves = ARRIVE, 0
    while True:
        held_by = client.who_has(shards)
        for i, shard in enumerate(shards):
            home = frozenset(held_by.get(shard.key, ()))
            # A shard that is being rebuilt may be called on any worker.
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
            raise RuntimeError(LOST_WORKERS)
        try:
            wait(calls, timeout=LOOK)
            failed = [i for i, call in enumerate(calls) if call.status == "error"]
            for i in failed:
                fault = calls[i].exception()
                # A block of a file is verified when a call first reads it.
                if shards[i].status != "error" and not isinstance(fault, DamagedError):
                    if isinstance(fault, KilledWorker):
                        raise RuntimeError(LOST_WORKERS) from fault
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
    """Return new shards, each built from an old one on the same worker if possible.

    Parameters are those of `ask`. All shards are complete when the function returns. If
    one of them fails, its exception is raised.
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
                # With a high priority, the task runs before waiting queries and is not
                # moved to a worker with less load.
                priority=1,
            )
            for shard, more in zip(shards, arguments, strict=True)
        ]
    wait(made)
    for future in made:
        if future.status == "error":
            raise future.exception()
    return made
