/* Any JSON object as a message between a helper and the supervisor: what to start, and parts of what
 * ranks have put. A list of objects is a sequence of parts from two nodes in turn. */
#include "base/parts.h"
#include "launcher/helper/start.h"
#include "launcher/slurm/relay_nodes.h"

#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_start(const json_t *body)
{
	struct helper_start s;
	struct err e;
	if (!helper_start_read(body, &s, &e))
		for (int i = 0; i < s.n; i++)
			if (s.ranks[i] < 0 || s.ranks[i] >= s.world || s.threads[i] < 1 ||
			    s.node_of[s.ranks[i]] != s.m.node)
				abort();
	helper_start_fini(&s);
}

static void read_parts(const json_t *list)
{
	static struct cluster_node names[] = { { .name = "a" }, { .name = "b" } };
	static const struct cluster cluster = { .nodes = names, .n_nodes = 2 };
	static struct plan_rank ranks[] = { { .node = 0 }, { .node = 1 } };
	static const struct plan plan = { .world = 2, .threads = 1, .ranks = ranks };
	const struct launch_request r = { .cluster = &cluster, .plan = &plan };
	struct relay_nodes all;
	struct buf out = BUF_INIT;
	struct err e;
	if (slurm_relay_nodes_open(&all, &r, &e))
		return;
	for (size_t i = 0; i < json_array_size(list); i++) {
		struct msg_helper_part m;
		if (msg_helper_part_read(json_array_get(list, i), &m, &e) ||
		    slurm_relay_nodes_put(&all, &all.list[i % 2], &m, &e) != 1)
			continue;
		if (slurm_relay_nodes_collect(&all, &out, &e) || all.complete ||
		    parts_count(out.len) < 1)
			abort();
	}
	buf_fini(&out);
	slurm_relay_nodes_close(&all);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	json_t *body = json_loadb((const char *)data, size, JSON_REJECT_DUPLICATES, NULL);
	if (json_is_object(body))
		read_start(body);
	else if (json_is_array(body))
		read_parts(body);
	json_decref(body);
	return 0;
}
