#include "agent/engine/parallel/ep.h"

#include "base/clock.h"
#include "plan/spec/layout.h"

#include <stdlib.h>
#include <string.h>

void ep_init(struct ep *p, struct comm *group, struct comm *values, int64_t experts,
	     enum comm_type type)
{
	int64_t lo = 0, hi = experts;
	*p = (struct ep){
		.comm = group,
		.values = values,
		.rank = group ? comm_rank(group) : 0,
		.size = group ? comm_size(group) : 1,
		.type = type,
		.experts = experts,
	};
	if (group)
		layout_partition(experts, p->size, p->rank, 1, &lo, &hi);
	p->lo = (int)lo;
	p->hi = (int)hi;
}

void ep_plan_close(struct backend *k, struct ep_plan *plan)
{
	backend_free(k, plan->places);
	free(plan->out);
	free(plan->in);
	free(plan->per_expert);
	free(plan->sorted);
	memset(plan, 0, sizeof *plan);
}

static int grow_array(void *array, size_t n, size_t size)
{
	void **p = array, *bigger = realloc(*p, (n + 1) * size);
	if (!bigger)
		return -1;
	*p = bigger;
	return 0;
}

static int open_arrays(const struct ep *p, struct ep_plan *plan, struct err *e)
{
	size_t n = (size_t)p->size;
	if (grow_array(&plan->out, n, sizeof *plan->out) ||
	    grow_array(&plan->in, n, sizeof *plan->in) ||
	    grow_array(&plan->per_expert, (size_t)(p->hi - p->lo), sizeof *plan->per_expert))
		return err_set(
			e, ERR_NOMEM,
			"experts: no memory for the exchange over %d ranks; close other programs",
			p->size);
	return 0;
}

/* Sets theirs [size, mine]: the rows of each rank for each of this rank's experts. group: `values`,
 * or that whose data is where the counts are. */
static int exchange_counts(struct ep *p, struct comm *group, const int64_t *counts, int64_t *theirs,
			   struct err *e)
{
	size_t mine = (size_t)(p->hi - p->lo), out[p->size], in[p->size];
	for (int r = 0; r < p->size; r++) {
		int64_t lo, hi;
		layout_partition(p->experts, p->size, r, 1, &lo, &hi);
		out[r] = (size_t)(hi - lo);
		in[r] = mine;
	}
	return comm_all_to_allv(group, counts, out, theirs, in, COMM_I64, e);
}

static void count_rows(const struct ep *p, const int64_t *counts, const int64_t *theirs,
		       struct ep_plan *plan)
{
	int mine = p->hi - p->lo;
	plan->sent = plan->received = 0;
	memset(plan->per_expert, 0, (size_t)mine * sizeof *plan->per_expert);
	for (int r = 0; r < p->size; r++) {
		int64_t lo, hi;
		layout_partition(p->experts, p->size, r, 1, &lo, &hi);
		plan->out[r] = plan->in[r] = 0;
		for (int64_t x = lo; x < hi; x++)
			plan->out[r] += (size_t)counts[x];
		for (int x = 0; x < mine; x++) {
			plan->in[r] += (size_t)theirs[r * mine + x];
			plan->per_expert[x] += theirs[r * mine + x];
		}
		plan->sent += (int64_t)plan->out[r];
		plan->received += (int64_t)plan->in[r];
	}
}

/* Rows arrive sorted by source rank, and for one rank by expert. */
static void sort_rows(const struct ep *p, const int64_t *theirs, struct ep_plan *plan)
{
	int mine = p->hi - p->lo;
	int64_t to[mine + 1], arrival = 0, *order = plan->sorted,
			      *back = plan->sorted + plan->received;
	to[0] = 0;
	for (int x = 0; x + 1 < mine; x++)
		to[x + 1] = to[x] + plan->per_expert[x];
	for (int r = 0; r < p->size; r++)
		for (int x = 0; x < mine; x++)
			for (int64_t i = 0; i < theirs[r * mine + x]; i++, arrival++) {
				order[to[x]] = arrival;
				back[arrival] = to[x]++;
			}
}

/* Puts the order where the ops read it. The device's array grows with an eighth of spare room, so that
 * few steps grow it. */
static int publish_order(struct backend *k, struct ep_plan *plan, struct err *e)
{
	int64_t *at = plan->sorted, rows = plan->received;
	if (!backend_on_host(k) && rows > plan->room) {
		backend_free(k, plan->places);
		plan->room = rows + rows / 8;
		plan->places = backend_alloc(k, (size_t)(2 * plan->room) * sizeof *plan->places);
	}
	if (!backend_on_host(k) && rows) {
		at = plan->places;
		if (!at) {
			plan->room = 0;
			return err_set(e, ERR_NOMEM,
				       "experts: no memory for the order of %lld rows; lower "
				       "batch.micro",
				       (long long)rows);
		}
		backend_put(k, at, plan->sorted, (size_t)(2 * rows) * sizeof *at);
	}
	plan->order = at;
	plan->back = at + rows;
	return 0;
}

int ep_plan(struct ep *p, struct backend *k, const int64_t *counts, struct ep_plan *plan,
	    struct err *e)
{
	size_t mine = (size_t)(p->hi - p->lo);
	int64_t theirs[(size_t)p->size * mine + 1];
	double start = clock_s();

	if (open_arrays(p, plan, e))
		return -1;
	if (!p->comm)
		memcpy(theirs, counts, mine * sizeof *theirs);
	else if (exchange_counts(p, p->values, counts, theirs, e))
		return -1;
	count_rows(p, counts, theirs, plan);
	size_t rows = p->comm ? (size_t)plan->received : 0;
	if (grow_array(&plan->sorted, 2 * rows, sizeof *plan->sorted))
		return err_set(e, ERR_NOMEM,
			       "experts: no memory for the order of %zu rows; lower batch.micro",
			       rows);
	if (p->comm)
		sort_rows(p, theirs, plan);
	int rc = p->comm ? publish_order(k, plan, e) : 0;
	p->seconds += clock_s() - start;
	return rc;
}

/* The plan's counts are those of whole blocks. */
static void count_blocks(const struct ep *p, int64_t rows, struct ep_plan *plan)
{
	int mine = p->hi - p->lo;
	for (int r = 0; r < p->size; r++) {
		int64_t lo, hi;
		layout_partition(p->experts, p->size, r, 1, &lo, &hi);
		plan->out[r] = (size_t)((hi - lo) * rows);
		plan->in[r] = (size_t)(mine * rows);
	}
	plan->sent = p->experts * rows;
	plan->received = p->size * mine * rows;
}

int ep_plan_blocks(struct ep *p, struct backend *k, const struct ep_blocks *b, struct ep_plan *plan,
		   struct err *e)
{
	double start = clock_s();
	if (open_arrays(p, plan, e) || exchange_counts(p, p->comm, b->counts, b->theirs, e))
		return -1;
	count_blocks(p, b->rows, plan);
	backend_ops(k)->route_blocks(k, b->per_expert, b->order, b->back, b->theirs, p->size,
				     p->hi - p->lo, b->rows);
	plan->order = b->order;
	plan->back = b->back;
	p->seconds += clock_s() - start;
	return 0;
}

static int exchange_rows(struct ep *p, const void *in, const size_t *in_rows, void *out,
			 const size_t *out_rows, int64_t c, struct err *e)
{
	size_t give[p->size], take[p->size];
	double start = clock_s();
	for (int r = 0; r < p->size; r++) {
		give[r] = in_rows[r] * (size_t)c;
		take[r] = out_rows[r] * (size_t)c;
	}
	int rc = comm_all_to_allv(p->comm, in, give, out, take, p->type, e);
	p->seconds += clock_s() - start;
	return rc;
}

static void copy_rows_alone(struct backend *k, void *to, const void *from, int64_t rows, int64_t c)
{
	if (to != from)
		backend_ops(k)->copy_rows(k, to, c, from, c, rows, c);
}

int ep_dispatch(struct ep *p, struct backend *k, const struct ep_plan *plan, const void *sent,
		void *arrival, void *received, int64_t c, struct err *e)
{
	if (!p->comm) {
		copy_rows_alone(k, received, sent, plan->sent, c);
		return 0;
	}
	if (exchange_rows(p, sent, plan->out, arrival, plan->in, c, e))
		return -1;
	backend_ops(k)->gather_rows(k, received, arrival, plan->order, plan->received, c);
	return 0;
}

int ep_return(struct ep *p, struct backend *k, const struct ep_plan *plan, const void *received,
	      void *arrival, void *sent, int64_t c, struct err *e)
{
	if (!p->comm) {
		copy_rows_alone(k, sent, received, plan->sent, c);
		return 0;
	}
	backend_ops(k)->gather_rows(k, arrival, received, plan->back, plan->received, c);
	return exchange_rows(p, arrival, plan->in, sent, plan->out, c, e);
}
