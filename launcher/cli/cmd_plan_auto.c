/* `muster plan --auto` and `--gpus`: finds the best layout for the keys that a job leaves to
 * muster, on one cluster or on several sizes of it. */
#include "launcher/cli/cmd_plan.h"

#include "launcher/cli/command.h"
#include "launcher/cli/output.h"
#include "launcher/fit.h"
#include "launcher/supervise/supervise.h"
#include "plan/show/search.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { POINTS_MAX = 24, DEVICES_MAX = 1000000 };

static int print_text(struct buf *text)
{
	int status = command_help(buf_str(text));
	buf_fini(text);
	return status;
}

int cmd_plan_auto(const struct job *job, const struct cluster *cluster, json_t *spares, bool json)
{
	json_t *doc;
	struct search *s = calloc(1, sizeof *s);
	struct err e = ERR_INIT;
	struct buf text = BUF_INIT;
	int status = 0,
	    rc = s ? search_run(job, cluster,
				&(struct search_options){ .finalists = SEARCH_FINALISTS,
							  .front = true },
				s, &e)
		   : err_set(&e, ERR_NOMEM, "no memory to search layouts; close other programs");
	if (rc) {
		launcher_spares_name(spares, &e);
		status = command_fail(&e);
	} else if (json) {
		doc = show_search_json(job, cluster, s);
		json_object_set(doc, "spares", spares); /* NULL is refused below */
		status = command_output_json(doc, STATUS_DONE);
	} else {
		show_search_print(job, cluster, s, &text);
		launcher_spares_print(spares, &text);
		status = print_text(&text);
	}
	free(s);
	return status;
}

static int read_range(const char *range, int *from, int *to, struct err *e)
{
	char *end;
	long a = strtol(range, &end, 10), b = a;
	if (end != range && !strncmp(end, "..", 2)) {
		char *start = end + 2;
		b = strtol(start, &end, 10);
		end = end == start ? (char *)range : end;
	}
	if (end == range || *end || a < 1 || b < a || b > DEVICES_MAX)
		return err_set(
			e, ERR_USAGE,
			"--gpus %.40s: write numbers of devices such as 64..4096, from 1 to %d",
			range, DEVICES_MAX);
	*from = (int)a;
	*to = (int)b;
	return 0;
}

/* Opens a cluster of at least that many devices: whole nodes of the machine that `spec` names. */
static int open_size(const char *spec, int devices, struct cluster *out, struct err *e)
{
	char name[512];
	static const char *const here[] = { "local", "auto", "slurm" };
	const char *colon = strrchr(spec, ':');
	int n = (int)(colon ? (size_t)(colon - spec) : strlen(spec));
	struct cluster one;
	for (size_t i = 0; i < sizeof here / sizeof *here; i++)
		if (!strcmp(spec, here[i]))
			return err_set(e, ERR_USAGE,
				       "--gpus: %s is a machine of one size; name a kind of node "
				       "by --cluster, such as dgx-h100",
				       spec);
	if (strchr(spec, '+'))
		return err_set(
			e, ERR_USAGE,
			"--gpus: %.200s is a mixture; name one kind of node, such as dgx-h100",
			spec);
	snprintf(name, sizeof name, "%.*s:1", n, spec);
	if (topo_cluster_open(name, 0, &one, e))
		return -1;
	int box = topo_cluster_devices(&one) / one.n_nodes;
	topo_cluster_free(&one);
	snprintf(name, sizeof name, "%.*s:%d", n, spec, (devices + box - 1) / box);
	return topo_cluster_open(name, 0, out, e);
}

static int fill_point(const struct job *job, const char *spec, int devices,
		      struct scaling_point *point, struct err *e)
{
	struct search *s = calloc(1, sizeof *s);
	struct cluster c;
	if (!s || open_size(spec, devices, &c, e)) {
		free(s);
		return -1;
	}
	int rc = search_run(job, &c, &(struct search_options){ .finalists = 8 }, s, e);
	*point = (struct scaling_point){ .devices = topo_cluster_devices(&c),
					 .fits = !rc,
					 .best = s->found[0],
					 .flops = topo_cluster_kind(&c, 0)->device_flops };
	topo_cluster_free(&c);
	free(s);
	return rc && e->code != ERR_NOFIT ? -1 : 0;
}

static int write_svg(const struct job *job, const char *spec, const struct scaling_point *points,
		     int n, const char *path, struct err *e)
{
	struct buf text = BUF_INIT;
	show_scaling_svg(job, spec, points, n, &text);
	return command_write_drawing(&text, path, e);
}

int cmd_plan_scaling(const struct job *job, const char *spec, const char *range, const char *svg,
		     bool json)
{
	struct scaling_point *points = calloc(POINTS_MAX, sizeof *points);
	struct err e = ERR_INIT;
	struct buf text = BUF_INIT;
	int from = 1, to = 0, n = 0,
	    rc = points ? read_range(range, &from, &to, &e)
			: err_set(&e, ERR_NOMEM, "no memory; close other programs");
	for (int64_t devices = from; !rc && devices <= to && n < POINTS_MAX; devices *= 2)
		if (!n || devices > points[n - 1].devices)
			rc = fill_point(job, spec, (int)devices, &points[n++], &e);
	rc = rc || (svg && write_svg(job, spec, points, n, svg, &e));
	int status = rc ? command_fail(&e) : 0;
	if (!rc && json)
		status = command_output_json(show_scaling_json(job, spec, points, n), STATUS_DONE);
	else if (!rc) {
		show_scaling_print(job, spec, points, n, &text);
		status = print_text(&text);
	}
	free(points);
	return status;
}
