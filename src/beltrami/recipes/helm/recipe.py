"""The helm recipe: arms, models and measures."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn

from beltrami.data.atomic import scratch_folder, sweep
from beltrami.data.corpus import bits_per_byte
from beltrami.recipes.folder import MODELS
from beltrami.recipes.helm import measures
from beltrami.recipes.helm.config import HELM, NAMES, TWIN, HelmRunConfig
from beltrami.recipes.helm.sizes import model_fields, parameter_counts
from beltrami.recipes.helm.text import load_text
from beltrami.recipes.helm.training import (
    HelmSettings,
    curvatures,
    mean_loss,
    train_model,
)
from beltrami.recipes.recipe import Arm, Evaluation, Metric, Recipe, Trial, settings_from
from beltrami.train.progress import ProgressListener
from beltrami.train.seeding import seeded
from beltrami.train.session import Session

if TYPE_CHECKING:
    from beltrami.recipes.results import ArmResult, RunResult
    from beltrami.report.page import Page, Table

OFTEN_READ = 4  # times that a text is read, from which on a note says so
MISSING = 'language models need transformers: pip install "beltrami[llm]"'


class HelmRecipe(Recipe[HelmRunConfig, HelmSettings]):
    """A hyperbolic language model and its Euclidean twin, compared by loss on test documents."""

    name: ClassVar[str] = "helm"
    title: ClassVar[str] = "Language models"
    names = NAMES
    chosen_by: ClassVar[str] = "validation_loss"
    metrics = (
        Metric("test_loss", "Test loss", "nats a token", "lower", 4),
        Metric("test_bits", "Test bits per byte", "of the predicted tokens", "lower", 4),
        Metric("validation_loss", "Validation loss", "rates were chosen by it", "lower", 4),
        Metric("validation_bits", "Validation bits per byte", "", "lower", 4),
        Metric("tokens_per_second", "Tokens a second", "of training, all processes", None, 0),
        Metric("peak_memory", "Peak GiB", "of GPU memory in training", "lower", 2),
        Metric("mfu", "MFU", "share of the GPU's peak", "higher", 3),
        Metric("curvature", "Curvature of the stream", "κ = c·d, 1 at the start", None),
        Metric("head_curvature", "Curvature of heads", "κ, mean over layers", None),
        Metric("score_curvature", "Curvature of scores", "κ", None),
    )

    def __init__(self, config: HelmRunConfig) -> None:
        super().__init__(config)
        try:
            import beltrami.models.helm  # noqa: F401
        except ImportError as error:
            raise ValueError(MISSING) from error
        self.text = load_text(config)
        self._fields = model_fields(config, self.text)

    @cached_property
    def _facts(self) -> dict[str, Any]:
        parts = {part: getattr(self.text, part) for part in ("train", "validation", "test")}
        return {
            "name": self.config.data_name(),
            "vocabulary": self.text.vocab_size,
            "documents": {part: len(corpus) for part, corpus in parts.items()},
            "tokens": {part: corpus.n_tokens for part, corpus in parts.items()},
            "digest": self.text.digest,
        }

    def data_facts(self) -> dict[str, Any]:
        """Name, sizes and digest of the text."""
        return self._facts

    @cached_property
    def parameters(self) -> dict[str, tuple[int, int]]:
        """Parameters of each arm, in all and of its blocks."""
        return {name: parameter_counts(fields) for name, fields in self._fields.items()}

    def mlp_width(self, name: str) -> int:
        """Width of an arm's MLP."""
        return int(self._fields[name]["intermediate_size"])

    def arms(self) -> Sequence[Arm[HelmSettings]]:
        """HELM, its ablations, and the twin of all."""
        config, chosen = self.config, self.config.chosen
        on_gpu = config.device != "cpu" and torch.cuda.is_available()
        rates = tuple({"learning_rate": rate} for rate in chosen.learning_rates)
        return [
            Arm(
                model,
                "",
                settings_from(
                    HelmSettings,
                    chosen,
                    model=fields,
                    document_masks=config.document_masks,
                    curvature_lr=config.curvature_lr,
                    scale_lr=config.scale_lr,
                    precision="bfloat16" if on_gpu else "float32",
                    compile=chosen.compile and on_gpu,
                    learning_rate=chosen.learning_rates[0],
                ),
                None if model == TWIN else TWIN,
                rates,
                None if model in (HELM, TWIN) else HELM,
            )
            for model, fields in self._fields.items()
        ]

    def prepare(self, listener: ProgressListener, device: torch.device) -> None:
        """Say where a text is short."""
        times = self.config.chosen.tokens / self.text.train.n_tokens
        if times > OFTEN_READ:
            listener.note(
                f"{self.config.data} has {self.text.train.n_tokens:,} tokens to train on, which "
                f"are read {times:.1f} times; more text, or fewer --tokens, says more"
            )

    def build(self, trial: Trial[HelmSettings]) -> nn.Module:
        """The untrained language model of a trial."""
        from beltrami.models.helm import HelmConfig, HelmForCausalLM

        with seeded(trial.seed):
            return HelmForCausalLM(HelmConfig(**trial.settings.model))

    def train(self, model: nn.Module, trial: Trial[HelmSettings], session: Session) -> None:
        """Packed rows of the documents to train on."""
        train_model(model, self.text, trial, session)

    def evaluate(
        self, model: nn.Module, trial: Trial[HelmSettings], session: Session
    ) -> Evaluation:
        """Losses on held-out documents, cost, curvatures, radii and samples."""
        s, device, processes = trial.settings, session.device, session.processes
        second = s.batch * s.length / measures.step_seconds(session.history)
        metrics = {"tokens_per_second": second}
        if device.type == "cuda":
            metrics["peak_memory"] = torch.cuda.max_memory_allocated(device) / 2**30
        if peak := measures.peak_of(device):
            flops = measures.flops_per_token(model, s.length)
            metrics["mfu"] = flops * second / (peak * processes.world_size)
        for part in ("validation", "test"):
            rows = self.text.held_out_rows(part, s.length, s.document_masks)
            loss, count = mean_loss(model, s, rows, processes)
            metrics[f"{part}_loss"] = loss
            metrics[f"{part}_bits"] = bits_per_byte(loss * count, rows.target_bytes())
        # Blocks may be compiled for other shapes; what follows runs in a model as it was built.
        plain: Any = self.build(trial).to(device).eval().requires_grad_(False)
        plain.load_state_dict(model.state_dict())
        groups = {"decile": self._deciles} | ({"level": self._levels} if self._levels else {})
        curves = measures.radius_curves(plain, s, rows, device, groups)
        for name, values in curvatures(plain).items():
            curves[f"{name} curvature"] = values
            key = "curvature" if name == "stream" else f"{name}_curvature"
            metrics[key] = sum(values) / len(values)
        for branch in ("attention", "mlp"):
            weights = [getattr(m, f"{branch}_residual").weight for m in plain.model.layers]
            curves[f"{branch} residual"] = [float(weight) for weight in weights]
        return Evaluation(metrics, curves, measures.samples(plain, self.text, s, trial.seed))

    def findings(self, arm_results: Sequence[ArmResult]) -> dict[str, Any]:
        """Losses at equal time, and whether WordNet was there."""
        by_name = {arm_result.arm.model: arm_result.results for arm_result in arm_results}
        return {
            "equal_time": measures.equal_time(by_name[HELM], by_name[TWIN]),
            "wordnet": self._levels is not None,
        }

    def save(self, run_result: RunResult, folder: Path) -> None:
        """Write the best model of each arm as transformers does, with its tokenizer."""
        from transformers.utils import logging

        for arm_result in run_result.arm_results:
            best = min(arm_result.results, key=lambda result: result.value(self.chosen_by))
            model: Any = self.build(best.trial)
            model.load_state_dict(dict(best.state))
            model.config.fused_loss = False  # outputs of a model with that have no logits
            place = folder / MODELS / best.trial.model
            place.parent.mkdir(exist_ok=True)
            sweep(place.parent, place.name)
            with scratch_folder(place.parent, place.name) as scratch:
                logging.disable_progress_bar()  # of a second
                model.save_pretrained(scratch)
                logging.enable_progress_bar()
                self.text.tokenizer.save_pretrained(scratch)
                shutil.rmtree(place, ignore_errors=True)
                scratch.rename(place)

    def page(self, run_result: RunResult) -> Page:
        """The page for people."""
        from beltrami.recipes.helm.report import helm_page

        return helm_page(self, run_result)

    def tables(self, run_result: RunResult) -> Sequence[Table]:
        """One for all: a row an arm."""
        from beltrami.recipes.helm.report import arms_table

        return (arms_table(run_result),)

    @cached_property
    def _deciles(self) -> dict[float, Tensor]:
        return measures.frequency_deciles(self.text.counts())

    @cached_property
    def _levels(self) -> dict[float, Tensor] | None:
        return measures.wordnet_levels(self.text)
