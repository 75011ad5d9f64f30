/* generate — passes the command line of `muster generate` (generate.c) to its work
 * (generate_run.c). */
#ifndef MUSTER_AGENT_TOOLS_GENERATE_H
#define MUSTER_AGENT_TOOLS_GENERATE_H

#include "agent/engine/generate/sample.h"

#include <stdbool.h>
#include <stdint.h>

struct generate_options {
	const char *word;                     /* the model */
	const char *tokenizer, *prompt, *end; /* NULL: not given */
	int64_t tokens, threads;
	struct sample_options sample;
	bool echo, json;
};

/* Prints the text and the report; returns the exit status. */
int tool_generate_run(const struct generate_options *opt);

#endif
