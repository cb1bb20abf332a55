"""Opens pretrained language models: a folder, a name on the hub, or SmolLM2 from the data cache."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from beltrami.data.cache import MissingDataError, cache_folder, file_digest, path_of
from beltrami.data.catalogue import find
from beltrami.data.lock import locked
from beltrami.data.vectors.source import refuse_missing_path

if TYPE_CHECKING:
    from transformers import PreTrainedModel

SMOLLM2 = "smollm2"
ENCODER = "minilm"
MISSING = 'transformers is not installed: pip install "beltrami[llm]"'
WEIGHTS = ("*.safetensors", "*.bin")
DESCRIPTIONS = (
    "config.json", "tokenizer*", "chat_template*", "vocab*", "merges.txt", "special_tokens*",
)  # fmt: skip


@dataclass
class LanguageModel:
    """A causal language model on disk or on the hub, with its tokenizer.

    Args:
        name: what to call it.
        tokenizer: transformers' own, with a token for padding.
        fingerprint: of its weights.
        place: folder or name to load from; None for a model that is still to be trained.
    """

    name: str
    tokenizer: Any
    fingerprint: str
    place: str | None = None

    def load(self, dtype: torch.dtype) -> PreTrainedModel:
        """The model, anew from its files; it generates greedily."""
        from transformers import AutoModelForCausalLM, GenerationConfig

        if self.place is None:
            raise RuntimeError(f"{self.name} is not trained yet: prepare() comes first")
        with no_bars():
            model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(self.place, dtype=dtype)
        # Settings that a model ships, such as a penalty for repetitions, would not be greedy.
        ends = model.generation_config.eos_token_id
        ends = ends if isinstance(ends, list) else [] if ends is None else [ends]
        model.generation_config = GenerationConfig(
            eos_token_id=sorted({self.tokenizer.eos_token_id, *ends}),
            pad_token_id=self.tokenizer.pad_token_id,
            bos_token_id=self.tokenizer.bos_token_id,
        )
        return model


def open_language_model(name: str) -> LanguageModel:
    """SmolLM2 out of the data cache, a folder in transformers' format, or a name on the hub.

    Raises:
        ValueError: where the model or its tokenizer cannot be had.
    """
    _check_transformers()
    folder = Path(name)
    if name == SMOLLM2:
        place, called = str(_smollm2_folder()), name
        fingerprint = find(SMOLLM2).content or ""
    elif folder.is_dir():
        place, called, fingerprint = name, folder.resolve().name, folder_fingerprint(folder)
    else:
        from transformers import AutoConfig

        refuse_missing_path(name)
        try:
            config = AutoConfig.from_pretrained(name)
        except (OSError, ValueError) as error:
            raise ValueError(
                f"model {name} is not a folder here, and the hub does not give it: "
                f"{_first_line(error)}"
            ) from error
        place, called = name, name
        fingerprint = f"{name}@{getattr(config, '_commit_hash', None)}"
    tokenizer = load_tokenizer(place, name)
    if tokenizer.eos_token_id is None:
        raise ValueError(f"model {name}: its tokenizer has no token for the end of a text")
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    return LanguageModel(called, tokenizer, fingerprint, place)


def load_causal(source: str, dtype: torch.dtype = torch.float32) -> tuple[Any, Any]:
    """A causal language model and its tokenizer, from safetensors alone.

    A weight that is missing would be drawn at random, and is an error.
    """
    _check_transformers()
    from transformers import AutoModelForCausalLM

    refuse_missing_path(source)
    place = str(_smollm2_folder()) if source == SMOLLM2 else source
    tokenizer = load_tokenizer(place, source)
    try:
        with no_bars():
            loaded: Any = AutoModelForCausalLM.from_pretrained(
                place,
                dtype=dtype,
                use_safetensors=True,
                output_loading_info=True,
                local_files_only=Path(place).is_dir(),
            )
        model, info = loaded
    except (OSError, ValueError, KeyError) as error:
        raise ValueError(
            f"{source} is not a causal language model with safetensors ({_first_line(error)})"
        ) from error
    if missing := sorted(info["missing_keys"]):
        raise ValueError(
            f"{source} lacks weights of a causal language model, such as {missing[0]}; save it "
            "with AutoModelForCausalLM"
        )
    return model.eval(), tokenizer


def load_encoder(source: str) -> tuple[Any, Any]:
    """A model without its head, for its hidden states, in float32, and its tokenizer."""
    _check_transformers()
    from transformers import AutoModel

    if source == ENCODER:
        try:
            place = str(path_of(ENCODER))
        except MissingDataError as error:
            raise ValueError(str(error)) from error
        tokenizer = load_tokenizer(place, source)
    else:
        opened = open_language_model(source)
        assert opened.place is not None
        place, tokenizer = opened.place, opened.tokenizer
    return AutoModel.from_pretrained(place, dtype=torch.float32).eval(), tokenizer


def load_tokenizer(place: str, name: str) -> Any:
    """A tokenizer; `name` is how errors call the model."""
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(place, local_files_only=Path(place).is_dir())
    except Exception as error:  # tokenizers raise whatever they like
        raise ValueError(
            f"{name} has no tokenizer that can be read ({_first_line(error)})"
        ) from error


def model_fingerprint(source: str) -> str:
    """Hash of the weights of a model in a folder; the name of any other model."""
    return folder_fingerprint(Path(source)) if Path(source).is_dir() else source


def folder_fingerprint(folder: Path) -> str:
    """A digest of the files of weights, of the config and of the tokenizer."""
    remedy = "give a folder by save_pretrained()"
    if not (folder / "config.json").is_file():
        raise ValueError(f"model {folder} has no config.json; {remedy}")
    weights = {path for kind in WEIGHTS for path in folder.glob(kind)}
    if not weights:
        raise ValueError(f"model {folder} has no weights ({', '.join(WEIGHTS)}); {remedy}")
    sha = hashlib.sha256()
    for path in sorted(weights | {path for kind in DESCRIPTIONS for path in folder.glob(kind)}):
        sha.update(f"{path.name} {file_digest(path)}\n".encode())
    return sha.hexdigest()


def publish(folder: Path, model: PreTrainedModel, tokenizer: Any) -> None:
    """Write a model's folder whole or not at all."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        with no_bars():
            model.save_pretrained(made)
        tokenizer.save_pretrained(made)
        for path in made.iterdir():
            path.chmod(0o644)  # safetensors makes files that only their owner can read
        made.chmod(0o755)
        made.rename(folder)
    except BaseException:  # also on Ctrl-C
        shutil.rmtree(made, ignore_errors=True)
        raise


@contextmanager
def no_bars() -> Iterator[None]:
    """Switch transformers' progress bars off inside: a command has its own."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def _check_transformers() -> None:
    try:
        import transformers  # noqa: F401
    except ImportError as error:
        raise ValueError(MISSING) from error


def _smollm2_folder() -> Path:
    """SmolLM2-135M-Instruct in transformers' format, converted from its GGUF file once."""
    try:
        source = path_of(SMOLLM2)
    except MissingDataError as error:
        raise ValueError(f"model {error}") from error
    folder = cache_folder() / "models" / f"{SMOLLM2}-{(find(SMOLLM2).content or '')[:12]}"
    with locked(folder.with_name(f"{folder.name}.lock"), lambda: None):
        if not (folder / "config.json").is_file():
            _convert(source, folder)
    return folder


def _convert(source: Path, folder: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

    file = next(source.rglob("*.gguf"))
    try:
        with no_bars():
            packed = AutoModelForCausalLM.from_pretrained(
                str(file.parent), gguf_file=file.name, dtype=torch.float32
            )
        tokenizer = AutoTokenizer.from_pretrained(str(file.parent), gguf_file=file.name)
    except ImportError as error:
        raise ValueError('model smollm2 is a GGUF file: pip install "beltrami[gguf]"') from error
    # What came out of a GGUF file refuses to be saved; the same weights in a plain model do not.
    plain = {k: v for k, v in packed.config.to_dict().items() if k != "quantization_config"}
    model = LlamaForCausalLM(LlamaConfig(**plain))
    model.load_state_dict(packed.state_dict())
    publish(folder, model, tokenizer)


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)
