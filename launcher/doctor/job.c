/* job: the checks of a job and of its data. */
#include "launcher/agent_path.h"
#include "launcher/doctor/doctor.h"

#include "base/human.h"
#include "launcher/child.h"

#include <limits.h>
#include <string.h>

#define DATA_SECONDS 10.0
#define PREFIX       "muster data show: "

void doctor_check_job(const struct needs *n, struct findings *f)
{
	char memory[HUMAN], host[HUMAN];
	if (!n->job)
		doctor_found_ok(f, "job",
				"no job file was given; muster doctor JOB.ini also checks what a "
				"job needs");
	else if (*n->trouble)
		doctor_found_bad(f, FINDING_FAIL, "job",
				 "run muster plan with this job; muster run --help explains the "
				 "keys",
				 "%s", n->trouble);
	else if (n->program)
		doctor_found_ok(f, "job",
				"at most %d task%s per node; muster does not know what memory they "
				"need",
				n->ranks, human_s(n->ranks));
	else if (n->cuda)
		doctor_found_ok(f, "job", "at most %d rank%s per node, each with %s of GPU memory",
				n->ranks, human_s(n->ranks), human_bytes(n->memory, memory));
	else
		doctor_found_ok(f, "job",
				"at most %d rank%s per node, together with %s of its memory",
				n->ranks, human_s(n->ranks), human_bytes(n->host_memory, host));
}

static void report_no_data(const struct needs *n, struct findings *f)
{
	if (n->program)
		doctor_found_ok(f, "data", "the program reads its own");
	else if (n->job)
		doctor_found_bad(f, FINDING_FAIL, "data",
				 "set data.path to the PREFIX of what muster data pack wrote",
				 "data.path is not set");
	else
		doctor_found_ok(f, "data", "no job file was given");
}

/* The tool `muster data show` of the agent reads the data's headers and reports errors. */
void doctor_check_data(const struct needs *n, struct findings *f)
{
	char path[PATH_MAX];
	struct err e = ERR_INIT;
	struct buf out = BUF_INIT;
	if (!*n->data) {
		report_no_data(n, f);
		return;
	}
	if (launcher_agent_path(path, sizeof path, &e)) {
		doctor_found_bad(f, FINDING_FAIL, "data", "repair muster-agent first (see above)",
				 "it cannot be read without muster-agent");
		return;
	}
	char *const argv[] = { path, "data", "show", (char *)n->data, NULL };
	const struct child_command c = { .argv = argv, .out = -1, .tied = true };
	if (launcher_child_run(&c, DATA_SECONDS, &out, &e)) {
		const char *own = strstr(e.text, PREFIX);
		doctor_found_bad(
			f, FINDING_FAIL, "data",
			"a relative path starts in the folder where muster is started; every "
			"node must have access to it",
			"%s", own ? own + strlen(PREFIX) : e.text);
	} else {
		doctor_found_ok(f, "data", "%s can be read", n->data);
	}
	buf_fini(&out);
}
