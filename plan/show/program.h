/* program — the name of the program whose steps are predicted, if it is not muster's own engine. */
#ifndef MUSTER_PLAN_SHOW_PROGRAM_H
#define MUSTER_PLAN_SHOW_PROGRAM_H

#include "base/buf.h"
#include "plan/spec/job/job.h"

/* Prints "  program   PyTorch FSDP (plan.engine = fsdp-eager), which muster does not run", a line;
 * nothing of muster's own engine. */
void show_program_print(const struct job *job, struct buf *out);
/* The word of plan.engine: "engine" of JSON documents. */
const char *show_program_word(const struct job *job);
/* "PyTorch FSDP" for titles; NULL: muster's own engine. */
const char *show_program_name(const struct job *job);

#endif
