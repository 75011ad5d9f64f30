#include "launcher/pmix/register.h"

#include "launcher/pmix/exchange.h"
#include "launcher/pmix/gate.h"

#include <pmix.h>
#include <pmix_server.h>
#include <stdbool.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* On one node libpmix itself serves fences and gets. Several nodes exchange what their ranks have put
 * at each fence, so that gets need no callback either. */
static pmix_server_module_t module;

enum { NODE_NAME = 24 };

/* PMIx's name of a node. It is not the host's own name, because libpmix 4.2.2 overruns its stack if
 * that has 57 or more letters. */
static void name_node(int node, char out[NODE_NAME])
{
	snprintf(out, NODE_NAME, "node%d", node);
}

static int node_of(const struct local_group *g, int rank)
{
	return g->node_of ? g->node_of[rank] : g->node;
}

static int count_nodes(const struct local_group *g)
{
	int last = 0;
	for (int r = 0; r < g->world; r++)
		last = node_of(g, r) > last ? node_of(g, r) : last;
	return last + 1;
}

static int count_own_ranks(const struct local_group *g)
{
	int n = 0;
	for (int r = 0; r < g->world; r++)
		n += node_of(g, r) == g->node;
	return n;
}

static int set_pmix_error(struct err *e, const char *what, pmix_status_t rc)
{
	return err_set(e, ERR_INTERNAL, "PMIx server: %s failed: %s", what, PMIx_Error_string(rc));
}

static bool succeeded(pmix_status_t rc)
{
	return rc == PMIX_SUCCESS || rc == PMIX_OPERATION_SUCCEEDED;
}

/* Without this entry libpmix refuses all requests for job control, also those that it serves itself:
 * files to remove when a client ends. None of the others reaches a client of muster. */
static pmix_status_t refuse_control(const pmix_proc_t *asker, const pmix_proc_t targets[],
				    size_t n_targets, const pmix_info_t directives[],
				    size_t n_directives, pmix_info_cbfunc_t done, void *arg)
{
	(void)asker;
	(void)targets;
	(void)n_targets;
	(void)directives;
	(void)n_directives;
	(void)done;
	(void)arg;
	return PMIX_ERR_NOT_SUPPORTED;
}

static int start_server(const struct local_group *g, const char *dir, struct err *e)
{
	char host[NODE_NAME];
	/* Job data travels in messages, not in mapped files, so no file can be left behind. */
	setenv("PMIX_MCA_gds", "hash", 0);
	setenv("PMIX_MCA_ptl_base_if_include", "lo", 0);
	if (!local_gate_close_to_others())
		fprintf(stderr,
			"muster: this kernel does not report who connects to the PMIx server "
			"(no sock_diag), so other users of this host can delay the start "
			"of agents\n");
	if (local_exchange_open(e))
		return -1;
	module.job_control = refuse_control;
	if (count_nodes(g) > 1)
		module.fence_nb = local_exchange_fence;
	name_node(g->node, host);
	const char *const keys[] = { PMIX_SERVER_TMPDIR, PMIX_SYSTEM_TMPDIR, PMIX_HOSTNAME };
	const char *const values[] = { dir, dir, host };
	enum { KEYS = sizeof keys / sizeof *keys };
	pmix_info_t info[KEYS];
	for (int i = 0; i < KEYS; i++)
		PMIX_INFO_LOAD(&info[i], keys[i], values[i], PMIX_STRING);
	pmix_status_t rc = PMIx_server_init(&module, info, KEYS);
	for (int i = 0; i < KEYS; i++)
		PMIX_INFO_DESTRUCT(&info[i]);
	return succeeded(rc) ? 0 : set_pmix_error(e, "PMIx_server_init", rc);
}

/* The ranks of a node: "0,1,2,…" */
static void format_rank_list(const struct local_group *g, int node, struct buf *out)
{
	for (int r = 0, n = 0; r < g->world; r++)
		if (node_of(g, r) == node)
			buf_printf(out, "%s%d", n++ ? "," : "", r);
}

enum { RANK_KEYS = 5 };

static void load_rank(pmix_info_t *slot, const struct local_group *g, int rank, int place)
{
	pmix_data_array_t *array;
	char host[NODE_NAME];
	PMIX_DATA_ARRAY_CREATE(array, RANK_KEYS, PMIX_INFO);
	pmix_info_t *info = array->array;
	pmix_rank_t global = (pmix_rank_t)rank;
	uint16_t local = (uint16_t)place;
	uint32_t node = (uint32_t)node_of(g, rank);
	name_node(node_of(g, rank), host);
	PMIX_INFO_LOAD(&info[0], PMIX_RANK, &global, PMIX_PROC_RANK);
	PMIX_INFO_LOAD(&info[1], PMIX_LOCAL_RANK, &local, PMIX_UINT16);
	PMIX_INFO_LOAD(&info[2], PMIX_NODE_RANK, &local, PMIX_UINT16);
	PMIX_INFO_LOAD(&info[3], PMIX_NODEID, &node, PMIX_UINT32);
	PMIX_INFO_LOAD(&info[4], PMIX_HOSTNAME, host, PMIX_STRING);
	PMIX_INFO_LOAD(slot, PMIX_PROC_DATA, array, PMIX_DATA_ARRAY);
	PMIX_DATA_ARRAY_FREE(array);
}

/* One PROC_DATA per rank, in the order of the ranks. */
static int load_ranks(pmix_info_t *slots, const struct local_group *g, int nodes, struct err *e)
{
	int *places = calloc((size_t)nodes, sizeof *places); /* the next local rank of each node */
	if (!places)
		return err_set(e, ERR_NOMEM, "PMIx server: no memory for %d nodes", nodes);
	for (int r = 0; r < g->world; r++)
		load_rank(&slots[r], g, r, places[node_of(g, r)]++);
	free(places);
	return 0;
}

/* A map in PMIx's own compressed form. */
static pmix_status_t load_map(pmix_info_t *slot, const char *key, const char *plain,
			      pmix_status_t (*generate)(const char *, char **))
{
	char *regex = NULL;
	pmix_status_t rc = generate(plain, &regex);
	if (rc != PMIX_SUCCESS)
		return rc;
	PMIX_INFO_LOAD(slot, key, regex, PMIX_REGEX);
	free(regex);
	return rc;
}

/* The names of the nodes, and the ranks on each. */
static pmix_status_t load_maps(pmix_info_t *slots, const struct local_group *g, int nodes)
{
	struct buf names = BUF_INIT, ranks = BUF_INIT;
	char host[NODE_NAME];
	for (int i = 0; i < nodes; i++) {
		name_node(i, host);
		buf_printf(&names, "%s%s", i ? "," : "", host);
		buf_puts(&ranks, i ? ";" : "");
		format_rank_list(g, i, &ranks);
	}
	pmix_status_t rc = buf_failed(&names) || buf_failed(&ranks) ? PMIX_ERR_NOMEM : PMIX_SUCCESS;
	if (succeeded(rc))
		rc = load_map(&slots[0], PMIX_NODE_MAP, buf_str(&names), PMIx_generate_regex);
	if (succeeded(rc))
		rc = load_map(&slots[1], PMIX_PROC_MAP, buf_str(&ranks), PMIx_generate_ppn);
	buf_fini(&names);
	buf_fini(&ranks);
	return rc;
}

static size_t load_sizes(pmix_info_t *slots, const struct local_group *g, int nodes)
{
	uint32_t world = (uint32_t)g->world, local = (uint32_t)count_own_ranks(g);
	const struct {
		const char *key;
		uint32_t value;
	} sizes[] = { { PMIX_JOB_SIZE, world },  { PMIX_UNIV_SIZE, world },
		      { PMIX_MAX_PROCS, world }, { PMIX_LOCAL_SIZE, local },
		      { PMIX_NODE_SIZE, local }, { PMIX_NUM_NODES, (uint32_t)nodes },
		      { PMIX_JOB_NUM_APPS, 1 } };
	enum { SIZES = sizeof sizes / sizeof *sizes };
	for (size_t i = 0; i < SIZES; i++)
		PMIX_INFO_LOAD(&slots[i], sizes[i].key, &sizes[i].value, PMIX_UINT32);
	return SIZES;
}

/* Where a library may keep files for the session and the job. This server's owner removes the folder, also
 * if ranks are killed. */
static size_t load_folders(pmix_info_t *slots, const char *dir)
{
	bool removed = true;
	char path[PATH_MAX]; /* a program may have changed its working directory */
	if (!realpath(dir, path))
		return 0;
	PMIX_INFO_LOAD(&slots[0], PMIX_TMPDIR, path, PMIX_STRING);
	PMIX_INFO_LOAD(&slots[1], PMIX_NSDIR, path, PMIX_STRING);
	PMIX_INFO_LOAD(&slots[2], PMIX_TDIR_RMCLEAN, &removed, PMIX_BOOL);
	return 3;
}

static int register_job(const char *nspace, const struct local_group *g, const char *dir,
			struct err *e)
{
	enum { FIXED = 14 }; /* entries that are not about one rank */
	int nodes = count_nodes(g);
	struct buf ranks = BUF_INIT;
	size_t n, count = FIXED + (size_t)g->world;
	pmix_info_t *info;
	PMIX_INFO_CREATE(info, count);
	n = load_sizes(info, g, nodes);
	n += load_folders(&info[n], dir);
	format_rank_list(g, g->node, &ranks);
	PMIX_INFO_LOAD(&info[n++], PMIX_JOBID, nspace, PMIX_STRING);
	PMIX_INFO_LOAD(&info[n++], PMIX_LOCAL_PEERS, buf_str(&ranks), PMIX_STRING);
	pmix_status_t rc = load_maps(&info[n], g, nodes);
	int failed = succeeded(rc) && load_ranks(&info[n + 2], g, nodes, e);
	n += 2 + (size_t)g->world;
	if (succeeded(rc) && !failed)
		rc = PMIx_server_register_nspace(nspace, count_own_ranks(g), info, n, NULL, NULL);
	PMIX_INFO_FREE(info, count);
	buf_fini(&ranks);
	if (failed)
		return -1;
	return succeeded(rc) ? 0 : set_pmix_error(e, "PMIx_server_register_nspace", rc);
}

/* Registers one rank and appends its environment. */
static int register_rank(const char *nspace, int rank, struct buf *env, struct err *e)
{
	pmix_proc_t proc;
	char **words = NULL;
	PMIX_LOAD_PROCID(&proc, nspace, (pmix_rank_t)rank);
	/* Without a callback the call returns when the rank may connect. */
	pmix_status_t rc = PMIx_server_register_client(&proc, getuid(), getgid(), NULL, NULL, NULL);
	if (!succeeded(rc))
		return set_pmix_error(e, "PMIx_server_register_client", rc);
	rc = PMIx_server_setup_fork(&proc, &words);
	if (!succeeded(rc))
		return set_pmix_error(e, "PMIx_server_setup_fork", rc);
	for (char **at = words; at && *at; at++) {
		buf_add(env, *at, strlen(*at) + 1);
		free(*at);
	}
	free(words);
	buf_add(env, "", 1);
	return 0;
}

int local_register_ranks(const struct local_group *g, const char *dir, struct buf *env,
			 struct err *e)
{
	pmix_nspace_t name = "";
	snprintf(name, sizeof name, "%s", g->nspace);
	if (start_server(g, dir, e) || register_job(name, g, dir, e))
		return -1;
	for (int r = 0; r < g->world; r++)
		if (node_of(g, r) == g->node && register_rank(name, r, env, e))
			return -1;
	return buf_failed(env) ? err_set(e, ERR_NOMEM, "no memory for the environment of %d ranks",
					 g->world)
			       : 0;
}

void local_unregister_ranks(const struct local_group *g)
{
	pmix_proc_t proc;
	PMIX_LOAD_PROCID(&proc, g->nspace, PMIX_RANK_WILDCARD);
	for (int r = 0; r < g->world; r++) {
		if (node_of(g, r) != g->node)
			continue;
		proc.rank = (pmix_rank_t)r;
		PMIx_server_deregister_client(&proc, NULL, NULL);
	}
	PMIx_server_deregister_nspace(proc.nspace, NULL, NULL);
}
