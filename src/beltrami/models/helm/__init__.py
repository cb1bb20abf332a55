"""HELM: a hyperbolic language model. Importing this package registers it with the Auto classes.

>>> import beltrami.models.helm
>>> AutoModelForCausalLM.from_pretrained(folder).generate(...)
"""

try:
    from transformers import (
        AutoConfig,
        AutoModel,
        AutoModelForCausalLM,
        AutoModelForQuestionAnswering,
        AutoModelForSequenceClassification,
        AutoModelForTokenClassification,
        initialization,  # noqa: F401  # since version 5
    )
except ImportError as error:
    raise ImportError(
        'beltrami.models.helm needs transformers 5.5 or later: pip install -U "beltrami[llm]" '
        '"transformers>=5.5"'
    ) from error

from beltrami.models.helm.config import TENSOR_PARALLEL, HelmConfig
from beltrami.models.helm.model import (
    HelmForCausalLM,
    HelmForQuestionAnswering,
    HelmForSequenceClassification,
    HelmForTokenClassification,
    HelmModel,
    HelmPreTrainedModel,
)

__all__ = [
    "HelmConfig",
    "HelmForCausalLM",
    "HelmForQuestionAnswering",
    "HelmForSequenceClassification",
    "HelmForTokenClassification",
    "HelmModel",
    "HelmPreTrainedModel",
]

if TENSOR_PARALLEL:  # its styles register themselves
    import beltrami.models.helm.parallel  # noqa: F401

AutoConfig.register("helm", HelmConfig, exist_ok=True)
AutoModel.register(HelmConfig, HelmModel, exist_ok=True)
AutoModelForCausalLM.register(HelmConfig, HelmForCausalLM, exist_ok=True)
AutoModelForSequenceClassification.register(
    HelmConfig, HelmForSequenceClassification, exist_ok=True
)
AutoModelForTokenClassification.register(HelmConfig, HelmForTokenClassification, exist_ok=True)
AutoModelForQuestionAnswering.register(HelmConfig, HelmForQuestionAnswering, exist_ok=True)
