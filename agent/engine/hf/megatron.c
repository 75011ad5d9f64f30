#include "agent/engine/hf/megatron.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Which rows of Megatron's tensor are the part. FC1_UP is all of them without a gate. */
enum rows { WHOLE, VOCAB, QKV_Q, QKV_K, QKV_V, FC1_GATE, FC1_UP };

enum { CANDIDATES = 2 };

/* '#' stands for the layer, and '@' for the expert. A name without "#." or "@." holds all. One of
 * muster's tensors can have several rows; the first whose tensor exists is taken. */
/* clang-format off */
static const struct megatron_row {
	const char *ours, *theirs[CANDIDATES];
	enum rows rows;
} table[] = {
	{ "embed.tokens.weight", { HF_MEGATRON_ANCHOR }, VOCAB },
	{ "embed.positions.weight", { "embedding.position_embeddings.weight" }, WHOLE },
	{ "layers.#.norm1.weight", { "decoder.layers.#.self_attention.linear_qkv.layer_norm_weight", "decoder.layers.#.input_layernorm.weight" }, WHOLE },
	{ "layers.#.norm1.bias", { "decoder.layers.#.self_attention.linear_qkv.layer_norm_bias", "decoder.layers.#.input_layernorm.bias" }, WHOLE },
	{ "layers.#.attn.q.weight", { "decoder.layers.#.self_attention.linear_qkv.weight" }, QKV_Q },
	{ "layers.#.attn.k.weight", { "decoder.layers.#.self_attention.linear_qkv.weight" }, QKV_K },
	{ "layers.#.attn.v.weight", { "decoder.layers.#.self_attention.linear_qkv.weight" }, QKV_V },
	{ "layers.#.attn.q.bias", { "decoder.layers.#.self_attention.linear_qkv.bias" }, QKV_Q },
	{ "layers.#.attn.k.bias", { "decoder.layers.#.self_attention.linear_qkv.bias" }, QKV_K },
	{ "layers.#.attn.v.bias", { "decoder.layers.#.self_attention.linear_qkv.bias" }, QKV_V },
	{ "layers.#.attn.q_norm.weight", { "decoder.layers.#.self_attention.q_layernorm.weight" }, WHOLE },
	{ "layers.#.attn.k_norm.weight", { "decoder.layers.#.self_attention.k_layernorm.weight" }, WHOLE },
	{ "layers.#.attn.o.weight", { "decoder.layers.#.self_attention.linear_proj.weight" }, WHOLE },
	{ "layers.#.attn.o.bias", { "decoder.layers.#.self_attention.linear_proj.bias" }, WHOLE },
	{ "layers.#.norm2.weight", { "decoder.layers.#.mlp.linear_fc1.layer_norm_weight", "decoder.layers.#.pre_mlp_layernorm.weight" }, WHOLE },
	{ "layers.#.norm2.bias", { "decoder.layers.#.mlp.linear_fc1.layer_norm_bias", "decoder.layers.#.pre_mlp_layernorm.bias" }, WHOLE },
	{ "layers.#.mlp.gate.weight", { "decoder.layers.#.mlp.linear_fc1.weight" }, FC1_GATE },
	{ "layers.#.mlp.up.weight", { "decoder.layers.#.mlp.linear_fc1.weight" }, FC1_UP },
	{ "layers.#.mlp.up.bias", { "decoder.layers.#.mlp.linear_fc1.bias" }, FC1_UP },
	{ "layers.#.mlp.down.weight", { "decoder.layers.#.mlp.linear_fc2.weight" }, WHOLE },
	{ "layers.#.mlp.down.bias", { "decoder.layers.#.mlp.linear_fc2.bias" }, WHOLE },
	{ "layers.#.moe.router.weight", { "decoder.layers.#.mlp.router.weight" }, WHOLE },
	{ "layers.#.moe.experts.@.gate.weight", { "decoder.layers.#.mlp.experts.experts.@.linear_fc1.weight" }, FC1_GATE },
	{ "layers.#.moe.experts.@.up.weight", { "decoder.layers.#.mlp.experts.experts.@.linear_fc1.weight" }, FC1_UP },
	{ "layers.#.moe.experts.@.down.weight", { "decoder.layers.#.mlp.experts.experts.@.linear_fc2.weight" }, WHOLE },
	{ "layers.#.mlp.gate.weight", { "decoder.layers.#.mlp.linear_fc1.weight_w" }, WHOLE },
	{ "layers.#.mlp.up.weight", { "decoder.layers.#.mlp.linear_fc1.weight_v" }, WHOLE },
	{ "layers.#.moe.experts.@.gate.weight", { "decoder.layers.#.mlp.experts.experts.@.linear_fc1.weight_w" }, WHOLE },
	{ "layers.#.moe.experts.@.up.weight", { "decoder.layers.#.mlp.experts.experts.@.linear_fc1.weight_v" }, WHOLE },
	{ "norm.weight", { "decoder.final_layernorm.weight", "decoder.final_norm.weight" }, WHOLE },
	{ "norm.bias", { "decoder.final_layernorm.bias", "decoder.final_norm.bias" }, WHOLE },
	{ "head.weight", { "output_layer.weight" }, VOCAB },
};
/* clang-format on */

/* The layer and the expert. */
struct numbers {
	int64_t of[2];
};

static bool match(const char *pattern, const char *name, struct numbers *at)
{
	for (; *pattern; pattern++) {
		if (*pattern != '#' && *pattern != '@') {
			if (*name++ != *pattern)
				return false;
			continue;
		}
		char *end;
		if (*name < '0' || *name > '9')
			return false;
		at->of[*pattern == '@'] = strtoll(name, &end, 10);
		name = end;
	}
	return *name == '\0';
}

/* Writes the pattern as a name. Bit 0 of `stacked`: all layers are one tensor; bit 1: all
 * experts. */
static void fill(const char *pattern, const struct numbers *at, int stacked, char out[HF_NAME])
{
	size_t n = 0;
	for (; *pattern && n < HF_NAME - 8; pattern++) {
		int which = *pattern == '@';
		if (*pattern != '#' && *pattern != '@')
			out[n++] = *pattern;
		else if (stacked & 1 << which)
			pattern++; /* the dot */
		else
			n += (size_t)snprintf(out + n, HF_NAME - n, "%" PRId64, at->of[which]);
	}
	out[n] = '\0';
}

/* Looks for the tensor under all names that a row allows. */
static bool look_up(const struct megatron_row *row, const struct numbers *at,
		    hf_megatron_find *find, void *arg, struct hf_megatron_place *out)
{
	char name[HF_NAME];
	for (int i = 0; i < CANDIDATES && row->theirs[i]; i++)
		for (int stacked = 3; stacked >= 0; stacked--) {
			const bool has[] = { strchr(row->theirs[i], '#'),
					     strchr(row->theirs[i], '@') };
			if ((stacked & 1 && !has[0]) || (stacked & 2 && !has[1]))
				continue;
			fill(row->theirs[i], at, stacked, name);
			out->tensor = find(arg, name);
			if (!out->tensor)
				continue;
			out->stacked = stacked;
			out->lead = 0;
			for (int which = 0; which < 2; which++)
				if (stacked & 1 << which)
					out->at[out->lead++] = at->of[which];
			return true;
		}
	return false;
}

/* Sets the runs of rows, and returns how many rows the whole tensor has. */
static int64_t set_rows(const struct model_shape *m, enum rows rows, int64_t n,
			struct hf_megatron_place *out)
{
	int64_t d = m->head_dim, q = m->heads / m->kv_heads * d, group = q + 2 * d;
	*out = (struct hf_megatron_place){ .tensor = out->tensor,
					   .stacked = out->stacked,
					   .lead = out->lead,
					   .at = { out->at[0], out->at[1] },
					   .rows = n,
					   .groups = 1 };
	if (rows == QKV_Q || rows == QKV_K || rows == QKV_V) {
		out->groups = m->kv_heads;
		out->step = group;
		out->rows = rows == QKV_Q ? q : d;
		out->first = rows == QKV_Q ? 0 : rows == QKV_K ? q : q + d;
		return group * m->kv_heads;
	}
	if ((rows == FC1_GATE || rows == FC1_UP) && m->gated) {
		out->first = rows == FC1_UP ? n : 0;
		return 2 * n;
	}
	return n;
}

static int check_shape(const struct model_shape *m, const struct megatron_row *row,
		       const struct hf_tensor *t, int64_t whole, struct hf_megatron_place *p,
		       const char *folder, struct err *e)
{
	const struct dcp_tensor *their = p->tensor;
	const int64_t counts[] = { p->stacked & 1 ? m->layers : m->experts, m->experts };
	int64_t want[4];
	int dims = p->lead;
	for (int i = 0; i < p->lead; i++)
		want[i] = counts[i];
	want[dims++] = whole;
	if (t->dims == 2)
		want[dims++] = t->shape[1];
	bool right = their->dims == dims;
	for (int i = 0; i < dims && right; i++)
		right = their->shape[i] == want[i] ||
			(row->rows == VOCAB && i == p->lead && their->shape[i] > want[i]);
	if (right) {
		p->padding = their->shape[p->lead] - whole;
		return 0;
	}
	char shape[120] = "";
	for (int i = 0, n = 0; i < dims; i++)
		n += snprintf(shape + n, sizeof shape - (size_t)n, "%s%" PRId64, i ? ", " : "",
			      want[i]);
	return err_set(e, ERR_CORRUPT,
		       "%s: tensor %.100s: its shape is not [%s], as config.json has it; use the "
		       "config.json that belongs to the weights",
		       folder, their->name, shape);
}

int hf_megatron_locate(const struct model_shape *m, const struct hf_tensor *t,
		       const struct hf_part *part, hf_megatron_find *find, void *arg,
		       const char *folder, struct hf_megatron_place *out, struct err *e)
{
	struct hf_megatron_place place = { 0 };
	struct numbers at = { 0 };
	const struct megatron_row *row = NULL, *first = NULL;
	char name[HF_NAME];
	for (size_t i = 0; i < sizeof table / sizeof *table && !row; i++) {
		if (!match(table[i].ours, part->name, &at))
			continue;
		first = first ? first : &table[i];
		if (look_up(&table[i], &at, find, arg, &place))
			row = &table[i];
	}
	if (!first)
		return err_set(e, ERR_INTERNAL,
			       "tensor %s: no row of agent/engine/hf/megatron.c maps it",
			       part->name);
	if (!row) {
		fill(first->theirs[0], &at, 3, name);
		return err_set(e, ERR_CORRUPT,
			       "%s: has no tensor %s, which the model of its config.json needs; "
			       "use the config.json that belongs to the weights",
			       folder, name);
	}
	int64_t whole = set_rows(m, row->rows, part->rows, &place);
	if (check_shape(m, row, t, whole, &place, folder, e))
		return -1;
	*out = place;
	return 0;
}
