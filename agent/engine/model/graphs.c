#include "agent/engine/model/graphs.h"

#include <stdlib.h>

/* What the store was asked for. */
struct note {
	enum tape_call call;
	int unit;
	/* of TAPE_DONE: in the step's last micro-batch the unit's gradients are complete */
	bool ends;
};

struct tape {
	struct backend_tape *calls; /* NULL: not recorded */
	struct note *notes;
	int n, room;
	bool met;         /* the pass was carried out once */
	float grad_scale; /* as recorded */
	bool starts;
};

struct tapes {
	struct tape **chunks;   /* [n_chunks][slots × TAPE_KINDS] */
	struct tape *recording; /* NULL: none */
	bool off;               /* the backend does not record */
	bool lost;              /* no memory for a note */
};

int model_tapes_open(struct model *m, struct err *e)
{
	bool fits = m->d.device && m->job->job.graphs && m->tp->size == 1 && m->cp->size == 1 &&
		    !m->moe && !m->offload;
	if (!fits)
		return 0;
	m->tapes = calloc(1, sizeof *m->tapes);
	if (m->tapes)
		m->tapes->chunks = calloc((size_t)m->n_chunks, sizeof *m->tapes->chunks);
	bool ok = m->tapes && m->tapes->chunks;
	for (int i = 0; ok && i < m->n_chunks; i++)
		ok = (m->tapes->chunks[i] = calloc((size_t)m->chunks[i].n_slots * TAPE_KINDS,
						   sizeof **m->tapes->chunks));
	return ok ? 0
		  : err_set(e, ERR_NOMEM, "recorded passes of %d chunks: out of memory",
			    m->n_chunks);
}

static void erase(struct model *m, struct tape *t)
{
	if (t->calls)
		backend_graph_free(m->backend, t->calls);
	t->calls = NULL;
	t->n = 0;
}

void model_tapes_close(struct model *m)
{
	if (!m->tapes)
		return;
	for (int i = 0; m->tapes->chunks && i < m->n_chunks; i++)
		for (int j = 0; m->tapes->chunks[i] && j < m->chunks[i].n_slots * TAPE_KINDS; j++) {
			erase(m, &m->tapes->chunks[i][j]);
			free(m->tapes->chunks[i][j].notes);
		}
	for (int i = 0; m->tapes->chunks && i < m->n_chunks; i++)
		free(m->tapes->chunks[i]);
	free(m->tapes->chunks);
	free(m->tapes);
	m->tapes = NULL;
}

void model_tapes_note(struct model *m, enum tape_call call, int unit, bool ends)
{
	struct tape *t = m->tapes ? m->tapes->recording : NULL;
	if (!t)
		return;
	if (t->n == t->room) {
		int room = t->room ? 2 * t->room : 64;
		struct note *notes = realloc(t->notes, (size_t)room * sizeof *notes);
		if (!notes) {
			m->tapes->lost = true;
			return;
		}
		t->notes = notes;
		t->room = room;
	}
	t->notes[t->n++] = (struct note){ call, unit, ends };
}

static bool same(const struct pass *p, const struct tape *t)
{
	return t->calls && t->grad_scale == p->batch->grad_scale &&
	       t->starts == (p->starts != NULL);
}

static int record(struct pass *p, struct tape *t, int (*run)(struct pass *p, struct err *e),
		  struct err *e)
{
	struct model *m = p->m;
	erase(m, t);
	if (!backend_record(m->backend)) {
		m->tapes->off = true;
		return run(p, e);
	}
	m->tapes->recording = t;
	m->tapes->lost = false;
	int rc = run(p, e);
	m->tapes->recording = NULL;
	if (backend_recorded(m->backend, &t->calls, rc ? NULL : e))
		return rc ? rc
			  : err_prefix(e,
				       "a pass as a CUDA graph, which job.graphs = no leaves out");
	if (rc)
		return rc;
	t->grad_scale = p->batch->grad_scale;
	t->starts = p->starts != NULL;
	backend_replay(m->backend, t->calls);
	if (m->tapes->lost)
		erase(m, t);
	return 0;
}

static int ask(struct pass *p, const struct note *n, struct err *e)
{
	switch (n->call) {
	case TAPE_HOLD:
		return model_unit_hold(p->m, n->unit, e);
	case TAPE_GRADS:
		return model_unit_grads(p->m, n->unit, e);
	case TAPE_DONE:
		return model_unit_done(p, n->unit, n->ends, e);
	default:
		model_unit_drop(p->m, n->unit);
		return 0;
	}
}

static int replay(struct pass *p, const struct tape *t, struct err *e)
{
	backend_replay(p->m->backend, t->calls);
	for (int i = 0; i < t->n; i++)
		if (ask(p, &t->notes[i], e))
			return -1;
	return 0;
}

int model_tapes_run(struct pass *p, enum tape_kind kind, int (*run)(struct pass *p, struct err *e),
		    struct err *e)
{
	struct tapes *all = p->m->tapes;
	if (!all || all->off || !param_store_replayable(p->m->store, p->keep && p->batch->last))
		return run(p, e);
	struct tape *t = &all->chunks[p->chunk - p->m->chunks]
				     [(p->slot - p->chunk->slots) * TAPE_KINDS + kind];
	if (same(p, t))
		return replay(p, t, e);
	if (t->met)
		return record(p, t, run, e);
	t->met = true;
	return run(p, e);
}
