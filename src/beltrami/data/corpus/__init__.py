"""Texts to pretrain language models on: documents, tokenizers, tokens in a file, packed rows."""

from beltrami.data.corpus.documents import documents
from beltrami.data.corpus.packing import PackedRows, pack
from beltrami.data.corpus.tokenizer import load_tokenizer, train_tokenizer
from beltrami.data.corpus.tokens import IGNORE, TokenCorpus, bits_per_byte

__all__ = [
    "IGNORE",
    "PackedRows",
    "TokenCorpus",
    "bits_per_byte",
    "documents",
    "load_tokenizer",
    "pack",
    "train_tokenizer",
]
