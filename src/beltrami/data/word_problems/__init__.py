"""Arithmetic word problems: generated ones, and readers for the public sets."""

from beltrami.data.word_problems.answers import find_answer, find_word, gives_answer, same_answer
from beltrami.data.word_problems.generate import generate_problems
from beltrami.data.word_problems.problem import WordProblem, WordProblemError, without_overlap
from beltrami.data.word_problems.read import read_problems

__all__ = [
    "WordProblem",
    "WordProblemError",
    "find_answer",
    "find_word",
    "generate_problems",
    "gives_answer",
    "read_problems",
    "same_answer",
    "without_overlap",
]
