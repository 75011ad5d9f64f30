/* Reads the answers of every version. Any JSON gives either a result or an error. */
#include "launcher/slurm/rest/parts.h"

#include "topo/discover/scontrol.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* --- Members --- */

const json_t *slurm_rest_at(const json_t *o, const char *path)
{
	char name[64];
	while (o && *path) {
		size_t n = strcspn(path, "/");
		if (n >= sizeof name)
			return NULL;
		snprintf(name, sizeof name, "%.*s", (int)n, path);
		o = json_object_get(o, name);
		path += n + (path[n] == '/');
	}
	return o;
}

const char *slurm_rest_text(const json_t *o, const char *path)
{
	const json_t *at = slurm_rest_at(o, path);
	if (json_is_array(at))
		at = json_array_get(at, 0);
	const char *text = json_string_value(at);
	return text ? text : "";
}

bool slurm_rest_number(const json_t *o, const char *path, int64_t *out)
{
	const json_t *at = slurm_rest_at(o, path);
	if (json_is_object(at)) {
		if (!json_is_true(json_object_get(at, "set")) ||
		    json_is_true(json_object_get(at, "infinite")))
			return false;
		at = json_object_get(at, "number");
	}
	double v = json_number_value(at); /* 0 for anything else */
	if (!json_is_number(at) || !(v >= 0 && v < 4e18))
		return false;
	*out = json_is_integer(at) ? json_integer_value(at) : (int64_t)v;
	return true;
}

/* The number at the path; 0: unknown. */
static int64_t count_at(const json_t *o, const char *path)
{
	int64_t n = 0;
	return slurm_rest_number(o, path, &n) && n <= 1000000000 ? n : 0;
}

static time_t time_at(const json_t *o, const char *path)
{
	int64_t n = 0;
	return slurm_rest_number(o, path, &n) ? (time_t)n : 0;
}

/* The texts at the first of the two paths that has any, with commas between those of a list. A text
 * that does not fit is unknown. */
static void copy_text(const json_t *o, const char *path, const char *other, char *out, size_t size)
{
	struct buf all = BUF_INIT;
	const json_t *at = slurm_rest_at(o, path), *item;
	size_t i;
	if (!at && other)
		at = slurm_rest_at(o, other);
	if (json_is_string(at))
		buf_puts(&all, json_string_value(at));
	json_array_foreach(at, i, item) if (json_is_string(item))
		buf_printf(&all, "%s%s", all.len ? "," : "", json_string_value(item));
	const char *text = buf_str(&all);
	snprintf(out, size, "%s", strlen(text) < size && strcmp(text, "(null)") ? text : "");
	buf_fini(&all);
}

/* --- Versions --- */

int slurm_rest_read_version(const json_t *openapi, int *version, struct err *e)
{
	const json_t *paths = json_object_get(openapi, "paths"), *value;
	const char *key;
	int best = 0, newest = 0;
	json_object_foreach((json_t *)(uintptr_t)paths, key, value)
	{
		int n = 0, end = 0;
		if (sscanf(key, "/slurm/v0.0.%4d/job/submit%n", &n, &end) != 1 || !end)
			continue;
		newest = n > newest ? n : newest;
		if (n >= REST_OLDEST && n <= REST_NEWEST && n > best)
			best = n;
	}
	if (best) {
		*version = best;
		return 0;
	}
	if (!newest)
		return err_set(e, ERR_PROTO,
			       "this server describes no Slurm REST interface; is [slurm] rest the "
			       "address of "
			       "slurmrestd, and does it load an openapi plugin for slurmctld?");
	return err_set(e, ERR_UNSUPPORTED,
		       "the server speaks version v0.0.%d of Slurm's REST interface, and muster "
		       "knows v0.0.%d "
		       "to v0.0.%d; %s",
		       newest, REST_OLDEST, REST_NEWEST,
		       newest > REST_NEWEST
			       ? "update muster, or let slurmrestd load an older version too"
			       : "submit with Slurm's commands (slurm.rest empty)");
}

/* --- Jobs --- */

static const json_t *find_job(const json_t *answer, const char *id)
{
	const json_t *jobs = json_object_get(answer, "jobs"), *job;
	size_t i;
	json_array_foreach(jobs, i, job)
	{
		int64_t n = -1;
		if (slurm_rest_number(job, "job_id", &n) && n == strtoll(id, NULL, 10))
			return job;
	}
	return NULL;
}

int slurm_rest_read_job(const json_t *answer, const char *id, struct queue_job *out, struct err *e)
{
	const json_t *job = find_job(answer, id);
	if (!job)
		return err_set(
			e, ERR_NOTFOUND,
			"job %s: Slurm's answer does not contain it; it is unknown, or ended some "
			"minutes ago",
			id);
	*out = (struct queue_job){ .n_nodes = count_at(job, "node_count"),
				   .limit = count_at(job, "time_limit"),
				   .restarts = count_at(job, "restart_cnt"),
				   .submitted = time_at(job, "submit_time"),
				   .starts = time_at(job, "start_time"),
				   .ends = time_at(job, "end_time") };
	snprintf(out->id, sizeof out->id, "%s", id);
	snprintf(out->state, sizeof out->state, "%.31s", slurm_rest_text(job, "job_state"));
	copy_text(job, "state_reason", NULL, out->reason, sizeof out->reason);
	copy_text(job, "name", NULL, out->name, sizeof out->name);
	copy_text(job, "user_name", NULL, out->user, sizeof out->user);
	copy_text(job, "partition", NULL, out->partition, sizeof out->partition);
	copy_text(job, "nodes", NULL, out->nodes, sizeof out->nodes);
	copy_text(job, "comment", NULL, out->comment, sizeof out->comment);
	if (!strcmp(out->reason, "None"))
		out->reason[0] = '\0';
	if (!out->state[0])
		return err_set(e, ERR_PROTO,
			       "job %s: Slurm's answer does not say its state; is [slurm] rest the "
			       "address of "
			       "slurmrestd?",
			       id);
	return 0;
}

/* --- Partitions and nodes --- */

/* Which of the two paths a version has, it has also if it gives no number: -1 and null are "no limit". */
static int64_t limit_at(const json_t *o, const char *path, const char *old)
{
	int64_t n = count_at(o, path);
	return n ? n : count_at(o, old);
}

static void list_at(const json_t *o, const char *path, const char *old, char out[SITE_LIST])
{
	copy_text(o, path, old, out, SITE_LIST);
	if (!strcasecmp(out, "ALL"))
		out[0] = '\0';
}

static bool has_word(const json_t *list, const char *word)
{
	const json_t *item;
	size_t i;
	json_array_foreach(list, i,
			   item) if (json_is_string(item) &&
				     !strcasecmp(json_string_value(item), word)) return true;
	return false;
}

static bool read_partition(const json_t *o, struct site_partition *p)
{
	*p = (struct site_partition){
		.is_default = has_word(json_object_get(o, "flags"), "default"),
		.total = limit_at(o, "nodes/total", "total_nodes"),
		.min_nodes = limit_at(o, "minimums/nodes", "min nodes per job"),
		.max_nodes = limit_at(o, "maximums/nodes", "maximum_nodes_per_job"),
		.max_time = limit_at(o, "maximums/time", "max_time_limit") * 60,
		.max_cpus = limit_at(o, "maximums/cpus_per_node", "maximum_cpus_per_node"),
		.max_memory = limit_at(o, "maximums/partition_memory_per_node",
				       "maximum_memory_per_node"),
	};
	copy_text(o, "name", NULL, p->name, sizeof p->name);
	copy_text(o, "partition/state", "state", p->state, sizeof p->state);
	list_at(o, "accounts/allowed", "allowed_accounts", p->allow_accounts);
	list_at(o, "accounts/deny", "denied_accounts", p->deny_accounts);
	list_at(o, "qos/allowed", "allowed_qos", p->allow_qos);
	list_at(o, "qos/deny", "denied_qos", p->deny_qos);
	return p->name[0] != '\0';
}

static bool is_down(const json_t *o)
{
	static const char *const down[] = { "down", "drain",          "fail",    "error",   "maint",
					    "unk",  "not_responding", "drained", "draining" };
	static const char *const lists[] = { "state", "state_flags" };
	const char *state = slurm_rest_text(o, "state");
	for (size_t i = 0; i < sizeof down / sizeof *down; i++) {
		if (!strncasecmp(state, down[i], strlen(down[i])))
			return true;
		for (size_t k = 0; k < sizeof lists / sizeof *lists; k++)
			if (has_word(json_object_get(o, lists[k]), down[i]))
				return true;
	}
	return has_word(json_object_get(o, "state"), "maintenance");
}

static bool read_node(const json_t *o, struct site_nodes *n, char name[HOSTLIST_NAME])
{
	*n = (struct site_nodes){ .down = is_down(o),
				  .cpus = count_at(o, "cpus"),
				  .memory = count_at(o, "real_memory"),
				  .count = 1 };
	copy_text(o, "gres", NULL, n->gres, sizeof n->gres);
	copy_text(o, "features", NULL, n->features, sizeof n->features);
	copy_text(o, "name", NULL, name, HOSTLIST_NAME);
	n->gpus = topo_scontrol_gpus(n->gres, true, NULL);
	return name[0] && n->cpus > 0;
}

/* Nodes that are alike are counted together. */
static struct site_nodes *find_group(struct site *s, const struct site_nodes *n)
{
	for (int i = s->n_nodes; i-- > 0;) {
		struct site_nodes *g = &s->nodes[i];
		if (!strcmp(g->partition, n->partition) && g->down == n->down &&
		    g->cpus == n->cpus && g->memory == n->memory && !strcmp(g->gres, n->gres) &&
		    !strcmp(g->features, n->features))
			return g;
	}
	return NULL;
}

static int add_name(struct hostlist *h, const char *name)
{
	if (h->n == h->cap) {
		int cap = h->cap ? 2 * h->cap : 4;
		void *more = realloc(h->names, (size_t)cap * sizeof *h->names);
		if (!more)
			return -1;
		h->names = more;
		h->cap = cap;
	}
	snprintf(h->names[h->n++], sizeof *h->names, "%s", name);
	return 0;
}

static int add_group(struct site *s, int *cap, const struct site_nodes *n)
{
	if (s->n_nodes == *cap) {
		int more = *cap ? 2 * *cap : 16;
		void *all = realloc(s->nodes, (size_t)more * sizeof *s->nodes);
		if (!all)
			return -1;
		s->nodes = all;
		*cap = more;
	}
	s->nodes[s->n_nodes++] = *n;
	return 0;
}

/* A node is in several partitions. */
static int add_node(struct site *s, int *cap, const json_t *o)
{
	struct site_nodes n;
	char name[HOSTLIST_NAME];
	const json_t *partitions = json_object_get(o, "partitions"), *item;
	size_t i;
	if (!read_node(o, &n, name))
		return 0;
	json_array_foreach(partitions, i, item)
	{
		const char *partition = json_string_value(item);
		if (!partition || strlen(partition) >= sizeof n.partition)
			continue;
		strcpy(n.partition, partition);
		struct site_nodes *g = find_group(s, &n);
		if (g)
			g->count++;
		else if (add_group(s, cap, &n))
			return -1;
		if (add_name(&(g ? g : &s->nodes[s->n_nodes - 1])->names, name))
			return -1;
	}
	return 0;
}

int slurm_rest_read_site(const json_t *partitions, const json_t *nodes, struct site *out,
			 struct err *e)
{
	const json_t *list = json_object_get(partitions, "partitions"), *item;
	struct site s = { .n_nodes = 0, .default_unknown = true };
	int cap = 0, rc = 0;
	size_t i;
	if (!json_is_array(list) || !json_is_array(json_object_get(nodes, "nodes")))
		return err_set(e, ERR_PROTO,
			       "Slurm's answer lists no partitions or no nodes; is [slurm] rest "
			       "the address "
			       "of slurmrestd?");
	s.partitions = calloc(json_array_size(list) + 1, sizeof *s.partitions);
	json_array_foreach(list, i, item)
	{
		if (!s.partitions)
			break;
		s.n_partitions += read_partition(item, &s.partitions[s.n_partitions]);
	}
	for (int k = 0; k < s.n_partitions; k++)
		s.default_unknown &= !s.partitions[k].is_default;
	json_array_foreach(json_object_get(nodes, "nodes"), i, item) if (!rc)
		rc = add_node(&s, &cap, item);
	if (rc || !s.partitions) {
		slurm_site_free(&s);
		return err_set(e, ERR_NOMEM, "no memory for Slurm's partitions and nodes");
	}
	*out = s;
	return 0;
}
