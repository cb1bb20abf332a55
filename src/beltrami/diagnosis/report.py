"""The page of a diagnosis, made of its document alone: every number in it is in the JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from beltrami.analysis.curvature_fit import LADDER
from beltrami.analysis.intervals import Interval
from beltrami.diagnosis.numbers import Mean, as_interval, fact_rows, number
from beltrami.diagnosis.pictures import METHODS
from beltrami.diagnosis.sentences import sentence
from beltrami.diagnosis.superposition_report import superposition_section
from beltrami.diagnosis.tree_likeness import AT_RADII, DATA, NOISE, REFERENCES
from beltrami.report.charts import Estimate, Group, Series, dot_chart, histogram, line_chart
from beltrami.report.page import Figure, Page, Row, Section, Table
from beltrami.report.scatter import scatter_svg

WHAT_DELTA_IS = (
    "Four points can be paired in three ways. In a tree the two larger of the three sums of "
    "distances are equal; δ is by how much they differ at worst, halved, among fours with a common "
    "base point, which gives at least half of the worst of all. Relative to the diameter, as "
    "2δ/diameter, it is 0 for trees and at most 1.",
    "Points in many dimensions that have nothing to do with each other are all about equally far "
    "apart, which is a star, which is a tree: their δ is small, too. So a δ is to be read beside "
    "that of noise with as many points and the same spread.",
)
DISK = (
    "The disk is the whole hyperbolic plane: the rim is infinitely far away. Distortion is the "
    "mean of |d'/d − 1| over pairs; 0 is perfect."
)
OVERLAP = (
    "Overlap is the mean squared cosine of pairs of rows. Directions drawn at random have 1/d of "
    "it, and the Welch bound is the least that so many rows can have in d dimensions."
)
NO_TAIL = (
    "A power law is fitted by likelihood, from the count on at which it fits best. A p-value below "
    "0.1 says that the counts are not a power law; a larger one does not say that they are."
)


def diagnosis_page(document: dict[str, Any]) -> Page:
    """What the command writes to report.html."""
    parts, source, verdict = document["parts"], document["source"], document["verdict"]
    tree = parts.get("tree-likeness")
    lead = f"{verdict['answer']} {verdict['reason']}" if verdict else "No verdict was asked for."
    sections = []
    if notes := tuple(sentence(note) for note in document["notes"]):
        sections.append(Section("To keep in mind", notes))
    if verdict:
        sections.append(Section("How the verdict is reached", (verdict["rule"],)))
    sections += [section(parts[name]) for name, section in _SECTIONS.items() if name in parts]
    return Page(
        title=f"{source['name']}: how tree-like?",
        lead=lead,
        figures=(_delta_figure(tree),) if tree else (),
        table=main_table(document),
        sections=tuple(sections),
        facts=tuple(_facts(document)),
        command=document["command"],
        footer=f"beltrami {document['beltrami']}. All numbers are in diagnosis.json.",
    )


def main_table(document: dict[str, Any]) -> Table:
    """The numbers that matter most, for the page and the command line."""
    return Table(
        f"{document['source']['name']}: ± is a 95 % interval",
        ("Value",),
        tuple(_row(*row) for row in _main_rows(document)),
    )


def _main_rows(document: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    parts = document["parts"]
    if tree := parts.get("tree-likeness"):
        delta = {name: _mean(estimate) for name, estimate in tree["relative_delta"].items()}
        excess, way = _mean(tree["excess_over_noise"]), _mean(tree["tree_likeness_score"])
        yield "Excess of δ over noise", "below 0: more tree-like than noise", excess
        yield "Way from noise to a tree", "0 is noise, 1 is a tree", way
        yield "Relative δ", "2δ/diameter", delta[DATA]
        for name, words in tree["noises"].items():
            yield f"of {name}", words, delta[name]
        for name, words in REFERENCES.items():
            yield f"of a {name}", words, delta[name]
    if fits := parts.get("curvature"):
        place = [fit["dimensions"] for fit in fits["fits"]].index(fits["best_dimensions"])
        best, noise = fits["fits"][place], fits["noise_fits"][place]
        dimensions = f"in {best['dimensions']} dimensions; 0 is flat"
        yield "√c·diameter that fits best", dimensions, _bend(best)
        yield "Distortion, hyperbolic", "0 is perfect", f"{best['distortion']:.3f}"
        yield "Distortion, flat", "as many dimensions", f"{best['flat_distortion']:.3f}"
        both = f"{noise['distortion']:.3f} and {noise['flat_distortion']:.3f}"
        yield "Distortions of noise", "hyperbolic and flat", both
    if vectors := parts.get("vectors"):
        if dimension := vectors.get("intrinsic_dimension"):
            yield "Intrinsic dimension", "by the two nearest", number(dimension["two_nearest"], 1)
        yield "Mean cosine", "1: all one way", number(vectors["isotropy"]["mean_cosine"], 3)
    if overlap := parts.get("superposition"):
        title = "Overlap of rows, times 1/m"
        if "missing" in overlap:
            yield title, overlap["missing"], "not measured"
        else:
            both = f"{number(overlap['ratio'])} and {number(overlap['ratio_centred'])}"
            yield title, "raw and centred; 1: as random", both
    if prompts := parts.get("prompts"):
        tokens = f"tokens of {prompts['prompts']:,} prompts"
        yield "Excess of δ over noise, prompts", tokens, _mean(prompts["excess_over_noise"])
    if correlation := parts.get("words", {}).get("spearman_of_norm_and_frequency"):
        count = f"{parts['words']['words']:,} words"
        yield "Rank correlation of norm and frequency", count, _of(correlation)


def _delta_figure(tree: dict[str, Any]) -> Figure:
    names = {DATA: "these data", NOISE: "noise", AT_RADII: AT_RADII, **REFERENCES}
    groups = [
        Group(
            names[name],
            {"relative δ": Estimate.around(estimate["mean"], estimate["half_width"])},
        )
        for name, estimate in tree["relative_delta"].items()
    ]
    svg = dot_chart(
        groups,
        title="Relative δ beside references",
        description="How tree-like the data are, and noise, trees, spheres and random graphs.",
        x_label="2δ/diameter",
    )
    of, each = ("all points", "base points") if tree["all_points"] else ("points", "samples")
    plain, *more = tree["noises"].values()
    rest = f"; noise of equal lengths is {more[0]}" if more else ""
    return Figure(
        "Further left is more tree-like",
        svg,
        f"{tree['compared']:,} {of}, {tree['samples']} {each}, each beside references of about its "
        f"size. Noise is {plain}{rest}.",
        wide=True,
    )


def _delta_section(tree: dict[str, Any]) -> Section:
    columns = tuple(f"{i + 1}" for i in range(tree["samples"]))
    rows = tuple(
        Row(name, "", tuple(f"{v:.4f}" for v in values)) for name, values in tree["values"].items()
    )
    return Section(
        "δ, and why it is compared",
        (
            *WHAT_DELTA_IS,
            f"δ itself is {number(tree['delta']['mean'])} at a diameter of "
            f"{number(tree['diameter']['mean'])} in the mean. By the rule of thumb "
            "(0.144/relative δ)² that would be curvature "
            f"−{tree['curvature_by_rule_of_thumb']:.3g}, in units in which the Poincaré disk's is "
            "−1.",
        ),
        tables=(Table("Relative δ of each sample", columns, rows, head="Data"),),
    )


def _curvature_section(fits: dict[str, Any]) -> Section:
    lines = [
        Series(
            f"{fit['dimensions']} dimensions",
            [step[0] for step in fit["ladder"]],
            [step[1] for step in fit["ladder"]],
        )
        for fit in fits["fits"]
    ]
    chart = line_chart(
        lines,
        title="Distortion by curvature",
        description="How much embeddings of each curvature distort the distances.",
        x_label="√c·diameter",
        y_label="Distortion",
    )
    rows = tuple(
        Row(
            f"{fit['dimensions']} dimensions",
            whose,
            (
                _bend(fit),
                f"{fit['distortion']:.3f}",
                f"{fit['flat_distortion']:.3f}",
                number(fit["c"]),
                number(fit["by_delta"]),
                number(fit["by_triangles"]),
            ),
        )
        for whose, group in (("", fits["fits"]), ("noise", fits["noise_fits"]))
        for fit in group
    )
    columns = ("√c·diameter", "hyperbolic", "flat", "c, embedding", "c, δ", "curvature, triangles")
    return Section(
        "Curvature",
        (
            f"Fitted to {fits['fits'][0]['compared']} points, {fits['fits'][0]['samples']} times, "
            "drawn from one sample: intervals are over these draws alone.",
            "A curvature −c has the unit 1/distance²; √c·diameter says how far the space is from "
            "flat where the data are. Three ways to find it need not agree: by the embedding that "
            "distorts least, by δ, and by how long lines across triangles are (negative is "
            "hyperbolic).",
            "Points that are all about equally far apart, as noise in many dimensions is, need few "
            "dimensions of hyperbolic space and many of flat space. So the fits of noise stand "
            "beside those of the data.",
        ),
        (Figure("Distortion by curvature", chart, "Flat is at the left.", wide=True),),
        (Table("Fits", columns, rows, head="Embedding"),),
    )


def _products_section(part: dict[str, Any]) -> Section:
    if "missing" in part:
        return Section("Products of spaces", (f"Not fitted: {part['missing']}.",))
    groups = [
        Group(fit["name"], {"distortion": Estimate.around(fit["distortion"], fit["half_width"])})
        for fit in part["fits"]
    ]
    chart = dot_chart(
        groups,
        title="Products of spaces",
        description="Distortion of pairs that were not fitted.",
        x_label="Distortion",
    )
    rows = []
    for fit in part["fits"]:
        distortion = Interval(fit["distortion"], fit["half_width"]).format()
        curvatures = ", ".join(number(c) for c in fit["curvatures"])
        rows.append(Row(fit["name"], "", (distortion, curvatures)))
    verdict = (
        "and clearly less than any single space"
        if part["clear"]
        else "but no product is clearly better than the best single space"
    )
    return Section(
        "Products of spaces",
        (
            "Hyperbolic (H), flat (E) and spherical (S) factors, with as many dimensions in all, "
            f"fitted to {part['compared']} points {part['samples']} times by gradient steps, and "
            "judged by pairs that were held out.",
            f"{part['fits'][0]['name']} distorts least, {verdict}.",
        ),
        (Figure("Products of spaces", chart, "With 95 % intervals over samples.", wide=True),),
        (Table("Products", ("Distortion", "Curvatures"), tuple(rows), head="Product"),),
    )


def _pictures_section(part: dict[str, Any]) -> Section:
    figures = tuple(
        Figure(
            name,
            scatter_svg(
                torch.tensor(part["methods"][name]["points"], dtype=torch.float64),
                part["labels"],
                title=f"{name} of {len(part['labels'])} points",
                description=f"A sample in the Poincaré disk, {words}.",
            ),
            f"{words.capitalize()}: distortion {part['methods'][name]['distortion']:.3f}.",
        )
        for name, words in METHODS.items()
    )
    start = (
        f"hMDS sees the distances; the two kinds of PCA begin with an embedding in "
        f"{part['dimensions_before']} dimensions. √c·diameter is {part['bend']:.3g}."
    )
    return Section("The Poincaré disk, three ways", (DISK, start), figures)


def _vectors_section(part: dict[str, Any]) -> Section:
    norms, isotropy = part["norms"], part["isotropy"]
    chart = histogram(
        {"rows": norms["quantiles"]},
        title="Norms",
        description="How long rows are.",
        x_label="Norm",
        y_label="Share of rows",
        share=True,
    )
    lengths = ", ".join(number(norms[name]) for name in ("least", "median", "most"))
    rows = [
        _row("Norm", "least, median, most", lengths),
        _row("Variation of norms", "standard deviation/mean", number(norms["variation"])),
        _row("Mean cosine", "of pairs", number(isotropy["mean_cosine"])),
        _row("Overlap", "mean squared cosine", number(isotropy["mean_squared_cosine"])),
        _row("of random directions", "1/d", number(isotropy["random_overlap"])),
        _row("at least", "Welch's bound", number(isotropy["least_overlap"])),
        _row("Effective dimensions", "(Σλ)²/Σλ²", number(isotropy["effective_dimensions"])),
    ]
    if dimension := part.get("intrinsic_dimension"):
        ways = f"two nearest, and likelihood of {dimension['k']:.0f}"
        both = f"{number(dimension['two_nearest'])} and {number(dimension['likelihood'])}"
        rows.append(_row("Intrinsic dimension", ways, both))
    if hubs := part.get("hubness"):
        rows += [
            _row("Hubness", "skewness of neighbour counts", number(hubs["skewness"])),
            _row("Greatest hub", f"neighbour of {hubs['largest']:.0f}", hubs["hub_label"]),
            _row(
                "Nobody's neighbour",
                "share of rows that are near to no other",
                number(hubs["never"]),
            ),
        ]
    tables = [Table(f"Of {part['compared']:,} rows; norms of all", ("Value",), tuple(rows))]
    if "bands" in norms:
        bands = tuple(
            _row(b["name"], f"{b['from']:.3g} to {b['to']:.3g}", ", ".join(b["examples"]))
            for b in norms["bands"]
        )
        tables.append(Table("Rows by norm", ("Examples",), bands, head="Norm", prose=True))
    return Section(
        "The table of vectors",
        (OVERLAP,),
        (Figure("Norms", chart, "By quantiles of all rows.", wide=True),),
        tuple(tables),
    )


def _words_section(part: dict[str, Any]) -> Section:
    if "missing" in part:
        return Section("Frequencies", (f"Not measured: {part['missing']}.",))
    bands = sorted(part["norm_by_frequency"], key=lambda band: band["from_log10"])
    half = [band["half_width"] or 0.0 for band in bands]
    means = [band["mean_norm"] for band in bands]
    chart = line_chart(
        [
            Series(
                "mean norm",
                [float(band["from_log10"]) for band in bands],
                means,
                [m - h for m, h in zip(means, half, strict=True)],
                [m + h for m, h in zip(means, half, strict=True)],
            )
        ],
        title="Norm by frequency",
        description="The mean norm of words by decade of their frequency.",
        x_label="log₁₀ of the count, rounded down",
        y_label="Mean norm",
    )
    correlation = part["spearman_of_norm_and_frequency"]
    text = (
        f"{part['words']:,} rows are words with a frequency ({part['origin']}). Spearman's "
        f"correlation of norm and frequency is {_of(correlation)}"
    )
    text += "." if "missing" in correlation else f": {_relation(correlation)}."
    rows = tuple(
        Row(
            f"10^{band['from_log10']}" + ("+" if band["from_log10"] >= 7 else ""),
            "",
            (f"{band['words']:,}", Interval(band["mean_norm"], band["half_width"]).format()),
        )
        for band in reversed(bands)
    )
    tables = [Table("By frequency", ("Words", "Mean norm"), rows, head="Count from")]
    paragraphs = [text]
    if law := part.get("power_law"):
        paragraphs.append(NO_TAIL)
        cells = (
            Interval(law["exponent"], law["half_width"]).format(2),
            f"{law['xmin']:.0f}",
            f"{law['tail']:,.0f} of {law['count']:,.0f}",
            number(law["p_value"]),
        )
        columns = ("Exponent", "From count", "Words in it", "p-value")
        row = Row("Fit", "", cells)
        tables.append(Table("Power law of the frequencies", columns, (row,)))
    figure = Figure("Norm by frequency", chart, "With 95 % intervals of the means.", wide=True)
    return Section("Frequencies", tuple(paragraphs), (figure,), tuple(tables))


def _prompts_section(part: dict[str, Any]) -> Section:
    chart = histogram(
        {"prompts": part["values"], "noise of each": part["noise_values"]},
        title="δ of prompts",
        description="How tree-like the tokens of each prompt are, and noise of the same size.",
        x_label="Relative δ",
        y_label="Share of prompts",
        share=True,
    )
    excess = _mean(part["excess_over_noise"])
    rows = [
        _row("Relative δ", "mean over prompts", _mean(part["relative_delta"])),
        _row("of noise", "as many tokens, same spread", _mean(part["noise"])),
        _row(f"of {AT_RADII}", "as far from the mean", _mean(part["noise_of_equal_lengths"])),
        _row("Excess over noise", "over the noise that has less", excess),
        _row("Correlation with tokens", "Spearman's", _of(part["correlation_with_tokens"])),
    ]
    paragraphs = [
        f"The tokens of {part['prompts']:,} prompts of {part['file']}, in layer "
        f"{part['layer']}. δ grows with the number of tokens, so a correlation with anything that "
        "goes with length may be length's. Tokens that the tokenizer adds are left out.",
        f"Left out for fewer than 4 tokens: {part['left_out_for_fewer_than_4_tokens']}. Cut off "
        f"where the model ends: {part['cut_off']}.",
    ]
    known = part["correctness"]
    if known is not None and "missing" in known:
        paragraphs.append(f"Not compared with answers: {known['missing']}.")
    elif known is not None:
        right, wrong = f"{known['right']} prompts", f"{known['wrong']} prompts"
        rows += [
            _row("δ of prompts answered rightly", right, _mean(known["delta_of_right"])),
            _row("and wrongly", wrong, _mean(known["delta_of_wrong"])),
            _row("Correlation with being right", "of δ", _of(known["correlation"])),
            _row("", "of the excess over noise", _of(known["correlation_of_excess"])),
        ]
    figure = Figure("δ of prompts", chart, "Outlines: shares of prompts.", wide=True)
    table = Table("Prompts; ± is a 95 % interval", ("Value",), tuple(rows))
    return Section("Prompts", tuple(paragraphs), (figure,), (table,))


_SECTIONS: dict[str, Callable[[dict[str, Any]], Section]] = {
    "tree-likeness": _delta_section,
    "curvature": _curvature_section,
    "products": _products_section,
    "pictures": _pictures_section,
    "vectors": _vectors_section,
    "superposition": superposition_section,
    "words": _words_section,
    "prompts": _prompts_section,
}


def _row(name: str, hint: str, value: str) -> Row:
    return Row(name, hint, (value,))


def _mean(estimate: Mean) -> str:
    return as_interval(estimate).format()


def _relation(correlation: dict[str, float | None]) -> str:
    low, high = correlation["low"], correlation["high"]
    if low is not None and high is not None and low <= 0 <= high:
        return "no clear relation"
    nearer = (correlation["value"] or 0.0) < 0
    return "frequent words are nearer to the origin" if nearer else "frequent words are further out"


def _of(correlation: dict[str, Any] | None) -> str:
    """A correlation and its interval, which need not be symmetric, or why there is none."""
    if correlation is None:
        return "–"
    if "missing" in correlation:
        return f"not measured: {correlation['missing']}"
    if correlation["low"] is None:
        return number(correlation["value"], 3)
    value, low, high = (number(correlation[key], 3) for key in ("value", "low", "high"))
    return f"{value} ({low} to {high})"


def _facts(document: dict[str, Any]) -> Iterator[tuple[str, str]]:
    source = document["source"]
    yield "Source", f"{source['name']} ({source['kind']})"
    yield "Points that are used", f"{source['points']:,}"
    yield from fact_rows(source["facts"])
    settings = document["settings"]
    yield "Sample", f"{settings['sample']:,} points, {settings['repeats']} times"
    yield "Seed", str(settings["seed"])
    if source["kind"] == "vectors":
        yield "Metric", settings["metric"]
    yield "Content", f"SHA-256 {source['digest']}"


def _bend(fit: dict[str, Any]) -> str:
    if fit["bend"] >= LADDER[-1]:
        return f"at least {LADDER[-1]:.0f}"
    if fit["low"] is None:
        return f"{fit['bend']:.2g}"
    return f"{fit['bend']:.2g} ({fit['low']:.2g} to {fit['high']:.2g})"
