/* job: the checks of a job and of its data. */
#include "launcher/agent_path.h"
#include "launcher/doctor/doctor.h"

#include "base/human.h"
#include "launcher/child.h"

#include <limits.h>
#include <string.h>

#define DATA_SECONDS 10.0
#define SAYS         "muster data show: "

void doctor_check_job(const struct needs *n, struct findings *f)
{
	char memory[HUMAN], host[HUMAN];
	if (!n->job)
		doctor_found_ok(f, "job",
				"none given: muster doctor JOB.ini tells what a job needs, too");
	else if (*n->trouble)
		doctor_found_bad(f, FINDING_FAIL, "job",
				 "muster plan shows the job on this machine; muster run --help "
				 "explains its keys",
				 "%s", n->trouble);
	else if (n->cuda)
		doctor_found_ok(f, "job",
				"%d rank%s a node at most, each with %s of a GPU's memory",
				n->ranks, human_s(n->ranks), human_bytes(n->memory, memory));
	else
		doctor_found_ok(f, "job",
				"%d rank%s a node at most, together with %s of its memory",
				n->ranks, human_s(n->ranks), human_bytes(n->host_memory, host));
}

/* The tool `muster data show` of the agent reads the data's headers and reports errors. */
void doctor_check_data(const struct needs *n, struct findings *f)
{
	char path[PATH_MAX];
	struct err e = ERR_INIT;
	struct buf out = BUF_INIT;
	if (!*n->data) {
		if (n->job)
			doctor_found_bad(f, FINDING_FAIL, "data",
					 "data.path=PREFIX names what muster data pack wrote",
					 "data.path is not given");
		else
			doctor_found_ok(f, "data", "no job, no data");
		return;
	}
	if (launcher_agent_path(path, sizeof path, &e)) {
		doctor_found_bad(f, FINDING_FAIL, "data", "see muster-agent above",
				 "cannot be looked at");
		return;
	}
	char *const argv[] = { path, "data", "show", (char *)n->data, NULL };
	const struct child_command c = { .argv = argv, .out = -1, .tied = true };
	if (launcher_child_run(&c, DATA_SECONDS, &out, &e)) {
		const char *own = strstr(e.text, SAYS);
		doctor_found_bad(f, FINDING_FAIL, "data",
				 "a relative path begins where muster is started, and every node "
				 "must see it",
				 "%s", own ? own + strlen(SAYS) : e.text);
	} else {
		doctor_found_ok(f, "data", "%s can be read", n->data);
	}
	buf_fini(&out);
}
