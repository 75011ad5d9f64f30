#include "agent/engine/hf/family.h"

#include <stddef.h>
#include <string.h>

/* clang-format off */
const struct hf_family hf_families[FAMILIES] = {
	[FAMILY_GPT2]    = { "GPT2LMHeadModel",    NAMING_GPT2 },
	[FAMILY_LLAMA]   = { "LlamaForCausalLM",   NAMING_LLAMA },
	[FAMILY_MIXTRAL] = { "MixtralForCausalLM", NAMING_LLAMA },
	[FAMILY_QWEN2]   = { "Qwen2ForCausalLM",   NAMING_LLAMA },
	[FAMILY_QWEN3]   = { "Qwen3ForCausalLM",   NAMING_LLAMA },
};

enum {
	GPT2    = 1 << FAMILY_GPT2,
	LLAMA   = 1 << FAMILY_LLAMA,
	MIXTRAL = 1 << FAMILY_MIXTRAL,
	QWEN2   = 1 << FAMILY_QWEN2,
	QWEN3   = 1 << FAMILY_QWEN3,
	QWEN    = QWEN2 | QWEN3,
	ROTARY  = LLAMA | MIXTRAL | QWEN,
};

const struct hf_key hf_keys[] = {
	{ GPT2,          "n_layer",                 "layers",            NULL },
	{ GPT2,          "n_embd",                  "hidden",            NULL },
	{ GPT2,          "n_head",                  "heads",             NULL },
	{ GPT2,          "n_inner",                 "ffn",               "0" },
	{ GPT2,          "n_positions",             "seq",               NULL },
	{ GPT2,          "layer_norm_epsilon",      "norm_eps",          "1e-05" },
	{ GPT2,          "resid_pdrop",             "dropout",           "0.1" },
	{ GPT2,          "embd_pdrop",              "dropout",           "0.1" },
	{ GPT2,          "attn_pdrop",              "attn_dropout",      "0.1" },
	{ GPT2,          "tie_word_embeddings",     "tie_head",          "yes" },
	{ ROTARY,        "num_hidden_layers",       "layers",            NULL },
	{ ROTARY,        "hidden_size",             "hidden",            NULL },
	{ ROTARY,        "num_attention_heads",     "heads",             NULL },
	{ LLAMA,         "num_key_value_heads",     "kv_heads",          "0" },
	{ MIXTRAL,       "num_key_value_heads",     "kv_heads",          "8" },
	{ QWEN,          "num_key_value_heads",     "kv_heads",          "32" },
	{ ROTARY & ~QWEN3, "head_dim",              "head_dim",          "0" },
	{ QWEN3,         "head_dim",                "head_dim",          "128" },
	{ ROTARY,        "intermediate_size",       "ffn",               NULL },
	{ ROTARY,        "max_position_embeddings", "seq",               NULL },
	{ LLAMA | QWEN,  "rms_norm_eps",            "norm_eps",          "1e-06" },
	{ MIXTRAL,       "rms_norm_eps",            "norm_eps",          "1e-05" },
	{ LLAMA | QWEN,  "rope_theta",              "rope_theta",        "10000" },
	{ MIXTRAL,       "rope_theta",              "rope_theta",        "1e6" },
	{ ROTARY,        "attention_dropout",       "attn_dropout",      "0" },
	{ ROTARY,        "tie_word_embeddings",     "tie_head",          "no" },
	{ MIXTRAL,       "num_local_experts",       "experts",           "8" },
	{ MIXTRAL,       "num_experts_per_tok",     "experts_per_token", "2" },
	{ GPT2 | ROTARY, "vocab_size",              "vocab",             NULL },
	{ GPT2 | ROTARY, "initializer_range",       "init_std",          "0.02" },
	{ 0 },
};

const struct hf_fixed_key hf_fixed_keys[] = {
	{ GPT2,          "activation_function",             { "gelu_new", "gelu_pytorch_tanh", "gelu_fast" } },
	{ GPT2,          "scale_attn_weights",              { "true" } },
	{ GPT2,          "scale_attn_by_inverse_layer_idx", { "false" } },
	{ GPT2,          "add_cross_attention",             { "false" } },
	{ ROTARY,        "hidden_act",                      { "silu", "swish" } },
	{ LLAMA | QWEN3, "attention_bias",                  { "false" } },
	{ LLAMA,         "mlp_bias",                        { "false" } },
	{ MIXTRAL,       "sliding_window",                  { "null" } },
	{ QWEN,          "use_sliding_window",              { "false" } },
	{ MIXTRAL,       "router_jitter_noise",             { "0" } },
	{ GPT2 | ROTARY, "quantization_config",             { "null" } },
	{ 0 },
};
/* clang-format on */

const struct hf_key *hf_family_key(enum job_family family, const char *ours)
{
	for (const struct hf_key *key = hf_keys; key->families; key++)
		if (key->families & 1 << family && !strcmp(key->ours, ours))
			return key;
	return NULL;
}
