#include "agent/tools/step_clocks.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct leaving { /* of a collective of the world */
	int64_t seq, at_us;
};

struct host_clock {
	char *name;
	double *differences; /* of its ranks' leavings from the reference's */
	int n, room;
	double begin;  /* the earliest phase, on its own clock */
	double offset; /* the median of the differences */
};

struct step_clocks {
	struct leaving *reference;
	int leavings;
	struct host_clock *hosts; /* the reference's is the first */
	int n;
};

static const char *host_of(const struct step_file *f)
{
	return f->comm.ranks[f->rank].host;
}

static const struct trace_part *world_of(const struct step_file *f)
{
	const struct trace_rank *r = &f->comm.ranks[f->rank];
	for (int i = 0; i < r->n; i++)
		if (!strcmp(r->parts[i].group->name, "world"))
			return &r->parts[i];
	return NULL;
}

static bool is_leaving(const struct trace_op *op)
{
	return op->kind != OP_P2P && op->state == RECORD_DONE && op->end_us > 0;
}

static int keep_reference(struct step_clocks *c, const struct step_file *f, struct err *e)
{
	const struct trace_part *world = world_of(f);
	int n = world ? world->n : 0;
	c->reference = calloc((size_t)n + 1, sizeof *c->reference);
	if (!c->reference)
		return err_set(e, ERR_NOMEM, "no memory for %d times", n);
	for (int i = 0; i < n; i++)
		if (is_leaving(&world->ops[i]))
			c->reference[c->leavings++] = (struct leaving){ world->ops[i].seq,
									world->ops[i].end_us };
	return 0;
}

static struct host_clock *find_host(const struct step_clocks *c, const char *name)
{
	for (int i = 0; i < c->n; i++)
		if (!strcmp(c->hosts[i].name, name))
			return &c->hosts[i];
	return NULL;
}

static struct host_clock *add_host(struct step_clocks *c, const char *name, struct err *e)
{
	struct host_clock *hosts = realloc(c->hosts, (size_t)(c->n + 1) * sizeof *hosts);
	char *copy = hosts ? strdup(name) : NULL;
	if (hosts)
		c->hosts = hosts;
	if (!copy) {
		err_set(e, ERR_NOMEM, "no memory for the host %s", name);
		return NULL;
	}
	hosts[c->n] = (struct host_clock){ .name = copy, .begin = INFINITY };
	return &hosts[c->n++];
}

static int add_difference(struct host_clock *h, double value, struct err *e)
{
	if (h->n == h->room) {
		int room = h->room ? 2 * h->room : 64;
		double *grown = realloc(h->differences, (size_t)room * sizeof *grown);
		if (!grown)
			return err_set(e, ERR_NOMEM, "no memory for %d times", room);
		h->differences = grown;
		h->room = room;
	}
	h->differences[h->n++] = value;
	return 0;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

/* Both lists are in the order of the sequence numbers. */
static int compare_leavings(const struct step_clocks *c, const struct step_file *f,
			    struct host_clock *h, struct err *e)
{
	const struct trace_part *world = world_of(f);
	for (int i = 0, k = 0; world && i < world->n; i++) {
		const struct trace_op *op = &world->ops[i];
		while (k < c->leavings && c->reference[k].seq < op->seq)
			k++;
		if (k == c->leavings)
			break;
		if (is_leaving(op) && c->reference[k].seq == op->seq &&
		    add_difference(h, (double)(op->end_us - c->reference[k].at_us), e))
			return -1;
	}
	return 0;
}

int tool_step_clocks_add(struct step_clocks **c, const struct step_file *f, struct err *e)
{
	bool first = !*c;
	if (first && !(*c = calloc(1, sizeof **c)))
		return err_set(e, ERR_NOMEM, "no memory for the clocks of the hosts");
	if (first && keep_reference(*c, f, e))
		return -1;
	struct host_clock *h = find_host(*c, host_of(f));
	if (!h && !(h = add_host(*c, host_of(f), e)))
		return -1;
	for (int i = 0; i < f->n; i++)
		h->begin = fmin(h->begin, f->phases[i].begin);
	if (h == (*c)->hosts) /* the reference's own clock */
		return 0;
	if (compare_leavings(*c, f, h, e))
		return -1;
	qsort(h->differences, (size_t)h->n, sizeof *h->differences, by_value);
	h->offset = h->n ? h->differences[h->n / 2] : 0;
	return 0;
}

double tool_step_clocks_offset(const struct step_clocks *c, const struct step_file *f)
{
	const struct host_clock *h = find_host(c, host_of(f));
	return h ? h->offset : 0;
}

double tool_step_clocks_origin(const struct step_clocks *c)
{
	double origin = INFINITY;
	for (int i = 0; i < c->n; i++)
		origin = fmin(origin, c->hosts[i].begin - c->hosts[i].offset);
	return isfinite(origin) ? origin : 0;
}

void tool_step_clocks_free(struct step_clocks *c)
{
	for (int i = 0; c && i < c->n; i++) {
		free(c->hosts[i].name);
		free(c->hosts[i].differences);
	}
	if (c) {
		free(c->hosts);
		free(c->reference);
	}
	free(c);
}
