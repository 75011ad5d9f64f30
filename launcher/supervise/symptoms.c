/* symptoms: collects what is known about a loss, from the supervisor's state, the launch log and
 * the kernel's counter of OOM kills. */
#include "base/file.h"
#include "base/run_paths.h"
#include "launcher/oom.h"
#include "launcher/supervise/launch_log.h"
#include "launcher/supervise/supervisor.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LOG_END = 128 * 1024 }; /* bytes of the launch log that are read, from its end */

/* A log that cannot be read counts as empty. */
static void read_launch_log(const struct supervisor *s, struct launch_log *out)
{
	char path[RUN_PATH];
	struct stat st;
	struct buf text = BUF_INIT;
	run_path_launch_log(path, rundir_path(s->o.run), supervise_launch_of(s, s->cause.rank));
	int fd = file_open(path, O_RDONLY, FILE_OWN, NULL);
	char *to = fd < 0 || fstat(fd, &st) ? NULL : buf_room(&text, LOG_END + 1);
	ssize_t n = to ? pread(fd, to, LOG_END, st.st_size > LOG_END ? st.st_size - LOG_END : 0)
		       : 0;
	if (n > 0) {
		text.len = (size_t)n;
		text.data[n] = '\0';
	}
	supervise_launch_log_read(
		buf_str(&text), s->cause.rank < 0 ? -1 : s->ranks[s->cause.rank].process.task, out);
	buf_fini(&text);
	if (fd >= 0)
		close(fd);
}

void supervise_symptoms(const struct supervisor *s, struct symptom *out)
{
	const struct rank_state *k = s->cause.rank >= 0 ? &s->ranks[s->cause.rank] : NULL;
	struct launch_log log;
	read_launch_log(s, &log);
	*out = (struct symptom){
		.how = s->cause.how,
		.code = s->cause.code,
		.wrong_results = s->cause.wrong_results,
		.signal = log.signal,
		.status = log.status,
		.started = k ? k->hello : s->hellos > 0,
		.said = log.said,
		.node = supervise_recovery_node_state(s, s->cause.rank),
		.manager_silent = s->recovery.silent,
		.helper_lost = k && k->helper_lost,
		.hang = s->stacks.cause,
		.program = s->program.ranks != NULL,
		.pmix_refused = s->pmix_refused && !s->hellos,
	};
	if (k && k->exited) {
		out->signal = WIFSIGNALED(k->status) ? WTERMSIG(k->status) : 0;
		out->status = WIFEXITED(k->status) ? WEXITSTATUS(k->status) : 0;
	}
	int task = s->cause.how == LOST_FAILED && k && s->program.ranks
			   ? s->program.ranks[s->cause.rank].status
			   : -1;
	if (s->cause.code == ERR_TASK) /* of the task; its agent may have been killed later */
		out->signal = out->status = 0;
	if (task >= 0) {
		out->signal = WIFSIGNALED(task) ? WTERMSIG(task) : 0;
		out->status = WIFEXITED(task) ? WEXITSTATUS(task) : 0;
	}
	bool counted = s->oom_kills >= 0 && launcher_oom_kills(s->o.root) > s->oom_kills;
	bool may_be = out->signal == SIGKILL || (!out->signal && !out->status);
	out->out_of_memory = may_be && (counted || log.out_of_memory);
}
