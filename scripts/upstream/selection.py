"""Which of PEFT's tests are HypLoRA's: those written for LoRA alone, and those that cannot be."""

from __future__ import annotations

import torch

from beltrami.peft.model import BIASES_ARE_SAVED

# Tests that make their own LoraConfig, which is ours here. All others are parametrised.
LORA_TESTS = frozenset(
    """
    test_add_adapter_rejects_duplicate_name_without_mutation
    test_add_weighted_adapter_negative_weight_negates_adapter
    test_add_weighted_adapter_subtraction_with_negative_weights
    test_causal_lm_add_weighted_adapter_lora_adapter_compile
    test_causal_lm_disable_lora_adapter_compile
    test_causal_lm_merge_and_unload_lora_adapter_compile
    test_causal_lm_merging_lora_adapter_compile
    test_causal_lm_merging_multiple_lora_adapters_compile
    test_causal_lm_mixed_batch_lora_adapter_compile
    test_causal_lm_multiple_lora_adapter_compile
    test_delete_adapter_multiple_adapters_with_modules_to_save
    test_delete_adapter_with_multiple_adapters_works
    test_existing_model_card
    test_from_pretrained_low_cpu_mem_usage_works
    test_from_pretrained_missing_keys_warning
    test_get_peft_model_low_cpu_mem_usage_works
    test_get_peft_model_with_task_type_low_cpu_mem_usage_works
    test_ignore_mismatched_sizes_with_scalar_modules_to_save
    test_inject_adapter_low_cpu_mem_usage_works
    test_load_adapter_low_cpu_mem_usage_works
    test_load_does_not_overwrite_similarly_named_sibling
    test_load_resized_embedding_ignore_mismatched_sizes
    test_loading_adapter_preserves_custom_requires_grad
    test_lora_linear_false
    test_lora_linear_init_default
    test_lora_use_dora_linear
    test_lora_use_dora_linear_init_false
    test_matched_pattern_keys_do_not_warn
    test_misconfigured_second_adapter_warns_on_add_adapter
    test_mixed_adapter_batches_lora_with_dora_but_dora_not_included_works
    test_mixed_adapter_batches_lora_with_dora_raises
    test_modules_to_save_targets_lora_layer_raises
    test_multiple_adapters_mixed_modules_to_save_merging_adapters
    test_multiple_adapters_no_needless_copy_modules_to_save
    test_multiple_adapters_same_modules_to_save_merging_adapters_raises
    test_multiple_configs_with_bias_raises
    test_multirank
    test_multirank_2
    test_no_infinite_recursion
    test_no_warning_by_default_custom_model
    test_no_warning_by_default_transformers_model
    test_no_warning_without_naming_conflict_add_adapter
    test_no_warning_without_naming_conflict_get_peft_model
    test_no_warning_without_naming_conflict_save_and_load
    test_non_existing_model_card
    test_partially_matched_pattern_warns_for_unmatched_keys_only
    test_rank_alpha_pattern_override
    test_requires_grad_follows_inference_mode_modules_to_save
    test_requires_grad_lora_different_targets
    test_requires_grad_lora_emb_conv1d
    test_requires_grad_lora_same_targets
    test_requires_grad_modules_to_save_default
    test_requires_grad_modules_to_save_disabling
    test_requires_grad_modules_to_save_multiple_adapters
    test_save_embedding_layers_excludes_similarly_named_sibling
    test_save_pretrained_targeting_lora_to_embedding_layer
    test_save_pretrained_targeting_lora_to_embedding_layer_non_transformers
    test_scaling_multiple_adapters
    test_scaling_multiple_times
    test_scaling_rank_pattern_alpha_pattern
    test_scaling_simple
    test_scaling_with_rslora
    test_unmatched_alpha_pattern_key_warns
    test_unmatched_rank_pattern_key_warns
    test_warning_name_custom_model
    test_warning_name_custom_model_with_custom_name
    test_warning_name_transformers_model
    test_warning_naming_conflict_add_adapter
    test_warning_naming_conflict_get_peft_model
    test_warning_naming_conflict_save_and_load
    test_weight_bias_attributes
    """.split()  # noqa: SIM905
)

NO_MERGE = "HypLoRA cannot be merged exactly: its gain differs from token to token"
_CONVOLUTION = "HypLoRA does not adapt convolutions"
_COMBINING = "HypLoRA combines adapters of one fixed curvature, by cat and linear alone"
_HUB = "needs the Hub"

# By name; or, ending in _ or with a [, by how the name with its parameters begins.
SKIPPED = {
    "test_add_weighted_adapter_cat_with_rank_pattern": _COMBINING,
    "test_causal_lm_add_weighted_adapter_lora_adapter_compile": _COMBINING,
    "test_causal_lm_merge_and_unload_lora_adapter_compile": NO_MERGE,
    "test_causal_lm_merging_lora_adapter_compile": NO_MERGE,
    "test_causal_lm_merging_multiple_lora_adapters_compile": NO_MERGE,
    "test_error_raised_if_rank_not_divisible_by_groups": _CONVOLUTION,
    "test_from_pretrained[": _HUB,
    "test_from_pretrained_cache_dir": _HUB,
    "test_mixed_adapter_batches_lora_conv2d": _CONVOLUTION,
    "test_mixed_adapter_batches_lora_with_dora_raises": "HypLoRA mixes adapters with DoRA, too",
    "test_mixed_adapter_batches_mha_raises": "HypLoRA does not adapt nn.MultiheadAttention",
    "test_modules_to_save_targets_lora_layer_raises": "expects the name of LoRA's layer",
    "test_no_infinite_recursion[PeftMixedModel]": "PeftMixedModel takes a fixed list of methods",
    "test_add_adapter_rejects_duplicate_name_without_mutation[True]": (
        "PeftMixedModel takes a fixed list of methods"
    ),
    "test_only_params_are_updated[Embedding + transformers Conv1D 2 HypLoRA mixture": (
        "three steps move the router of an embedding less than the test's tolerance: A starts at 0"
    ),
    "test_save_pretrained_with_runtime_config": _HUB,
    "test_weighted_combination_of_adapters": _COMBINING,
}
if not torch.cuda.is_available():
    SKIPPED["test_causal_lm_mixed_batch_lora_adapter_compile"] = "needs a CUDA device"
if not BIASES_ARE_SAVED:
    SKIPPED |= dict.fromkeys(
        (
            "test_adding_multiple_adapters_with_bias_raises",
            "test_multiple_configs_with_bias_raises",
        ),
        "this PEFT would not save HypLoRA's biases, so that HypLoRA refuses them",
    )
_MIXED_MERGED = "test_mixed_adapter_batches_merged_raises"


def reason_to_skip(name: str) -> str | None:
    """Why a test, given with its parameters, is not for HypLoRA; None if it is."""
    if name.startswith(_MIXED_MERGED) and "tangent" not in name:
        return NO_MERGE
    plain = name.partition("[")[0]
    for start, reason in SKIPPED.items():
        open_ended = start.endswith("_") or "[" in start
        if start == plain or (open_ended and name.startswith(start)):
            return reason
    return None
