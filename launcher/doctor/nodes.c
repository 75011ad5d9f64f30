#include "launcher/doctor/doctor.h"

#include "base/clock.h"
#include "base/numbers.h"
#include "launcher/launch.h"
#include "topo/discover/nodes.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TAG          "muster-doctor"
#define SECONDS      60.0 /* for the job step to start and for the slowest check */
#define CLOCKS_APART 5.0  /* seconds; includes the start of the job step on all nodes */

static json_t *check_this_node(const struct needs *n)
{
	struct findings f = { .rows = NULL };
	doctor_run(doctor_checks, n, DOCTOR_OF_NODE, &f);
	json_t *o = json_pack("{s:f, s:o}", "time", clock_wall_s(), "found",
			      doctor_findings_json(&f));
	doctor_findings_fini(&f);
	return o;
}

int doctor_report_node(const char *needs, struct buf *out, struct err *e)
{
	struct needs n;
	if (doctor_needs_read(needs, &n, e))
		return -1;
	json_t *o = check_this_node(&n);
	char *text = o ? json_dumps(o, JSON_COMPACT | JSON_ENSURE_ASCII) : NULL;
	json_decref(o);
	if (text)
		topo_nodes_print(TAG, text, strlen(text), out);
	bool bad = !text || buf_failed(out);
	free(text);
	return bad ? err_set(e, ERR_NOMEM, "no memory for the findings") : 0;
}

int doctor_check_own_node(const char *needs, struct buf *out, struct err *e)
{
	struct findings f = { .rows = NULL };
	struct needs n;
	const struct finding *first = NULL;
	char name[HOSTLIST_NAME];
	if (doctor_needs_read(needs, &n, e))
		return -1;
	doctor_run(doctor_checks, &n, DOCTOR_OF_NODE, &f);
	for (int i = 0; i < f.n && !first; i++)
		first = f.rows[i].level == FINDING_FAIL ? &f.rows[i] : NULL;
	topo_nodes_own_name(name);
	buf_printf(out, LAUNCH_CHECK_TAG "%s: ", name);
	if (first)
		buf_printf(out, "%s: %s%s%s\n", first->object, first->found,
			   *first->remedy ? "; " : "", first->remedy);
	else
		buf_puts(out, f.lost ? "no memory for the findings\n" : LAUNCH_CHECK_OK "\n");
	doctor_findings_fini(&f);
	return buf_failed(out) ? err_set(e, ERR_NOMEM, "no memory for the findings") : 0;
}

static void report_silent_node(struct findings *f, const char *why)
{
	f->check = "node";
	doctor_found_bad(f, FINDING_FAIL, "node",
			 "check its state with scontrol show node; muster must be in a folder "
			 "that this node can read",
			 "%s", why);
}

/* Reads a node's answer. time: the node's clock; -1: it is unknown. */
static void read_answer(struct doctor_node *node, struct buf *answer, double *time)
{
	json_t *o = json_loadb(buf_str(answer), answer->len, JSON_REJECT_DUPLICATES, NULL);
	const json_t *t = json_object_get(o, "time");
	*time = json_is_number(t) ? json_number_value(t) : -1;
	if (!answer->len)
		report_silent_node(&node->found, "it sent no answer");
	else if (doctor_findings_read(&node->found, json_object_get(o, "found")))
		report_silent_node(&node->found, "its answer cannot be read");
	json_decref(o);
}

/* Compares each node's clock with the median. If clocks differ, MUNGE refuses credentials and the
 * times of files are wrong. */
static void compare_clocks(struct doctor_node *nodes, const double *times, int n)
{
	double *sorted = malloc((size_t)n * sizeof *sorted);
	int known = 0;
	for (int i = 0; sorted && i < n; i++)
		if (times[i] >= 0)
			sorted[known++] = times[i];
	if (known)
		qsort(sorted, (size_t)known, sizeof *sorted, compare_double);
	for (int i = 0; known && i < n; i++) {
		double off = times[i] - sorted[known / 2];
		nodes[i].found.check = "clock";
		if (times[i] >= 0 && fabs(off) > CLOCKS_APART)
			doctor_found_bad(&nodes[i].found, FINDING_WARN, "clock",
					 "start chronyd or ntpd on this node",
					 "it is %.0f s %s the other nodes", fabs(off),
					 off > 0 ? "ahead of" : "behind");
	}
	free(sorted);
}

int doctor_check_nodes(const struct needs *n, const struct hostlist *names,
		       struct doctor_node *nodes, struct err *e)
{
	json_t *doc = doctor_needs_json(n);
	char *text = doc ? json_dumps(doc, JSON_COMPACT | JSON_ENSURE_ASCII) : NULL;
	struct buf *answers = calloc((size_t)names->n + 1, sizeof *answers);
	double *times = calloc((size_t)names->n + 1, sizeof *times);
	int rc = -1;
	json_decref(doc);
	if (!text || !answers || !times) {
		err_set(e, ERR_NOMEM, "no memory to check %d nodes", names->n);
	} else {
		const char *const words[] = { "doctor", "--report", text, NULL };
		rc = topo_nodes_ask(TAG, words, SECONDS, names, answers, e);
	}
	for (int i = 0; i < names->n && answers && times; i++) {
		snprintf(nodes[i].name, sizeof nodes[i].name, "%s", names->names[i]);
		if (!rc)
			read_answer(&nodes[i], &answers[i], &times[i]);
		buf_fini(&answers[i]);
	}
	if (!rc)
		compare_clocks(nodes, times, names->n);
	free(answers);
	free(times);
	free(text);
	return rc;
}
