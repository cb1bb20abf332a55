"""Which tokens of a vocabulary stand for whole words.

Vocabularies mark the beginnings of words, or the pieces that continue one:

    Ġdog    byte-level BPE (GPT-2, Llama 3): Ġ is a space, other bytes are letters of an alphabet
    ▁dog    SentencePiece (Llama 2, T5)
    ##ing   WordPiece (BERT): a continuation; what has no mark begins a word

Which kind it is, is told by the mark that most tokens have. A vocabulary without marks is one of
words. A word counts only if it consists of letters.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from functools import cache

BYTE_LEVEL, SENTENCE_PIECE, WORD_PIECE, WORD_END = "Ġ", "▁", "##", "</w>"
FREQUENT = 0.01  # of the tokens; any vocabulary may hold a mark or two as characters


def words_of(tokens: Sequence[str]) -> list[str | None]:
    """For each token the word that it stands for, as it is written; None where it is not a word."""
    word = _RULES[mark_of(tokens)]
    return [word(token) for token in tokens]


def letters_only(text: str) -> str | None:
    """The text, if it consists of letters."""
    return text if text.isalpha() else None


def without_mark(token: str, mark: str) -> str:
    """A token as people read it, where `mark` is its vocabulary's; spaces alone stay as they are.

    >>> without_mark("Ġcaf\u00c3\u00a9", "Ġ")
    'café'
    """
    text = token
    if mark == BYTE_LEVEL:
        with contextlib.suppress(KeyError, UnicodeDecodeError):
            text = bytes(_byte_alphabet()[letter] for letter in token).decode("utf-8")
    elif mark:
        text = token.removeprefix(mark).removesuffix(mark)
    return text.strip() or token


def mark_of(tokens: Sequence[str]) -> str:
    """The mark that most tokens have, or ""."""
    counts = {
        BYTE_LEVEL: sum(token.startswith(BYTE_LEVEL) for token in tokens),
        SENTENCE_PIECE: sum(token.startswith(SENTENCE_PIECE) for token in tokens),
        WORD_PIECE: sum(token.startswith(WORD_PIECE) for token in tokens),
        WORD_END: sum(token.endswith(WORD_END) for token in tokens),
    }
    best = max(counts, key=lambda marker: counts[marker])
    return best if counts[best] > FREQUENT * len(tokens) else ""


def _byte_level(token: str) -> str | None:
    if not token.startswith(BYTE_LEVEL):
        return None
    alphabet = _byte_alphabet()
    try:
        text = bytes(alphabet[letter] for letter in token[1:]).decode("utf-8")
    except (KeyError, UnicodeDecodeError):  # an added token, or a piece of a character
        return None
    return letters_only(text)


def _sentence_piece(token: str) -> str | None:
    return letters_only(token[1:]) if token.startswith(SENTENCE_PIECE) else None


@cache
def _byte_alphabet() -> dict[str, int]:
    """The byte that each letter of GPT-2's alphabet stands for.

    Bytes that are printable in Latin-1 stand for themselves; the others, in order, are the
    characters from 256 on.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in set(printable)]
    alphabet = {chr(byte): byte for byte in printable}
    return alphabet | {chr(256 + place): byte for place, byte in enumerate(others)}


_RULES: dict[str, Callable[[str], str | None]] = {
    BYTE_LEVEL: _byte_level,
    SENTENCE_PIECE: _sentence_piece,
    WORD_PIECE: letters_only,  # a continuation begins with no letter
    WORD_END: lambda token: None,  # CLIP marks where words end, so beginnings cannot be told
    "": letters_only,
}
