/* Any bytes as the output of Slurm's controller and of a job step's tasks. The first byte chooses
 * the reader. */
#include "topo/discover/internal.h"
#include "topo/discover/scontrol.h"
#include "topo/draw/draw.h"
#include "topo/internal.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void topology(const char *text)
{
	static const bool joins[4] = { true, true, false, true };
	struct cluster c;
	struct buf out = BUF_INIT;
	if (topo_cluster_alloc("fuzz", 1, 4, &c, NULL))
		return;
	for (int i = 0; i < 4; i++)
		snprintf(c.nodes[i].name, sizeof c.nodes[i].name, "n%d", i + 1);
	if (!topo_scontrol_topology(text, joins, &c, NULL)) {
		for (int i = 0; i < 16; i++)
			topo_cluster_hops(&c, i / 4, i % 4);
		topo_draw_cluster(&c, true, &out);
		topo_draw_cluster_svg(&c, &out);
	}
	buf_fini(&out);
	topo_cluster_free(&c);
}

static void reports(const char *text)
{
	struct hostlist nodes = { .n = 0 };
	struct report r[3] = { { .there = false } };
	if (topo_hostlist_expand("n[1-3]", &nodes, NULL))
		return;
	topo_report_parse(text, &nodes, r, NULL);
	for (int i = 0; i < 3; i++)
		topo_kind_free(&r[i].kind);
	topo_hostlist_free(&nodes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct slurm_node *list;
	int n;
	char *text = size ? strndup((const char *)data + 1, size - 1) : NULL, type[TOPO_NAME] = "";
	if (!text)
		return 0;
	if (data[0] == 'n' && !topo_scontrol_nodes(text, &list, &n, NULL))
		free(list);
	else if (data[0] == 't')
		topology(text);
	else if (data[0] == 'r')
		reports(text);
	else if (data[0] == 'g')
		topo_scontrol_gpus(text, true, type);
	free(text);
	return 0;
}
