#include "launcher/cli/suspect_nodes.h"

#include "base/clock.h"
#include "base/human.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The suspects of a list, as suspects_rate() orders them. */
struct rated {
	struct suspects list;
	struct suspect_node *nodes;
	int n;
};

static int read_rated(const struct suspects_place *place, const char *cluster, struct rated *out,
		      struct err *e)
{
	if (suspects_read(place, &out->list, e))
		return -1;
	out->n = suspects_rate(&out->list, cluster, clock_wall_s(), &out->nodes);
	if (out->n < 0) {
		suspects_free(&out->list);
		return err_set(e, ERR_NOMEM, "no memory for the list of suspect nodes");
	}
	while (out->n > 0 && out->nodes[out->n - 1].sure < SUSPECTS_SURE)
		out->n--;
	return 0;
}

static void free_rated(struct rated *r)
{
	free(r->nodes);
	suspects_free(&r->list);
}

/* "n3 is a suspect (62 %): it failed its check …" */
static void describe(const struct suspect_node *n, struct buf *out)
{
	char evidence[300];
	snprintf(evidence, sizeof evidence, "%s", n->latest->line.evidence);
	human_plain(evidence);
	buf_printf(out, "%s is a suspect (%.0f %%): %s", n->name, 100 * n->sure, evidence);
}

static int find_node(const struct cluster *c, const char *name)
{
	for (int i = 0; i < c->n_nodes; i++)
		if (!strcmp(c->nodes[i].name, name))
			return i;
	return -1;
}

/* --- A run -------------------------------------------------------------------------- */

static void warn(const struct err *e)
{
	fprintf(stderr, "muster: warning: the list of suspect nodes is not used: %s\n", e->text);
}

static void mark_nodes(const struct rated *r, const struct cluster *machines,
		       struct suspect_nodes *out)
{
	out->suspected = calloc((size_t)machines->n_nodes + 1, sizeof *out->suspected);
	for (int i = 0; i < r->n && out->suspected; i++) {
		struct buf text = BUF_INIT;
		int node = find_node(machines, r->nodes[i].name);
		if (node < 0)
			continue;
		out->suspected[node] = true;
		describe(&r->nodes[i], &text);
		fprintf(stderr, "muster: warning: %s\n", buf_str(&text));
		buf_fini(&text);
	}
}

void command_suspects_open(const struct job *job, bool slurm, const struct cluster *machines,
			   struct suspect_nodes *out)
{
	struct err e = ERR_INIT;
	struct rated r;
	*out = (struct suspect_nodes){ .cluster = suspects_cluster(slurm) };
	if (job->health.suspects == SUSPECTS_IGNORE)
		return;
	if (suspects_place(job->health.nodes_dir, &out->place, &e) ||
	    read_rated(&out->place, out->cluster, &r, &e)) {
		warn(&e);
		return;
	}
	out->kept = true;
	if (r.n)
		mark_nodes(&r, machines, out);
	free_rated(&r);
}

void command_suspects_close(struct suspect_nodes *s)
{
	free(s->suspected);
	s->suspected = NULL;
}

void command_suspects_last(const struct suspect_nodes *s, struct cluster *used)
{
	struct cluster_node *suspects = calloc((size_t)used->n_nodes + 1, sizeof *suspects);
	int n = 0, others = 0;
	for (int i = 0; s->suspected && suspects && i < used->n_nodes; i++) {
		if (s->suspected[i])
			suspects[n++] = used->nodes[i];
		else
			used->nodes[others++] = used->nodes[i];
	}
	if (n)
		memcpy(used->nodes + others, suspects, (size_t)n * sizeof *suspects);
	free(suspects);
}

/* --- A submission ------------------------------------------------------------------- */

/* Whether the job may get the node: Slurm knows it, and the job does not exclude it itself. */
static bool may_get(const struct job *job, const struct site *site, const char *name)
{
	struct hostlist out = { .n = 0 };
	struct err e = ERR_INIT;
	bool known = false, excluded = false;
	for (int i = 0; site && i < site->n_nodes && !known; i++)
		for (int k = 0; k < site->nodes[i].names.n && !known; k++)
			known = !strcmp(site->nodes[i].names.names[k], name);
	if (!known || (*job->slurm.exclude && topo_hostlist_expand(job->slurm.exclude, &out, &e)))
		return known;
	for (int i = 0; i < out.n && !excluded; i++)
		excluded = !strcmp(out.names[i], name);
	topo_hostlist_free(&out);
	return !excluded;
}

static int exclude(struct job *job, const char *name, struct err *e)
{
	size_t len = strlen(job->slurm.exclude), size = sizeof job->slurm.exclude;
	if (len + strlen(name) + 2 > size)
		return err_set(e, ERR_USAGE,
			       "[slurm] exclude has no room for all suspect nodes; set [health] "
			       "suspects = warn, or clear some (muster nodes clear)");
	snprintf(job->slurm.exclude + len, size - len, "%s%s", len ? "," : "", name);
	return 0;
}

static int exclude_nodes(struct job *job, const struct site *site, const struct rated *r,
			 struct buf *warnings, struct err *e)
{
	bool excludes = job->health.suspects == SUSPECTS_EXCLUDE;
	struct buf names = BUF_INIT;
	int rc = 0, n = 0;
	for (int i = 0; i < r->n && !rc; i++) {
		const char *name = r->nodes[i].name;
		if (!may_get(job, site, name))
			continue;
		describe(&r->nodes[i], warnings);
		buf_puts(warnings, excludes ? "; the job excludes it\n" : "\n");
		buf_printf(&names, "%s%s", n++ ? "," : "", name);
		if (excludes)
			rc = exclude(job, name, e);
	}
	if (n && !excludes)
		buf_printf(warnings,
			   "to keep the job away from %s: slurm.exclude=%s%s%s, or "
			   "health.suspects=exclude\n",
			   n > 1 ? "them" : "it", job->slurm.exclude,
			   *job->slurm.exclude ? "," : "", buf_str(&names));
	buf_fini(&names);
	return rc;
}

int command_suspects_exclude(struct job *job, const struct site *site, struct buf *warnings,
			     struct err *e)
{
	struct suspects_place place;
	struct rated r;
	struct err why = ERR_INIT;
	if (!site || job->health.suspects == SUSPECTS_IGNORE)
		return 0;
	if (suspects_place(job->health.nodes_dir, &place, &why) ||
	    read_rated(&place, suspects_cluster(true), &r, &why)) {
		buf_printf(warnings, "the list of suspect nodes is not used: %s\n", why.text);
		return 0;
	}
	int rc = exclude_nodes(job, site, &r, warnings, e);
	free_rated(&r);
	return rc;
}
