#include "topo/discover/internal.h"
#include "topo/discover/nodes.h"
#include "topo/json.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TAG     "muster-topo"
#define SECONDS 20.0

int topo_report_print(const struct cluster *local, const char *fabric, struct buf *out,
		      struct err *e)
{
	json_t *doc = topo_json(local, e);
	if (!doc)
		return -1;
	struct buf text = BUF_INIT;
	char *dump = json_dumps(doc, JSON_COMPACT | JSON_ENSURE_ASCII);
	json_decref(doc);
	buf_printf(&text, "%s %s", *fabric ? fabric : "-", dump ? dump : "");
	topo_nodes_print(TAG, buf_str(&text), text.len, out);
	bool bad = !dump || buf_failed(&text) || buf_failed(out);
	free(dump);
	buf_fini(&text);
	return bad ? err_set(e, ERR_NOMEM, "this host: no memory for its report") : 0;
}

static void take_report(const char *node, struct buf *answer, struct report *r)
{
	const char *text = buf_str(answer), *blank = strchr(text, ' ');
	struct cluster c;
	if (!blank || (size_t)(blank - text) >= sizeof r->fabric)
		return;
	if (topo_json_read(node, blank + 1, strlen(blank + 1), &c, NULL))
		return;
	if (c.n_kinds == 1 && c.n_nodes == 1) {
		r->there = true;
		r->kind = c.kinds[0];
		c.kinds[0] = (struct node_kind){ .devices = 0 };
		snprintf(r->fabric, sizeof r->fabric, "%.*s",
			 text[0] == '-' ? 0 : (int)(blank - text), text);
	}
	topo_cluster_free(&c);
}

static void take_reports(const struct hostlist *nodes, struct buf *answers, struct report *reports)
{
	for (int i = 0; i < nodes->n; i++) {
		take_report(nodes->names[i], &answers[i], &reports[i]);
		buf_fini(&answers[i]);
	}
	free(answers);
}

int topo_report_parse(const char *text, const struct hostlist *nodes, struct report *reports,
		      struct err *e)
{
	struct buf *answers = calloc((size_t)nodes->n + 1, sizeof *answers);
	if (!answers)
		return err_set(e, ERR_NOMEM, "no memory for the reports of %d nodes", nodes->n);
	int rc = topo_nodes_gather(TAG, text, nodes, answers, e);
	take_reports(nodes, answers, reports);
	return rc;
}

int topo_report_ask(const struct hostlist *nodes, struct report *reports, struct err *e)
{
	static const char *const words[] = { "topo", "--report", NULL };
	struct buf *answers = calloc((size_t)nodes->n + 1, sizeof *answers);
	int told = 0;
	if (!answers)
		return err_set(e, ERR_NOMEM, "no memory for the reports of %d nodes", nodes->n);
	int rc = topo_nodes_ask(TAG, words, SECONDS, nodes, answers, e);
	take_reports(nodes, answers, reports);
	for (int i = 0; i < nodes->n; i++)
		told += reports[i].there;
	return rc || told ? rc
			  : err_set(e, ERR_PROTO,
				    "the job step that examines the nodes gave no readable answer");
}
