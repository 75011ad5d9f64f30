#include "topo/discover/internal.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/hash.h"
#include "topo/discover/scontrol.h"
#include "topo/json.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define FORMAT      "muster topo cache 1"
#define AGE_MAX     86400.0 /* seconds */
#define BOOT_NEARLY 15.0

enum { PATH = 4096, ENTRY_MAX = 256 << 20 };

static int cache_folder(char path[PATH], struct err *e)
{
	const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
	int n = -1;
	if (cache && *cache == '/')
		n = snprintf(path, PATH, "%s/muster", cache);
	else if (home && *home == '/')
		n = snprintf(path, PATH, "%s/.cache/muster", home);
	if (n < 0 || n >= PATH - 64)
		return err_set(e, ERR_NOTFOUND,
			       "no folder for a cache: neither XDG_CACHE_HOME nor HOME names one");
	return 0;
}

/* The name of a cache file contains the FNV-1a hash of all node names. */
static int entry_path(const struct hostlist *nodes, char path[PATH], struct err *e)
{
	struct buf names = BUF_INIT;
	char dir[PATH];
	if (cache_folder(dir, e))
		return -1;
	for (int i = 0; i < nodes->n; i++)
		buf_printf(&names, "%s\n", nodes->names[i]);
	bool bad = buf_failed(&names);
	snprintf(path, PATH, "%.4000s/topo-%016llx.json", dir,
		 (unsigned long long)hash_text(buf_str(&names)));
	buf_fini(&names);
	return bad ? err_set(e, ERR_NOMEM, "no memory for the names of %d nodes", nodes->n) : 0;
}

/* Seconds since 1970 of a BootTime such as "2026-01-02T03:04:05"; -1: it is malformed. */
static double seconds_of(const char *boot)
{
	struct tm t = { .tm_isdst = 0 };
	if (sscanf(boot, "%4d-%2d-%2dT%2d:%2d:%2d", &t.tm_year, &t.tm_mon, &t.tm_mday, &t.tm_hour,
		   &t.tm_min, &t.tm_sec) != 6)
		return -1;
	t.tm_year -= 1900;
	t.tm_mon--;
	return (double)timegm(&t);
}

/* slurmd computes the boot time from the clock and the uptime each time, so it varies by a second
 * or two. */
static bool same_boot(const char *a, const char *b)
{
	double x = seconds_of(a), y = seconds_of(b);
	return x >= 0 && y >= 0 ? fabs(x - y) <= BOOT_NEARLY : !strcmp(a, b);
}

static bool same_nodes(json_t *list, const struct cache_key *key)
{
	const struct hostlist *nodes = key->nodes;
	if (!json_is_array(list) || json_array_size(list) != (size_t)nodes->n)
		return false;
	for (int i = 0; i < nodes->n; i++) {
		json_t *row = json_array_get(list, (size_t)i);
		const char *name = json_string_value(json_array_get(row, 0)),
			   *boot = json_string_value(json_array_get(row, 1));
		if (!name || !boot || strcmp(name, nodes->names[i]) ||
		    !same_boot(boot, key->boots[i]))
			return false;
	}
	return true;
}

static int read_entry(const char *path, json_t *doc, const struct cache_key *key,
		      struct cluster *out, struct err *e)
{
	const char *format = json_string_value(json_object_get(doc, "format"));
	double age = clock_wall_s() - json_number_value(json_object_get(doc, "asked"));
	if (!format || strcmp(format, FORMAT))
		return err_set(e, ERR_CORRUPT, "%s: no such cache", path);
	const char *share = json_string_value(json_object_get(doc, "share"));
	if (!share || strcmp(share, key->share))
		return err_set(e, ERR_STALE, "%s: of another share of these nodes", path);
	if (!same_nodes(json_object_get(doc, "nodes"), key))
		return err_set(e, ERR_STALE, "%s: a node has booted since", path);
	if (!(age >= 0 && age <= AGE_MAX))
		return err_set(e, ERR_STALE, "%s: older than a day", path);
	char *text = json_dumps(json_object_get(doc, "cluster"), JSON_COMPACT);
	int rc = text ? topo_json_read(path, text, strlen(text), out, e)
		      : err_set(e, ERR_CORRUPT, "%s: holds no cluster", path);
	free(text);
	if (!rc && out->n_nodes != key->nodes->n) {
		topo_cluster_free(out);
		rc = err_set(e, ERR_CORRUPT, "%s: holds another cluster", path);
	}
	return rc;
}

int topo_cache_read(const struct cache_key *key, struct cluster *out, struct err *e)
{
	char path[PATH];
	struct buf text = BUF_INIT;
	if (entry_path(key->nodes, path, e))
		return -1;
	if (access(path, F_OK))
		return err_set(e, ERR_NOTFOUND, "%s: not there", path);
	int rc = file_slurp(path, ENTRY_MAX, &text, e);
	json_error_t why;
	json_t *doc = rc ? NULL : json_loadb(buf_str(&text), text.len, 0, &why);
	if (!rc)
		rc = doc ? read_entry(path, doc, key, out, e)
			 : err_set(e, ERR_CORRUPT, "%s:%d: %s", path, why.line, why.text);
	json_decref(doc);
	buf_fini(&text);
	return rc;
}

int topo_cache_write(const struct cache_key *key, const struct cluster *c, struct err *e)
{
	char path[PATH], dir[PATH];
	if (entry_path(key->nodes, path, e) || cache_folder(dir, e) || file_make_dirs(dir, e))
		return -1;
	json_t *cluster = topo_json(c, e), *list = json_array();
	if (!cluster) {
		json_decref(list);
		return -1;
	}
	for (int i = 0; i < key->nodes->n; i++)
		json_array_append_new(list,
				      json_pack("[s, s]", key->nodes->names[i], key->boots[i]));
	json_t *doc = json_pack("{s:s, s:f, s:s, s:o, s:o}", "format", FORMAT, "asked",
				clock_wall_s(), "share", key->share, "nodes", list, "cluster",
				cluster);
	char *text = doc ? json_dumps(doc, JSON_COMPACT) : NULL;
	json_decref(doc);
	int rc = text ? file_replace(path, text, strlen(text), e)
		      : err_set(e, ERR_NOMEM, "%s: no memory for it", path);
	free(text);
	return rc;
}

static const char *environment_text(const char *name)
{
	const char *text = getenv(name);
	return text ? text : "";
}

/* Whether the allocation has all GPUs of each node. Slurm gives one number for all nodes, so a node
 * with another number of GPUs may be shared with other jobs. */
static bool has_whole_nodes(const struct slurm_node *nodes, int n, int gpus)
{
	for (int i = 0; i < n; i++)
		if (nodes[i].gpus != gpus)
			return false;
	return true;
}

/* A hash of the CPUs and tasks of each node, because the lists may be long. If the allocation may
 * have only some of a node's GPUs, the job's id is included, because another job may have
 * others. */
void topo_cache_share(const struct slurm_node *nodes, int n, char out[CACHE_SHARE])
{
	struct buf text = BUF_INIT;
	int gpus = topo_scontrol_gpus(environment_text("SLURM_GPUS_ON_NODE"), false, NULL);
	bool whole = !gpus || has_whole_nodes(nodes, n, gpus);
	buf_printf(&text, "%s %s %s %s", environment_text("SLURM_JOB_CPUS_PER_NODE"),
		   environment_text("SLURM_TASKS_PER_NODE"), environment_text("SLURM_GPUS_ON_NODE"),
		   whole ? "" : environment_text("SLURM_JOB_ID"));
	snprintf(out, CACHE_SHARE, "%016llx", (unsigned long long)hash_text(buf_str(&text)));
	buf_fini(&text);
}
