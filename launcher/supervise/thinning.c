#include "launcher/supervise/thinning.h"

#include "launcher/supervise/supervisor.h"

#include <stdlib.h>

/* The supervisor may be closed while the thread works, so `owner` is NULL then. */
struct thinning_work {
	uv_work_t request;
	struct rundir_thinning thinning;
	struct supervisor *owner;
};

static void on_thread(uv_work_t *request)
{
	struct thinning_work *w = request->data;
	rundir_thin(&w->thinning);
}

/* Only the first failure is said: the next split tries again. */
static void report(struct supervisor *s, const struct rundir_thinning *t)
{
	if (t->why.code == ERR_NONE)
		s->thinning.failures = 0;
	else if (!s->thinning.failures++)
		supervise_terminal_event(s->o.term, TONE_WARN, "warn", "%s", t->why.text);
}

static void on_end(uv_work_t *request, int status)
{
	struct thinning_work *w = request->data;
	if (w->owner) {
		if (!status)
			report(w->owner, &w->thinning);
		w->owner->thinning.work = NULL;
	}
	free(w);
}

void supervise_thinning_tick(struct supervisor *s)
{
	if (s->thinning.work || !rundir_thin_due(s->o.run))
		return;
	struct thinning_work *w = calloc(1, sizeof *w);
	if (!w)
		return;
	rundir_thin_begin(s->o.run, &w->thinning);
	w->request.data = w;
	w->owner = s;
	if (uv_queue_work(s->o.loop, &w->request, on_thread, on_end))
		free(w);
	else
		s->thinning.work = w;
}

void supervise_thinning_close(struct supervisor *s)
{
	struct thinning_work *w = s->thinning.work;
	if (!w)
		return;
	atomic_store(&w->thinning.stop, true);
	w->owner = NULL;
	s->thinning.work = NULL;
}
