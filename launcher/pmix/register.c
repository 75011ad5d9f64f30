#include "launcher/pmix/register.h"

#include "launcher/pmix/gate.h"

#include <pmix.h>
#include <pmix_server.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* There are no callbacks: on one host libpmix itself serves fences and gets. */
static pmix_server_module_t module;

/* PMIx's name of the only node. It is not the host's own name, because libpmix 4.2.2 overruns its
 * stack if that has 57 or more letters. */
static const char host_name[] = "localhost";

static int set_pmix_error(struct err *e, const char *what, pmix_status_t rc)
{
	return err_set(e, ERR_INTERNAL, "PMIx server: %s failed: %s", what, PMIx_Error_string(rc));
}

static bool succeeded(pmix_status_t rc)
{
	return rc == PMIX_SUCCESS || rc == PMIX_OPERATION_SUCCEEDED;
}

static int start_server(const char *dir, struct err *e)
{
	/* Job data travels in messages, not in mapped files, so no file can be left behind. */
	setenv("PMIX_MCA_gds", "hash", 0);
	setenv("PMIX_MCA_ptl_base_if_include", "lo", 0);
	if (!local_gate_close_to_others())
		fprintf(stderr,
			"muster: this kernel does not report who connects to the PMIx server "
			"(no sock_diag), so other users of this host can delay the start "
			"of agents\n");
	const char *const keys[] = { PMIX_SERVER_TMPDIR, PMIX_SYSTEM_TMPDIR, PMIX_HOSTNAME };
	const char *const values[] = { dir, dir, host_name };
	enum { KEYS = sizeof keys / sizeof *keys };
	pmix_info_t info[KEYS];
	for (int i = 0; i < KEYS; i++)
		PMIX_INFO_LOAD(&info[i], keys[i], values[i], PMIX_STRING);
	pmix_status_t rc = PMIx_server_init(&module, info, KEYS);
	for (int i = 0; i < KEYS; i++)
		PMIX_INFO_DESTRUCT(&info[i]);
	return succeeded(rc) ? 0 : set_pmix_error(e, "PMIx_server_init", rc);
}

/* "0,1,2,…" */
static void format_rank_list(int world, struct buf *out)
{
	for (int r = 0; r < world; r++)
		buf_printf(out, "%s%d", r ? "," : "", r);
}

enum { RANK_KEYS = 5 };

static void load_rank(pmix_info_t *slot, int rank)
{
	pmix_data_array_t *array;
	PMIX_DATA_ARRAY_CREATE(array, RANK_KEYS, PMIX_INFO);
	pmix_info_t *info = array->array;
	pmix_rank_t global = (pmix_rank_t)rank;
	uint16_t local = (uint16_t)rank;
	uint32_t node = 0;
	PMIX_INFO_LOAD(&info[0], PMIX_RANK, &global, PMIX_PROC_RANK);
	PMIX_INFO_LOAD(&info[1], PMIX_LOCAL_RANK, &local, PMIX_UINT16);
	PMIX_INFO_LOAD(&info[2], PMIX_NODE_RANK, &local, PMIX_UINT16);
	PMIX_INFO_LOAD(&info[3], PMIX_NODEID, &node, PMIX_UINT32);
	PMIX_INFO_LOAD(&info[4], PMIX_HOSTNAME, host_name, PMIX_STRING);
	PMIX_INFO_LOAD(slot, PMIX_PROC_DATA, array, PMIX_DATA_ARRAY);
	PMIX_DATA_ARRAY_FREE(array);
}

/* A map of one node, or of the processes on it, in PMIx's own compressed form. */
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

static int register_job(const char *nspace, int world, struct err *e)
{
	static const char *const sizes[] = { PMIX_JOB_SIZE, PMIX_UNIV_SIZE, PMIX_LOCAL_SIZE,
					     PMIX_NODE_SIZE, PMIX_MAX_PROCS };
	enum { SIZES = sizeof sizes / sizeof *sizes, FIXED = SIZES + 5 };
	struct buf ranks = BUF_INIT;
	format_rank_list(world, &ranks);

	size_t n = 0, count = FIXED + (size_t)world;
	pmix_info_t *info;
	PMIX_INFO_CREATE(info, count);
	uint32_t size = (uint32_t)world, one = 1;
	for (size_t i = 0; i < SIZES; i++)
		PMIX_INFO_LOAD(&info[n++], sizes[i], &size, PMIX_UINT32);
	PMIX_INFO_LOAD(&info[n++], PMIX_NUM_NODES, &one, PMIX_UINT32);
	PMIX_INFO_LOAD(&info[n++], PMIX_JOBID, nspace, PMIX_STRING);
	PMIX_INFO_LOAD(&info[n++], PMIX_LOCAL_PEERS, buf_str(&ranks), PMIX_STRING);
	pmix_status_t rc = load_map(&info[n++], PMIX_NODE_MAP, host_name, PMIx_generate_regex);
	if (succeeded(rc))
		rc = load_map(&info[n++], PMIX_PROC_MAP, buf_str(&ranks), PMIx_generate_ppn);
	for (int r = 0; succeeded(rc) && r < world; r++)
		load_rank(&info[n++], r);
	if (succeeded(rc))
		rc = PMIx_server_register_nspace(nspace, world, info, n, NULL, NULL);
	PMIX_INFO_FREE(info, count);
	buf_fini(&ranks);
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

int local_register_ranks(const char *nspace, int world, const char *dir, struct buf *env,
			 struct err *e)
{
	pmix_nspace_t name = "";
	snprintf(name, sizeof name, "%s", nspace);
	if (start_server(dir, e) || register_job(name, world, e))
		return -1;
	for (int r = 0; r < world; r++)
		if (register_rank(name, r, env, e))
			return -1;
	return buf_failed(env)
		       ? err_set(e, ERR_NOMEM, "no memory for the environment of %d ranks", world)
		       : 0;
}
