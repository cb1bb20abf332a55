"""What `save_pretrained` writes beside config and weights: a stub for the Auto classes, a card."""

from __future__ import annotations

from pathlib import Path

from beltrami.data.atomic import write_atomically
from beltrami.models.helm.config import HelmConfig

STUB = "modeling_helm"

AUTO_CLASSES = {
    "AutoConfig": "HelmConfig",
    "AutoModel": "HelmModel",
    "AutoModelForCausalLM": "HelmForCausalLM",
    "AutoModelForSequenceClassification": "HelmForSequenceClassification",
    "AutoModelForTokenClassification": "HelmForTokenClassification",
    "AutoModelForQuestionAnswering": "HelmForQuestionAnswering",
}
AUTO_MAP = {auto: f"{STUB}.{name}" for auto, name in AUTO_CLASSES.items()}

_STUB_TEXT = f'''"""The classes of this model, for trust_remote_code=True: those of beltrami."""

try:
    from beltrami.models.helm import (
        {", ".join(list(AUTO_CLASSES.values())[:3])},
        {", ".join(list(AUTO_CLASSES.values())[3:])},
    )
except ImportError as error:
    raise ImportError('this model needs beltrami: pip install "beltrami[llm]"') from error
'''


def write_companions(folder: Path, config: HelmConfig, parameters: int) -> None:
    """Write the stub, and a model card if the folder has no README.md."""
    write_atomically(folder / f"{STUB}.py", _STUB_TEXT)
    card = folder / "README.md"
    if not card.exists():
        write_atomically(card, _card(config, parameters))


def _card(config: HelmConfig, parameters: int) -> str:
    curved = config.layer_geometries.count("lorentz")
    rows = {
        "parameters": f"{parameters:,}",
        "layers": f"{config.num_hidden_layers}, of which hyperbolic: {curved}",
        "width, heads": f"{config.hidden_size}, {config.num_attention_heads} of {config.head_dim}",
        "vocabulary": f"{config.vocab_size:,}",
        "residual": config.residual,
        "attention": f"{config.attention_score} scores, {config.attention_aggregate} of values",
        "time columns": config.time_columns,
        "embedding": config.embedding,
        "scores of words": config.logits,
    }
    table = "\n".join(f"| {name} | {value} |" for name, value in rows.items())
    return f"""---
library_name: transformers
pipeline_tag: text-generation
tags:
- beltrami
- hyperbolic
---
# A HELM language model

A decoder with Llama's modules whose parts are hyperbolic as the table says. To load it:

```python
import beltrami.models.helm  # pip install "beltrami[llm]"
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("this folder")
```

| | |
|---|---|
{table}

What it was trained on, how well it does and what it should not be used for: to be written by those
who trained it.
"""
