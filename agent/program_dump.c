/* program_dump: gets the dump of PyTorch's flight recorder when the supervisor asks for it. */
#include "agent/program_inner.h"

#include "agent/task/recorder.h"
#include "base/run_paths.h"

#include <stdio.h>
#include <sys/stat.h>

/* PyTorch looks for a request about once per second, and writes the dump at once. */
static const double dump_s = 3;

static off_t size_of(const char *path)
{
	struct stat st;
	return stat(path, &st) ? 0 : st.st_size;
}

int agent_program_dump(void *arg, struct err *e)
{
	struct program *p = arg;
	char dir[RUN_PATH];
	run_path_trace(dir, p->welcome->run, (uint32_t)p->welcome->generation);
	if (task_recorder_request(dir, p->welcome->rank, e))
		return e->code == ERR_NOTFOUND ? 0 : -1; /* the program does not use it */
	atomic_store(&p->dump.asked, true);
	return DUMP_LATER;
}

/* Whether the file is there and has not grown since the last look. */
static bool is_written(struct program *p)
{
	char dir[RUN_PATH], prefix[RUN_PATH], path[RUN_PATH + 16];
	run_path_trace(dir, p->welcome->run, (uint32_t)p->welcome->generation);
	run_path_torch_prefix(prefix, dir);
	snprintf(path, sizeof path, "%s%d", prefix, p->welcome->rank);
	off_t before = p->dump.size;
	p->dump.size = size_of(path);
	return p->dump.size && p->dump.size == before;
}

void agent_program_answer_dump(struct program *p, double now, bool at_once)
{
	struct awaited_dump *d = &p->dump;
	if (!atomic_load(&d->asked))
		return;
	if (!d->until)
		d->until = now + dump_s;
	if (!is_written(p) && now < d->until && !at_once)
		return;
	d->until = 0;
	d->size = 0;
	atomic_store(&d->asked, false);
	agent_control_send(p->control, MSG_DUMPED, msg_dumped_json(&(struct msg_dumped){ 0 }));
}
