#include "launcher/slurm/limit.h"

enum { SLICE_MS = 50 };

void slurm_limit_init(struct slurm_limit *l, uv_loop_t *loop)
{
	uv_timer_init(loop, &l->timer);
	l->timer.data = l;
}

static void on_slice(uv_timer_t *t)
{
	struct slurm_limit *l = t->data;
	if (--l->slices > 0)
		return;
	uv_timer_stop(t);
	l->over(l->arg);
}

void slurm_limit_start(struct slurm_limit *l, int ms, void (*over)(void *arg), void *arg)
{
	l->slices = ms / SLICE_MS;
	l->over = over;
	l->arg = arg;
	uv_update_time(l->timer.loop); /* the loop's own time is that of its last turn */
	uv_timer_start(&l->timer, on_slice, ms ? SLICE_MS : 0, SLICE_MS);
}

void slurm_limit_stop(struct slurm_limit *l)
{
	uv_timer_stop(&l->timer);
}

static void on_closed(uv_handle_t *h)
{
	struct slurm_limit *l = h->data;
	l->over(l->arg);
}

void slurm_limit_close(struct slurm_limit *l, void (*closed)(void *arg), void *arg)
{
	l->over = closed;
	l->arg = arg;
	uv_close((uv_handle_t *)&l->timer, on_closed);
}
