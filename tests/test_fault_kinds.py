"""Twenty kinds of fault, each with the tests that hold what is right; the table says where to look and that none is lost.

A kind is more than the example that showed it: at least three tests hold different members of each.
"""

import ast
from functools import cache

import pytest

from tests.conftest import ROOT

AUDIO, CORPORA, CLI = "tests/speech/test_audio.py", "tests/speech/test_corpora.py", "tests/test_cli.py"
TRANSCRIBE, TOKENIZER = "tests/commands/test_transcribe.py", "tests/speech/test_tokenizer.py"
DECODING, TRAINING, FEATURES = (
    "tests/speech/test_decoding.py",
    "tests/speech/test_training.py",
    "tests/speech/test_features.py",
)
CACHE, MEMORY = "tests/kernels/test_product_cache.py", "tests/kernels/test_product_memory.py"
PAIR, EDGES, LOOP = "tests/kernels/test_pair_mixer.py", "tests/algebra/test_edges.py", "tests/training/test_loop.py"
GRANITE, RERUNS, CONSTANTS = (
    "tests/models/granite/test_odd_checkpoints.py",
    "tests/workflow/test_reruns.py",
    "tests/mixers/test_constants.py",
)
MULTIVECTOR, NORMALISERS = "tests/models/layers/test_multivector.py", "tests/speech/test_normalisers.py"
ENVIRONMENT, CLOCK = "tests/workflow/test_environment.py", "tests/test_clock.py"

# number -> what is right, and the tests of it by file
KINDS = {
    1: ("a header's promise is compared with the file", {AUDIO: "test_a_file_with_fewer_samples_than_its_header_says_is_refused test_a_wav_that_was_written_into_a_pipe_is_read_to_its_end test_other_files_that_were_written_into_a_pipe_are_read_to_their_end test_a_flac_without_a_stated_length_is_read_to_its_end test_a_damaged_ogg_page_is_found"}),
    2: ("a fingerprint is of the data that are read", {AUDIO: "test_the_digest_is_of_the_samples_as_they_are_read test_the_last_bit_of_24_changes_the_digest", CORPORA: "test_replaced_float_audio_changes_the_hash", FEATURES: "test_audio_that_changed_since_preparation_is_named"}),
    3: ("what is no number is refused by place and never silence", {AUDIO: "test_a_sample_that_is_not_finite_is_named_with_its_place", FEATURES: "test_features_that_are_not_finite_are_refused", DECODING: "test_logits_that_are_no_numbers_never_count_as_blank", GRANITE: "test_samples_that_are_no_numbers_are_refused_and_never_an_empty_text test_nan_logits_are_refused_and_never_a_blank_or_an_end"}),
    4: ("what no model can take is told by id, at the start", {DECODING: "test_an_utterance_without_an_output_frame_has_an_empty_hypothesis_and_a_warning", CORPORA: "test_recordings_without_a_feature_frame_are_dropped_or_refused_by_id", TRAINING: "test_a_dev_utterance_without_an_output_frame_is_no_end test_utterances_that_ctc_cannot_align_are_dropped_by_id", TRANSCRIBE: "test_too_short_audio_is_a_sentence"}),
    5: ("any length is cut within any bound", {TRANSCRIBE: "test_any_length_is_cut_into_pieces_within_the_bound test_a_bound_that_is_no_number_above_0_is_refused_by_name test_a_bound_below_a_second_is_a_sentence", GRANITE: "test_a_window_that_makes_no_sense_is_refused"}),
    6: ("a byte-order mark is skipped by every reader", {CORPORA: "test_a_byte_order_mark_is_skipped_in_every_form_of_corpus", "tests/speech/test_manifest.py": "test_a_byte_order_mark_is_skipped_and_line_ends_are_one test_a_prepared_manifest_with_a_mark_is_read", TOKENIZER: "test_a_listing_with_a_byte_order_mark_is_read_and_a_damaged_model_named"}),
    7: ("reserved symbols are refused by name", {TOKENIZER: "test_a_text_with_a_reserved_symbol_is_refused_by_name test_a_size_that_nobody_gave_is_not_blamed test_a_word_too_long_for_sentencepiece_is_named test_a_decoded_unknown_is_no_word_of_a_prepared_reference", CORPORA: "test_a_reserved_symbol_in_a_transcript_is_refused_by_id"}),
    8: ("printing and writing end quietly or in a sentence", {CLI: "test_a_reader_that_has_gone_is_silent test_a_letter_that_the_terminal_lacks_is_escaped test_a_place_that_cannot_be_written_is_a_sentence test_a_full_disk_behind_the_output_is_a_sentence test_an_interruption_is_a_line"}),
    9: ("a full disk is one sentence for every writer", {LOOP: "test_a_full_disk_under_safetensors_is_the_same_sentence", "tests/training/test_checkpoints.py": "test_a_full_disk_keeps_the_old_checkpoint test_a_really_full_disk", "tests/training/test_store.py": "test_a_full_disk_ends_a_copy_in_a_sentence", "tests/faults/test_faults.py": "test_full_disk"}),
    10: ("a cache is checked, and spared where it cannot be", {CACHE: "test_a_damaged_object_is_compiled_anew_and_replaced test_the_object_of_another_kernel_is_not_run_under_a_wrong_name test_a_folder_that_cannot_be_made_costs_a_compilation_and_nothing_else test_a_full_disk_leaves_no_temporary_file test_a_program_runs_without_a_home test_processes_that_start_at_once_share_an_empty_cache"}),
    11: ("marks belong to the word", {NORMALISERS: "test_letters test_marks_stay_with_their_letters_however_they_are_encoded test_signs_that_are_not_seen_break_no_word"}),
    12: ("a path in several words is refused at the start", {ENVIRONMENT: "test_a_path_that_is_not_one_word_is_refused test_make_says_so_before_it_makes_an_environment test_snakemake_says_so_before_it_runs_a_job"}),
    13: ("what is declared exists, and what is asked for is made", {RERUNS: "test_what_is_deleted_is_made_again test_a_missing_model_is_made_for_what_needs_it test_a_file_of_a_gated_arm_is_made_when_asked_for_by_name", "tests/workflow/test_smoke.py": "test_every_file_is_a_declared_output"}),
    14: ("native code outlives its use, across threads, forks and devices", {CACHE: "test_threads_that_start_at_once_compile_each_kernel_once test_code_lives_as_long_as_its_function", MEMORY: "test_a_forked_child_computes_after_a_threaded_product test_a_tensor_on_meta_gives_the_shape test_fake_tensors_stay_fake_forwards_and_backwards test_the_cpu_kernels_refuse_what_is_no_memory_of_theirs"}),
    15: ("what outlives a call is made for every later use", {CONSTANTS: "test_a_mixer_trains_after_a_first_use_under_inference_mode test_tables_serve_a_training_wherever_they_were_first_used test_frames_made_under_inference_mode_are_ordinary_tensors", FEATURES: "test_features_first_computed_in_inference_serve_a_gradient"}),
    16: ("kernels fit the GPUs that they have not met", {PAIR: "test_chosen_tiles_fit_the_shared_memory_of_a100_and_h100 test_anchor_kernels_fit_gpus_without_one test_strided_and_expanded_arguments_count_as_their_values test_fused_form_compiles_fullgraph", MEMORY: "test_strides_of_the_triton_kernels_are_64_bit"}),
    17: ("numbers stay honest at the edges", {EDGES: "test_exp_of_reduced_precision_is_one_rounding_from_fp64 test_log_of_reduced_precision_takes_rotors_and_nothing_else test_norm_and_gradients_below_rank_8_are_the_coordinates_to_rounding test_the_inverse_of_a_null_versor_is_infinite", MULTIVECTOR: "test_null_multivectors_stay_bounded_through_layers_of_norms test_nan_stays_nan_in_norms_and_activations"}),
    18: ("shared weights are saved once, odd checkpoints named", {LOOP: "test_weights_that_modules_share_are_saved_once_and_loaded_tied", GRANITE: "test_weights_that_are_shared_are_saved_and_an_attached_adapter_is_not_lost test_an_unknown_treatment_of_the_adapter_is_refused test_quantised_weights_are_refused_by_name test_a_broken_template_is_a_sentence test_placeholders_are_counted_item_by_item"}),
    19: ("no test measures the clock", {CLOCK: "test_no_assertion_is_about_a_time test_a_limit_only_ends_what_hangs test_what_is_slept_for_is_a_state"}),
    20: ("the largest batch is tried first", {TRAINING: "test_the_largest_batches_are_tried_by_frames_length_and_attention test_no_batch_of_a_corpus_is_larger_than_those_tried", LOOP: "test_the_largest_batch_comes_first_and_changes_nothing"}),
}  # fmt: skip


@cache
def collected(path: str) -> set[str]:
    """Names of the tests that pytest collects from a file."""
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")}


def test_all_twenty_are_held():
    assert list(KINDS) == list(range(1, 21))


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_is_held_by_three_tests(kind):
    right, files = KINDS[kind]
    named = [(path, name) for path, names in files.items() for name in names.split()]
    assert len(set(named)) >= 3, right
    assert [f"{path}::{name}" for path, name in named if name not in collected(path)] == []
