/* Any bytes as a run's events.jsonl, and as texts of /proc: no agent that is read from them lacks a
 * name, and what is listed for a host is of earlier generations. */
#include "base/process_stat.h"
#include "launcher/rundir/agents.h"
#include "launcher/supervise/predecessors.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void add(void *predecessors, uint32_t generation, const struct rundir_joined *h)
{
	const struct msg_hello m = { .rank = h->rank,
				     .node = h->node,
				     .pid = h->pid,
				     .start = h->start,
				     .pid_space = h->pid_space,
				     .boot = h->boot };
	if (!generation || h->rank < 0 || h->pid < 1 || h->start < 1)
		abort();
	supervise_predecessors_add(predecessors, generation, &m);
	json_t *list = supervise_predecessors_list(predecessors, generation, h->node);
	for (size_t i = 0; i < json_array_size(list); i++) {
		struct msg_predecessor p;
		if (msg_predecessor_read(json_array_get(list, i), &p, NULL) ||
		    p.generation >= generation)
			abort();
	}
	json_decref(list);
}

static void ready(void *predecessors, uint32_t generation)
{
	supervise_predecessors_ready(predecessors, generation);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct predecessors *p;
	struct process_stat stat;
	uid_t owner;
	char *text = malloc(size + 1);
	if (!text || supervise_predecessors_open(&p, NULL))
		abort();
	const struct rundir_agents_reader to = { .hello = add, .ready = ready, .arg = p };
	memcpy(text, data, size);
	text[size] = '\0';
	if (!process_stat_parse(text, &stat) &&
	    (stat.start < 0 || strlen(stat.name) >= PROCESS_NAME))
		abort();
	process_owner_parse(text, &owner);
	for (size_t at = 0; at < size;) {
		const char *end = memchr(text + at, '\n', size - at);
		size_t len = end ? (size_t)(end - text) - at : size - at;
		rundir_agents_read_line(text + at, len, &to);
		at += len + 1;
	}
	supervise_predecessors_close(p);
	free(text);
	return 0;
}
