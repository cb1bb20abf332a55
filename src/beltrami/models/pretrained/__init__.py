"""Pretrained language models of transformers: open them, put questions, generate answers."""
