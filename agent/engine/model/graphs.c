#include "agent/engine/model/graphs.h"
#include "agent/engine/model/linear_fp8.h"
#include "agent/engine/model/moe.h"

#include "base/choices.h"

#include "agent/engine/parallel/graph.h"

#include <stdlib.h>

/* A call of the parameter store. */
struct noted_call {
	enum store_call call;
	int unit;
	/* STORE_CALL_REDUCE: after the step's last micro-batch the gradients are complete */
	bool ends;
	/* STORE_CALL_CONTRIBUTE: the elements, whether they were added to, and whether the pass has
	 * no earlier contribution to them */
	struct grad_range range;
	bool add, first;
};

struct pass_graph {
	struct parallel_graph *graph; /* NULL: not recorded */
	struct noted_call *notes;
	int n, room;
	bool met;         /* the pass has run once */
	unsigned choices; /* choices_version at that time */
	uint64_t state;   /* param_store_state */
	bool starts;
	bool casts; /* and casts the weights of all layers to 8 bits (linear_fp8.h) */
};

/* Passes of a kind that complete the step's gradients (1), and that wait for parameters (2), have
 * graphs of their own. */
enum { SITUATIONS = 4, GRAPH_VARIANTS = 8, GRAPHS = GRAPH_KINDS * SITUATIONS * GRAPH_VARIANTS };

struct pass_graphs {
	struct pass_graph *
		*chunks; /* [n_chunks][slots × GRAPH_KINDS × SITUATIONS × GRAPH_VARIANTS] */
	struct pass_graph *recording; /* NULL: none */
	bool alone;                   /* no pass exchanges data with another rank */
	bool off;                     /* the backend does not record */
	bool lost;                    /* out of memory for a call */
};

/* Experts fit if the host needs no counts: then nothing is copied from or to it, and no memory
 * grows. */
static bool fits(const struct model *m)
{
	return m->d.device && m->job->job.graphs && parallel_graph_fits(m->tp->comm) &&
	       parallel_graph_fits(m->cp->comm) && !m->offload &&
	       (!m->moe || model_route_counts_stay(m));
}

int model_graphs_open(struct model *m, struct err *e)
{
	if (!fits(m))
		return 0;
	m->graphs = calloc(1, sizeof *m->graphs);
	if (m->graphs)
		m->graphs->chunks = calloc((size_t)m->n_chunks, sizeof *m->graphs->chunks);
	bool ok = m->graphs && m->graphs->chunks;
	if (ok)
		m->graphs->alone = m->tp->size == 1 && m->cp->size == 1 &&
				   !(m->moe && m->moe->ep->comm) && !param_store_reduces(m->store);
	param_store_defer(m->store);
	for (int i = 0; ok && i < m->n_chunks; i++)
		ok = (m->graphs->chunks[i] = calloc((size_t)m->chunks[i].n_slots * GRAPHS,
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
		for (int j = 0; m->graphs->chunks[i] && j < m->chunks[i].n_slots * GRAPHS; j++) {
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

static void note(struct model *m, struct noted_call call)
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
	t->notes[t->n++] = call;
}

void model_graphs_note_call(struct model *m, enum store_call call, int unit, bool ends)
{
	note(m, (struct noted_call){ .call = call, .unit = unit, .ends = ends });
}

static bool is_noted(const struct pass_graph *t, int unit, int64_t at)
{
	for (int i = 0; t && i < t->n; i++)
		if (t->notes[i].call == STORE_CALL_CONTRIBUTE && t->notes[i].unit == unit &&
		    t->notes[i].range.at == at)
			return true;
	return false;
}

void model_graphs_note_grads(struct model *m, int unit, struct grad_range r, bool add)
{
	bool known = r.at < 0 || !m->graphs || is_noted(m->graphs->recording, unit, r.at);
	if (r.at >= 0)
		note(m, (struct noted_call){ .call = STORE_CALL_CONTRIBUTE,
					     .unit = unit,
					     .range = r,
					     .add = add,
					     .first = !known });
}

/* Whether the pass would set and add to the same gradients as the noted one. */
static bool matches_grads(const struct pass *p, const struct pass_graph *t)
{
	for (int i = 0; i < t->n; i++)
		if (t->notes[i].first &&
		    param_store_has_grads(p->m->store, t->notes[i].unit, &t->notes[i].range, 1) !=
			    t->notes[i].add)
			return false;
	return true;
}

/* Returns whether the next demands of the step are those that the pass noted. */
static bool matches_demands(const struct pass *p, const struct pass_graph *t)
{
	int ahead = 0;
	for (int i = 0; i < t->n; i++)
		if (t->notes[i].call == STORE_CALL_HOLD &&
		    !param_store_expects(p->m->store, t->notes[i].unit, &ahead))
			return false;
	return true;
}

/* The variant for the pass; if there is none, one that is free, or the last one made free. */
static struct pass_graph *find_variant(const struct pass *p, struct pass_graph variants[],
				       uint64_t state)
{
	for (int i = 0; i < GRAPH_VARIANTS; i++)
		if (!variants[i].met ||
		    (variants[i].state == state && matches_grads(p, &variants[i]) &&
		     matches_demands(p, &variants[i])))
			return &variants[i];
	variants[GRAPH_VARIANTS - 1].met = false;
	return &variants[GRAPH_VARIANTS - 1];
}

static bool matches_pass(const struct pass *p, const struct pass_graph *t, bool casts)
{
	return t->graph && t->starts == (p->starts != NULL) && t->casts == casts;
}

/* Runs the pass and notes its calls. */
static int meet_pass(struct pass *p, struct pass_graph *t,
		     int (*run)(struct pass *p, struct err *e), struct err *e)
{
	struct pass_graphs *all = p->m->graphs;
	erase_graph(t);
	all->recording = t;
	all->lost = false;
	int rc = run(p, e);
	all->recording = NULL;
	t->met = !all->lost;
	return rc;
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

static int record_pass(struct pass *p, struct pass_graph *t, bool casts,
		       int (*run)(struct pass *p, struct err *e), struct err *e)
{
	struct model *m = p->m;
	erase_graph(t);
	int rc = parallel_graph_begin(m->backend, m->graphs->alone, "a pass", &t->graph, e);
	if (rc < 0)
		return -1;
	if (rc == 0) {
		m->graphs->off = true;
		return run(p, e);
	}
	if (run_recorded(p, t, run, e)) {
		erase_graph(t);
		return -1;
	}
	t->starts = p->starts != NULL;
	t->casts = casts;
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
	case STORE_CALL_CONTRIBUTE:
		param_store_adds_grads(p->m->store, n->unit, &n->range, 1);
		return 0;
	case STORE_CALL_REDUCE:
		return model_unit_done(p, n->unit, n->ends, e);
	default:
		model_unit_release(p->m, n->unit);
		return 0;
	}
}

static int repeat_calls(struct pass *p, const struct pass_graph *t, struct err *e)
{
	int rc = 0;
	param_store_repeat(p->m->store, true);
	for (int i = 0; rc == 0 && i < t->n; i++)
		rc = repeat_call(p, &t->notes[i], e);
	param_store_repeat(p->m->store, false);
	return rc;
}

static int replay_pass(struct pass *p, const struct pass_graph *t, struct err *e)
{
	if (parallel_graph_repeat(t->graph, e) || repeat_calls(p, t, e)) {
		parallel_graph_give_up(t->graph);
		return -1;
	}
	if (t->casts)
		model_weights_fp8_refreshed(p);
	return parallel_graph_launch(t->graph, e);
}

/* The variants of a pass in its slot. */
static struct pass_graph *graphs_of(const struct pass *p, enum pass_graph_kind kind, bool completes)
{
	const struct pass_graphs *all = p->m->graphs;
	int chunk = (int)(p->chunk - p->m->chunks);
	int slot = (int)(p->slot - p->chunk->slots);
	int situation = (completes && !all->alone && param_store_reduces_once(p->m->store)) +
			2 * param_store_gathers(p->m->store, chunk);
	return &all->chunks[chunk]
			   [slot * GRAPHS + ((int)kind * SITUATIONS + situation) * GRAPH_VARIANTS];
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

/* The last stage's forward pass includes the head's backward pass. */
static enum param_store_use use_of(const struct pass *p, enum pass_graph_kind kind)
{
	if (!p->keep)
		return PARAM_STORE_EVALUATES;
	if (kind == GRAPH_FORWARD && !p->chunk->stage.last)
		return PARAM_STORE_READS;
	return p->batch->last ? PARAM_STORE_COMPLETES : PARAM_STORE_ADDS;
}

int model_graphs_run(struct pass *p, enum pass_graph_kind kind,
		     int (*run)(struct pass *p, struct err *e), struct err *e)
{
	const struct pass_graphs *all = p->m->graphs;
	struct param_store *store = p->m->store;
	enum param_store_use use = use_of(p, kind);
	int chunk = (int)(p->chunk - p->m->chunks);
	if (!all || all->off || p->m->check || p->m->plant || (p->m->notes && !p->m->delays) ||
	    !param_store_replayable(store, chunk, use))
		return run(p, e);
	bool casts = param_store_gathers(store, chunk) && model_weights_fp8_stale(p);
	if ((!casts && model_weights_fp8_refresh_all(p, e)) || param_store_settle_pass(store, e))
		return -1;
	uint64_t state = param_store_state(store, chunk, use);
	struct pass_graph *t = find_variant(p, graphs_of(p, kind, use == PARAM_STORE_COMPLETES),
					    state);
	if (t->state != state)
		t->met = false;
	t->state = state;
	note_choices(p->m, t);
	if (t->met && matches_pass(p, t, casts))
		return replay_pass(p, t, e);
	if (t->met)
		return record_pass(p, t, casts, run, e);
	return meet_pass(p, t, run, e);
}
