#include "plan/show/program.h"

#include "plan/cost/engine.h"
#include "plan/spec/job/keys.h"

#include <stddef.h>

const char *show_program_word(const struct job *job)
{
	return job_enum_word(offsetof(struct job, plan.engine), (int)job->plan.engine);
}

const char *show_program_name(const struct job *job)
{
	return job->plan.engine == ENGINE_MUSTER ? NULL : cost_engines[job->plan.engine]->name;
}

void show_program_print(const struct job *job, struct buf *out)
{
	const char *name = show_program_name(job);
	if (name)
		buf_printf(out, "  program   %s (plan.engine = %s), which muster does not run\n",
			   name, show_program_word(job));
}
