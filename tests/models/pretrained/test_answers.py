from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from beltrami.data.word_problems import generate_problems
from beltrami.models.pretrained.answers import generate_answers
from beltrami.models.pretrained.prompts import encode
from beltrami.recipes.hyplora.corpora import arithmetic_corpus
from beltrami.recipes.hyplora.tiny_model import make_tokenizer

TOKENIZER = make_tokenizer(arithmetic_corpus(99).sample)
CODED = encode(generate_problems(7, largest=99), TOKENIZER, prompt="plain", longest=200)


class Echo(nn.Module):
    """Answers with the question's first word, from a mask that leaves padding out."""

    def generate(self, input_ids: Tensor, attention_mask: Tensor, **_: Any) -> Tensor:
        first = attention_mask.argmax(1) + 1  # behind the token that begins every text
        said = input_ids.gather(1, first.unsqueeze(1))
        return torch.cat([input_ids, said], 1)


@pytest.mark.parametrize("batch", [1, 3, 100])
def test_answers_come_in_the_order_of_questions(batch: int) -> None:
    answers = generate_answers(Echo(), CODED, TOKENIZER, batch=batch, new_tokens=1)
    assert answers == [TOKENIZER.decode(one.question[1]) for one in CODED]
