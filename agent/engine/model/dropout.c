/* Dropout is applied in the same places as in Megatron-LM: after the embedding, after each
 * sublayer, and on attention's weights. */
#include "agent/engine/model/stage.h"

enum { SITES = 4 };

struct dropout model_dropout_of(const struct pass *p, enum dropout_site site, int layer)
{
	const struct job *job = p->m->job;
	double rate = site == DROP_WEIGHTS ? job->model.attn_dropout : job->model.dropout;
	uint64_t item = (uint64_t)(layer + 1) * SITES + site;
	return (struct dropout){
		.key = philox_key(job->job.seed, PHILOX_DROPOUT, item),
		.p = p->keep ? (float)rate : 0,
	};
}

static bool drops(const struct pass *p)
{
	return p->keep && p->m->job->model.dropout > 0;
}

void model_dropout_forward(struct pass *p, enum dropout_site site, int layer, void *x)
{
	struct model *m = p->m;
	struct dropout d = model_dropout_of(p, site, layer);
	if (drops(p))
		m->ops->dropout(m->backend, x, x, p->rows, m->d.s, m->d.c, &d);
}

const void *model_dropout_backward(struct pass *p, enum dropout_site site, int layer,
				   const void *dy)
{
	struct model *m = p->m;
	struct dropout d = model_dropout_of(p, site, layer);
	if (!drops(p))
		return dy;
	m->ops->dropout(m->backend, m->scratch[SCRATCH_SUB], dy, p->rows, m->d.s, m->d.c, &d);
	return m->scratch[SCRATCH_SUB];
}
