"""The language model that is fine-tuned: trained on the spot, from the data cache, or a user's."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from beltrami.data.cache import MissingDataError, cache_folder, file_digest, path_of
from beltrami.data.catalogue import find
from beltrami.data.lock import locked
from beltrami.recipes.hyplora.config import SMOLLM2, HypLoraRunConfig
from beltrami.recipes.hyplora.corpora import Corpus, arithmetic_corpus, taxonomy_corpus
from beltrami.recipes.hyplora.presets import TINY
from beltrami.recipes.hyplora.progress import no_bars
from beltrami.recipes.hyplora.questions import Questions
from beltrami.recipes.hyplora.tiny_model import (
    TinyConfig,
    make_tiny_model,
    make_tokenizer,
    publish,
    tiny_digest,
    tiny_shape,
)
from beltrami.train.progress import ProgressListener

if TYPE_CHECKING:
    from transformers import PreTrainedModel

WEIGHTS = ("*.safetensors", "*.bin")
SAID = ("config.json", "tokenizer*", "chat_template*", "vocab*", "merges.txt", "special_tokens*")
MISSING = 'fine-tuning needs transformers and peft: pip install "beltrami[peft]"'


@dataclass
class BaseModel:
    """A model to fine-tune.

    Args:
        name: what to call it.
        tokenizer: transformers' own, with a token for padding.
        fingerprint: of its weights.
        place: folder or name to load from; None for a model that is still to be trained.
        tiny: how to train it then.
    """

    name: str
    tokenizer: Any
    fingerprint: str
    place: str | None = None
    tiny: tuple[TinyConfig, Corpus] | None = None

    def prepare(self, listener: ProgressListener, device: torch.device) -> None:
        """Train it if that is still to be done."""
        if self.place is None:
            assert self.tiny is not None
            config, corpus = self.tiny
            self.place = str(make_tiny_model(config, corpus, listener, device))

    def skeleton(self) -> PreTrainedModel:
        """The model without its weights: what layers it has."""
        from transformers import AutoConfig, AutoModelForCausalLM

        if self.tiny is not None:
            shape: Any = tiny_shape(self.tiny[0], self.tokenizer)
        else:
            assert self.place is not None
            shape = AutoConfig.from_pretrained(self.place)
        try:
            with torch.device("meta"):
                model: PreTrainedModel = AutoModelForCausalLM.from_config(shape)
        except ValueError as error:
            kind = getattr(shape, "model_type", "model")
            raise ValueError(f"--model {self.name} is no causal language model: {kind}") from error
        return model

    def load(self, dtype: torch.dtype) -> PreTrainedModel:
        """The model, anew from its files."""
        from transformers import AutoModelForCausalLM, GenerationConfig

        if self.place is None:
            raise RuntimeError(f"{self.name} is not trained yet: prepare() comes first")
        with no_bars():
            model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(self.place, dtype=dtype)
        # Its own habits of speaking, such as a penalty for repetitions, would not be greedy.
        ends = model.generation_config.eos_token_id
        model.generation_config = GenerationConfig(
            eos_token_id=sorted({self.tokenizer.eos_token_id, *_listed(ends)}),
            pad_token_id=self.tokenizer.pad_token_id,
            bos_token_id=self.tokenizer.bos_token_id,
        )
        return model


def open_base_model(config: HypLoraRunConfig, questions: Questions) -> BaseModel:
    """The model that the options ask for; a `ValueError` where it cannot be had."""
    try:
        import peft  # noqa: F401
        import transformers  # noqa: F401
    except ImportError as error:
        raise ValueError(MISSING) from error
    name = config.chosen.model
    return _tiny(config, questions) if name == TINY else open_language_model(name)


def open_language_model(name: str) -> BaseModel:
    """SmolLM2 out of the data cache, a folder in transformers' format, or a name on the hub."""
    return _smollm2() if name == SMOLLM2 else _users(name)


def _tiny(config: HypLoraRunConfig, questions: Questions) -> BaseModel:
    corpus = (
        arithmetic_corpus(config.largest)
        if questions.hierarchy is None
        else taxonomy_corpus(questions.hierarchy)
    )
    tiny = TinyConfig(config.pretraining_steps)
    tokenizer = make_tokenizer(corpus.sample)
    return BaseModel(TINY, tokenizer, tiny_digest(tiny, corpus), None, (tiny, corpus))


def _smollm2() -> BaseModel:
    """SmolLM2-135M-Instruct out of its GGUF file, converted once."""
    try:
        source = path_of(SMOLLM2)
    except MissingDataError as error:
        raise ValueError(f"--model {error}") from error
    content = find(SMOLLM2).content or ""
    folder = cache_folder() / "models" / f"{SMOLLM2}-{content[:12]}"
    with locked(folder.with_name(f"{folder.name}.lock"), lambda: None):
        if not (folder / "config.json").is_file():
            _convert(source, folder)
    return _opened(SMOLLM2, str(folder), content)


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
        raise ValueError('--model smollm2 is a GGUF file: pip install "beltrami[gguf]"') from error
    # What came out of a GGUF file refuses to be saved; the same weights in a plain model do not.
    plain = {k: v for k, v in packed.config.to_dict().items() if k != "quantization_config"}
    model = LlamaForCausalLM(LlamaConfig(**plain))
    model.load_state_dict(packed.state_dict())
    publish(folder, model, tokenizer)


def _users(name: str) -> BaseModel:
    folder = Path(name)
    if folder.is_dir():
        return _opened(folder.resolve().name, name, folder_fingerprint(folder))
    from transformers import AutoConfig

    try:
        config = AutoConfig.from_pretrained(name)
    except (OSError, ValueError) as error:
        raise ValueError(
            f"--model {name} is no folder here, and the hub does not give it: "
            f"{str(error).splitlines()[0]}"
        ) from error
    return _opened(name, name, f"{name}@{getattr(config, '_commit_hash', None)}")


def _opened(name: str, place: str, fingerprint: str) -> BaseModel:
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(place)
    except (OSError, ValueError, KeyError) as error:
        raise ValueError(f"--model {name} has no tokenizer that can be read: {error}") from error
    if tokenizer.eos_token_id is None:
        raise ValueError(f"--model {name}: its tokenizer has no token for the end of a text")
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    return BaseModel(name, tokenizer, fingerprint, place)


def folder_fingerprint(folder: Path) -> str:
    """Of the files of weights, of the config and of the tokenizer."""
    remedy = "give a folder by save_pretrained()"
    if not (folder / "config.json").is_file():
        raise ValueError(f"--model {folder} has no config.json; {remedy}")
    weights = {path for kind in WEIGHTS for path in folder.glob(kind)}
    if not weights:
        raise ValueError(f"--model {folder} has no weights ({', '.join(WEIGHTS)}); {remedy}")
    sha = hashlib.sha256()
    for path in sorted(weights | {path for kind in SAID for path in folder.glob(kind)}):
        sha.update(f"{path.name} {file_digest(path)}\n".encode())
    return sha.hexdigest()


def _listed(value: int | list[int] | None) -> list[int]:
    return value if isinstance(value, list) else [] if value is None else [value]
