#include "agent/engine/model/graphs.h"

#include "agent/engine/parallel/graph.h"

#include <stdlib.h>

/* A call of the parameter store. */
struct noted_call {
	enum store_call call;
	int unit;
	/* STORE_CALL_REDUCE: after the step's last micro-batch the gradients are complete */
	bool ends;
};

struct pass_graph {
	struct parallel_graph *graph; /* NULL: not recorded */
	struct noted_call *notes;
	int n, room;
	bool met;         /* the pass has run once */
	float grad_scale; /* the recorded value */
	bool starts;
};

/* Of each kind of pass: 1 if it completes the step's gradients, plus 2 if it waits for parameters. */
enum { VARIANTS = 4 * GRAPH_KINDS };

struct pass_graphs {
	struct pass_graph **chunks;   /* [n_chunks][slots × VARIANTS] */
	struct pass_graph *recording; /* NULL: none */
	bool alone;                   /* no pass exchanges data with another rank */
	bool off;                     /* the backend does not record */
	bool lost;                    /* out of memory for a call */
};

int model_graphs_open(struct model *m, struct err *e)
{
	bool fits = m->d.device && m->job->job.graphs && parallel_graph_fits(m->tp->comm) &&
		    m->cp->size == 1 && !m->moe && !m->offload;
	if (!fits)
		return 0;
	m->graphs = calloc(1, sizeof *m->graphs);
	if (m->graphs)
		m->graphs->chunks = calloc((size_t)m->n_chunks, sizeof *m->graphs->chunks);
	bool ok = m->graphs && m->graphs->chunks;
	if (ok)
		m->graphs->alone = m->tp->size == 1 && !param_store_reduces(m->store);
	for (int i = 0; ok && i < m->n_chunks; i++)
		ok = (m->graphs->chunks[i] = calloc((size_t)m->chunks[i].n_slots * VARIANTS,
						    sizeof **m->graphs->chunks));
	return ok ? 0
		  : err_set(e, ERR_NOMEM, "no memory for the recorded passes of %d chunks",
			    m->n_chunks);
}

static void erase_graph(struct pass_graph *t)
{
	parallel_graph_free(t->graph);
	t->graph = NULL;
	t->n = 0;
}

void model_graphs_close(struct model *m)
{
	if (!m->graphs)
		return;
	for (int i = 0; m->graphs->chunks && i < m->n_chunks; i++)
		for (int j = 0; m->graphs->chunks[i] && j < m->chunks[i].n_slots * VARIANTS; j++) {
			erase_graph(&m->graphs->chunks[i][j]);
			free(m->graphs->chunks[i][j].notes);
		}
	for (int i = 0; m->graphs->chunks && i < m->n_chunks; i++)
		free(m->graphs->chunks[i]);
	free(m->graphs->chunks);
	free(m->graphs);
	m->graphs = NULL;
}

void model_forget_passes(struct model *m)
{
	if (m)
		model_graphs_close(m);
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
	return t->graph && t->grad_scale == p->batch->grad_scale &&
	       t->starts == (p->starts != NULL);
}

/* Runs the pass, of which the backend records what it queues. */
static int run_recorded(struct pass *p, struct pass_graph *t,
			int (*run)(struct pass *p, struct err *e), struct err *e)
{
	struct pass_graphs *all = p->m->graphs;
	all->recording = t;
	all->lost = false;
	int rc = run(p, e);
	all->recording = NULL;
	if (parallel_graph_end(t->graph, rc ? NULL : e))
		return rc ? rc
			  : err_prefix(e,
				       "a pass as a CUDA graph, which job.graphs = no leaves out");
	if (rc == 0 && all->lost)
		return err_set(e, ERR_NOMEM, "no memory for a recorded pass; set job.graphs = no");
	return rc;
}

/* Without other ranks the passes can run without graphs. Otherwise all ranks must do the same. */
static int go_without(struct pass *p, int (*run)(struct pass *p, struct err *e), struct err *e)
{
	if (!p->m->graphs->alone)
		return err_set(e, ERR_UNSUPPORTED,
			       "the device refuses to record a pass; set job.graphs = no");
	p->m->graphs->off = true;
	return run(p, e);
}

static int record_pass(struct pass *p, struct pass_graph *t,
		       int (*run)(struct pass *p, struct err *e), struct err *e)
{
	struct model *m = p->m;
	erase_graph(t);
	int rc = parallel_graph_begin(m->backend, &t->graph, e);
	if (rc <= 0)
		return rc ? rc : go_without(p, run, e);
	if (run_recorded(p, t, run, e)) {
		erase_graph(t);
		return -1;
	}
	t->grad_scale = p->batch->grad_scale;
	t->starts = p->starts != NULL;
	/* The store has noted its calls just now. */
	return parallel_graph_launch(t->graph, e);
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
	int rc = parallel_graph_repeat(t->graph, e);
	for (int i = 0; rc == 0 && i < t->n; i++)
		rc = repeat_call(p, &t->notes[i], e);
	return rc ? -1 : parallel_graph_launch(t->graph, e);
}

/* The graph of a pass in its slot. */
static struct pass_graph *graph_of(const struct pass *p, enum pass_graph_kind kind, bool completes)
{
	const struct pass_graphs *all = p->m->graphs;
	int chunk = (int)(p->chunk - p->m->chunks);
	int variant = 4 * (int)kind + (completes && !all->alone) +
		      2 * param_store_gathers(p->m->store, chunk);
	return &all->chunks[chunk][(p->slot - p->chunk->slots) * VARIANTS + variant];
}

int model_graphs_run(struct pass *p, enum pass_graph_kind kind,
		     int (*run)(struct pass *p, struct err *e), struct err *e)
{
	const struct pass_graphs *all = p->m->graphs;
	bool completes = p->keep && p->batch->last;
	if (!all || all->off || p->m->check || p->m->plant ||
	    !param_store_replayable(p->m->store, completes))
		return run(p, e);
	struct pass_graph *t = graph_of(p, kind, completes);
	if (matches_pass(p, t))
		return replay_pass(p, t, e);
	if (t->met)
		return record_pass(p, t, run, e);
	t->met = true;
	return run(p, e);
}
