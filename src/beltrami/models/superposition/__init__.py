"""Toy models of superposition: more features than dimensions, and what their loss does with width.

The model and its data are those of Liu, Liu and Gore, "Superposition Yields Robust Neural Scaling"
(arXiv 2505.10465), trained in stacks.
"""

from beltrami.models.superposition.autoencoder import ToyAutoencoder
from beltrami.models.superposition.frequencies import (
    denser,
    empirical,
    exponential,
    linear,
    power_law,
)
from beltrami.models.superposition.members import Member, Readout
from beltrami.models.superposition.readouts import read_out
from beltrami.models.superposition.samples import Batch, FeatureSamples
from beltrami.models.superposition.stack import ToyStack
from beltrami.models.superposition.training import StackTraining
from beltrami.models.superposition.update import StackUpdate, schedule

__all__ = [
    "Batch",
    "FeatureSamples",
    "Member",
    "Readout",
    "StackTraining",
    "StackUpdate",
    "ToyAutoencoder",
    "ToyStack",
    "denser",
    "empirical",
    "exponential",
    "linear",
    "power_law",
    "read_out",
    "schedule",
]
