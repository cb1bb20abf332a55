"""Greedy or beam answers of a language model to questions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from beltrami.models.pretrained.prompts import Coded, question_batch


@torch.no_grad()
def generate_answers(
    model: Any,
    coded: Sequence[Coded],
    tokenizer: Any,
    *,
    batch: int,
    new_tokens: int,
    beams: int = 1,
    device: torch.device | str = "cpu",
    bfloat16: bool = False,
) -> list[str]:
    """What a model of transformers generates behind each question.

    Args:
        model: with `generate`, on the device, in evaluation mode.
        coded: questions as tokens.
        tokenizer: of the model.
        batch: questions at once. new_tokens: of an answer at most.
        beams: 1 is greedy.
        device, bfloat16: where to compute, and whether in bfloat16.
    """
    from transformers import GenerationConfig

    device = torch.device(device)
    answers = [""] * len(coded)
    config = GenerationConfig(
        max_new_tokens=new_tokens,
        do_sample=False,
        num_beams=beams,
        pad_token_id=tokenizer.pad_token_id,
    )
    # Alike in length, so that little is padded.
    order = sorted(range(len(coded)), key=lambda i: len(coded[i].question))
    for start in range(0, len(order), batch):
        places = order[start : start + batch]
        tokens = question_batch([coded[i] for i in places], tokenizer.pad_token_id)
        tokens = {name: value.to(device) for name, value in tokens.items()}
        with torch.autocast(device.type, torch.bfloat16, enabled=bfloat16):
            generated = model.generate(**tokens, generation_config=config)
        new = generated[:, tokens["input_ids"].shape[1] :]
        texts = tokenizer.batch_decode(new, skip_special_tokens=True)
        for i, text in zip(places, texts, strict=True):
            answers[i] = text
    return answers
