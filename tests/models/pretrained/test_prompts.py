from __future__ import annotations

import pytest
import torch

from beltrami.data.word_problems import WordProblem, generate_problems
from beltrami.models.pretrained.prompts import IGNORED, encode, put, question_batch, training_batch
from beltrami.recipes.hyplora.corpora import arithmetic_corpus
from beltrami.recipes.hyplora.tiny_model import make_tokenizer

TOKENIZER = make_tokenizer(arithmetic_corpus(99).sample)
PROBLEMS = generate_problems(5, largest=99)


def coded(longest: int = 200) -> list:  # type: ignore[type-arg]
    return encode(PROBLEMS, TOKENIZER, prompt="plain", longest=longest)


def test_templates() -> None:
    assert (
        put("How many?", "plain", TOKENIZER) == put("How many?", "auto", TOKENIZER) == "How many?\n"
    )
    text = put("How many?", "instruction", TOKENIZER)
    assert text.startswith("Below is an instruction")
    assert text.endswith("### Instruction:\nHow many?\n\n### Response:\n")
    with pytest.raises(ValueError, match="no template for chats"):
        put("How many?", "chat", TOKENIZER)


def test_a_chat_template_is_not_begun_twice() -> None:
    tokenizer = make_tokenizer(arithmetic_corpus(99).sample)
    tokenizer.chat_template = "<s>{{ messages[0]['content'] }}\n"
    (one,) = encode(PROBLEMS[:1], tokenizer, prompt="auto", longest=200)
    assert one.question.count(tokenizer.bos_token_id) == 1


def test_the_loss_counts_solutions_only_unless_told() -> None:
    some = coded()
    batch = training_batch(some, 0, train_on_prompts=False)
    for row, (one, problem) in enumerate(zip(some, PROBLEMS, strict=True)):
        counted = batch["labels"][row][batch["labels"][row] != IGNORED]
        assert TOKENIZER.decode(counted[:-1]) == problem.solution
        assert counted[-1] == TOKENIZER.eos_token_id
        assert batch["attention_mask"][row].sum() == len(one.question) + len(one.solution)
    whole = training_batch(some, 0, train_on_prompts=True)
    assert torch.equal(whole["labels"] != IGNORED, batch["attention_mask"] == 1)


def test_questions_end_where_answers_begin() -> None:
    batch = question_batch(coded(), 0)
    for row, problem in enumerate(PROBLEMS):
        ids = batch["input_ids"][row][batch["attention_mask"][row] == 1]
        assert TOKENIZER.decode(ids, skip_special_tokens=True) == f"{problem.question}\n"
        assert batch["attention_mask"][row, -1] == 1


def test_long_solutions_are_cut_off_and_long_questions_refused() -> None:
    longest = max(len(one.question) for one in coded()) + 2
    assert max(len(one.question) + len(one.solution) for one in coded(longest)) == longest
    with pytest.raises(ValueError, match="leaves no room"):
        encode([WordProblem("Ada " * 30, "1", "#### 1")], TOKENIZER, prompt="plain", longest=20)
