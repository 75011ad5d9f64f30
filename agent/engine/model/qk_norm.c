/* RMSNorm of each head of q and of k, with weights that all heads share. The operation takes whole
 * rows, but the heads are columns of the fused projection's rows. So they are copied to contiguous
 * memory and back. */
#include "agent/engine/model/stage.h"

/* q or k of all tokens. */
struct part {
	const struct norm_view *view;
	int64_t at, width, heads; /* first column in the fused rows; columns; width / d */
	void *raw;                /* [n, width] before the norm */
	float *rstd;              /* [n heads] */
};

enum { PARTS = 2 };

static void find_parts(const struct model *m, const struct block_view *v,
		       const struct block_saved *k, struct part parts[PARTS])
{
	char *raw = k->at[ACT_QK];
	float *rstd = k->at[ACT_QK_STATS];
	int64_t kv = m->d.kv_heads * m->d.dim;
	parts[0] = (struct part){ &v->q_norm, 0, m->d.q, m->d.heads, raw, rstd };
	parts[1] = (struct part){ &v->k_norm,
				  m->d.q,
				  kv,
				  m->d.kv_heads,
				  raw + m->d.n * m->d.q * m->d.width,
				  rstd + m->d.n * m->d.heads };
}

static void *column(const struct model *m, void *qkv, int64_t at)
{
	return (char *)qkv + at * m->d.width;
}

void model_qk_norm_forward(struct model *m, const struct block_view *v, const struct block_saved *k)
{
	struct part parts[PARTS];
	void *y = m->scratch[SCRATCH_HEADS];
	find_parts(m, v, k, parts);
	for (int i = 0; i < PARTS; i++) {
		const struct part *p = &parts[i];
		void *at = column(m, k->at[ACT_QKV], p->at);
		m->ops->copy_rows(m->backend, p->raw, p->width, at, m->d.qkv, m->d.n, p->width);
		m->ops->rmsnorm_fwd(m->backend, y, NULL, p->rstd, p->raw, NULL,
				    model_unit_param(m, p->view->unit, p->view->w),
				    m->d.n * p->heads, m->d.dim, (float)m->shape->norm_eps);
		m->ops->copy_rows(m->backend, at, m->d.qkv, y, p->width, m->d.n, p->width);
	}
}

void model_qk_norm_backward(struct model *m, const struct block_view *v,
			    const struct block_saved *k, void *dqkv)
{
	struct part parts[PARTS];
	void *dx = m->scratch[SCRATCH_HEADS], *dy = m->scratch[SCRATCH_NARROW];
	find_parts(m, v, k, parts);
	for (int i = 0; i < PARTS; i++) {
		const struct part *p = &parts[i];
		void *at = column(m, dqkv, p->at);
		m->ops->copy_rows(m->backend, dy, p->width, at, m->d.qkv, m->d.n, p->width);
		const struct weight_grad g = model_norm_grad(m, p->view);
		m->ops->rmsnorm_bwd(m->backend, dx, g.w, dy, NULL, p->raw, p->rstd,
				    model_unit_param(m, p->view->unit, p->view->w),
				    m->d.n * p->heads, m->d.dim, g.add);
		m->ops->copy_rows(m->backend, at, m->d.qkv, dx, p->width, m->d.n, p->width);
	}
}
