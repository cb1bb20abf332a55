"""Options of the superposition recipe: presets, and what is refused."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from beltrami.recipes.superposition.config import SuperpositionConfig
from beltrami.recipes.superposition.laws import frequencies, law_title
from beltrami.recipes.superposition.recipe import SuperpositionRecipe


def test_presets_give_what_is_not_given() -> None:
    config = SuperpositionConfig(preset="paper", widths=(3, 4, 5))
    config.check()
    assert config.chosen.features == 1000
    assert config.chosen.widths == (3, 4, 5)
    assert config.chosen.gammas[2] == -0.556
    assert len(config.chosen.gammas) == 10


def test_the_large_experiments_rates_fall_with_the_width() -> None:
    recipe = SuperpositionRecipe(SuperpositionConfig(preset="paper-large", laws=("linear",)))
    first, *_, last = recipe.shape.members
    assert (first.width, last.width) == (8, 1024)
    assert (first.rate, first.bias_rate) == (0.02, 0.25)
    assert last.rate == pytest.approx(0.02 * (8 / 1024) ** 0.25)
    assert recipe.shape.scale == pytest.approx(200 / (8192 * 10240))
    own = SuperpositionRecipe(
        SuperpositionConfig(preset="paper-large", laws=("linear",), learning_rate=0.003)
    )
    assert {m.rate for m in own.shape.members} == {0.003}


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"laws": ("cubic",)}, "power:EXPONENT"),
        ({"laws": ("power:x",)}, "number of 0 or more"),
        ({"laws": ("power:-1",)}, "number of 0 or more"),
        ({"laws": ("exponential:0",)}, "above 0"),
        ({"laws": ("linear:3",)}, "'linear:3'"),
        ({"laws": ()}, "--laws is empty"),
        ({"laws": ("linear", "linear")}, "must not repeat a value"),
        ({"widths": (3, 4)}, "--widths must be 3 or more"),
        ({"widths": (0, 4, 5)}, "at least 1"),
        ({"widths": (3, 4, 400)}, "below the 400 features"),
        ({"gammas": (math.nan,)}, "finite"),
        ({"gammas": ()}, "--gammas is empty"),
        ({"gammas": (0.12345678, 0.12345679)}, "first six digits"),
        ({"densities": (1.5,)}, "got 1.5"),
        ({"curvature": 0.0}, "--curvature"),
        ({"curvature": 1e6}, "--curvature must be at most 100"),
        ({"warm_up": 1.0}, "--warm-up"),
        ({"steps": 0}, "--steps must be at least 1"),
        ({"steps": 1}, "--no-check-steps"),
        ({"batch": 0}, "--batch"),
        ({"learning_rate": -1.0}, "--learning-rate"),
        ({"readouts": ()}, "--readouts is empty"),
    ],
)
def test_what_is_refused(options: dict[str, object], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        SuperpositionConfig(**options).check()  # type: ignore[arg-type]


def test_laws_that_cannot_be_told_apart(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x.txt").write_text("\n".join(str(i) for i in range(1, 500)))
    files = tuple(f"counts:{tmp_path / name / 'x.txt'}" for name in ("a", "b"))
    for laws in (files, ("power:1", "power:1.0")):
        with pytest.raises(ValueError, match="both called"):
            SuperpositionRecipe(SuperpositionConfig(laws=laws))


@pytest.mark.parametrize("law", ["power:300", "exponential:0.01"])
def test_laws_that_fall_to_nothing(law: str) -> None:
    with pytest.raises(ValueError, match=f"--laws {law} falls below"):
        frequencies(law, 400)


def test_unit_rows_alone_are_a_regime() -> None:
    SuperpositionConfig(gammas=(), unit=True).check()


def test_laws() -> None:
    assert law_title("power:1.5") == "power law 1.5"
    assert law_title("counts:/some/where/words.csv") == "counts of words.csv"
    for law in ("power:0", "power:1.2", "linear", "exponential:40"):
        assert float(frequencies(law, 50).sum()) == pytest.approx(1)


def test_counts_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "words.csv"
    path.write_text("word,count\nthe,30\nof,10\n\nzyzzyva,0\na,60\n")
    assert torch.allclose(
        frequencies(f"counts:{path}", 3), torch.tensor([0.6, 0.3, 0.1], dtype=torch.float64)
    )
    with pytest.raises(ValueError, match="has 3 counts above 0, and --features asks for 4"):
        frequencies(f"counts:{path}", 4)
    path.write_text("1\nmany\n")
    with pytest.raises(ValueError, match="line 2 ends with 'many'"):
        frequencies(f"counts:{path}", 1)
    with pytest.raises(ValueError, match="cannot read"):
        frequencies(f"counts:{tmp_path / 'absent'}", 1)
    path.write_bytes(b"\xff\xfe1\n")
    with pytest.raises(ValueError, match="cannot read"):
        frequencies(f"counts:{path}", 1)


@pytest.mark.parametrize(
    "text",
    [
        "the\t6,000,000\na\t3,000,000\nof\t1,000,000.0\n",
        'new york, ny\t6\n3 4\t3\n"\t1\n',  # words with commas, blanks and quotes
        'word,count,rank\nthe,60,1\nnew york,30,2\n"10,20",10,3\n',
        "Rank\tFREQUENCY\tWord\n1\t6,000\tthe\n2\t3,000\tnew york\n3\t1,000\tof\n",
        "\ufeffFreq word\n6 the\n3 a\n1 of\n",
        "\nword,times\nthe,6\na,3\nx,y,1\n",  # no name that is known: the last
        "count,6\na,3\nof,1\nzyzzyva,0\n",  # a word that is called so
        "6\n1\n3\n",
        "the\t6\t\na\t3\nof\t1\t\n",  # tabs at the ends
    ],
)
def test_how_a_file_of_counts_is_read(text: str, tmp_path: Path) -> None:
    path = tmp_path / "words"
    path.write_text(text)
    expected = torch.tensor([0.6, 0.3, 0.1], dtype=torch.float64)
    assert torch.allclose(frequencies(f"counts:{path}", 3), expected)


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("the,3\na,nan\n", "words: line 2 has 'nan'; a count is finite"),
        ("the\t-3\n", "words: line 1 has '-3'; a count is finite and not below 0"),
        ("5\n\ninf\n", "words: line 3 has 'inf'"),
        ("the\t3\na\t1,23\n", "words: line 2 ends with '1,23', which is not a count"),
        ("word,count,rank\na,x,1\n", "words: line 2 has 'x', which is not a count"),
        ("word,count,rank\na,3\n", "words: line 2 has another number of columns"),
    ],
)
def test_counts_that_are_refused(text: str, match: str, tmp_path: Path) -> None:
    path = tmp_path / "words"
    path.write_text(text)
    with pytest.raises(ValueError, match=match):
        frequencies(f"counts:{path}", 1)
