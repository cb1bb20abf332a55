"""The hyplora recipe: arms, models and measures."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import nn

from beltrami.models.pretrained.answers import generate_answers
from beltrami.models.pretrained.prompts import Coded, encode
from beltrami.recipes.hyplora.base_model import BaseModel, open_base_model
from beltrami.recipes.hyplora.bottleneck import target_names
from beltrami.recipes.hyplora.config import NAMES, RESIDUAL, TWIN, HypLoraRunConfig
from beltrami.recipes.hyplora.methods import (
    CONSTANT_GAIN,
    GAINED,
    HYPLORA,
    RATE_FACTORS,
    FineTuned,
    HypLoraSettings,
    fine_tuned,
)
from beltrami.recipes.hyplora.presets import TINY
from beltrami.recipes.hyplora.questions import load_questions
from beltrami.recipes.hyplora.scoring import (
    Place,
    answer_loss,
    curvature_curves,
    gain_curves,
    kept_megabytes,
)
from beltrami.recipes.hyplora.training import fine_tune
from beltrami.recipes.recipe import Arm, Evaluation, Metric, Recipe, Trial, settings_from
from beltrami.train.progress import ProgressListener
from beltrami.train.seeding import seeded
from beltrami.train.session import Session
from beltrami.train.threads import one_thread

if TYPE_CHECKING:
    from beltrami.data.word_problems import WordProblem
    from beltrami.recipes.results import RunResult
    from beltrami.report.page import Page, Table

FITTED = 64  # questions that a curvature is fitted to
GAINS = 32  # questions whose tokens' gains are shown
MOST_STEPS = 9  # with an accuracy of their own


class HypLoraRecipe(Recipe[HypLoraRunConfig, HypLoraSettings]):
    """Ways to fine-tune a language model, compared by the answers it gives."""

    name: ClassVar[str] = "hyplora"
    title: ClassVar[str] = "Fine-tuning"
    chosen_by: ClassVar[str] = "validation_loss"

    def __init__(self, config: HypLoraRunConfig) -> None:
        super().__init__(config)
        self.questions = load_questions(config)
        self.base: BaseModel = open_base_model(config, self.questions)
        self._coded  # noqa: B018  too long a question shows now, and so do layers that are missing
        target_names(self.base.skeleton(), config.chosen.targets)

    @property
    def names(self) -> dict[str, str]:
        """Names of the methods and of the curvatures of a sweep."""
        sweep = {_swept(c): f"HypLoRA, c = {c!r}" for c in self.config.curvatures if c != 1}
        return {**NAMES, **sweep}

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """Exact matches of all tests, of each, and by steps; losses; costs."""
        tests = self.questions.tests
        by_test = tuple(
            Metric(f"accuracy in {name}", f"Exact match, {name}", "share of answers", "higher")
            for name in tests
            if len(tests) > 1
        )
        by_steps = tuple(
            Metric(f"accuracy {n} steps", f"Exact match, {n} step(s)", "share of answers", "higher")
            for n in range(1, MOST_STEPS + 1)
        )
        return (
            Metric("accuracy", "Exact match", "share of right answers", "higher"),
            *by_test,
            *by_steps,
            Metric("answer_loss", "Answer loss", "of the tests' solutions, a token", "lower"),
            Metric("validation_loss", "Validation loss", "rates were chosen by it", "lower"),
            Metric("kept", "Kept MiB", "by a step for its backward pass", "lower", 1),
            Metric("curvature", "Curvature", "c, mean over layers, after training", None),
            Metric("loss", "Loss", "of the last step", None),
        )

    @cached_property
    def _facts(self) -> dict[str, Any]:
        questions = self.questions
        return {
            "name": questions.name,
            "task": self.config.task,
            "model": self.base.name,
            "train": len(questions.train),
            "validation": len(questions.validation),
            "tests": {name: len(problems) for name, problems in questions.tests.items()},
            "cut_off": sum(item.cut for item in self._coded["train"]),
            "digest": f"{questions.digest()}-{self.base.fingerprint}",
        }

    def data_facts(self) -> dict[str, Any]:
        """Questions and the model: both decide what comes out."""
        return self._facts

    def arms(self) -> Sequence[Arm[HypLoraSettings]]:
        """LoRA, and the methods that are compared with it."""
        config = self.config
        arms = []
        for method in (TWIN, *(m for m in config.methods if m != TWIN)):
            factor = RATE_FACTORS.get(method, 1.0)
            rates = tuple({"learning_rate": factor * rate} for rate in config.chosen.learning_rates)
            for name, options in self._variants(method):
                settings = settings_from(
                    HypLoraSettings,
                    config.chosen,
                    precision=self._precision(),
                    method=method,
                    alpha=self._alpha(method),
                    hyplora=options,
                    # Results in an earlier unit are not comparable.
                    unit="geometric mean" if method == RESIDUAL else None,
                    learning_rate=rates[0]["learning_rate"],
                )
                twin = None if method == TWIN else TWIN
                choices: Sequence[dict[str, float]] = ({},) if method == "base" else rates
                arms.append(Arm(name, "", settings, twin, choices))
        return arms

    def _alpha(self, method: str) -> float:
        """The common alpha, except for methods that have their own."""
        alpha: float = self.config.chosen.alpha
        if method == GAINED:
            return alpha * CONSTANT_GAIN
        return self.config.chosen.hyplora_alpha or alpha if method in HYPLORA else alpha

    def _variants(self, method: str) -> list[tuple[str, dict[str, Any]]]:
        """Names and options of a method's arms: one each, but a sweep for "hyplora"."""
        if method not in HYPLORA:
            return [(method, {})]
        if method != "hyplora":
            return [(method, {"curvature": 1.0, **HYPLORA[method]})]
        return [
            ("hyplora" if c == 1 else _swept(c), {"curvature": c}) for c in self.config.curvatures
        ]

    def prepare(self, listener: ProgressListener, device: torch.device) -> None:
        """Train the small language model, if it is that."""
        if cut := self._facts["cut_off"]:
            listener.note(
                f"{cut} of {self._facts['train']} solutions to train on are cut off at --longest "
                f"{self.config.chosen.longest}, and lose their answer"
            )
        self.base.prepare(listener, device)
        if RESIDUAL in self.config.methods:
            self._check_residual()

    @torch.no_grad()
    def _check_residual(self) -> None:
        """Say now, and not after the other methods are trained, where there is no such norm."""
        from beltrami.peft.residual_norm import NoResidualNormError

        arm = next(c for c in self.arms() if c.model == RESIDUAL)
        try:
            with torch.device("meta"):
                model = fine_tuned(self.base.skeleton(), arm.settings, [])
                model.train()(input_ids=torch.zeros(1, 2, dtype=torch.int64))
        except NoResidualNormError as error:
            others = [str(m) for m in self.config.methods if m != RESIDUAL] or [TWIN]
            raise ValueError(
                f"{self.base.name} cannot be trained by {RESIDUAL} ({error}); leave it out: "
                f"--methods {' '.join(others)}"
            ) from error
        except Exception:  # not all models can do without numbers; the training will say
            return

    def build(self, trial: Trial[HypLoraSettings]) -> nn.Module:
        """The model with the trial's adapter."""
        half = trial.settings.precision == "bfloat16" and trial.settings.method != "full"
        base = self.base.load(torch.bfloat16 if half else torch.float32)
        fitted = [item.question for item in self._coded["train"][:FITTED]]
        with seeded(trial.seed):
            return fine_tuned(base, trial.settings, fitted)

    def train(self, model: nn.Module, trial: Trial[HypLoraSettings], session: Session) -> None:
        """Batches of questions with solutions; nothing for the model as it is."""
        assert isinstance(model, FineTuned)
        if trial.settings.method == "base":
            session.begin(0)
            return
        with self._threads(session.device):
            fine_tune(
                model,
                self._coded["train"],
                self._padding,
                trial,
                session,
                micro_batch=self.config.micro_batch,
            )

    def evaluate(
        self, model: nn.Module, trial: Trial[HypLoraSettings], session: Session
    ) -> Evaluation:
        """Generated answers, losses, memory and, for HypLoRA, gains and curvatures."""
        assert isinstance(model, FineTuned)
        place = Place(session.device, trial.settings.precision == "bfloat16")
        questions = self.questions
        with self._threads(session.device):
            answers = generate_answers(
                model.eval().model,
                self._coded["test"],
                self.base.tokenizer,
                batch=self.config.test_batch,
                beams=trial.settings.beams,
                new_tokens=trial.settings.new_tokens,
                device=place.device,
                bfloat16=place.bfloat16,
            )
            # The micro-batch of training is known to fit in memory; a test batch may not, since a
            # loss needs the logits of every token.
            step_size = self.config.micro_batch or trial.settings.batch
            losses = {
                name: answer_loss(model, self._coded[part], self._padding, place, batch=step_size)
                for name, part in (("answer_loss", "test"), ("validation_loss", "validation"))
            }
            curves: dict[str, list[float]] = {}
            cost: dict[str, float] = {}
            if trial.settings.method != "base":
                step = self._coded["train"][:step_size]
                prompts = trial.settings.loss_on == "whole"
                cost["kept"] = kept_megabytes(model, step, self._padding, place, prompts=prompts)
                cost["loss"] = session.history[-1]["loss"]
                sample = self._coded["test"][:GAINS]
                curves = {**gain_curves(model, sample, self._padding, place)}
                curves |= curvature_curves(model)
        pairs = zip(answers, questions.tested, strict=True)
        right = [questions.is_right(answer, problem) for answer, problem in pairs]
        levels = [
            value
            for name, values in curves.items()
            if name.startswith("curvature ") and not name.endswith(" block")
            for value in values
        ]
        mean = {"curvature": sum(levels) / len(levels)} if levels else {}
        return Evaluation(
            {**self._accuracies(right), **losses, **cost, **mean},
            {**curves, "right": [float(r) for r in right]},
            {"answers": answers},
        )

    def page(self, run_result: RunResult) -> Page:
        """The page for people."""
        from beltrami.recipes.hyplora.report import hyplora_page

        return hyplora_page(self, run_result)

    def tables(self, run_result: RunResult) -> Sequence[Table]:
        """One for all: a row a method."""
        from beltrami.recipes.hyplora.report import methods_table

        return (methods_table(run_result, self.names),)

    @cached_property
    def _coded(self) -> dict[str, list[Coded]]:
        questions = self.questions
        parts: dict[str, Sequence[WordProblem]] = {
            "train": questions.train,
            "validation": questions.validation,
            "test": questions.tested,
        }
        prompt, longest = self.config.chosen.prompt, self.config.chosen.longest
        return {
            part: encode(problems, self.base.tokenizer, prompt=prompt, longest=longest)
            for part, problems in parts.items()
        }

    @property
    def _padding(self) -> int:
        padding: int = self.base.tokenizer.pad_token_id
        return padding

    def _accuracies(self, right: Sequence[bool]) -> dict[str, float]:
        accuracies = {"accuracy": sum(right) / len(right)}
        start = 0
        for name, problems in self.questions.tests.items():
            part = right[start : start + len(problems)]
            if len(self.questions.tests) > 1:
                accuracies[f"accuracy in {name}"] = sum(part) / len(part)
            start += len(problems)
        by_steps: dict[int, list[bool]] = {}
        for ok, problem in zip(right, self.questions.tested, strict=True):
            by_steps.setdefault(problem.steps, []).append(ok)
        for steps, part in by_steps.items():
            if 1 <= steps <= MOST_STEPS:
                accuracies[f"accuracy {steps} steps"] = sum(part) / len(part)
        return accuracies

    def _precision(self) -> str:
        """What "auto" means on this machine; a part of a trial, since it changes the numbers."""
        if self.config.precision != "auto":
            return self.config.precision
        cuda = self.config.device != "cpu" and torch.cuda.is_available()
        return "bfloat16" if cuda else "float32"

    def _threads(self, device: torch.device) -> contextlib.AbstractContextManager[None]:
        """Small models gain nothing from several threads."""
        small = self.base.name == TINY and device.type == "cpu"
        return one_thread() if small else contextlib.nullcontext()


def _swept(c: float) -> str:
    return f"hyplora-c{c!r}"
