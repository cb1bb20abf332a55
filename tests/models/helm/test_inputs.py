"""What goes in and comes out: masks, embeddings, states, attention weights, parts of the logits."""

from __future__ import annotations

import pytest
import torch

from beltrami.geometry import lorentz
from beltrami.models.helm.inputs import fit_mask
from tests.models.helm.variants import (
    assert_near,
    every_variant,
    left_padded,
    logits,
    tokens,
    trained,
)


@pytest.mark.parametrize("backend", ["sdpa", "eager"])
@every_variant
def test_masks_of_four_dimensions_are_those_of_two(variant: str, backend: str) -> None:
    model = trained(variant, attn_implementation=backend)
    ids, mask, positions = left_padded(7, 4)
    real = mask.bool()
    expected = logits(model, ids, attention_mask=mask, position_ids=positions)[real]
    causal = torch.ones(7, 7, dtype=torch.bool).tril()
    seen = causal & (real[:, None, None, :] | torch.eye(7, dtype=torch.bool))
    lowest = torch.finfo(torch.float64).min
    added = torch.zeros(seen.shape, dtype=torch.float64).masked_fill(~seen, lowest)
    for given in (added, added.float(), seen):
        out = logits(model, ids, attention_mask=given, position_ids=positions, use_cache=False)
        assert_near(out[real], expected, 1e-10 if backend == "sdpa" else 1e-5)


@every_variant
def test_embeddings_in_the_place_of_tokens(variant: str) -> None:
    model, ids = trained(variant), tokens()
    embedded = model.get_input_embeddings()(ids).detach()
    assert torch.equal(logits(model, None, inputs_embeds=embedded), logits(model, ids))


@every_variant
def test_hidden_states(variant: str) -> None:
    model, ids = trained(variant), tokens()
    with torch.no_grad():
        out = model(ids, output_hidden_states=True)
        states = out.hidden_states
        assert len(states) == model.config.num_hidden_layers + 1
        assert_near(states[0], model.model.embed_tokens(ids), 1e-12)
        assert_near(model.word_scores(states[-1], model.lm_head), out.logits, 1e-12)
    assert model(ids).hidden_states is None


@every_variant
def test_attention_weights(variant: str) -> None:
    model = trained(variant, attn_implementation="eager")
    with torch.no_grad():
        out = model(tokens(2, 6), output_attentions=True)
    assert len(out.attentions) == 2
    for weights in out.attentions:
        assert weights.shape == (2, 4, 6, 6)
        assert_near(weights.sum(-1), torch.ones(2, 4, 6, dtype=torch.float64), 1e-6)
        assert (weights.triu(1) == 0).all()


def test_attention_weights_are_of_distances() -> None:
    """softmax of −|q − k|²_L/σ of the third head, from the chords between its points."""
    model = trained(attn_implementation="eager")
    ids, head = tokens(1, 6), 2
    with torch.no_grad():
        weights = model(ids, output_attentions=True).attentions[0][0, head]
        layer = model.model.layers[0]
        attention, size = layer.self_attn, layer.self_attn.score_size
        h = layer.input_layernorm(model.model.embed_tokens(ids))[0]
        columns = slice(head * size, (head + 1) * size)
        q, k = attention.q_proj(h)[:, columns], attention.k_proj(h)[:, columns]
        frequencies = 10000.0 ** (-torch.arange(0, size, 2).double() / size)
        angles = torch.arange(6).double()[:, None] * frequencies
        turn = torch.polar(torch.ones_like(angles), angles)

        def rotated(x: torch.Tensor) -> torch.Tensor:
            y = torch.complex(*x.chunk(2, -1)) * turn
            return torch.cat([y.real, y.imag], -1)

        c = model.model.head_curvature.value.item()
        chords = lorentz.chord_sq(rotated(q)[:, None], rotated(k)[None], c)
        scores = -chords / attention.log_scale[head].exp()
        causal = torch.ones(6, 6, dtype=torch.bool).tril()
        expected = scores.masked_fill(~causal, -torch.inf).softmax(-1)
    assert_near(weights, expected, 1e-6)  # transformers' softmax is float32


@every_variant
def test_logits_to_keep(variant: str) -> None:
    model, ids = trained(variant), tokens()
    whole = logits(model, ids)
    assert_near(logits(model, ids, logits_to_keep=2), whole[:, -2:], 1e-12)
    places = torch.tensor([1, 4, 5])
    assert_near(logits(model, ids, logits_to_keep=places), whole[:, places], 1e-12)


def test_masks_of_flash_attention_are_left_alone() -> None:
    mask = torch.ones(2, 5, dtype=torch.long)
    assert fit_mask(mask, torch.bfloat16, "flash_attention_2") is mask
    assert fit_mask(None, torch.bfloat16, "sdpa") is None


@pytest.mark.parametrize("variant", ["default", "dot-centroid"])
def test_one_hot_attention_in_bfloat16_is_the_value(variant: str) -> None:
    """A token alone looks at itself; √c·|v| = 3, within 1 percent."""
    model = trained(variant)
    attention = model.model.layers[0].self_attn
    radius = model.model.head_curvature.radius.double()
    seen: dict[str, torch.Tensor] = {}

    def scaled(_module: object, _inputs: object, v: torch.Tensor) -> torch.Tensor:
        heads = v.unflatten(-1, (4, -1)).float()
        far = heads * (3 * radius.float() / heads.norm(dim=-1, keepdim=True))
        seen["v"] = far.to(v.dtype)
        return seen["v"].flatten(-2)

    attention.v_proj.register_forward_hook(scaled)
    attention.o_proj.register_forward_pre_hook(lambda _, args: seen.update(out=args[0]))
    logits(model.to(torch.bfloat16), tokens(64, 1))
    v = seen["v"].flatten(-2).double()
    error = (seen["out"].double() - v).unflatten(-1, (4, -1)).norm(dim=-1) / (3 * radius)
    assert error.max() < 0.01


def test_tuples_in_the_place_of_outputs() -> None:
    model, ids = trained(), tokens()
    with torch.no_grad():
        out = model(ids, return_dict=False, use_cache=False)
    assert isinstance(out, tuple)
    assert torch.equal(out[0], logits(model, ids))
