/* Any bytes as what the burn-in of a node sends: no figure is added that the judgement cannot
 * use. */
#include "base/messages.h"
#include "launcher/supervise/burn_in_judge.h"

#include <math.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { NODES = 3 };

static void check_table(const struct burn_in_table *t)
{
	for (int i = 0; i < t->n; i++) {
		const struct burn_in_figure *f = &t->rows[i];
		if ((int)f->what < 0 || f->what >= BURN_IN_COUNT || f->node < 0 ||
		    f->node >= NODES || !isfinite(f->value) || f->value < 0 || !isfinite(f->own) ||
		    f->own < 0 || f->device < 0)
			abort();
	}
}

/* The message comes from each node, as one about the node and as one about a link. */
static void read_message(struct burn_in_table *t, const json_t *body)
{
	struct msg_burn_in_result m;
	if (msg_burn_in_result_read(body, &m, NULL))
		return;
	for (int node = 0; node < NODES; node++) {
		supervise_burn_in_read(t, node, -1, m.figures, NULL);
		supervise_burn_in_read(t, node, (node + 1) % NODES, m.figures, NULL);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char *const names[NODES] = { "n0", "n1", "n2" };
	static const int kinds[NODES];
	struct burn_in_table t;
	struct burn_in_findings found = { .of = NULL };
	json_t *body = json_loadb((const char *)data, size, 0, NULL);
	if (supervise_burn_in_table_init(&t, NODES, NULL))
		abort();
	read_message(&t, body);
	check_table(&t);
	if (supervise_burn_in_judge(&t, kinds, NODES, 2, &found, NULL))
		abort();
	for (int i = 0; i < found.n; i++) {
		struct buf text = BUF_INIT;
		supervise_burn_in_describe(&found.of[i], names, &text);
		buf_fini(&text);
	}
	supervise_burn_in_findings_fini(&found);
	supervise_burn_in_table_fini(&t);
	json_decref(body);
	return 0;
}
