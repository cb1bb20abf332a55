from __future__ import annotations

import pytest

from beltrami.data.vectors.embedding_name import LISTED, choose_tensor, is_token_table
from beltrami.data.vectors.table import VectorsError

SHAPES = {
    "model.embed_tokens.weight": (100, 8),
    "model.layers.0.mlp.weight": (16, 8),
    "model.norm.weight": (8,),
    "lm_head.weight": (100, 8),
}


def choose(shapes: dict[str, tuple[int, ...]], tensor: str | None = None) -> str:
    return choose_tensor(list(shapes), tensor, where="m", shape_of=shapes.__getitem__)


@pytest.mark.parametrize(
    "name",
    [
        "model.embed_tokens.weight",
        "wte.weight",
        "transformer.wte.weight",
        "bert.embeddings.word_embeddings.weight",
        "model.embeddings.tok_embeddings.weight",
        "gpt_neox.embed_in.weight",
        "shared.weight",
        "text_model.embeddings.token_embedding.weight",
        "embedding.weight",
        "backbone.embeddings.weight",
    ],
)
def test_the_names_that_models_use(name: str) -> None:
    others = {"a.position_embeddings.weight": (9, 8), "b.patch_embedding.weight": (7, 8)}
    assert choose({**others, name: (100, 8), "x.bias": (8,)}) == name
    assert is_token_table(name)


def test_only_whole_parts_of_a_name_count() -> None:
    for name in ("patch_embedding.weight", "xwte.weight", "model.embed_tokens.bias"):
        assert not is_token_table(name)
    assert is_token_table("lm_head.weight")


def test_the_only_tensor_may_be_called_anything() -> None:
    assert choose({"x": (3, 2)}) == "x"


def test_the_tensor_asked_for_wins() -> None:
    assert choose(SHAPES, "lm_head.weight") == "lm_head.weight"


def test_a_tensor_that_is_not_there_gets_a_hint() -> None:
    with pytest.raises(VectorsError, match=r"m has no tensor 'lm_heads.*did you mean 'lm_head"):
        choose(SHAPES, "lm_heads.weight")


def test_without_a_known_name_the_tables_are_listed_with_shapes() -> None:
    shapes = {"a": (2, 3), "b": (5, 3), "c": (3,)}
    with pytest.raises(VectorsError, match=r"tensor= \(--tensor\): b \(5, 3\), a \(2, 3\)$"):
        choose(shapes)


def test_a_long_list_is_cut() -> None:
    shapes = {f"t{number}": (2, 3) for number in range(LISTED + 5)}
    with pytest.raises(VectorsError, match=r"t11 \(2, 3\) and 5 more$"):
        choose(shapes)


def test_equal_tables_are_one_table_and_the_shared_one_is_preferred() -> None:
    shapes = {"encoder.embed_tokens.weight": (9, 4), "shared.weight": (9, 4), "w": (4, 4)}
    assert choose(shapes) == "shared.weight"


def test_tables_of_different_shapes_are_the_users_choice() -> None:
    shapes = {"text.embed_tokens.weight": (9, 4), "audio.embed_tokens.weight": (5, 4)}
    with pytest.raises(VectorsError, match=r"m has several tables.*text\.embed_tokens\.weight \(9"):
        choose(shapes)


def test_shapes_that_must_be_fetched_are_not_asked_for() -> None:
    def refuse(name: str) -> tuple[int, ...]:
        raise AssertionError(name)

    names = ["a.weight", "b.weight"]
    with pytest.raises(VectorsError, match=r"--tensor\): a\.weight, b\.weight$"):
        choose_tensor(names, None, where="m", shape_of=refuse, shapes_at_hand=False)
    chosen = choose_tensor(
        [*names, "wte.weight"], None, where="m", shape_of=refuse, shapes_at_hand=False
    )
    assert chosen == "wte.weight"
