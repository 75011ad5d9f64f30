/* trace_steps — `muster trace RUN -o FILE`: a picture of chosen steps, from all ranks' files
 * steps-<rank>.json. It holds one rank's file in memory at a time. */
#ifndef MUSTER_AGENT_TOOLS_TRACE_STEPS_H
#define MUSTER_AGENT_TOOLS_TRACE_STEPS_H

#include "agent/tools/trace_events.h"
#include "base/err.h"
#include "base/ranges.h"

struct trace_picture {
	const char *from; /* a run's folder, or one of its folders trace/gen-N */
	const char *to;   /* the file to write; it is replaced */
	struct trace_steps steps;
	const struct ranges *ranks; /* empty: all */
};

struct trace_picture_result {
	int ranks;
	bool read; /* the files could be read: set also when the picture cannot be written */
	int others; /* chosen ranks whose files hold none of the steps, because of another recording */
	int64_t first, last;  /* steps that the files have and the picture shows */
	int64_t events, lost; /* lost: phases and operations that a rank had no room for */
	double most_ahead_us; /* the largest difference between the clocks of two hosts */
};

/* ERR_NOTFOUND: no steps were recorded there, or none of the chosen ones. ERR_CORRUPT: a file is
 * damaged. */
int tool_trace_steps(const struct trace_picture *p, struct trace_picture_result *out,
		     struct err *e);

#endif
