"""Classification of taxonomy nodes level by level, from features or text."""

from beltrami.models.level_classifier.config import LevelConfig, matched_twin
from beltrami.models.level_classifier.model import LevelClassifier
from beltrami.models.level_classifier.tasks import (
    evaluate_levels,
    level_loss,
    level_step,
    predict_levels,
)

__all__ = [
    "LevelClassifier",
    "LevelConfig",
    "evaluate_levels",
    "level_loss",
    "level_step",
    "matched_twin",
    "predict_levels",
]
