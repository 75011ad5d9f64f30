#include "launcher/supervise/suspects.h"

#include "base/clock.h"
#include "launcher/supervise/supervisor.h"

#include <stdlib.h>

void supervise_suspect_note(struct supervisor *s, int node, enum suspect_kind kind,
			    const char *evidence, const char *did)
{
	const char *name = s->o.machines->nodes[node].name, *job = getenv("SLURM_JOB_ID");
	struct err e = ERR_INIT;
	rundir_event_node_suspected(
		s->o.run, s->generation,
		&(struct rundir_node_suspected){ .node = name,
						 .kind = suspects_kind_word(kind),
						 .evidence = evidence,
						 .did = did });
	if (!s->o.suspects)
		return;
	const struct suspect_line line = { .time = clock_wall_s(),
					   .cluster = s->o.cluster,
					   .node = name,
					   .kind = suspects_kind_word(kind),
					   .evidence = evidence,
					   .did = did,
					   .run = rundir_path(s->o.run),
					   .has_job = job != NULL,
					   .job = job };
	if (!suspects_append(s->o.suspects, &line, &e) || s->suspects_failed)
		return;
	s->suspects_failed = true;
	supervise_terminal_event(s->o.term, TONE_WARN, "warn",
				 "the list of suspect nodes is not kept: %s", e.text);
}
