#include "agent/engine/model/graphs.h"

#include "base/choices.h"

#include <stdlib.h>

/* A call of the parameter store. */
struct noted_call {
	enum store_call call;
	int unit;
	/* STORE_CALL_REDUCE: after the step's last micro-batch the gradients are complete */
	bool ends;
};

struct pass_graph {
	struct backend_graph *calls; /* NULL: not recorded */
	struct noted_call *notes;
	int n, room;
	bool met;         /* the pass has run once */
	float grad_scale; /* the recorded value */
	unsigned choices; /* choices_version at that time */
	bool starts;
};

struct pass_graphs {
	struct pass_graph **chunks;   /* [n_chunks][slots × GRAPH_KINDS] */
	struct pass_graph *recording; /* NULL: none */
	bool off;                     /* the backend does not record */
	bool lost;                    /* out of memory for a call */
};

int model_graphs_open(struct model *m, struct err *e)
{
	bool fits = m->d.device && m->job->job.graphs && m->tp->size == 1 && m->cp->size == 1 &&
		    !m->moe && !m->offload;
	if (!fits)
		return 0;
	m->graphs = calloc(1, sizeof *m->graphs);
	if (m->graphs)
		m->graphs->chunks = calloc((size_t)m->n_chunks, sizeof *m->graphs->chunks);
	bool ok = m->graphs && m->graphs->chunks;
	for (int i = 0; ok && i < m->n_chunks; i++)
		ok = (m->graphs->chunks[i] = calloc((size_t)m->chunks[i].n_slots * GRAPH_KINDS,
						    sizeof **m->graphs->chunks));
	return ok ? 0
		  : err_set(e, ERR_NOMEM, "no memory for the recorded passes of %d chunks",
			    m->n_chunks);
}

static void erase_graph(struct model *m, struct pass_graph *t)
{
	if (t->calls)
		backend_graph_free(m->backend, t->calls);
	t->calls = NULL;
	t->n = 0;
}

void model_graphs_close(struct model *m)
{
	if (!m->graphs)
		return;
	for (int i = 0; m->graphs->chunks && i < m->n_chunks; i++)
		for (int j = 0; m->graphs->chunks[i] && j < m->chunks[i].n_slots * GRAPH_KINDS;
		     j++) {
			erase_graph(m, &m->graphs->chunks[i][j]);
			free(m->graphs->chunks[i][j].notes);
		}
	for (int i = 0; m->graphs->chunks && i < m->n_chunks; i++)
		free(m->graphs->chunks[i]);
	free(m->graphs->chunks);
	free(m->graphs);
	m->graphs = NULL;
}

void model_graphs_note_call(struct model *m, enum store_call call, int unit, bool ends)
{
	struct pass_graph *t = m->graphs ? m->graphs->recording : NULL;
	if (!t)
		return;
	if (t->n == t->room) {
		int room = t->room ? 2 * t->room : 64;
		struct noted_call *notes = realloc(t->notes, (size_t)room * sizeof *notes);
		if (!notes) {
			m->graphs->lost = true;
			return;
		}
		t->notes = notes;
		t->room = room;
	}
	t->notes[t->n++] = (struct noted_call){ call, unit, ends };
}

static bool matches_pass(const struct pass *p, const struct pass_graph *t)
{
	return t->calls && t->grad_scale == p->batch->grad_scale &&
	       t->starts == (p->starts != NULL);
}

static int record_pass(struct pass *p, struct pass_graph *t,
		       int (*run)(struct pass *p, struct err *e), struct err *e)
{
	struct model *m = p->m;
	erase_graph(m, t);
	if (!backend_graph_begin(m->backend)) {
		m->graphs->off = true;
		return run(p, e);
	}
	m->graphs->recording = t;
	m->graphs->lost = false;
	int rc = run(p, e);
	m->graphs->recording = NULL;
	if (backend_graph_end(m->backend, &t->calls, rc ? NULL : e))
		return rc ? rc
			  : err_prefix(e,
				       "a pass as a CUDA graph, which job.graphs = no leaves out");
	if (rc)
		return rc;
	t->grad_scale = p->batch->grad_scale;
	t->starts = p->starts != NULL;
	backend_graph_replay(m->backend, t->calls);
	if (m->graphs->lost)
		erase_graph(m, t);
	return 0;
}

static int repeat_call(struct pass *p, const struct noted_call *n, struct err *e)
{
	switch (n->call) {
	case STORE_CALL_HOLD:
		return model_unit_acquire(p->m, n->unit, e);
	case STORE_CALL_GRADS:
		return model_unit_grads(p->m, n->unit, e);
	case STORE_CALL_REDUCE:
		return model_unit_done(p, n->unit, n->ends, e);
	default:
		model_unit_release(p->m, n->unit);
		return 0;
	}
}

static int replay_pass(struct pass *p, const struct pass_graph *t, struct err *e)
{
	backend_graph_replay(p->m->backend, t->calls);
	for (int i = 0; i < t->n; i++)
		if (repeat_call(p, &t->notes[i], e))
			return -1;
	return 0;
}

/* With other algorithms the pass runs once again before it is recorded. */
static void note_choices(const struct model *m, struct pass_graph *t)
{
	const struct choices *c = backend_choices(m->backend);
	const unsigned now = c ? choices_version(c) : 0;
	if (t->choices == now)
		return;
	t->choices = now;
	t->met = false;
}

int model_graphs_run(struct pass *p, enum pass_graph_kind kind,
		     int (*run)(struct pass *p, struct err *e), struct err *e)
{
	struct pass_graphs *all = p->m->graphs;
	if (!all || all->off || p->m->check || p->m->plant ||
	    !param_store_replayable(p->m->store, p->keep && p->batch->last))
		return run(p, e);
	struct pass_graph *t = &all->chunks[p->chunk - p->m->chunks]
					   [(p->slot - p->chunk->slots) * GRAPH_KINDS + kind];
	note_choices(p->m, t);
	if (t->met && matches_pass(p, t))
		return replay_pass(p, t, e);
	if (t->met)
		return record_pass(p, t, run, e);
	t->met = true;
	return run(p, e);
}
