#include "launcher/supervise/predecessors.h"

#include "base/hash.h"
#include "base/process_id.h"
#include "launcher/rundir/agents.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NODE_NAME = 256, FIRST_ROOM = 64 };

struct agent {
	uint32_t generation;
	int rank;
	uint64_t node_hash; /* makes comparisons of names cheap */
	char node[NODE_NAME];
	struct process_id id;
};

struct predecessors {
	struct agent *list; /* in the order of their hellos */
	size_t n, room;
};

int supervise_predecessors_open(struct predecessors **out, struct err *e)
{
	struct predecessors *p = calloc(1, sizeof *p);
	if (!p)
		return err_set(e, ERR_NOMEM, "no memory for the list of earlier agents");
	*out = p;
	return 0;
}

void supervise_predecessors_close(struct predecessors *p)
{
	if (!p)
		return;
	free(p->list);
	free(p);
}

/* Makes room for one more; drops the oldest quarter if the list has its full size, or if there is
 * no memory for a larger one. False: there is none at all. */
static bool make_room(struct predecessors *p)
{
	if (p->n < p->room)
		return true;
	size_t room = p->room ? 2 * p->room : FIRST_ROOM;
	struct agent *list = room > PREDECESSORS_MAX ? NULL
						     : realloc(p->list, room * sizeof *p->list);
	if (list) {
		p->list = list;
		p->room = room;
		return true;
	}
	size_t drop = p->room / 4;
	p->n -= drop;
	if (p->n)
		memmove(p->list, p->list + drop, p->n * sizeof *p->list);
	return drop > 0;
}

static void add_agent(struct predecessors *p, const struct agent *a, const char *node,
		      const char *boot)
{
	/* A name that was cut off could be that of another host. */
	if (a->id.pid < 1 || a->id.start < 1 || strlen(node) >= NODE_NAME ||
	    strlen(boot) >= PROCESS_BOOT || !make_room(p))
		return;
	struct agent *new = &p->list[p->n++];
	*new = *a;
	new->node_hash = hash_text(node);
	snprintf(new->node, sizeof new->node, "%s", node);
	snprintf(new->id.boot, sizeof new->id.boot, "%s", boot);
}

void supervise_predecessors_add(struct predecessors *p, uint32_t generation,
				const struct msg_hello *h)
{
	const struct agent a = {
		.generation = generation,
		.rank = h->rank,
		.id = { .pid = h->pid, .start = h->start, .pid_space = h->pid_space }
	};
	add_agent(p, &a, h->node, h->boot);
}

void supervise_predecessors_keep(struct predecessors *p, uint32_t generation,
				 const struct msg_hello *as)
{
	for (size_t i = p->n; i-- > 0;) {
		struct agent *a = &p->list[i];
		if (a->id.pid != as->pid || a->id.start != as->start ||
		    a->id.pid_space != as->pid_space || strcmp(a->id.boot, as->boot) ||
		    strcmp(a->node, as->node))
			continue;
		a->generation = generation;
		a->rank = as->rank;
		return;
	}
}

static void read_hello(void *predecessors, uint32_t generation, const struct rundir_hello *h)
{
	const struct msg_hello as = { .rank = h->rank,
				      .node = h->node,
				      .pid = h->pid,
				      .start = h->start,
				      .pid_space = h->pid_space,
				      .boot = h->boot };
	if (h->has_kept && h->kept)
		supervise_predecessors_keep(predecessors, generation, &as);
	else
		supervise_predecessors_add(predecessors, generation, &as);
}

static void read_ready(void *predecessors, uint32_t generation)
{
	supervise_predecessors_ready(predecessors, generation);
}

int supervise_predecessors_load(struct predecessors *p, const char *run, struct err *e)
{
	const struct rundir_agents_reader to = { .hello = read_hello,
						 .ready = read_ready,
						 .arg = p };
	return rundir_agents_read(run, &to, e);
}

void supervise_predecessors_ended(struct predecessors *p, uint32_t generation, int rank)
{
	size_t kept = 0;
	for (size_t i = 0; i < p->n; i++)
		if (p->list[i].generation != generation || p->list[i].rank != rank)
			p->list[kept++] = p->list[i];
	p->n = kept;
}

static int compare_hashes(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;
	return *x < *y ? -1 : *x > *y;
}

/* The sorted hashes of the hosts of a generation. */
static uint64_t *hosts_of(const struct predecessors *p, uint32_t generation, size_t *n)
{
	uint64_t *hosts = calloc(p->n + 1, sizeof *hosts);
	*n = 0;
	for (size_t i = 0; hosts && i < p->n; i++)
		if (p->list[i].generation == generation)
			hosts[(*n)++] = p->list[i].node_hash;
	if (hosts)
		qsort(hosts, *n, sizeof *hosts, compare_hashes);
	return hosts;
}

void supervise_predecessors_ready(struct predecessors *p, uint32_t generation)
{
	size_t n, kept = 0;
	uint64_t *hosts = hosts_of(p, generation, &n);
	if (!hosts)
		return; /* no memory: they stay on the list, which does no harm */
	for (size_t i = 0; i < p->n; i++) {
		const struct agent *a = &p->list[i];
		if (a->generation >= generation ||
		    !bsearch(&a->node_hash, hosts, n, sizeof *hosts, compare_hashes))
			p->list[kept++] = *a;
	}
	p->n = kept;
	free(hosts);
}

static json_t *describe(const struct agent *a)
{
	return msg_predecessor_json(&(struct msg_predecessor){ .generation = a->generation,
							       .pid = a->id.pid,
							       .start = a->id.start,
							       .pid_space = a->id.pid_space,
							       .boot = a->id.boot });
}

json_t *supervise_predecessors_list(const struct predecessors *p, uint32_t generation,
				    const char *node)
{
	uint64_t hash = hash_text(node);
	json_t *list = NULL;
	for (size_t i = p->n; i-- > 0 && json_array_size(list) < PREDECESSORS_LISTED_MAX;) {
		const struct agent *a = &p->list[i];
		if (a->generation >= generation || a->node_hash != hash || strcmp(a->node, node))
			continue;
		if (!list)
			list = json_array();
		json_array_append_new(list, describe(a));
	}
	return list;
}
