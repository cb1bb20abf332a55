"""How a question is put to a model, and questions with solutions as tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from beltrami.data.word_problems import WordProblem

# The template of Stanford Alpaca (Apache-2.0), with which LLM-Adapters and HypLoRA were trained.
INSTRUCTION = (
    "Below is an instruction that describes a task. Write a response that appropriately completes "
    "the request.\n\n### Instruction:\n{question}\n\n### Response:\n"
)
IGNORED = -100  # what a loss does not count


def put(question: str, prompt: str, tokenizer: Any) -> str:
    """A question as the model sees it.

    Args:
        question: in words.
        prompt: "plain", "instruction", "chat" or "auto".
        tokenizer: of the model.
    """
    if prompt == "auto":
        prompt = "chat" if getattr(tokenizer, "chat_template", None) else "plain"
    if prompt == "chat":
        if not getattr(tokenizer, "chat_template", None):
            raise ValueError("--prompt chat: this model has no template for chats; give plain")
        text: str = tokenizer.apply_chat_template(
            [{"role": "user", "content": question}], tokenize=False, add_generation_prompt=True
        )
        return text
    return INSTRUCTION.format(question=question) if prompt == "instruction" else f"{question}\n"


@dataclass(frozen=True)
class Coded:
    """A question and its solution as tokens; the solution ends with the model's end.

    Args:
        question, solution: the tokens.
        has_solution: false for a test that only knows its answer.
        cut: whether the solution was longer.
    """

    question: list[int]
    solution: list[int]
    has_solution: bool = True
    cut: bool = False


def encode(
    problems: Sequence[WordProblem], tokenizer: Any, *, prompt: str, longest: int
) -> list[Coded]:
    """Tokens of questions and solutions; a solution is cut off where both exceed `longest`.

    A question that leaves no room for its solution is a `ValueError`.
    """
    coded = []
    for problem in problems:
        text = put(problem.question, prompt, tokenizer)
        own = getattr(tokenizer, "bos_token", None)
        begun = own is not None and text.startswith(own)  # a chat template brings its own
        question = tokenizer(text, add_special_tokens=not begun)["input_ids"]
        if question and question[-1] == tokenizer.eos_token_id and not begun:
            question = question[:-1]  # some tokenizers end every text
        solution = tokenizer(problem.solution, add_special_tokens=False)["input_ids"]
        room = longest - len(question)
        if room < 1:
            raise ValueError(
                f"a question has {len(question)} tokens, and --longest {longest} leaves no room "
                f"for its solution: {problem.question[:60]!r}..."
            )
        whole = [*solution, tokenizer.eos_token_id]
        coded.append(Coded(question, whole[:room], bool(problem.solution), len(whole) > room))
    return coded


def training_batch(
    coded: Sequence[Coded], padding: int, *, train_on_prompts: bool
) -> dict[str, Tensor]:
    """input_ids, attention_mask and labels, (questions, tokens), padded on the right."""
    width = max(len(item.question) + len(item.solution) for item in coded)
    ids = torch.full((len(coded), width), padding)
    labels = torch.full((len(coded), width), IGNORED)
    mask = torch.zeros(len(coded), width, dtype=torch.long)
    for row, item in enumerate(coded):
        start, end = len(item.question), len(item.question) + len(item.solution)
        ids[row, :end] = torch.tensor(item.question + item.solution)
        first = 0 if train_on_prompts else start
        labels[row, first:end] = ids[row, first:end]
        mask[row, :end] = 1
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}


def question_batch(coded: Sequence[Coded], padding: int) -> dict[str, Tensor]:
    """input_ids and attention_mask of the questions, padded on the left, to go on from."""
    width = max(len(item.question) for item in coded)
    ids = torch.full((len(coded), width), padding)
    mask = torch.zeros(len(coded), width, dtype=torch.long)
    for row, item in enumerate(coded):
        ids[row, width - len(item.question) :] = torch.tensor(item.question)
        mask[row, width - len(item.question) :] = 1
    return {"input_ids": ids, "attention_mask": mask}
