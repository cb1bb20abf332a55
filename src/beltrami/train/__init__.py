"""Training: glue for `transformers.Trainer`, the NaN finder, and what all trainings share."""

from beltrami.lazy import lazy

__getattr__, __dir__ = lazy(
    __name__,
    {
        "NonFiniteLossError": "beltrami.train.finite",
        "ProgressListener": "beltrami.train.progress",
        "RiemannianTrainer": "beltrami.train.trainer",
        "RiemannianTrainerMixin": "beltrami.train.trainer",
        "find_nonfinite": "beltrami.train.finite",
        "train": "beltrami.train.loop",
    },
)
