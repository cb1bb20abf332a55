"""Whole families: what is found of known tables, and what is not done twice."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from beltrami.models.pretrained.opening import load_causal
from beltrami.recipes.family.config import FamilyConfig
from beltrami.recipes.family.losses import text_loss
from beltrami.recipes.family.measure import loss_fit, measure_family, notes
from beltrami.recipes.family.report import family_page
from beltrami.report.page import render
from beltrami.report.text import markup
from tests.recipes.family import tiny

WIDTHS = (16, 24, 32, 48, 64, 96)


class Watch:
    """Remembers what was told."""

    def __init__(self) -> None:
        self.done: dict[str, bool] = {}

    def started(self, what: str) -> None:
        pass

    def moved(self, share: float) -> None:
        assert 0 <= share <= 1

    def finished(self, what: str, reused: bool) -> None:
        self.done[what] = reused


def gaussians(tmp_path: Path, shift: float = 0.0, rows: int = 3000) -> list[str]:
    """Tables of random directions of several widths; a shift is a common part of all rows."""
    rng = np.random.default_rng(0)
    paths = []
    for width in WIDTHS:
        paths.append(str(tmp_path / f"w{width}.npy"))
        np.save(paths[-1], rng.normal(size=(rows, width)).astype("float32") + shift)
    return paths


def config(tmp_path: Path, models: list[str], **options: Any) -> FamilyConfig:
    return FamilyConfig(tuple(models), **{"out": tmp_path / "out", "pairs": 5000, **options})


def test_random_directions_overlap_by_one_over_the_width(tmp_path: Path) -> None:
    found = measure_family(config(tmp_path, gaussians(tmp_path))).document
    for model, width in zip(found["models"], WIDTHS, strict=True):
        measured = model["overlap"]["overlaps"]
        assert measured["mean_squared"] == pytest.approx(1 / width, rel=0.01)
        assert model["family"] == "vectors"
        assert model["losses"] == {}
    for fit in found["overlap_fits"].values():
        assert fit["slope"] == pytest.approx(-1, abs=0.01)
        assert fit["low"] <= fit["slope"] <= fit["high"]
        assert fit["r_squared"] > 0.999
    assert found["loss_fit"] is None
    assert found["notes"] == []


def test_a_common_part_goes_when_rows_are_centred(tmp_path: Path) -> None:
    found = measure_family(config(tmp_path, gaussians(tmp_path, shift=1.0))).document
    fits = found["overlap_fits"]
    assert fits["raw"]["slope"] > -0.2  # half of every row is the same direction
    assert fits["centred"]["slope"] == pytest.approx(-1, abs=0.01)
    assert all("one common direction" in m["overlap"]["reading"] for m in found["models"][1:])


def test_too_few_models_say_so(tmp_path: Path) -> None:
    found = measure_family(config(tmp_path, gaussians(tmp_path)[:2])).document
    assert "needs 3 points" in found["overlap_fits"]["raw"]["missing"]
    assert "2 different widths" in found["notes"][0]
    page = (tmp_path / "out/report.html").read_text(encoding="utf-8")
    assert "was not fitted against the width" in page


def test_a_model_is_measured_once(tmp_path: Path) -> None:
    models = gaussians(tmp_path)[:3]
    first, again, more, fresh = Watch(), Watch(), Watch(), Watch()
    settings = config(tmp_path, models[:2])
    one = measure_family(settings, first).document
    assert first.done == {"w16.npy: overlap": False, "w24.npy: overlap": False}
    assert measure_family(settings, again).document == one
    assert all(again.done.values())
    measure_family(replace(settings, models=(models[2], models[0])), more)
    assert more.done == {"w32.npy: overlap": False, "w16.npy: overlap": True}
    measure_family(replace(settings, fresh=True), fresh)
    assert not any(fresh.done.values())
    np.save(models[0], np.random.default_rng(1).normal(size=(50, 16)))  # other content
    changed = Watch()
    measure_family(settings, changed)
    assert changed.done == {"w16.npy: overlap": False, "w24.npy: overlap": True}


def test_what_an_interrupted_family_had_finished_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from beltrami.recipes.family import measure as module

    settings = config(tmp_path, gaussians(tmp_path)[:2])
    whole, calls = module.superposition, []

    def stop_at_the_second(*arguments: Any, **options: Any) -> dict[str, Any]:
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return whole(*arguments, **options)

    with monkeypatch.context() as patched:
        patched.setattr(module, "superposition", stop_at_the_second)
        with pytest.raises(KeyboardInterrupt):
            measure_family(settings)
    watch = Watch()
    measure_family(settings, watch)
    assert watch.done == {"w16.npy: overlap": True, "w24.npy: overlap": False}


def test_a_damaged_measurement_is_made_again(tmp_path: Path) -> None:
    settings = config(tmp_path, gaussians(tmp_path)[:1])
    before = measure_family(settings).document
    for path in (tmp_path / "out/measured").iterdir():
        path.write_text("{", encoding="utf-8")
    watch = Watch()
    assert measure_family(settings, watch).document == before
    assert not any(watch.done.values())


def test_models_of_transformers(tmp_path: Path) -> None:
    pytest.importorskip("transformers", reason='needs pip install "beltrami[llm]"')
    from safetensors.torch import load_file

    texts = tmp_path / "texts.jsonl"
    told = [*tiny.sentences(8), "", "Tom"]
    texts.write_text("\n".join(json.dumps({"text": t}) for t in told), encoding="utf-8")
    untied = tiny.llama(tmp_path / "untied", 16)
    tied = tiny.llama(tmp_path / "tied", 32, tie_word_embeddings=True)
    projected = tiny.opt(tmp_path / "opt", width=8, hidden=24)
    gpt = tiny.gpt2(tmp_path / "gpt", 48)
    folders = [untied, tied, projected, gpt]
    settings = config(tmp_path, [str(f) for f in folders], texts=(texts,))
    found = measure_family(settings).document
    models = {m["name"]: m for m in found["models"]}
    assert [m["family"] for m in models.values()] == ["llama", "llama", "opt", "gpt2"]
    assert models["untied"]["overlap"]["tensor"] == "lm_head.weight"
    assert models["untied"]["overlap"]["table"] == "output"
    assert models["tied"]["overlap"]["table"] == "embedding"
    sizes = {n: (m["overlap"]["width"], m["overlap"]["hidden_width"]) for n, m in models.items()}
    assert sizes == {"untied": (16, 16), "tied": (32, 32), "opt": (8, 24), "gpt": (48, 48)}
    head = load_file(untied / "model.safetensors")["lm_head.weight"].double()
    unit = torch.nn.functional.normalize(head, dim=1)
    cosines = (unit @ unit.mT)[~torch.eye(len(unit), dtype=torch.bool)]
    assert models["untied"]["overlap"]["overlaps"]["mean_squared"] == pytest.approx(
        float(cosines.square().mean())
    )
    for folder in folders:
        expected = text_loss(*load_causal(str(folder)), told)
        loss = models[folder.name]["losses"]["texts"]
        assert loss["loss"] == pytest.approx(expected.loss, rel=1e-6)
        assert (loss["texts"], loss["skipped"]) == (8, 2)
    assert "missing" in found["loss_fit"]  # one A, one α and three offsets of four losses
    assert any("rows of 8 numbers and states of 24" in note for note in found["notes"])
    watch = Watch()
    measure_family(replace(settings, batch=3), watch)
    assert all(watch.done.values())
    other = Watch()
    measure_family(replace(settings, count=5, models=(str(untied),)), other)
    assert other.done == {"untied: overlap": True, "untied: loss on texts": False}


def test_several_texts_are_data_sets_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("transformers", reason='needs pip install "beltrami[llm]"')
    from beltrami.recipes.family import measure as module

    files = tmp_path / "first.txt", tmp_path / "second.txt"
    for path, told in zip(files, (tiny.sentences(6), tiny.sentences(9)[6:]), strict=True):
        path.write_text("\n".join(told), encoding="utf-8")
    folders = [str(tiny.llama(tmp_path / f"m{width}", width)) for width in (8, 16, 24)]
    loads: list[str] = []

    def counted(source: str, dtype: torch.dtype) -> Any:
        loads.append(source)
        return load_causal(source, dtype)

    monkeypatch.setattr(module, "load_causal", counted)
    settings = config(tmp_path, folders, texts=files)
    found = measure_family(settings)
    assert loads == folders  # once for both texts
    for folder, measured in zip(folders, found.document["models"], strict=True):
        for path in files:
            told = path.read_text(encoding="utf-8").split("\n")
            expected = text_loss(*load_causal(folder), told).loss
            assert measured["losses"][path.stem]["loss"] == pytest.approx(expected, rel=1e-6)
    page = found.report.read_text(encoding="utf-8")
    assert "Loss, first" in page
    assert "Loss, second" in page
    again = Watch()
    measure_family(replace(settings, texts=files[:1]), again)
    assert all(again.done.values())


def test_each_texts_have_an_offset() -> None:
    widths = (64, 128, 256, 512)
    models = [model(w, "a", 50 * w**-0.9 + 2) for w in widths]
    for one, width in zip(models, widths, strict=True):
        one["losses"]["other"] = {**one["losses"]["t"], "loss": 50 * width**-0.9 + 3}
    fit = loss_fit(models)
    assert fit["exponent"] == pytest.approx(0.9, rel=1e-6)
    offsets = [(o["family"], o["texts"], round(o["value"], 5)) for o in fit["offsets"]]
    assert offsets == [("a", "t", 2.0), ("a", "other", 3.0)]
    assert fit["points"] == 8


def model(width: int, family: str, loss: float, **overlap: int) -> dict[str, Any]:
    sizes = {"width": width, "hidden_width": width, **overlap}
    told = {"loss": loss, "predicted": 10, "longest": 8}
    return {"name": "m", "family": family, "overlap": sizes, "losses": {"t": told}}


def test_the_joint_fit_finds_the_law(tmp_path: Path) -> None:
    def law(width: int, offset: float) -> float:
        return 50 * width**-0.9 + offset

    widths = (64, 128, 256, 512)
    models = [model(w, f, law(w, b)) for f, b in (("a", 2.0), ("b", 3.0)) for w in widths]
    models[0]["overlap"]["width"] = 32  # the rows', which losses are not about
    fit = loss_fit(models)
    assert fit["exponent"] == pytest.approx(0.9, rel=1e-6)
    assert fit["scale"] == pytest.approx(50, rel=1e-5)
    assert [(o["family"], round(o["value"], 5)) for o in fit["offsets"]] == [("a", 2.0), ("b", 3.0)]
    assert not fit["at_edge"]


def test_losses_that_cannot_be_compared_are_told() -> None:
    models = [model(w, "a", 3.0) for w in (1, 2, 3, 4, 5)]
    assert notes(models) == []
    models[0]["losses"]["t"] |= {"longest": 4, "predicted": 9}
    said = notes(models)
    assert len(said) == 2
    assert "texts of different lengths" in said[0]
    assert "family a cut texts into different tokens" in said[1]


def test_names_of_users_are_escaped(tmp_path: Path) -> None:
    np.save(tmp_path / "<b>x.npy", np.random.default_rng(0).normal(size=(30, 4)))
    found = measure_family(
        config(tmp_path, [str(tmp_path / "<b>x.npy")], families=("<i>&",))
    ).report.read_text(encoding="utf-8")
    assert "<b>x" not in found
    assert "<i>&" not in found
    assert markup("<b>x.npy") in found


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"models": ()}, "at least one model"),
        ({"models": ("a", "a")}, "--models must not repeat a value, got 'a' twice"),
        ({"families": ("x", "y")}, "--families names 2 families for 1 models"),
        ({"texts": (Path("nowhere.txt"),)}, "--texts nowhere.txt is not a file"),
        ({"count": 0}, "--count must be at least 1"),
        ({"longest": 1}, "--longest must be at least 2"),
        ({"models": ("nothing",)}, "neither a file nor a table we know"),
    ],
)
def test_options_that_make_no_sense(tmp_path: Path, options: dict[str, Any], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        measure_family(replace(config(tmp_path, ["x.npy"]), **options))


def test_texts_need_models(tmp_path: Path) -> None:
    texts = tmp_path / "t.txt"
    texts.write_text("one two\n", encoding="utf-8")
    path = gaussians(tmp_path)[0]
    with pytest.raises(ValueError, match=r"--texts needs models .*w16\.npy is a file"):
        measure_family(config(tmp_path, [path], texts=(texts,)))
    with pytest.raises(ValueError, match="glove is a table"):
        measure_family(config(tmp_path, ["glove"], texts=(texts,)))


def test_texts_of_one_name(tmp_path: Path) -> None:
    for name in ("t.txt", "t.jsonl"):
        (tmp_path / name).write_text('{"text": "one two"}\n', encoding="utf-8")
    files = tmp_path / "t.txt", tmp_path / "t.jsonl"
    with pytest.raises(ValueError, match="both called 't'"):
        measure_family(config(tmp_path, ["x.npy"], texts=files))


def test_a_file_that_is_no_family_stays(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out/family.json").write_text("[]", encoding="utf-8")
    with pytest.raises(ValueError, match="is not a family"):
        measure_family(config(tmp_path, gaussians(tmp_path)[:1]))
    assert (tmp_path / "out/family.json").read_text(encoding="utf-8") == "[]"


def test_the_command_repeats_it() -> None:
    texts = Path("t.txt"), Path("u.txt")
    settings = FamilyConfig(("a b", "c"), texts=texts, families=("x", "y"))
    assert settings.command() == "beltrami family 'a b' c --texts t.txt u.txt --families x y"
    assert settings.folder == Path("runs/family")


def test_a_note_on_a_symbol_gets_no_capital(tmp_path: Path) -> None:
    document = measure_family(config(tmp_path, gaussians(tmp_path)[:2])).document
    page = render(family_page({**document, "notes": ["α is near 0", "widths are few"]}))
    assert "α is near 0." in page
    assert "Widths are few." in page


def test_a_model_that_sees_both_ways_has_no_loss(tmp_path: Path) -> None:
    pytest.importorskip("transformers", reason='needs pip install "beltrami[llm]"')
    texts = tmp_path / "t.txt"
    texts.write_text("\n".join(tiny.sentences(4)), encoding="utf-8")
    model = tiny.bert(tmp_path / "both-ways", causal=False)
    with pytest.raises(ValueError, match=r"both-ways: BertLMHeadModel is not a causal"):
        measure_family(config(tmp_path, [str(model)], texts=(texts,)))
