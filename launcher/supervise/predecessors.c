#include "launcher/supervise/predecessors.h"

#include "base/hash.h"
#include "base/process_id.h"
#include "launcher/rundir/agents.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NODE_NAME = 256, FIRST_ROOM = 64 };

enum { NONE = -1 };

struct agent {
	uint32_t generation; /* 0: it was forgotten */
	int rank;
	int before;         /* the agent before it in the same chain; NONE: none */
	uint64_t node_hash; /* makes comparisons of names cheap */
	char node[NODE_NAME];
	struct process_id id;
};

/* A run asks for the agents of one host several times per agent, so they are chained by host: all
 * agents whose hosts' hashes select the same chain, the last one first. */
struct predecessors {
	uint32_t newest;    /* generation */
	struct agent *list; /* in the order of their hellos, with those that were forgotten */
	int *chains;        /* [room]: the last agent of each */
	size_t n, room;     /* room: a power of 2 */
	size_t forgotten;   /* of the n */
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
	free(p->chains);
	free(p);
}

static int *chain_of(const struct predecessors *p, uint64_t node_hash)
{
	return &p->chains[node_hash & (p->room - 1)];
}

/* Removes what was forgotten, and the first `drop` agents, and makes the chains again. */
static void compact(struct predecessors *p, size_t drop)
{
	size_t kept = 0;
	for (size_t i = 0; i < p->room; i++)
		p->chains[i] = NONE;
	for (size_t i = drop; i < p->n; i++) {
		if (!p->list[i].generation)
			continue;
		if (kept < i)
			p->list[kept] = p->list[i];
		int *last = chain_of(p, p->list[kept].node_hash);
		p->list[kept].before = *last;
		*last = (int)kept++;
	}
	p->n = kept;
	p->forgotten = 0;
}

/* False: no memory; nothing has changed. */
static bool grow(struct predecessors *p, size_t room)
{
	struct agent *list = malloc(room * sizeof *list);
	int *chains = malloc(room * sizeof *chains);
	if (!list || !chains) {
		free(list);
		free(chains);
		return false;
	}
	if (p->n)
		memcpy(list, p->list, p->n * sizeof *list);
	free(p->list);
	free(p->chains);
	p->list = list;
	p->chains = chains;
	p->room = room;
	compact(p, 0);
	return true;
}

/* Makes room for one more; drops the oldest quarter if the list has its full size, or if there is
 * no memory for a larger one. False: there is none at all. */
static bool make_room(struct predecessors *p)
{
	size_t room = p->room ? 2 * p->room : FIRST_ROOM;
	if (p->n < p->room)
		return true;
	if (p->n && 4 * p->forgotten >= p->n)
		compact(p, 0);
	else if (room > PREDECESSORS_MAX || !grow(p, room))
		compact(p, p->room / 4);
	return p->n < p->room;
}

static void forget(struct predecessors *p, struct agent *a)
{
	a->generation = 0;
	p->forgotten++;
}

/* The last agent of the chain of this host; NONE: there is none. */
static int last_of(const struct predecessors *p, uint64_t node_hash)
{
	return p->room ? *chain_of(p, node_hash) : NONE;
}

static bool is_on(const struct agent *a, uint64_t node_hash, const char *node)
{
	return a->generation && a->node_hash == node_hash && !strcmp(a->node, node);
}

static void add_agent(struct predecessors *p, const struct agent *a, const char *node,
		      const char *boot)
{
	/* A name that was cut off could be that of another host. */
	if (a->id.pid < 1 || a->id.start < 1 || strlen(node) >= NODE_NAME ||
	    strlen(boot) >= PROCESS_BOOT || !make_room(p))
		return;
	int *last, at = (int)p->n++;
	struct agent *new = &p->list[at];
	*new = *a;
	new->node_hash = hash_text(node);
	last = chain_of(p, new->node_hash);
	new->before = *last;
	*last = at;
	snprintf(new->node, sizeof new->node, "%s", node);
	snprintf(new->id.boot, sizeof new->id.boot, "%s", boot);
}

static void note_generation(struct predecessors *p, uint32_t generation)
{
	p->newest = generation > p->newest ? generation : p->newest;
}

uint32_t supervise_predecessors_newest(const struct predecessors *p)
{
	return p->newest;
}

void supervise_predecessors_add(struct predecessors *p, uint32_t generation,
				const struct msg_hello *h)
{
	note_generation(p, generation);
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
	uint64_t hash = hash_text(as->node);
	note_generation(p, generation);
	for (int i = last_of(p, hash); i != NONE; i = p->list[i].before) {
		struct agent *a = &p->list[i];
		if (!is_on(a, hash, as->node) || a->id.pid != as->pid || a->id.start != as->start ||
		    a->id.pid_space != as->pid_space || strcmp(a->id.boot, as->boot))
			continue;
		a->generation = generation;
		a->rank = as->rank;
		return;
	}
}

static void read_hello(void *predecessors, uint32_t generation, const struct rundir_joined *h)
{
	const struct msg_hello as = { .rank = h->rank,
				      .node = h->node,
				      .pid = h->pid,
				      .start = h->start,
				      .pid_space = h->pid_space,
				      .boot = h->boot };
	if (h->kept)
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

void supervise_predecessors_ended(struct predecessors *p, uint32_t generation, int rank,
				  const char *node)
{
	uint64_t hash = hash_text(node);
	for (int i = last_of(p, hash); i != NONE; i = p->list[i].before) {
		struct agent *a = &p->list[i];
		if (is_on(a, hash, node) && a->generation == generation && a->rank == rank)
			forget(p, a);
	}
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
	size_t n;
	uint64_t *hosts = hosts_of(p, generation, &n);
	if (!hosts)
		return; /* no memory: they stay on the list, which does no harm */
	for (size_t i = 0; i < p->n; i++) {
		struct agent *a = &p->list[i];
		if (a->generation && a->generation < generation &&
		    bsearch(&a->node_hash, hosts, n, sizeof *hosts, compare_hashes))
			forget(p, a);
	}
	free(hosts);
	compact(p, 0);
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
	for (int i = last_of(p, hash); i != NONE && json_array_size(list) < PREDECESSORS_LISTED_MAX;
	     i = p->list[i].before) {
		const struct agent *a = &p->list[i];
		if (a->generation >= generation || !is_on(a, hash, node))
			continue;
		if (!list)
			list = json_array();
		json_array_append_new(list, describe(a));
	}
	return list;
}
