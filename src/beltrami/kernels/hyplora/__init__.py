"""Operations of HypLoRA adapters: a low-rank update times a gain for each token."""
