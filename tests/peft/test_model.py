"""HypLoRA as PEFT's users use it."""

from __future__ import annotations

import copy
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from peft import AutoPeftModelForCausalLM, PeftModel, get_peft_model
from safetensors.torch import load_file
from torch import nn
from transformers import AutoModelForCausalLM as AutoModel
from transformers import GenerationConfig, OPTConfig, OPTForCausalLM

from beltrami.peft import HypLoraConfig, HypLoraLayer, save_adapter
from tests.peft import tiny


def adapted(**changes: object) -> PeftModel:
    return get_peft_model(tiny.llama(), tiny.config(task_type="CAUSAL_LM", **changes)).eval()


def layers(model: nn.Module) -> dict[str, HypLoraLayer]:
    return {n: m for n, m in model.named_modules() if isinstance(m, HypLoraLayer)}


SAVED: list[dict] = [
    {},
    {"variant": "boost"},
    {"learn_curvature": "module"},
    {"learn_curvature": "layer"},
    {"learn_curvature": "token"},
    {"curvature": [0.1, 1.0]},
    {"curvature": [0.1, 1.0], "learn_curvature": "layer"},
    {"norm_source": "residual"},
    {"use_dora": True},
    {"target_modules": "all-linear"},
    {"modules_to_save": ["lm_head"]},
]


@pytest.mark.parametrize("settings", SAVED, ids=str)
def test_what_is_saved_is_loaded(settings: dict, tmp_path: Path) -> None:
    model = adapted(**settings)
    with torch.no_grad():
        for p in model.parameters():
            if p.requires_grad:
                p.add_(0.05 * torch.randn_like(p))
    ids = tiny.tokens()
    expected = model(ids).logits
    model.save_pretrained(tmp_path)
    assert (tmp_path / "adapter_model.safetensors").exists()
    model.save_pretrained(tmp_path)  # once more: the card is there, and is not changed twice
    card = (tmp_path / "README.md").read_text(encoding="utf-8")
    head, lead = card.split("\n---\n")[:2]
    assert "library_name: peft" in head
    assert lead.startswith("\nThis is a HypLoRA adapter. `import beltrami.peft` first")
    assert card.count("import beltrami.peft  # pip install") == 1
    again = PeftModel.from_pretrained(tiny.llama(), tmp_path).eval()
    assert torch.equal(again(ids).logits, expected)
    plain = tiny.llama()(ids).logits
    assert not torch.allclose(plain, expected, atol=1e-4)


def test_a_fresh_process_loads_it(tmp_path: Path) -> None:
    base, adapter = tmp_path / "base", tmp_path / "adapter"
    tiny.llama().save_pretrained(base)
    model = get_peft_model(
        AutoModel.from_pretrained(base), tiny.config(task_type="CAUSAL_LM", curvature=2.0)
    ).eval()
    model.save_pretrained(adapter)
    ids = tiny.tokens()
    torch.save(model(ids).logits, tmp_path / "logits.pt")
    code = (
        "import sys, torch, beltrami.peft\n"
        "from peft import AutoPeftModelForCausalLM\n"
        "from tests.peft import tiny\n"
        "model = AutoPeftModelForCausalLM.from_pretrained(sys.argv[1]).eval()\n"
        "found = model(tiny.tokens()).logits\n"
        "assert torch.equal(found, torch.load(sys.argv[2])), 'other logits'\n"
    )
    command = [sys.executable, "-c", code, str(adapter), str(tmp_path / "logits.pt")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_without_the_package_loading_fails_closed(tmp_path: Path) -> None:
    """Never plain LoRA by accident."""
    adapted().save_pretrained(tmp_path)
    code = (
        "import sys\n"
        "from peft import PeftConfig\n"
        "try: PeftConfig.from_pretrained(sys.argv[1])\n"
        "except (KeyError, ValueError) as error: assert 'HYPLORA' in str(error); sys.exit(7)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True)
    assert done.returncode == 7


def test_auto_class_in_this_process(tmp_path: Path) -> None:
    tiny.llama().save_pretrained(tmp_path / "base")
    model = get_peft_model(
        AutoModel.from_pretrained(tmp_path / "base"), tiny.config(task_type="CAUSAL_LM")
    )
    model.save_pretrained(tmp_path / "adapter")
    again = AutoPeftModelForCausalLM.from_pretrained(tmp_path / "adapter").eval()
    ids = tiny.tokens()
    assert torch.equal(again(ids).logits, model.eval()(ids).logits)


def test_several_adapters() -> None:
    model = adapted()
    model.add_adapter("other", tiny.config(task_type="CAUSAL_LM", r=2, curvature=3.0))
    ids = tiny.tokens()
    first = model(ids).logits
    model.set_adapter("other")
    second = model(ids).logits
    assert not torch.allclose(first, second, atol=1e-4)
    model.delete_adapter("default")
    assert torch.equal(model(ids).logits, second)
    assert not any("default" in n for n, _ in model.named_parameters())
    for layer in layers(model).values():
        for name in layer.adapter_layer_names + layer.other_param_names:
            assert "default" not in getattr(layer, name)


@pytest.mark.parametrize("saved", [None, ["lm_head"]])
def test_generating_with_mixed_adapters(saved: list[str] | None) -> None:
    settings: dict = {"alpha": 80, "modules_to_save": saved}
    model = adapted(**settings)
    model.add_adapter("other", tiny.config(task_type="CAUSAL_LM", curvature=3.0, **settings))
    ids = tiny.tokens(2)
    options = {"max_new_tokens": 4, "do_sample": False, "pad_token_id": 0, "num_beams": 2}
    mask = torch.ones_like(ids)
    names = ["other", "default"]
    found = model.generate(input_ids=ids, attention_mask=mask, adapter_names=names, **options)
    if saved is None:  # PEFT's wrapper of what is saved whole does not look there
        told = GenerationConfig(**options)
        again = model.generate(
            input_ids=ids, attention_mask=mask, adapter_names=names, generation_config=told
        )
        assert torch.equal(found, again)
    for row, name in enumerate(["other", "default"]):
        model.set_adapter(name)
        alone = model.generate(
            input_ids=ids[row : row + 1], attention_mask=mask[row : row + 1], **options
        )
        length = alone.shape[1]
        assert torch.equal(found[row, :length], alone[0])


def test_patterns() -> None:
    model = adapted(
        rank_pattern={"q_proj": 2},
        alpha_pattern={"v_proj": 40},
        curvature_pattern={r"layers\.1\..*": 5.0},
    )
    for name, layer in layers(model).items():
        r = layer.hyplora_A["default"].r
        assert r == (2 if "q_proj" in name else 4)
        assert layer.hyplora_scaling["default"] == (40 if "v_proj" in name else 8) / r
        assert layer.hyplora_fixed_curvature["default"] == (5.0 if "layers.1." in name else 1.0,)


def test_mixed_batches_where_tokens_lie_side_by_side() -> None:
    """OPT makes one row of each token before its feed-forward layers."""
    sizes = {"hidden_size": 16, "ffn_dim": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    base = OPTForCausalLM(OPTConfig(vocab_size=50, word_embed_proj_dim=16, **sizes))
    told = {"target_modules": ["fc1", "fc2"], "init_weights": False}
    model = get_peft_model(base, HypLoraConfig(**told))
    model.add_adapter("other", HypLoraConfig(curvature=3.0, **told))
    ids = torch.randint(50, (2, 5))
    found = model.eval()(input_ids=ids, adapter_names=["default", "other"]).logits
    model.set_adapter("other")
    torch.testing.assert_close(found[1], model(input_ids=ids).logits[1])
    with pytest.raises(ValueError, match="got 1 and 2"):
        model(input_ids=ids, adapter_names=["default"])


def test_patterns_for_no_layer_are_named() -> None:
    with pytest.warns(RuntimeWarning, match=r"curvature_pattern keys .*\['nobody'\]"):
        adapted(curvature_pattern={"q_proj": 2.0, "nobody": 3.0})


def test_a_block_shares_one_curvature(tmp_path: Path) -> None:
    model = adapted(learn_curvature="layer")
    learned = [n for n, p in model.named_parameters() if "hyplora_curvature" in n]
    assert len(learned) == 2  # one a block
    ids = tiny.tokens()
    before = model(ids).logits
    with torch.no_grad():
        dict(model.named_parameters())[learned[0]].add_(1.0)
    found = {n: layer.curvatures("default")[0].item() for n, layer in layers(model).items()}
    first = {c for n, c in found.items() if "layers.0." in n}
    second = {c for n, c in found.items() if "layers.1." in n}
    assert len(first) == len(second) == 1
    assert first != second
    assert not torch.allclose(model(ids).logits, before, atol=1e-6)
    model.save_pretrained(tmp_path)
    keys = load_file(tmp_path / "adapter_model.safetensors")
    assert sum("hyplora_curvature" in k for k in keys) == 2


def test_the_residual_stream_decides_the_gain() -> None:
    """Scaling the embeddings changes no normalised input, only the residual stream."""
    for source, changed in (("input", False), ("residual", True)):
        torch.manual_seed(0)
        model = adapted(norm_source=source, target_modules=["q_proj"], layers_to_transform=[0])
        layer = next(iter(layers(model).values()))
        seen = []
        layer.register_forward_hook(lambda m, a, out, seen=seen: seen.append((a[0], out)))
        ids = tiny.tokens()
        model.get_input_embeddings().weight.data.mul_(50.0)
        model.train()(ids)  # the unit is that of the first batch
        model.get_input_embeddings().weight.data.mul_(2.0)
        model.eval()(ids)
        torch.testing.assert_close(seen[0][0], seen[1][0], rtol=1e-4, atol=1e-5)
        same = torch.allclose(seen[0][1], seen[1][1], rtol=1e-3, atol=1e-4)
        assert same != changed


def test_the_residual_norm_is_forgotten_and_copied() -> None:
    model = adapted(norm_source="residual").train()
    ids = tiny.tokens()
    model(input_ids=ids, labels=ids).loss.backward()
    recorders = model.base_model._residual_norms
    assert len(recorders) == 2
    assert all(r.mean_square is None for r in recorders.values())
    again = copy.deepcopy(model).eval()
    model.get_input_embeddings().weight.data.mul_(3.0)  # the copy must not read from here
    model.eval()(ids)
    torch.testing.assert_close(again(ids).logits, copy.deepcopy(again)(ids).logits)
    model.delete_adapter("default")
    assert not any(m._forward_pre_hooks for m in model.modules())


@pytest.mark.parametrize(
    ("model", "settings", "words"),
    [
        (tiny.llama, {"target_modules": ["lm_head"]}, "no normalisation of its own"),
        (tiny.llama, {"modules_to_save": ["input_layernorm"]}, "modules_to_save"),
        (tiny.t5, {"target_modules": ["q"]}, "encoder"),
        (tiny.bert, {"target_modules": ["query"]}, "no normalisation of its own"),
    ],
)
def test_where_there_is_no_residual_norm(model, settings: dict, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        get_peft_model(model(), tiny.config(norm_source="residual", **settings))


def test_models_that_normalise_afterwards_are_told() -> None:
    blocks = nn.Sequential(nn.Sequential(nn.Linear(8, 8), nn.RMSNorm(8)))
    model = get_peft_model(blocks, tiny.config(norm_source="residual", target_modules=["0.0"]))
    with pytest.raises(ValueError, match=r"saw none.*normalise after"):
        model(torch.randn(3, 8))


def test_an_adapter_that_comes_back_owns_its_curvature() -> None:
    model = adapted(learn_curvature="layer")
    model.add_adapter("other", tiny.config(task_type="CAUSAL_LM"))
    model.set_adapter("other")
    model.delete_adapter("default")
    model.add_adapter("default", tiny.config(task_type="CAUSAL_LM", learn_curvature="layer"))
    assert sum("hyplora_curvature.default" in n for n, _ in model.named_parameters()) == 2


def test_no_residual_stream() -> None:
    with pytest.raises(ValueError, match="normalisation"):
        get_peft_model(tiny.MLP(), tiny.config(target_modules=["first"], norm_source="residual"))


@pytest.mark.parametrize("how", ["cat", "linear"])
def test_weighted_adapters_sum_their_matrices(how: str) -> None:
    """For the tangent variant, which is linear, cat sums the outputs, too."""
    model = get_peft_model(tiny.MLP(), tiny.config(target_modules=["first"], variant="tangent"))
    model.add_adapter("other", tiny.config(target_modules=["first"], variant="tangent", alpha=4))
    model.add_weighted_adapter(["default", "other"], [0.5, -2.0], "sum", combination_type=how)
    layer = layers(model)["base_model.model.first"]
    if how == "cat":
        x = torch.randn(4, 6, dtype=torch.float64)
        base = layer.base_layer(x)
        updates = {}
        for name in ("default", "other", "sum"):
            model.set_adapter(name)
            updates[name] = layer(x) - base
        expected = 0.5 * updates["default"] - 2.0 * updates["other"]
        torch.testing.assert_close(updates["sum"], expected, rtol=1e-6, atol=1e-7)
    else:
        for which in ("A", "B"):
            parts = getattr(layer, f"hyplora_{which}")
            one, two = parts["default"].weight, parts["other"].weight
            sign = 1.0 if which == "A" else -1.0
            # In units of the first one's scale, 2, which stays outside; the other's is 1.
            torch.testing.assert_close(
                parts["sum"].weight, 0.5**0.5 * one + sign * (2.0 / 2.0) ** 0.5 * two
            )


@pytest.mark.parametrize("settings", [{}, {"use_rslora": True}, {"alpha_pattern": {"first": 24}}])
def test_a_combination_of_one_is_that_one(settings: dict) -> None:
    """Also far from where gains are 1."""
    model = get_peft_model(tiny.MLP(), tiny.config(target_modules=["first"], **settings)).double()
    layer = layers(model)["base_model.model.first"]
    with torch.no_grad():
        layer.hyplora_B["default"].weight.mul_(50)
    x = torch.randn(4, 6, dtype=torch.float64)
    expected = model(x)
    model.add_weighted_adapter(["default"], [1.0], "copy")
    model.double().set_adapter("copy")
    torch.testing.assert_close(model(x), expected)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        ({"combination_type": "svd"}, "svd.*cat or linear"),
        ({"combination_type": "cat", "density": 0.5}, "density"),
        ({"adapters": ["default", "missing"]}, "missing"),
        ({"weights": [1.0]}, "2 adapters and 1 weights"),
        ({"adapter_name": "other"}, "already"),
    ],
)
def test_combinations_that_are_refused(call: dict, words: str) -> None:
    model = adapted()
    model.add_adapter("other", tiny.config(task_type="CAUSAL_LM"))
    settings = {"adapters": ["default", "other"], "weights": [1.0, 1.0], "adapter_name": "new"}
    with pytest.raises(ValueError, match=words):
        model.add_weighted_adapter(**{**settings, **call})


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"variant": "boost"}, "time columns"),
        ({"learn_curvature": "module"}, "fixed"),
        ({"norm_source": "residual"}, "norm_source"),
        ({"curvature": 2.0}, "different curvature"),
        ({"max_radius": 2.0}, "different max_radius"),
    ],
)
def test_adapters_that_do_not_go_together(settings: dict, words: str) -> None:
    model = adapted(**({} if "different" in words else settings))
    model.add_adapter("other", tiny.config(task_type="CAUSAL_LM", **settings))
    with pytest.raises(ValueError, match=words):
        model.add_weighted_adapter(["default", "other"], [1.0, 1.0], "new")


def test_a_failed_save_leaves_the_old_files(tmp_path: Path, monkeypatch) -> None:
    folder = tmp_path / "adapter"
    model = adapted()
    save_adapter(model, folder)
    before = {p.name: p.read_bytes() for p in folder.iterdir()}
    assert {"adapter_config.json", "adapter_model.safetensors"} <= before.keys()

    def fail(self, path: str, **kwargs: object) -> None:
        (Path(path) / "adapter_model.safetensors").write_bytes(b"half")
        raise OSError("no space left on device")

    monkeypatch.setattr(PeftModel, "save_pretrained", fail)
    with pytest.raises(OSError, match="no space"):
        save_adapter(model, folder)
    assert {p.name: p.read_bytes() for p in folder.iterdir()} == before
    assert [p.name for p in tmp_path.iterdir()] == ["adapter"]


def test_scaling_an_adapter() -> None:
    model = get_peft_model(tiny.MLP(), tiny.config(target_modules=["first"]))
    layer = layers(model)["base_model.model.first"]
    x = torch.randn(4, 6, dtype=torch.float64)
    base, before = layer.base_layer(x), layer(x)
    layer.scale_layer(3.0)
    torch.testing.assert_close(layer(x) - base, 3 * (before - base), rtol=1e-8, atol=1e-10)
    layer.unscale_layer(3.0)
    torch.testing.assert_close(layer(x), before)
    layer.scale_layer(2.0)
    layer.set_scale("default", 3.0)
    torch.testing.assert_close(layer(x) - base, 3 * (before - base), rtol=1e-8, atol=1e-10)
    layer.unscale_layer()
    assert torch.equal(layer(x), before)


def test_adapters_that_share_a_saved_module_are_not_combined() -> None:
    model = adapted(modules_to_save=["lm_head"])
    model.add_adapter("other", tiny.config(task_type="CAUSAL_LM", modules_to_save=["lm_head"]))
    with pytest.raises(ValueError, match="modules_to_save, but found 1"):
        model.add_weighted_adapter(["default", "other"], [1.0, 1.0], "new")


def test_a_config_says_what_it_is() -> None:
    model = adapted()
    assert model.peft_type.value == "HYPLORA"
    assert isinstance(model.peft_config["default"], HypLoraConfig)
    assert "rotation" in repr(model)
