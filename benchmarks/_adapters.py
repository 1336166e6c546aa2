"""Other methods to learn from judgements: a linear adapter by torch, and NUDGE.

Both are skipped if their package is missing: ``pip install torch nudge-ft``.
"""

import importlib.util
import time
from itertools import pairwise

import numpy as np

from sklearn_simlearn.metrics import ndcg_at_k


def is_installed(name):
    """Return whether a package can be imported."""
    spec = importlib.util.find_spec(name)
    return spec is not None and spec.origin is not None


def hold_out(n, share=0.2):
    """Return training rows and held-out rows."""
    order = np.random.default_rng(0).permutation(n)
    n_held_out = round(share * n)
    return order[n_held_out:], order[:n_held_out]


def learn_torch_adapter(Q, D, relevance, *, max_epochs=30, batch=256, rate=2e-4):
    """Return a matrix for the queries, by in-batch negatives and early stopping.

    A held-out fifth of the queries chooses the number of epochs, including 0.
    """
    import torch

    torch.manual_seed(0)
    torch.set_num_threads(1)
    train, held_out = hold_out(len(Q))
    pairs = relevance[train].tocoo()
    row, column = train[pairs.row[pairs.data > 0]], pairs.col[pairs.data > 0]
    judged = relevance[held_out].toarray()
    Q_all, D_all = torch.from_numpy(Q), torch.from_numpy(D)
    W = torch.eye(Q.shape[1], requires_grad=True)
    optimizer = torch.optim.Adam([W], lr=rate)
    best, best_W = -1.0, None
    for epoch in range(max_epochs + 1):
        with torch.no_grad():
            S = (Q_all[held_out] @ W @ D_all.T).numpy()
        score = np.nanmean(ndcg_at_k(judged, S, k=10))
        if score > best:
            best, best_W, best_epoch = score, W.detach().numpy().copy(), epoch
        elif epoch - best_epoch >= 3:
            break
        for part in torch.randperm(len(row)).split(batch):
            part = part.numpy()
            mapped = torch.nn.functional.normalize(Q_all[row[part]] @ W)
            logits = mapped @ D_all[column[part]].T / 0.05
            # Other documents that are relevant to the query are not negatives.
            known = relevance[row[part]][:, column[part]].toarray() > 0
            np.fill_diagonal(known, False)
            logits = logits.masked_fill(torch.from_numpy(known), float("-inf"))
            loss = torch.nn.functional.cross_entropy(logits, torch.arange(len(part)))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return best_W


def rank_by_torch(train, test):
    """Return the similarities of the test, and the CPU seconds of the fit."""
    D = train.documents["vectors"]
    start = time.process_time()
    W = learn_torch_adapter(train.queries["vectors"], D, train.relevance)
    seconds = time.process_time() - start
    return test.queries["vectors"] @ W @ D.T, seconds


def rank_by_nudge(train, test, kind):
    """Return the similarities of the test, and the CPU seconds of the fit."""
    import nudge
    import torch

    torch.set_num_threads(1)
    Q, D = train.queries["vectors"], train.documents["vectors"]
    start = time.process_time()
    sets = []
    for rows in hold_out(len(Q)):
        R = train.relevance[rows]
        answers = [
            R.indices[a:b][R.data[a:b] > 0].tolist() for a, b in pairwise(R.indptr)
        ]
        known = [i for i, answer in enumerate(answers) if answer]
        queries = Q[rows[known]]
        sets.append({"q_embs": queries, "q_ans_indx": [answers[i] for i in known]})
    moved = getattr(nudge, kind)().finetune_embeddings(D, *sets)
    seconds = time.process_time() - start
    return test.queries["vectors"] @ np.asarray(moved).T, seconds


def list_adapters():
    """Return the functions by name, for the packages that are installed."""
    found = {}
    if is_installed("torch"):
        found["linear adapter by torch"] = rank_by_torch
        if is_installed("nudge"):
            for kind in ("NUDGE-M", "NUDGE-N"):
                found[f"nudge-ft, {kind}"] = lambda train, test, kind=kind: (
                    rank_by_nudge(train, test, kind.replace("-", ""))
                )
    return found
