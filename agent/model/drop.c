/* Dropout at Megatron-LM's places: behind the embedding, behind each sublayer, on attention's weights. */
#include "agent/model/stage.h"

enum { SITES = 4 };

struct dropout drop_of(const struct pass *p, enum drop_site site, int layer)
{
	const struct job *job = p->m->job;
	double rate = site == DROP_WEIGHTS ? job->model.attn_dropout : job->model.dropout;
	uint64_t item = (uint64_t)(layer + 1) * SITES + site;
	return (struct dropout){
		.key = philox_key(job->job.seed, PHILOX_DROPOUT, item),
		.p = p->keep ? (float)rate : 0,
	};
}

/* The stream's rows in the whole run: sample × seq + position. Sequence shards follow tp's. */
static const int64_t *rows_of(struct pass *p)
{
	struct model *m = p->m;
	int64_t *rows = m->scratch[SCRATCH_ROWS], first = m->tp->sp ? m->tp->rank * m->d.s : 0;
	for (int64_t i = 0; i < m->d.s; i++) {
		int64_t token = first + i;
		rows[i] = (p->batch->sample + token / m->d.seq) * m->shape.seq + m->positions[token];
	}
	return rows;
}

static bool drops(const struct pass *p)
{
	return p->keep && p->m->job->model.dropout > 0;
}

void drop_forward(struct pass *p, enum drop_site site, int layer, void *x)
{
	struct model *m = p->m;
	struct dropout d = drop_of(p, site, layer);
	if (drops(p))
		m->ops->dropout(m->kern, x, x, rows_of(p), m->d.s, m->d.c, &d);
}

const void *drop_backward(struct pass *p, enum drop_site site, int layer, const void *dy)
{
	struct model *m = p->m;
	struct dropout d = drop_of(p, site, layer);
	if (!drops(p))
		return dy;
	m->ops->dropout(m->kern, m->scratch[SCRATCH_SUB], dy, rows_of(p), m->d.s, m->d.c, &d);
	return m->scratch[SCRATCH_SUB];
}
