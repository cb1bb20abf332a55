from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from beltrami.data.corpus import load_tokenizer, train_tokenizer
from tests.data.corpus.conftest import some_texts


def test_training_is_reproducible_and_silent(
    tokenizer: PreTrainedTokenizerFast, capfd: pytest.CaptureFixture[str]
) -> None:
    again = train_tokenizer(iter(some_texts(100)), 300)
    assert capfd.readouterr() == ("", "")
    assert again.get_vocab() == tokenizer.get_vocab()
    assert again.backend_tokenizer.to_str() == tokenizer.backend_tokenizer.to_str()
    assert len(tokenizer) == 300
    assert tokenizer.eos_token_id == tokenizer.bos_token_id == 0
    assert tokenizer.pad_token_id == 1


def test_another_process_trains_the_same(tokenizer: PreTrainedTokenizerFast) -> None:
    code = (
        "from beltrami.data.corpus import train_tokenizer\n"
        "from tests.data.corpus.conftest import some_texts\n"
        "print(ascii(train_tokenizer(some_texts(100), 300).backend_tokenizer.to_str()))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == ascii(tokenizer.backend_tokenizer.to_str())


@given(text=st.text(st.characters(codec="utf-8")))
def test_any_text_comes_back(tokenizer: PreTrainedTokenizerFast, text: str) -> None:
    assert tokenizer.decode(tokenizer(text, split_special_tokens=True).input_ids) == text


def test_a_saved_tokenizer_is_the_same(tmp_path: Path, tokenizer: PreTrainedTokenizerFast) -> None:
    tokenizer.save_pretrained(tmp_path / "saved")
    tokenizer.backend_tokenizer.save(str(tmp_path / "tokenizer.json"))
    sources = [tmp_path / "saved", tmp_path / "saved" / "tokenizer.json"]
    for source in (*sources, str(tmp_path / "tokenizer.json")):
        loaded = load_tokenizer(source)
        assert loaded.backend_tokenizer.to_str() == tokenizer.backend_tokenizer.to_str()
        assert loaded.eos_token_id == loaded.bos_token_id == 0
    assert load_tokenizer(sources[0]).pad_token_id == 1


def test_bad_tokenizers_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")
    (tmp_path / "empty").mkdir()
    for source, message in (
        ("no such tokenizer", "'no such tokenizer' is not there"),
        (tmp_path / "org" / "name", "name' is not there"),
        (tmp_path / "tokenizer.json", "is not a tokenizer.json"),
        (tmp_path / "empty", "cannot load the tokenizer .*empty"),
    ):
        with pytest.raises(ValueError, match=message):
            load_tokenizer(source)
    with pytest.raises(ValueError, match="vocab_size must be at least 258"):
        train_tokenizer(["a"], 257)
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(ValueError, match=r'pip install "beltrami\[llm\]"'):
        train_tokenizer(["a"], 300)


def test_only_a_name_reaches_the_hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    calls = []

    def from_pretrained(place: str, **options: bool) -> None:
        calls.append((place, options))
        raise OSError("offline\nmore")

    monkeypatch.setattr("transformers.AutoTokenizer.from_pretrained", from_pretrained)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "org" / "local").mkdir(parents=True)
    for name in ("org/name", "org/local"):
        with pytest.raises(ValueError, match=f"cannot load the tokenizer {name}: offline;"):
            load_tokenizer(name)
    local = [options["local_files_only"] for _, options in calls]
    assert local == [False, True]
    assert not any(options["trust_remote_code"] for _, options in calls)
