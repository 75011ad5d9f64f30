/*
 * examined: the allocation as a cluster, with every node examined.
 *
 * For each node it uses the node's own report, otherwise what Slurm's controller reports about it,
 * otherwise the environment. The cluster records which of these sources was used.
 */
#include "topo/discover/command.h"
#include "topo/discover/internal.h"
#include "topo/discover/scontrol.h"

#include "base/human.h"
#include "topo/gpus.h"
#include "topo/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { SCONTROL_SECONDS = 10 };

/* The information about the allocation's nodes, in their order. */
struct findings {
	struct allocation a;
	struct slurm_node
		*controller;     /* [nodes]; an empty name: the controller does not report it */
	char (*boots)[32];       /* [nodes] */
	struct report *reports;  /* [nodes] */
	struct node_kind *kinds; /* [nodes] */
	bool *joins;             /* [nodes]: see topo_scontrol_topology */
	bool booted;             /* every node's boot is known */
	struct err trouble;      /* why the nodes could not be queried */
};

static void findings_free(struct findings *f)
{
	for (int i = 0; i < f->a.nodes.n; i++) {
		if (f->reports)
			topo_kind_free(&f->reports[i].kind);
		if (f->kinds)
			topo_kind_free(&f->kinds[i]);
	}
	free(f->controller);
	free(f->boots);
	free(f->reports);
	free(f->kinds);
	free(f->joins);
	topo_allocation_free(&f->a);
}

static int findings_init(struct findings *f, struct err *e)
{
	*f = (struct findings){ .trouble = ERR_INIT };
	if (topo_allocation_read(&f->a, e))
		return -1;
	size_t n = (size_t)f->a.nodes.n + 1;
	f->controller = calloc(n, sizeof *f->controller);
	f->boots = calloc(n, sizeof *f->boots);
	f->reports = calloc(n, sizeof *f->reports);
	f->kinds = calloc(n, sizeof *f->kinds);
	f->joins = calloc(n, sizeof *f->joins);
	if (f->controller && f->boots && f->reports && f->kinds && f->joins)
		return 0;
	findings_free(f);
	return err_set(e, ERR_NOMEM, "slurm: no memory for %d nodes", f->a.nodes.n);
}

/* Runs `scontrol --oneliner show WHAT [WHICH]`; *text is its answer. */
static int run_scontrol(const char *what, const char *which, struct buf *text, struct err *e)
{
	const char *const argv[] = { "scontrol", "--oneliner", "show", what, which, NULL };
	struct command c = { .argv = (char *const *)argv,
			     .timeout = SCONTROL_SECONDS,
			     .most = TOPOLOGY_MAX };
	return topo_command_run(&c, text, e);
}

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct slurm_node *)a)->name, ((const struct slurm_node *)b)->name);
}

static void ask_controller(struct findings *f)
{
	struct buf text = BUF_INIT;
	struct slurm_node *list = NULL, key;
	int n = 0;
	/* The list was parsed as host names, so no name in it starts like an option of srun. */
	const char *names = getenv("SLURM_JOB_NODELIST");
	if (names && *names != '-' && !run_scontrol("node", names, &text, NULL) &&
	    !topo_scontrol_nodes(buf_str(&text), &list, &n, NULL))
		qsort(list, (size_t)n, sizeof *list, by_name);
	f->booted = true;
	for (int i = 0; i < f->a.nodes.n; i++) {
		snprintf(key.name, sizeof key.name, "%s", f->a.nodes.names[i]);
		const struct slurm_node *at =
			n ? bsearch(&key, list, (size_t)n, sizeof *list, by_name) : NULL;
		if (at) {
			f->controller[i] = *at;
			memcpy(f->boots[i], at->boot, sizeof f->boots[i]);
		}
		f->booted &= f->boots[i][0] != '\0';
	}
	free(list);
	buf_fini(&text);
}

/* A CPU node has as many slots as the allocation has tasks there. They share its resources. */
static void share_node(struct node_kind *k, int devices)
{
	double part = devices > 0 ? (double)k->devices / devices : 1;
	k->device_memory *= part;
	k->device_flops *= part;
	k->device_bandwidth *= part;
	k->net_bandwidth *= part;
	k->devices = devices;
}

/* The GPU model by the type in Gres; if that has no type, by the first feature that names a model,
 * as in "ib,h100". */
static const struct gpu_model *model_of_gres(const struct slurm_node *t)
{
	char word[sizeof t->features];
	const struct gpu_model *m = topo_gpu_of_gres(t->gpu);
	for (const char *at = t->features; !m && !*t->gpu && *at;) {
		size_t len = strcspn(at, ",");
		snprintf(word, sizeof word, "%.*s", (int)len, at);
		m = len > 1 ? topo_gpu_of_gres(word) : NULL;
		at += len + (at[len] == ',');
	}
	return m;
}

/* Describes a node that did not report, from what the controller reports. */
static int kind_from_controller(const struct findings *f, int i, struct node_kind *k, struct err *e)
{
	const struct slurm_node *t = &f->controller[i];
	if (topo_allocation_kind(&f->a, i, k, e))
		return -1;
	if (!*t->name)
		return 0;
	if (t->sockets && t->cores && !f->a.cpus[i])
		k->cores = t->sockets * t->cores;
	k->packages = t->sockets;
	if (t->memory > 1e9) /* a smaller value means that the site has not configured it */
		k->memory = t->memory;
	const struct gpu_model *m = t->gpus ? model_of_gres(t) : NULL;
	if (m) {
		topo_gpu_fill(m, k);
		k->devices = t->gpus;
		k->switched = false;
		k->link_bandwidth = m->lanes * m->lane;
		snprintf(k->unsaid, sizeof k->unsaid,
			 "everything that Slurm does not report: the node was not examined");
	} else if (t->gpus) {
		snprintf(k->unsaid, sizeof k->unsaid,
			 "%d GPU%s that Slurm reports, type \"%s\": the node was not examined",
			 t->gpus, human_s(t->gpus), t->gpu);
	}
	return 0;
}

static int kind_of_node(struct findings *f, int i, struct node_kind *k, struct err *e)
{
	struct report *r = &f->reports[i];
	if (!r->there)
		return kind_from_controller(f, i, k, e);
	*k = r->kind;
	r->kind = (struct node_kind){ .devices = 0 };
	bool cpu = !strcmp(k->device, "cpu");
	int threads = f->controller[i].threads > 1 ? f->controller[i].threads : 1,
	    cores = f->a.cpus[i] / threads, gpus = f->controller[i].gpus;
	if (cpu && f->a.devices[i] > 0)
		share_node(k, f->a.devices[i]);
	if (cores > 0 && (cpu || cores < k->cores))
		k->cores = cores;
	size_t len = strlen(k->unsaid);
	if (cpu && gpus)
		snprintf(k->unsaid + len, sizeof k->unsaid - len,
			 "%s%d GPU%s that Slurm reports and no driver shows", len ? "; " : "", gpus,
			 human_s(gpus));
	return 0;
}

static void set_fabrics(const struct findings *f, struct cluster *c)
{
	int next = 0;
	for (int i = 0; i < c->n_nodes; i++)
		next = c->nodes[i].domain >= next ? c->nodes[i].domain + 1 : next;
	for (int i = 0; i < c->n_nodes; i++) {
		int same = 0;
		if (!f->reports[i].there || !*f->reports[i].fabric)
			continue;
		while (strcmp(f->reports[same].fabric, f->reports[i].fabric))
			same++;
		c->nodes[i].domain = same < i ? c->nodes[same].domain : next++;
	}
}

/* Records which nodes did not answer, and why. */
static void record_source(const struct findings *f, struct cluster *c)
{
	int silent = 0, first = -1;
	for (int i = c->n_nodes - 1; i >= 0; i--)
		if (!f->reports[i].there) {
			silent++;
			first = i;
		}
	if (!silent)
		snprintf(c->figures, sizeof c->figures, "each node, examined in one job step");
	else if (silent == c->n_nodes)
		snprintf(c->figures, sizeof c->figures,
			 "Slurm; the nodes could not be examined: %.200s", f->trouble.text);
	else
		snprintf(c->figures, sizeof c->figures,
			 "each node, examined in one job step; %.60s%s did not answer: what Slurm "
			 "reports of "
			 "%s",
			 c->nodes[first].name, silent > 1 ? " and others" : "",
			 silent > 1 ? "them" : "it");
}

static int build_cluster(struct findings *f, struct cluster *c, struct err *e)
{
	struct buf text = BUF_INIT;
	if (topo_cluster_alloc("slurm", f->a.nodes.n, f->a.nodes.n, c, e))
		return -1;
	for (int i = 0; i < c->n_nodes; i++) {
		snprintf(c->nodes[i].name, sizeof c->nodes[i].name, "%s", f->a.nodes.names[i]);
		if (kind_of_node(f, i, &f->kinds[i], e)) {
			c->n_kinds = 0;
			topo_cluster_free(c);
			return -1;
		}
		/* A block counts as one NVLink fabric if its nodes are of a kind that has one
		 * (GB200 and similar) and sent no report of their own. */
		f->joins[i] = !f->reports[i].there && !strncasecmp(f->controller[i].gpu, "gb", 2);
	}
	topo_kind_merge(f->kinds, c->n_nodes, c);
	if (!run_scontrol("topology", NULL, &text, NULL))
		topo_scontrol_topology(buf_str(&text), f->joins, c, NULL);
	buf_fini(&text);
	set_fabrics(f, c);
	record_source(f, c);
	return 0;
}

static bool all_answered(const struct findings *f)
{
	for (int i = 0; i < f->a.nodes.n; i++)
		if (!f->reports[i].there)
			return false;
	return true;
}

int topo_cluster_of_nodes(bool fresh, struct cluster *out, struct err *e)
{
	struct findings f;
	struct cluster c;
	struct err why = ERR_INIT;
	if (findings_init(&f, e))
		return -1;
	ask_controller(&f);
	struct cache_key key = { .nodes = &f.a.nodes, .boots = f.boots };
	topo_cache_share(f.controller, f.a.nodes.n, key.share);
	if (!fresh && f.booted && !topo_cache_read(&key, &c, &why)) {
		snprintf(c.figures, sizeof c.figures,
			 "each node, examined before; none has rebooted since");
		findings_free(&f);
		*out = c;
		return 0;
	}
	bool damaged = !fresh && why.code != ERR_NONE && why.code != ERR_NOTFOUND &&
		       why.code != ERR_STALE;
	if (topo_report_ask(&f.a.nodes, f.reports, &f.trouble) && f.trouble.code == ERR_NOMEM) {
		findings_free(&f);
		return err_set(e, f.trouble.code, "%s", f.trouble.text);
	}
	int rc = build_cluster(&f, &c, e);
	struct err lost = ERR_INIT;
	if (!rc && f.booted && all_answered(&f) && topo_cache_write(&key, &c, &lost)) {
		size_t len = strlen(c.figures);
		snprintf(c.figures + len, sizeof c.figures - len,
			 "; the result was not stored: %.120s", lost.text);
	}
	if (!rc && damaged) {
		size_t len = strlen(c.figures);
		snprintf(c.figures + len, sizeof c.figures - len,
			 "; the stored result is damaged and was not used: %.120s", why.text);
	}
	findings_free(&f);
	if (!rc)
		*out = c;
	return rc;
}
