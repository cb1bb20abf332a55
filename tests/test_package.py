"""The package as a whole: what it exports, what importing it costs, what its source may not do."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest

import beltrami

ROOT = Path(beltrami.__file__).parent

# Clamps that are not an eps in a value path. Anything else needs a formula that cannot leave its
# domain (see the numerics contract in CONTRIBUTING.md).
ALLOWED_CLAMPS = {
    (
        "geometry/lorentz/means.py",
        "torch.clamp(length / _LONGEST_STEP, min=1.0)",
    ): "length of a Newton step",
    ("geometry/curvature.py", "torch.maximum(r / up, r / -down)"): "|r| over the bound on its side",
    ("geometry/lorentz/pairwise.py", ".clamp(min=0)"): "rounding of 1 − cosine in float64",
    ("geometry/lorentz/sampling.py", ".clamp(max=_CELLS - 1)"): "index into a table",
    ("geometry/lorentz/sampling.py", ".clamp(min=0)"): "rounding below 0 of a discriminant",
    (
        "geometry/cones.py",
        "torch.relu(angle - aperture_scale",
    ): "a relu by definition",
    ("geometry/stereographic.py", "torch.relu(ab + c * s)"): "rounding near antipodes, all pairs",
    ("kernels/rows/adam_rows.py", "torch.maximum(v_max, new_v)"): "AMSGrad by definition",
    ("kernels/rows/adam_rows_triton.py", "tl.maximum(v_max, v"): "AMSGrad by definition",
    ("kernels/pairs/row_gaps.py", "torch.minimum(a[i], a[i + 1 :])"): "a (max, min) product",
    ("kernels/pairs/row_gaps_triton.py", "tl.minimum(left[:, :, None]"): "a (max, min) product",
    ("kernels/pairs/row_gaps_triton.py", "tl.maximum(best, tl.max(through, 1))"): "its maximum",
    ("kernels/pairs/row_gaps_triton.py", "tl.minimum(block + tl.arange"): "the number of a row",
}


def test_version_and_types() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+\S*", beltrami.__version__)
    assert (ROOT / "py.typed").exists()


def test_import_is_light() -> None:
    """Beyond torch, `import beltrami` loads beltrami's geometry and the standard library."""
    code = (
        "import sys, torch; before = set(sys.modules); import beltrami;"
        "own = {m for m in sys.modules if m.count('.') == 1 and m.startswith('beltrami.')};"
        "new = {m.split('.')[0] for m in set(sys.modules) - before};"
        "print(*sorted(own | new - set(sys.stdlib_module_names) - {'torch'}), beltrami.nn.Linear)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.split(maxsplit=3)[:3] == ["beltrami", "beltrami.geometry", "beltrami.lazy"]
    assert out.stdout.split(maxsplit=3)[3] == "<class 'beltrami.nn.linear.Linear'>\n"


def test_packages_load_on_first_use() -> None:
    packages = {name.removeprefix("beltrami.") for name in PACKAGES if name.count(".") == 1}
    assert packages <= set(dir(beltrami))
    assert beltrami.nn.Linear.__module__ == "beltrami.nn.linear"
    with pytest.raises(AttributeError, match="module 'beltrami' has no attribute 'neural'"):
        _ = beltrami.neural
    with pytest.raises(ImportError, match="cannot import name 'trian'"):
        from beltrami.train import trian  # noqa: F401


@pytest.mark.parametrize(
    "name",
    ["beltrami", *(f"beltrami.{p}" for p in ["train", "models", "diagnosis", "recipes", "report"])],
)
def test_lazy_names_are_there(name: str) -> None:
    package = importlib.import_module(name)
    names = [n for n in dir(package) if not n.startswith("_")]
    assert len(names) > 3
    assert [n for n in names if not hasattr(package, n)] == []


PACKAGES = sorted(
    info.name for info in pkgutil.walk_packages([str(ROOT)], "beltrami.") if info.ispkg
)
LONGEST_README = 60  # lines: a screen


@pytest.mark.parametrize("name", PACKAGES)
def test_every_exported_name_is_there(name: str) -> None:
    package = importlib.import_module(name)
    exported = getattr(package, "__all__", [])
    assert len(set(exported)) == len(exported)
    assert [n for n in exported if not hasattr(package, n)] == []


@pytest.mark.parametrize("name", [n for n in PACKAGES if n.count(".") == 1])
def test_every_package_says_what_lives_there(name: str) -> None:
    path = ROOT / name.rpartition(".")[2] / "README.md"
    assert path.is_file(), f"{path} is missing: what lives here, what does not, where new things go"
    assert len(path.read_text(encoding="utf-8").splitlines()) <= LONGEST_README


def _sources() -> list[Path]:
    return [p for folder in ("geometry", "kernels") for p in (ROOT / folder).rglob("*.py")]


def test_no_clamps_or_nan_to_num_hide_numerical_trouble() -> None:
    found = []
    for path in _sources():
        name = path.relative_to(ROOT).as_posix()
        for number, line in enumerate(path.read_text().splitlines(), 1):
            code = line.split("#")[0]
            hides = re.search(r"\.(nan_to_num|clamp(_min|_max)?|clip|relu|(max|min)imum)_?\(", code)
            if hides and not any(name == f and text in code for f, text in ALLOWED_CLAMPS):
                found.append(f"{name}:{number}: {line.strip()}")
    assert not found, "\n".join(found)


def test_allowed_clamps_are_still_there() -> None:
    for name, text in ALLOWED_CLAMPS:
        assert text in (ROOT / name).read_text(), f"{name} no longer has {text}: drop the entry"


def test_no_unsafe_loading() -> None:
    """No pickle, eval or yaml.load; torch.load only with weights_only=True."""
    bad = []
    for path in ROOT.rglob("*.py"):
        tree = ast.parse(path.read_text())
        for node in ast.walk(tree):
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = [a.name for a in node.names] + [getattr(node, "module", None) or ""]
                bad += [f"{path.name}: import {n}" for n in names if n.split(".")[0] == "pickle"]
            if isinstance(node, ast.Call):
                text = ast.unparse(node.func)
                safe = any(
                    k.arg == "weights_only" and getattr(k.value, "value", None) is True
                    for k in node.keywords
                )
                if text in ("eval", "exec", "yaml.load") or (text == "torch.load" and not safe):
                    bad.append(f"{path.name}: {ast.unparse(node)}")
    assert not bad, "\n".join(bad)


def test_no_function_returns_a_cast_that_may_do_nothing() -> None:
    """Traced by torch 2.11, such a Function loses its gradient: see `kernels.dtypes.cast`."""
    found = []
    for path in ROOT.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            is_function = isinstance(node, ast.ClassDef) and any(
                ast.unparse(base).endswith("autograd.Function") for base in node.bases
            )
            if not is_function:
                continue
            forwards = [f for f in node.body if getattr(f, "name", "") == "forward"]
            for part in (r for f in forwards for r in ast.walk(f) if isinstance(r, ast.Return)):
                value = part.value
                if isinstance(value, ast.Call) and ast.unparse(value.func).endswith(".to"):
                    found.append(f"{path.name}:{part.lineno}: {ast.unparse(part)}")
    assert not found, "\n".join(found)
