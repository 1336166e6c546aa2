"""HTML page of a report."""

from importlib.resources import files

import numpy as np

from sklearn_simlearn._core.choice import describe_choice
from sklearn_simlearn._core.statistics import say_p
from sklearn_simlearn.display._pictures import read_pictures, shorten
from sklearn_simlearn.report._charts import draw_curves, draw_gains
from sklearn_simlearn.report._findings import Findings
from sklearn_simlearn.report._html import Html, join, tag
from sklearn_simlearn.report._thumbnails import encode_pictures, is_pixel_art

# Largest number of cells of the table of all queries. If there are more, the table
# shows the queries that change most.
MAX_CELLS = 20_000

# Number of curves in colour; the others, which are worse, are grey.
N_COLORED = 4

# Largest number of characters of a text.
MAX_TEXT = 240

# CSS class, mark and text for screen readers, by relevance.
LOOKS = {
    1: ("right", "✓", "right"),
    0: ("wrong", "✗", "wrong"),
    -1: ("junk", "-", "junk"),
}

# The page must not load anything from a network.
POLICY = (
    "default-src 'none'; img-src data:; style-src 'unsafe-inline'; "
    "script-src 'unsafe-inline'"
)


def make_page(findings: Findings) -> str:
    """Return the whole page."""
    pictures = _gather_pictures(findings)
    thumbnails = encode_pictures(pictures) if pictures else {}
    sections = {
        "Comparison": _compare(findings),
        "Curves": _draw(findings),
        "Query by query": _list_queries(findings),
        "Queries and results": _show_queries(findings, thumbnails),
        "Estimators": _describe_fits(findings),
    }
    if findings.advice:
        words = [tag("p", paragraph) for paragraph in findings.advice]
        code = tag("p", "To fit it:"), tag("pre", findings.code)
        sections = {"Advice": join(*words, *code)} | sections
    anchors = {title: title.lower().replace(" ", "-") for title in sections}
    links = [tag("a", title, href=f"#{anchors[title]}") for title in sections]
    images = "".join(
        f".i{row}{{background-image:url({uri})}}" for row, uri in thumbnails.items()
    )
    head = join(
        Html('<meta charset="utf-8">'),
        Html('<meta name="viewport" content="width=device-width, initial-scale=1">'),
        Html(f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'),
        tag("title", findings.title),
        tag("style", Html(_read("page.css") + images)),
    )
    body = join(
        tag("h1", findings.title),
        tag("p", _summarize(findings)),
        tag("nav", *links),
        *(
            tag("section", tag("h2", title, id=anchors[title]), content)
            for title, content in sections.items()
        ),
        tag("script", Html(_read("page.js"))),
    )
    is_small = pictures and all(map(is_pixel_art, pictures.values()))
    body_class = "pixels" if is_small else None
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head>{head}</head>'
        f"{tag('body', body, class_=body_class)}</html>\n"
    )


def _gather_pictures(findings):
    """Return the images of the queries that are shown and of their results."""
    if findings.images is None:
        return {}
    rows = set()
    for places in findings.shown.values():
        rows.update(findings.queries[places].tolist())
    for found in findings.found.values():
        rows.update(int(row) for hits in found.values() for row, _, _ in hits)
    return read_pictures(findings.images, sorted(rows))


def _read(name):
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


# -- words --


def _summarize(findings):
    best, n_queries = findings.best, findings.n_queries
    line = findings.line(best)
    text = (
        f"{n_queries} queries among {findings.n_samples} samples. {best} ranks best: "
        f"mean average precision {line['mAP']:.3f} ({_interval(line['mAP interval'])})"
    )
    if best == findings.baseline:
        return f"{text}. It is the baseline."
    return (
        f"{text}, {line['gain']:+.3f} ({_interval(line['gain interval'], '+')}) over "
        f"{findings.baseline}. It is better on {line['wins']} queries and worse on "
        f"{line['losses']} (p {say_p(line['p'])})."
    )


def _interval(interval, sign=""):
    low, high = interval
    return f"{low:{sign}.3f} to {high:{sign}.3f}"


# -- the comparison --

BASELINE = tag("small", "baseline")


def _compare(findings):
    heads = ["similarity", "mAP", "P@1", "P@10", "gain", "p", "wins", "losses"]
    heads += ["fit s", "query µs"]
    rows = []
    for line in findings.table:
        is_baseline = line["similarity"] == findings.baseline
        cells = [
            tag(
                "td",
                line["similarity"],
                BASELINE if is_baseline else None,
            ),
            _with_interval(line["mAP"], line["mAP interval"]),
            tag("td", f"{line['P@1']:.3f}"),
            tag("td", f"{line['P@10']:.3f}"),
        ]
        if is_baseline:
            cells += [tag("td", "")] * 4
        else:
            cells += [
                _with_interval(line["gain"], line["gain interval"], "+"),
                _p_value(line["p"]),
                tag("td", line["wins"]),
                tag("td", line["losses"]),
            ]
        cells += [
            tag("td", _optional(line["fit seconds"], ".2f")),
            tag("td", _optional(line["query seconds"], ".0f", 1e6)),
        ]
        is_best = line["similarity"] == findings.best
        options = {"class_": "best" if is_best else None}
        rows.append(tag("tr", *cells, data_name=line["similarity"], **options))
    units = "queries" if findings.units is None else "objects"
    note = (
        "mAP: mean average precision over the queries. P@k: share of relevant items "
        "among the first k. In brackets: 95% confidence intervals (Student). Gain: "
        f"difference in mAP to {findings.baseline}, with wins and losses among the "
        f"queries. p: Wilcoxon's signed-rank test over the {units}, corrected for the "
        "number of tests (Holm). Baselines are not tested. Intervals treat the queries "
        f"as independent, tests the {units}."
    )
    return join(_table(heads, rows), tag("p", note, class_="soft"))


def _with_interval(value, interval, sign=""):
    low, high = interval
    brackets = f"[{low:{sign}.3f}, {high:{sign}.3f}]"
    return tag("td", f"{value:{sign}.3f}", tag("small", brackets), data_value=value)


def _p_value(p):
    if p is None:  # a baseline
        return tag("td", "")
    return tag("td", say_p(p).removeprefix("= "), data_value=p)


def _optional(value, form, factor=1):
    return "" if value is None else f"{factor * value:{form}}"


def _table(heads, rows, **options):
    head = tag("thead", tag("tr", *(tag("th", head, scope="col") for head in heads)))
    table = tag("table", head, tag("tbody", *rows), class_="sortable")
    classes = "scroll " + options.pop("class_", "")
    return tag("div", table, class_=classes.strip(), **options)


# -- charts --


def _draw(findings):
    first = findings.measured[findings.baseline].report
    curves = {
        name: np.nanmean(measured.report.precision_recall, axis=0)
        for name, measured in findings.measured.items()
    }
    kinds, n_learners = {}, 0
    for name in findings.measured:
        if name in findings.baselines:
            kinds[name] = "base" if name == findings.baseline else "base c4"
        else:
            kinds[name] = f"c{min(n_learners, N_COLORED)}"
            n_learners += 1
    legend = []
    for number, (name, kind) in enumerate(kinds.items()):
        score = findings.measured[name].mean_average_precision
        swatch = tag("span", class_=f"swatch {kind}")
        words = f"{name}, {score:.3f}"
        place = tag("span", number + 1, class_="place")
        legend.append(tag("li", place, swatch, words, data_name=name))
    chart = draw_curves(first.recall_levels, curves, kinds)
    parts = [tag("div", chart, tag("ol", *legend, class_="legend"), class_="side")]
    challenger = findings.challenger
    if challenger is not None:
        gains = findings.gains[challenger]
        line = findings.line(challenger)
        words = (
            f"{challenger} against {findings.baseline}: {line['wins']} queries gain, "
            f"{line['losses']} lose, "
            f"{findings.n_queries - line['wins'] - line['losses']} do not change."
        )
        chart = draw_gains(gains, challenger, findings.baseline)
        parts.append(tag("div", chart, tag("p", words), class_="side"))
    return join(*parts)


# -- all queries --


def _list_queries(findings):
    others = [name for name in findings.measured if name != findings.baseline]
    heads = ["query", "label", "relevant", findings.baseline]
    heads += [f"gain of {name}" for name in others]
    first = findings.measured[findings.baseline].report
    gains = np.array([findings.gains[name] for name in others])
    n_shown = min(findings.n_queries, max(1, MAX_CELLS // len(heads)))
    valid = np.flatnonzero(~np.isnan(first.average_precision))
    if others:
        change = np.abs(gains[:, valid]).max(axis=0)
        shown = valid[np.argsort(-change, kind="stable")[:n_shown]]
        key = gains[0]
        if findings.challenger is not None:
            key = findings.gains[findings.challenger]
    else:
        key = first.average_precision
        shown = valid[np.argsort(-key[valid], kind="stable")[:n_shown]]
    rows = []
    for i in shown[np.argsort(-key[shown], kind="stable")]:
        cells = [
            tag("td", findings.query_names[i]),
            tag("td", findings.label(first.query[i]), class_="label"),
            tag("td", int(first.n_relevant[i])),
            tag("td", f"{first.average_precision[i]:.3f}"),
        ]
        for gain in gains[:, i] if others else ():
            kind = "up" if gain > 0 else "down" if gain < 0 else None
            cells.append(tag("td", f"{gain:+.3f}", class_=kind))
        rows.append(tag("tr", *cells))
    words = "Average precision of the baseline, and gains of the others over it."
    if n_shown < findings.n_queries:
        words += f" Of {findings.n_queries} queries, the {n_shown} that change most."
    return join(
        tag("p", words),
        _filter("#all-queries tbody tr"),
        _table(heads, rows, id="all-queries", class_="tall"),
    )


def _filter(selector):
    box = tag("input", type="search", data_filters=selector)
    return tag("label", "Filter ", box, class_="filter")


# -- chosen queries --


def _show_queries(findings, thumbnails):
    parts = [_filter(".query")]
    for title, places in findings.shown.items():
        if len(places):
            parts.append(tag("h3", title))
            parts += [_show_query(findings, place, thumbnails) for place in places]
    return join(*parts)


def _show_query(findings, place, thumbnails):
    first = findings.measured[findings.baseline].report
    row = int(findings.queries[place])
    label = findings.label(row)
    title = [f"Query {findings.query_names[place]}"]
    if label:
        title.append(f"label {label}")
    title.append(f"average precision {first.average_precision[place]:.3f}")
    if findings.challenger is not None:
        rival = findings.measured[findings.challenger].report.average_precision[place]
        gain = rival - first.average_precision[place]
        title[-1] += f" → {rival:.3f} ({gain:+.3f})"
    parts = [tag("h4", " · ".join(title))]
    if findings.texts is not None:
        parts.append(tag("blockquote", shorten(findings.texts[row], MAX_TEXT)))
    if thumbnails:
        asked = tag("figure", _thumb(findings, row), class_="hit asked")
        parts.append(
            tag("div", tag("span", "query", class_="who"), asked, class_="strip")
        )
        for name, found in findings.found.items():
            hits = [_show_hit(findings, hit) for hit in found[place]]
            who = tag("span", name, class_="who")
            parts.append(tag("div", who, *hits, class_="strip"))
    else:
        columns = []
        for name, found in findings.found.items():
            hits = [_list_hit(findings, hit) for hit in found[place]]
            who = tag("div", name, class_="who")
            columns.append(tag("div", who, tag("ol", *hits, class_="texts")))
        parts.append(tag("div", *columns, class_="columns"))
    return tag("article", *parts, class_="query")


def _show_hit(findings, hit):
    item, similarity, relevance = hit
    kind, mark, spoken = LOOKS[int(relevance)]
    caption = tag(
        "figcaption",
        tag("span", mark, class_="mark", aria_hidden="true"),
        tag("span", spoken, class_="hidden"),
        f" {similarity:#.3g}",
    )
    thumb = _thumb(findings, item)
    return tag(
        "figure", thumb, caption, class_=f"hit {kind}", title=_name(findings, item)
    )


def _list_hit(findings, hit):
    item, similarity, relevance = hit
    kind, mark, spoken = LOOKS[int(relevance)]
    text = _name(findings, item)
    if findings.item_texts is not None:
        text = shorten(findings.item_texts[item], MAX_TEXT)
    return tag(
        "li",
        tag("span", mark, class_="mark", aria_hidden="true"),
        tag("span", spoken, class_="hidden"),
        f" {similarity:#.3g} ",
        text,
        class_=kind,
    )


def _thumb(findings, row):
    name = _name(findings, row)
    return tag("span", class_=f"thumb i{row}", role="img", aria_label=name)


def _name(findings, row):
    label = findings.label(row)
    texts = findings.item_texts
    text = "" if texts is None else f": {shorten(texts[row], 80)}"
    return findings.name_item(row) + (f", label {label}" if label else "") + text


# -- estimators --


def _describe_fits(findings):
    parts = []
    for name, measured in findings.measured.items():
        words = []
        if measured.fit_seconds is not None:
            words.append(f"fitted in {measured.fit_seconds:.2f} s")
        choice = describe_choice(measured.estimator)
        if choice:
            words.append(f"hold-out: {choice}")
        parts.append(tag("h3", name))
        if words:
            text = "; ".join(words)
            parts.append(tag("p", text[0].upper() + text[1:] + "."))
        parts.append(tag("pre", repr(measured.estimator)))
    parts.append(tag("p", findings.made_with, class_="soft"))
    return join(*parts)
