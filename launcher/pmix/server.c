#include "launcher/pmix/server.h"

#include "base/buf.h"
#include "base/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pmix.h>
#include <pmix_server.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* libpmix's server is one a process, and so is this. */
static struct {
	bool up;
	char dir[PATH_MAX];
} server;

/* Nothing is asked of the host: wire-up, fences and gets inside one host are libpmix's own. */
static pmix_server_module_t module;

static int fail(struct err *e, const char *what, pmix_status_t rc)
{
	return err_set(e, ERR_INTERNAL, "PMIx server: %s failed: %s", what, PMIx_Error_string(rc));
}

static bool good(pmix_status_t rc)
{
	return rc == PMIX_SUCCESS || rc == PMIX_OPERATION_SUCCEEDED;
}

/* Removes what the folder at `parent`/`name` holds, and itself; follows no link. */
static void remove_tree(int parent, const char *name)
{
	int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	for (struct dirent *at; d && (at = readdir(d));) {
		if (!strcmp(at->d_name, ".") || !strcmp(at->d_name, ".."))
			continue;
		if (unlinkat(fd, at->d_name, 0) && (errno == EISDIR || errno == EPERM))
			remove_tree(fd, at->d_name);
	}
	if (d)
		closedir(d);
	else if (fd >= 0)
		close(fd);
	unlinkat(parent, name, AT_REMOVEDIR);
}

static int make_dir(const char *run_dir, struct err *e)
{
	if (snprintf(server.dir, sizeof server.dir, "%s/pmix", run_dir) >= (int)sizeof server.dir)
		return err_set(e, ERR_USAGE, "%s: the path is too long; choose a shorter run_dir or name", run_dir);
	remove_tree(AT_FDCWD, server.dir); /* of a launcher that was killed */
	return file_make_dirs(server.dir, e);
}

static int start(const char *run_dir, struct err *e)
{
	if (server.up)
		return 0;
	if (make_dir(run_dir, e))
		return -1;
	/* Job data in messages rather than in mapped files: nothing to leave behind. */
	setenv("PMIX_MCA_gds", "hash", 0);
	setenv("PMIX_MCA_ptl_base_if_include", "lo", 0);
	pmix_info_t info[2];
	PMIX_INFO_LOAD(&info[0], PMIX_SERVER_TMPDIR, server.dir, PMIX_STRING);
	PMIX_INFO_LOAD(&info[1], PMIX_SYSTEM_TMPDIR, server.dir, PMIX_STRING);
	pmix_status_t rc = PMIx_server_init(&module, info, 2);
	PMIX_INFO_DESTRUCT(&info[0]);
	PMIX_INFO_DESTRUCT(&info[1]);
	if (!good(rc)) {
		remove_tree(AT_FDCWD, server.dir);
		return fail(e, "PMIx_server_init", rc);
	}
	server.up = true;
	return 0;
}

void server_shut(void)
{
	if (!server.up)
		return;
	PMIx_server_finalize();
	remove_tree(AT_FDCWD, server.dir);
	server.up = false;
}

/* "0,1,2,…" */
static void rank_list(int world, struct buf *out)
{
	for (int r = 0; r < world; r++)
		buf_printf(out, "%s%d", r ? "," : "", r);
}

enum { RANK_KEYS = 5 };

static void load_rank(pmix_info_t *slot, int rank, const char *host)
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
	PMIX_INFO_LOAD(&info[4], PMIX_HOSTNAME, host, PMIX_STRING);
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
	static const char *const sizes[] = { PMIX_JOB_SIZE, PMIX_UNIV_SIZE, PMIX_LOCAL_SIZE, PMIX_NODE_SIZE, PMIX_MAX_PROCS };
	enum { SIZES = sizeof sizes / sizeof *sizes, FIXED = SIZES + 5 };
	char host[256] = "localhost";
	gethostname(host, sizeof host - 1);
	struct buf ranks = BUF_INIT;
	rank_list(world, &ranks);

	size_t n = 0, count = FIXED + (size_t)world;
	pmix_info_t *info;
	PMIX_INFO_CREATE(info, count);
	uint32_t size = (uint32_t)world, one = 1;
	for (size_t i = 0; i < SIZES; i++)
		PMIX_INFO_LOAD(&info[n++], sizes[i], &size, PMIX_UINT32);
	PMIX_INFO_LOAD(&info[n++], PMIX_NUM_NODES, &one, PMIX_UINT32);
	PMIX_INFO_LOAD(&info[n++], PMIX_JOBID, nspace, PMIX_STRING);
	PMIX_INFO_LOAD(&info[n++], PMIX_LOCAL_PEERS, buf_str(&ranks), PMIX_STRING);
	pmix_status_t rc = load_map(&info[n++], PMIX_NODE_MAP, host, PMIx_generate_regex);
	if (good(rc))
		rc = load_map(&info[n++], PMIX_PROC_MAP, buf_str(&ranks), PMIx_generate_ppn);
	for (int r = 0; good(rc) && r < world; r++)
		load_rank(&info[n++], r, host);
	if (good(rc))
		rc = PMIx_server_register_nspace(nspace, world, info, n, NULL, NULL);
	PMIX_INFO_FREE(info, count);
	buf_fini(&ranks);
	return good(rc) ? 0 : fail(e, "PMIx_server_register_nspace", rc);
}

int server_register(const char nspace[SERVER_NSPACE_MAX], int world, const char *run_dir, struct err *e)
{
	pmix_nspace_t name = "";
	snprintf(name, sizeof name, "%s", nspace);
	if (start(run_dir, e) || register_job(name, world, e))
		return -1;
	for (int r = 0; r < world; r++) {
		pmix_proc_t proc;
		PMIX_LOAD_PROCID(&proc, name, (pmix_rank_t)r);
		/* No callback: it returns once the rank may connect. */
		pmix_status_t rc = PMIx_server_register_client(&proc, getuid(), getgid(), NULL, NULL, NULL);
		if (!good(rc)) {
			server_forget(nspace);
			return fail(e, "PMIx_server_register_client", rc);
		}
	}
	return 0;
}

int server_env(const char nspace[SERVER_NSPACE_MAX], int rank, char ***env, struct err *e)
{
	pmix_proc_t proc;
	PMIX_LOAD_PROCID(&proc, nspace, (pmix_rank_t)rank);
	char **out = NULL;
	pmix_status_t rc = PMIx_server_setup_fork(&proc, &out);
	if (!good(rc)) {
		server_env_free(out);
		return fail(e, "PMIx_server_setup_fork", rc);
	}
	*env = out;
	return 0;
}

void server_env_free(char **env)
{
	for (char **at = env; at && *at; at++)
		free(*at);
	free(env);
}

void server_forget(const char nspace[SERVER_NSPACE_MAX])
{
	pmix_nspace_t name = "";
	snprintf(name, sizeof name, "%s", nspace);
	PMIx_server_deregister_nspace(name, NULL, NULL);
}
