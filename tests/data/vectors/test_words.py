from __future__ import annotations

import pytest

from beltrami.data.vectors.words import letters_only, mark_of, without_mark, words_of


def byte_level(text: str) -> str:
    """A text as a byte-level tokenizer writes it."""
    from tokenizers.pre_tokenizers import ByteLevel

    ((token, _),) = ByteLevel(add_prefix_space=False, use_regex=False).pre_tokenize_str(text)
    return str(token)


def test_byte_level_tokens() -> None:
    texts = [" dog", "dog", " Dog", " café", " naïve", " собака", " 犬", " 3", " don't", " ", "ing"]
    tokens = [byte_level(text) for text in texts]
    assert tokens[0] == "Ġdog"
    assert tokens[3] != "Ġcafé"  # its bytes are letters of another alphabet
    assert words_of([*tokens, "<|endoftext|>"]) == [
        *["dog", None, "Dog", "café", "naïve", "собака", "犬"],
        *[None, None, None, None, None],
    ]


def test_half_a_character_is_no_word() -> None:
    whole = byte_level(" é")
    assert words_of([whole, whole[:-1], "Ġa"]) == ["é", None, "a"]


def test_every_byte_has_its_letter() -> None:
    # All of Latin-1 and more, in two bytes each, through the tokenizers library and back.
    letters = [chr(code) for code in range(0x80, 0x250) if chr(code).isalpha()]
    assert words_of([byte_level(f" {letter}") for letter in letters]) == letters


def test_an_added_token_outside_the_alphabet_is_no_word() -> None:
    assert words_of(["Ġdog", "Ġ犬", "Ġa b"]) == ["dog", None, None]


def test_sentence_piece_tokens() -> None:
    tokens = ["<unk>", "▁dog", "dog", "▁été", "▁", "▁3", "▁犬", "▁a▁b", "<0x0A>"]
    assert words_of(tokens) == [None, "dog", None, "été", None, None, "犬", None, None]


def test_word_piece_tokens() -> None:
    tokens = ["[CLS]", "[unused1]", "dog", "##s", "##ing", "été", "3rd", "!", "Dog"]
    assert words_of(tokens) == [None, None, "dog", None, None, "été", None, None, "Dog"]


def test_words_without_marks() -> None:
    assert words_of(["dog", "café", "cross-country", "3", ""]) == ["dog", "café", None, None, None]


def test_a_mark_that_is_rare_is_a_character() -> None:
    words = [chr(97 + number // 26) + chr(97 + number % 26) for number in range(26 * 26)]
    assert words_of([*words, "▁", "Ġ", "##"]) == [*words, None, "Ġ", None]


@pytest.mark.parametrize("frequent", ["Ġ", "▁"])
def test_the_more_frequent_mark_decides(frequent: str) -> None:
    tokens = [f"{frequent}dog", f"{frequent}oak", "##s"]
    assert words_of(tokens) == ["dog", "oak", None]


def test_marks_of_word_ends_do_not_tell_words() -> None:
    assert words_of(["do", "g</w>", "dog</w>"]) == [None, None, None]


def test_no_tokens() -> None:
    assert words_of([]) == []
    assert letters_only("") is None


def test_a_trained_byte_level_tokenizer() -> None:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=400, show_progress=False)
    tokenizer.train_from_iterator(["the café serves naïve dogs the café"] * 50, trainer)
    vocabulary = sorted(tokenizer.get_vocab())
    words = dict(zip(vocabulary, words_of(vocabulary), strict=True))
    found = {word for word in words.values() if word}
    assert {"the", "café", "serves", "naïve", "dogs"} <= found
    for token, word in words.items():
        text = tokenizer.decoder.decode([token])
        whole = text.startswith(" ") and text[1:].isalpha()
        assert word == (text[1:] if whole else None)


@pytest.mark.parametrize(
    ("tokens", "readable"),
    [
        (["Ġdog", "ing", "ĠcafÃ©", "Ġ", "<s>"], ["dog", "ing", "café", "Ġ", "<s>"]),
        (["▁dog", "ing", "▁", "▁the"], ["dog", "ing", "▁", "the"]),
        (["dog", "##ing", "##s", "##"], ["dog", "ing", "s", "##"]),
        (["dog</w>", "do"], ["dog", "do"]),
        (["dog", "Ā", "row 3"], ["dog", "Ā", "row 3"]),
    ],
)
def test_tokens_are_read_without_marks(tokens: list[str], readable: list[str]) -> None:
    mark = mark_of(tokens)
    assert [without_mark(token, mark) for token in tokens] == readable
