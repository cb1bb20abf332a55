"""`transformers.Trainer` for models with points: `RiemannianTrainer`, or the mixin for your own.

>>> trainer = RiemannianTrainer(model, args, train_dataset=data, point_lr=1e-2)
>>> class MyTrainer(RiemannianTrainerMixin, SFTTrainer): ...

It builds the optimiser from `TrainingArguments`, clips by the Riemannian norm, logs curvatures and
radii, and stops at the first loss that is not finite, naming the layer where it began.
"""

try:
    from transformers import Trainer  # noqa: F401
except ImportError as error:
    raise ImportError(
        'beltrami.train.trainer needs transformers and accelerate: pip install "beltrami[llm]"'
    ) from error

from beltrami.train.trainer.mixin import RiemannianTrainer, RiemannianTrainerMixin

__all__ = ["RiemannianTrainer", "RiemannianTrainerMixin"]
