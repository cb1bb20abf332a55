"""What the repository publishes must be a complete measurement that holds its promises."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_numerics_page_is_measured_and_within_the_contract() -> None:
    page = (ROOT / "docs/numerics.md").read_text()
    assert "every value and gradient finite" in page
    assert "exceed their bound" not in page


def test_the_speed_table_is_measured() -> None:
    page = (ROOT / "benchmarks/RESULTS.md").read_text()
    assert "not measured yet" not in page.lower()
    assert "make bench" in page
