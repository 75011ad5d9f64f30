/*
 * trace_events — a trace of steps in the Trace Event Format, which Perfetto (ui.perfetto.dev) and
 * chrome://tracing read. Source of the format: "Trace Event Format", the Chromium project.
 *
 * A rank is a process. Its first track is the training thread: a slice for each step, and within it
 * the phases. Each group of ranks has a track with its operations. An arrow leads from the operation
 * that sends a message to the one that receives it.
 */
#ifndef MUSTER_AGENT_TOOLS_TRACE_EVENTS_H
#define MUSTER_AGENT_TOOLS_TRACE_EVENTS_H

#include "agent/tools/step_file.h"
#include "base/buf.h"

/* The steps that are written, both included. */
struct trace_steps {
	int64_t first, last;
};

/* Appends the events of a rank's file, each after a comma and a newline unless it is the first one
 * (*events == 0). ahead: microseconds that its clock is ahead. origin: the time that becomes 0. */
void tool_trace_events(struct buf *b, const struct step_file *f, const struct trace_steps *steps,
		       double ahead, double origin, int64_t *events);

#endif
