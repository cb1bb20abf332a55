"""Whole forecasts of known laws, and what they write."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from beltrami.recipes.forecasting.config import ForecastConfig
from beltrami.recipes.forecasting.forecast import forecast_file
from beltrami.recipes.forecasting.report import main_table, windows_table
from beltrami.report.text import markup

WIDTHS = (64, 128, 256, 512, 1024, 2048)


def save(tmp_path: Path, exponent: float, floor: float = 0.0, name: str = "t.csv") -> Path:
    """Losses of a law, off by one in a thousand by turns."""
    rows = [
        f"{w},{(30 * w**-exponent + floor) * (1 + 1e-3 * (-1) ** i)}" for i, w in enumerate(WIDTHS)
    ]
    path = tmp_path / name
    path.write_text("\n".join(["width,loss", *rows]), encoding="utf-8")
    return path


def ask(tmp_path: Path, path: Path, target: float | None = None) -> ForecastConfig:
    return ForecastConfig(path, target=target, out=tmp_path / "out")


def test_a_power_law_and_its_target(tmp_path: Path) -> None:
    target = 30 * 4096**-1.0
    found = forecast_file(ask(tmp_path, save(tmp_path, 1.0), target))
    told = found.document["forecast"]
    assert told["exponent"] == pytest.approx(1, abs=0.01)
    assert told["low"] < 1 < told["high"]
    assert not told["floor_needed"]
    assert told["width"] == pytest.approx(4096, rel=0.02)
    assert told["width_low"] < told["width"] < told["width_high"]
    assert told["regime"]["name"] == "strong"
    assert "at a width of 4," in found.document["answer"]
    windows = found.document["windows"]
    assert [fit["from_width"] for fit in windows["fits"]] == [64, 128, 256, 512]
    assert found.document == json.loads(found.path.read_text(encoding="utf-8"))
    page = found.report.read_text(encoding="utf-8")
    for text in ("width ≥ 512", "Regime: strong", "<svg"):
        assert text in page


def test_a_floor_and_an_exponent_that_are_known(tmp_path: Path) -> None:
    path = save(tmp_path, 1.0, floor=2.0)
    told = ForecastConfig(path, target=2.1, floor=2.0, data_exponent=1.0, out=tmp_path / "out")
    found = forecast_file(told)
    told = found.document["forecast"]
    assert (told["floor"], told["floor_needed"]) == (2.0, False)
    assert told["width"] == pytest.approx(300, rel=0.05)
    assert "towards a floor of 2" in found.document["answer"]
    assert "for a = 1 " in told["regime"]["words"]
    assert found.document["windows"]["floors"] == "given"
    assert [fit["floor"] for fit in found.document["windows"]["fits"]] == pytest.approx([2.0] * 4)
    assert "--floor=2.0 --data-exponent=1.0" in found.document["command"]
    assert "as given" in found.report.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("option", "value"), [("floor", -1.0), ("floor", float("nan")), ("data_exponent", float("inf"))]
)
def test_bad_numbers(tmp_path: Path, option: str, value: float) -> None:
    config = ForecastConfig(save(tmp_path, 1.0), out=tmp_path / "out", **{option: value})
    with pytest.raises(ValueError, match=f"--{option.replace('_', '-')} must be"):
        forecast_file(config)


def test_a_floor_below_which_no_width_leads(tmp_path: Path) -> None:
    found = forecast_file(ask(tmp_path, save(tmp_path, 1.0, floor=2.0), 1.5)).document
    told = found["forecast"]
    assert told["floor"] == pytest.approx(2, abs=0.02)
    assert told["width"] is None
    assert "no width reaches 1.5" in found["answer"]
    assert any("not above the floor" in text for text in told["warnings"])
    assert found["windows"]["floors"] == "own"
    assert found["windows"]["fits"][0]["exponent"] == pytest.approx(1, abs=0.05)


def test_windows_have_floors_of_their_own(tmp_path: Path) -> None:
    """Two power laws: all widths seem to have a floor, and the widest none."""
    path = tmp_path / "t.csv"
    rows = [f"{w},{100 / w**1.5 + 3 / w**0.3}" for w in WIDTHS]
    path.write_text("\n".join(["width,loss", *rows]), encoding="utf-8")
    found = forecast_file(ask(tmp_path, path))
    told, windows = found.document["forecast"], found.document["windows"]
    first, _, last = windows["fits"]
    for name in ("exponent", "low", "high", "floor"):
        assert first[name] == told[name]
    assert (last["from_width"], last["distinct"], last["floor"]) == (256, 4, 0)
    assert last["exponent"] == pytest.approx(0.318, abs=1e-3)
    assert windows["spread"] == told["spread"] == first["exponent"] - last["exponent"]
    (line,) = [row for row in windows_table(found.document).rows if row.name == "width ≥ 256"]
    assert line.values[0] == "0.318"
    assert line.values[2] == "none"


@pytest.mark.parametrize("target", [1000.0, 5.0])
def test_a_target_above_all_losses(tmp_path: Path, target: float) -> None:
    """Of 30/width: at a width of 0.03, where there is no model, and at 6."""
    found = forecast_file(ask(tmp_path, save(tmp_path, 1.0), target))
    told, said = found.document["forecast"], found.document["answer"]
    assert any("times below the narrowest, 64" in text for text in told["warnings"])
    rows = {row.name: row.values[0] for row in main_table(found.document).rows}
    if target == 5:
        assert "reaches 5 at a width of 6 (95 % interval 6 to 6)" in said
        assert rows["Width for it"] == "6"
    else:
        assert "by this law any width reaches 1000" in said
        assert rows["Width for it"] == "below 1"
    config = replace(ask(tmp_path, save(tmp_path, 1.0), 0.5), fresh=True)
    near = forecast_file(config).document["forecast"]
    assert not near["warnings"]


def test_symbols_get_no_capital(tmp_path: Path) -> None:
    page = forecast_file(ask(tmp_path, save(tmp_path, 1.0))).report.read_text(encoding="utf-8")
    assert "α = 1.00, from" in page
    assert "Α" not in page  # a capital alpha


def test_without_a_target(tmp_path: Path) -> None:
    found = forecast_file(ask(tmp_path, save(tmp_path, 0.3))).document
    assert found["forecast"]["target"] is None
    assert found["forecast"]["regime"]["name"] == "weak"
    assert found["answer"].startswith("The loss goes as width^−(0.3)")


def test_losses_that_do_not_fall(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("width,loss\n64,2\n128,2.5\n256,3\n512,3.1\n", encoding="utf-8")
    found = forecast_file(ask(tmp_path, path, 1.0)).document
    assert "no width reaches 1" in found["answer"]
    assert found["forecast"]["warnings"]


def test_names_of_users_are_escaped(tmp_path: Path) -> None:
    path = save(tmp_path, 1.0, name="<b>.csv")
    path.write_text(path.read_text().replace("loss", "<i>loss"))
    page = forecast_file(
        ForecastConfig(path, loss="<i>loss", out=tmp_path / "out")
    ).report.read_text(encoding="utf-8")
    assert "<b>" not in page
    assert "<i>" not in page
    assert markup("<b>.csv") in page


def test_a_file_that_is_no_forecast_stays(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out/forecast.json").write_text("{}", encoding="utf-8")
    with pytest.raises(ValueError, match="is not a forecast"):
        forecast_file(ask(tmp_path, save(tmp_path, 1.0)))
    assert (tmp_path / "out/forecast.json").read_text(encoding="utf-8") == "{}"


def test_a_target_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="--target must be a positive number, got -1"):
        forecast_file(ask(tmp_path, save(tmp_path, 1.0), -1))


def test_the_command_repeats_it() -> None:
    settings = ForecastConfig(Path("a b.csv"), target=2.5, loss="x")
    assert settings.command() == "beltrami forecast 'a b.csv' --target=2.5 --loss=x"
    assert settings.folder == Path("runs/forecast-a_b.csv")
