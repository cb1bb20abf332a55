"""Fine-tuning of language models: HypLoRA beside LoRA and the other ways."""
