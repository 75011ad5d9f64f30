/* program_place: the environment of the task. */
#include "agent/program_inner.h"

#include "agent/task/devices.h"
#include "agent/task/environment.h"
#include "base/file.h"
#include "base/run_paths.h"
#include "base/words.h"
#include "plan/spec/layout.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

extern char **environ;

/* Folders of muster_client.py from that of this program: installed, and in the source tree. */
static const char *const client_dirs[] = { "../../share/muster/python", "../agent/client" };

struct texts {
	char run[PATH_MAX], traces[RUN_PATH], error[RUN_PATH], client[PATH_MAX];
	char address[NET_ADDR_MAX];
};

/* The folder of muster_client.py; "": it is not there. */
static void find_client(char out[PATH_MAX])
{
	char self[PATH_MAX], path[2 * PATH_MAX], *slash;
	ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
	out[0] = '\0';
	if (n <= 0)
		return;
	self[n] = '\0';
	if (!(slash = strrchr(self, '/')))
		return;
	*slash = '\0';
	for (size_t i = 0; i < sizeof client_dirs / sizeof *client_dirs; i++) {
		snprintf(path, sizeof path, "%s/%s/muster_client.py", self, client_dirs[i]);
		if (access(path, R_OK))
			continue;
		*strrchr(path, '/') = '\0';
		if (!realpath(path, out))
			out[0] = '\0';
		return;
	}
}

static int make_folders(const struct program *p, struct texts *t, struct err *e)
{
	const struct msg_welcome *w = p->welcome;
	if (!realpath(w->run, t->run))
		return err_errno(e, ERR_IO, "%s: the run folder cannot be found", w->run);
	run_path_trace(t->traces, t->run, (uint32_t)w->generation);
	run_path_error(t->error, t->traces, w->rank);
	return file_make_dirs(t->traces, e);
}

/* Programs take an IPv6 address without brackets. */
static void copy_address(const struct program *p, char out[NET_ADDR_MAX])
{
	const char *from = p->meeting.address;
	size_t n = strlen(from);
	if (n > 1 && *from == '[' && from[n - 1] == ']')
		snprintf(out, NET_ADDR_MAX, "%.*s", (int)n - 2, from + 1);
	else
		snprintf(out, NET_ADDR_MAX, "%s", from);
}

/* For the client's plan(); the caller frees it. NULL: no memory. */
static char *describe_plan(const struct program *p)
{
	const struct msg_welcome *w = p->welcome;
	struct layout l = layout_of(p->job, 1);
	l.dp = w->world / layout_world(&l);
	const struct coords at = layout_coords(&l, w->rank);
	json_t *o = json_pack("{s:i, s:i, s:i, s:i, s:s, s:i, s:i, s:i, s:s, s:s, s:I, s:s, s:i,"
			      " s:{s:i, s:i, s:i, s:i, s:i}, s:{s:i, s:i, s:i, s:i, s:i}}",
			      "rank", w->rank, "world", w->world, "local_rank", p->place.local_rank,
			      "local_world", w->node_ranks, "node", w->node, "node_rank",
			      p->place.group_rank, "nodes", p->place.group_world, "device",
			      w->device, "bus", w->bus, "cpus", w->cpus, "generation",
			      (json_int_t)w->generation, "run", w->run, "restarts",
			      p->place.restarts, "degrees", "tp", l.tp, "cp", l.cp, "ep", l.ep,
			      "dp", l.dp, "pp", l.pp, "coords", "tp", at.tp, "cp", at.cp, "ep",
			      at.dp % l.ep, "dp", at.dp, "pp", at.pp);
	char *text = o ? json_dumps(o, JSON_COMPACT) : NULL;
	json_decref(o);
	return text;
}

/* Some file systems have no named pipes, and PyTorch fails if it cannot make one. */
static bool holds_pipes(const struct program *p, const char *dir)
{
	char path[RUN_PATH];
	run_path_torch_pipe(path, dir, p->welcome->rank);
	unlink(path); /* left by a task that was killed */
	return !mkfifo(path, 0600) && !unlink(path);
}

static int fill_environment(struct program *p, const struct texts *t, struct err *e)
{
	const struct msg_welcome *w = p->welcome;
	const char *visible = getenv("CUDA_VISIBLE_DEVICES");
	struct buf device = BUF_INIT, devices = BUF_INIT;
	char number[16], *plan = describe_plan(p);
	snprintf(number, sizeof number, "%d", w->device);
	task_devices_name(visible, number, &device);
	task_devices_name(visible, p->place.devices, &devices);
	const struct task_place place = {
		.rank = w->rank,
		.world = w->world,
		.local_rank = p->place.local_rank,
		.local_world = w->node_ranks,
		.group_rank = p->place.group_rank,
		.group_world = p->place.group_world,
		.master_addr = t->address,
		.master_port = p->meeting.ports[0],
		.coordinator_port = p->meeting.ports[1],
		.run_id = p->place.run_id,
		.restarts = p->place.restarts,
		.max_restarts = p->place.max_restarts,
		.cuda = p->job->job.device == DEVICE_CUDA,
		.visible = p->job->program.visible == VISIBLE_OWN ? TASK_SEES_OWN : TASK_SEES_ALL,
		.devices = buf_str(&devices),
		.device = buf_str(&device),
		.interface = p->job->network.interface,
		.one_host = p->place.group_world == 1,
		.threads = w->threads,
		.run_dir = t->run,
		.trace_dir = t->traces,
		.pipe_dir = holds_pipes(p, t->traces) ? t->traces : "",
		.error_file = t->error,
		.plan_json = plan ? plan : "",
		.client_dir = t->client,
		.pmix = getenv("PMIX_RANK") != NULL,
	};
	int rc = task_environment(environ, &place, &p->env, e);
	buf_fini(&device);
	buf_fini(&devices);
	free(plan);
	return rc;
}

int agent_program_environment(struct program *p, struct err *e)
{
	struct texts *t = malloc(sizeof *t); /* too large for a small stack */
	if (!t)
		return err_set(e, ERR_NOMEM, "no memory for the environment of the task");
	int rc = words_parse(p->job->job.program, &p->argv, e) || make_folders(p, t, e) ? -1 : 0;
	if (!rc) {
		find_client(t->client);
		copy_address(p, t->address);
		rc = fill_environment(p, t, e);
	}
	free(t);
	return rc;
}
