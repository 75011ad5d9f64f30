#include "agent/engine/hf/names.h"

#include "agent/engine/hf/family.h"
#include "plan/spec/layout.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* '#' stands for the layer, and '@' for the expert. */
/* clang-format off */
static const struct name_row {
	const char *ours;
	const char *theirs[NAMINGS];
	bool conv1d; /* GPT-2 stores [in, out] */
} rows[] = {
	{ "embed.tokens.weight", { "transformer.wte.weight", "model.embed_tokens.weight" }, false },
	{ "embed.positions.weight", { "transformer.wpe.weight", NULL }, false },
	{ "layers.#.norm1.weight", { "transformer.h.#.ln_1.weight", "model.layers.#.input_layernorm.weight" }, false },
	{ "layers.#.norm1.bias", { "transformer.h.#.ln_1.bias", NULL }, false },
	{ "layers.#.attn.q.weight", { "transformer.h.#.attn.c_attn.weight", "model.layers.#.self_attn.q_proj.weight" }, true },
	{ "layers.#.attn.k.weight", { "transformer.h.#.attn.c_attn.weight", "model.layers.#.self_attn.k_proj.weight" }, true },
	{ "layers.#.attn.v.weight", { "transformer.h.#.attn.c_attn.weight", "model.layers.#.self_attn.v_proj.weight" }, true },
	{ "layers.#.attn.q.bias", { "transformer.h.#.attn.c_attn.bias", "model.layers.#.self_attn.q_proj.bias" }, false },
	{ "layers.#.attn.k.bias", { "transformer.h.#.attn.c_attn.bias", "model.layers.#.self_attn.k_proj.bias" }, false },
	{ "layers.#.attn.v.bias", { "transformer.h.#.attn.c_attn.bias", "model.layers.#.self_attn.v_proj.bias" }, false },
	{ "layers.#.attn.q_norm.weight", { NULL, "model.layers.#.self_attn.q_norm.weight" }, false },
	{ "layers.#.attn.k_norm.weight", { NULL, "model.layers.#.self_attn.k_norm.weight" }, false },
	{ "layers.#.attn.o.weight", { "transformer.h.#.attn.c_proj.weight", "model.layers.#.self_attn.o_proj.weight" }, true },
	{ "layers.#.attn.o.bias", { "transformer.h.#.attn.c_proj.bias", NULL }, false },
	{ "layers.#.norm2.weight", { "transformer.h.#.ln_2.weight", "model.layers.#.post_attention_layernorm.weight" }, false },
	{ "layers.#.norm2.bias", { "transformer.h.#.ln_2.bias", NULL }, false },
	{ "layers.#.mlp.gate.weight", { NULL, "model.layers.#.mlp.gate_proj.weight" }, false },
	{ "layers.#.mlp.up.weight", { "transformer.h.#.mlp.c_fc.weight", "model.layers.#.mlp.up_proj.weight" }, true },
	{ "layers.#.mlp.up.bias", { "transformer.h.#.mlp.c_fc.bias", NULL }, false },
	{ "layers.#.mlp.down.weight", { "transformer.h.#.mlp.c_proj.weight", "model.layers.#.mlp.down_proj.weight" }, true },
	{ "layers.#.mlp.down.bias", { "transformer.h.#.mlp.c_proj.bias", NULL }, false },
	{ "layers.#.moe.router.weight", { NULL, "model.layers.#.block_sparse_moe.gate.weight" }, false },
	{ "layers.#.moe.experts.@.gate.weight", { NULL, "model.layers.#.block_sparse_moe.experts.@.w1.weight" }, false },
	{ "layers.#.moe.experts.@.up.weight", { NULL, "model.layers.#.block_sparse_moe.experts.@.w3.weight" }, false },
	{ "layers.#.moe.experts.@.down.weight", { NULL, "model.layers.#.block_sparse_moe.experts.@.w2.weight" }, false },
	{ "norm.weight", { "transformer.ln_f.weight", "model.norm.weight" }, false },
	{ "norm.bias", { "transformer.ln_f.bias", NULL }, false },
	{ "head.weight", { "lm_head.weight", "lm_head.weight" }, false },
};
/* clang-format on */

/* These tensors are causal masks, and frequencies that follow from config.json. */
static const char *const skipped[NAMINGS][3] = {
	[NAMING_GPT2] = { "transformer.h.#.attn.bias", "transformer.h.#.attn.masked_bias", NULL },
	[NAMING_LLAMA] = { "model.layers.#.self_attn.rotary_emb.inv_freq", NULL },
};

static const char *const first_words[NAMINGS] = {
	[NAMING_GPT2] = "transformer.", [NAMING_LLAMA] = "model."
};

enum { N_ROWS = sizeof rows / sizeof *rows };

struct name_numbers {
	int layer, expert;
};

/* Reads a whole number of at most six digits; NULL if there is none. */
static const char *read_number(const char *at, int *out)
{
	size_t n = strspn(at, "0123456789");
	if (n == 0 || n > 6)
		return NULL;
	*out = atoi(at);
	return at + n;
}

static bool match_pattern(const char *pattern, const char *name, struct name_numbers *at)
{
	for (; *pattern; pattern++) {
		if (*pattern == '#' || *pattern == '@') {
			name = read_number(name, *pattern == '#' ? &at->layer : &at->expert);
			if (!name)
				return false;
		} else if (*name++ != *pattern) {
			return false;
		}
	}
	return *name == '\0';
}

static void fill_pattern(const char *pattern, const struct name_numbers *at, char out[HF_NAME])
{
	int n = 0;
	for (; *pattern && n < HF_NAME - 1; pattern++) {
		if (*pattern == '#' || *pattern == '@')
			n += snprintf(out + n, (size_t)(HF_NAME - n), "%d",
				      *pattern == '#' ? at->layer : at->expert);
		else
			out[n++] = *pattern;
	}
	out[n < HF_NAME ? n : HF_NAME - 1] = '\0';
}

static const struct name_row *row_of(const char *ours, enum hf_naming v, struct name_numbers *at)
{
	for (int i = 0; i < N_ROWS; i++)
		if (rows[i].theirs[v] && match_pattern(rows[i].ours, ours, at))
			return &rows[i];
	return NULL;
}

/* Adds the parameter to the last tensor if that holds it, too; otherwise starts the next tensor. */
static int add_param(struct hf_names *names, const struct param *ours, struct err *e)
{
	enum hf_naming v = hf_families[names->family].naming;
	struct name_numbers at = { 0 };
	char theirs[HF_NAME];
	const struct name_row *row = row_of(ours->name, v, &at);
	if (!row)
		return err_set(e, ERR_INTERNAL,
			       "tensor %s: no row of agent/engine/hf/names.c maps it", ours->name);
	fill_pattern(row->theirs[v], &at, theirs);
	struct hf_tensor *t = names->n ? &names->tensors[names->n - 1] : NULL;
	if (!t || strcmp(t->name, theirs)) {
		t = &names->tensors[names->n++];
		*t = (struct hf_tensor){ .dims = ours->dims,
					 .transposed = v == NAMING_GPT2 && row->conv1d,
					 .shape = { 0, ours->dims == 2 ? ours->shape[1] : 1 } };
		strcpy(t->name, theirs);
	}
	if (t->n == HF_PARTS || t->dims != ours->dims)
		return err_set(e, ERR_INTERNAL, "tensor %s: its parts do not fit together",
			       t->name);
	struct hf_part *part = &t->parts[t->n++];
	snprintf(part->name, sizeof part->name, "%s", ours->name);
	part->rows = ours->shape[0];
	t->shape[0] += part->rows;
	names->n_parts++;
	return 0;
}

int hf_names_build(const struct model_shape *m, struct hf_names *out, struct err *e)
{
	const struct stage all = {
		.layer_lo = 0, .layer_hi = (int)m->layers, .first = true, .last = true
	};
	const struct share whole = { .tp = 1, .ep = 1, .chunks = &all, .n_chunks = 1 };
	struct hf_names names = { .family = m->family, .tied = m->tied };
	struct catalogue c;
	int rc = 0;
	if (catalogue_build(m, &whole, &c, e))
		return -1;
	names.tensors = calloc((size_t)c.n + 1, sizeof *names.tensors);
	if (!names.tensors)
		rc = err_set(e, ERR_NOMEM, "no memory for the names of %d tensors", c.n);
	for (int i = 0; i < c.n && !rc; i++)
		rc = add_param(&names, &c.params[i], e);
	catalogue_free(&c);
	if (rc) {
		hf_names_free(&names);
		return -1;
	}
	*out = names;
	return 0;
}

void hf_names_free(struct hf_names *n)
{
	free(n->tensors);
	*n = (struct hf_names){ 0 };
}

const char *hf_names_bare(const struct hf_names *n, const char *name)
{
	const char *word = first_words[hf_families[n->family].naming];
	return strncmp(name, word, strlen(word)) ? NULL : name + strlen(word);
}

bool hf_names_may_skip(const struct hf_names *n, const char *name)
{
	enum hf_naming v = hf_families[n->family].naming;
	for (int i = 0; skipped[v][i]; i++) {
		struct name_numbers at;
		if (match_pattern(skipped[v][i], name, &at) ||
		    match_pattern(hf_names_bare(n, skipped[v][i]), name, &at))
			return true;
	}
	return false;
}
