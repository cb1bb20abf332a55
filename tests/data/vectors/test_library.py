from __future__ import annotations

import sys
from pathlib import Path

import pytest
from safetensors.torch import save_file

from beltrami.data.vectors import VectorsError, open_vectors
from beltrami.data.vectors.library import first_line
from tests.data.vectors.tables import MATRIX


@pytest.mark.parametrize(
    ("source", "module", "extra"),
    [
        ("a.parquet", "pyarrow.parquet", "parquet"),
        ("a.gguf", "gguf", "gguf"),
        ("org/name", "huggingface_hub", "llm"),
        ("model", "transformers", "llm"),
    ],
)
def test_a_missing_library_names_its_extra(
    source: str, module: str, extra: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a.parquet", "a.gguf"):
        Path(name).write_bytes(b"")
    Path("model").mkdir()
    save_file({"wte.weight": MATRIX}, "model/model.safetensors")
    Path("model/vocab.txt").write_text("a\n")
    monkeypatch.setitem(sys.modules, module, None)  # importing it is an ImportError
    package = module.partition(".")[0]
    message = rf'{source}.* needs the package {package}: pip install "beltrami\[{extra}\]"'
    if source == "model":
        message = message.replace("model.*", "the tokenizer of .*model")
    with pytest.raises(VectorsError, match=message):
        open_vectors(source)


def test_opening_an_array_loads_no_optional_library(tmp_path: Path) -> None:
    import subprocess

    script = (
        "import sys, beltrami.data.vectors\n"
        "print(*[m for m in ('transformers', 'tokenizers', 'huggingface_hub', 'gguf', 'pyarrow') "
        "if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == ""


def test_the_first_line_of_a_message() -> None:
    assert first_line(ValueError("\n one\ntwo")) == "one"
    assert first_line(ValueError("")) == "ValueError('')"
