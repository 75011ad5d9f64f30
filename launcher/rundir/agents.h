/*
 * agents — which agents a run has had, read back from its events.jsonl.
 *
 * A supervisor that starts in the folder of an earlier one learns from it which agents may still
 * run on the nodes. The file may be cut off, damaged, or from an older muster: a line that is not
 * a whole event is skipped, and so is an agent whose start time is unknown, because its pid alone
 * does not identify it.
 */
#ifndef MUSTER_LAUNCHER_RUNDIR_AGENTS_H
#define MUSTER_LAUNCHER_RUNDIR_AGENTS_H

#include "base/err.h"
#include "launcher/rundir/events.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* An agent of an event hello. */
struct rundir_joined {
	int rank;
	const char *node;
	int pid;
	int64_t start, pid_space;
	const char *boot;
	bool kept;
};

/* Calls `take` for each agent of the event, whose texts borrow from `line`; one whose rank or pid is invalid is
 * skipped. Up to version 14 of the control protocol the event was about one agent, and had its rank, pid and
 * start as fields of its own. Returns how many there are. take: may be NULL. */
int rundir_agents_of(const json_t *line, void (*take)(void *arg, const struct rundir_joined *a),
		     void *arg);

/* Called for each agent and such event, in the order of the file. Texts are valid during the call. */
struct rundir_agents_reader {
	void (*hello)(void *arg, uint32_t generation, const struct rundir_joined *a);
	/* every rank of the generation was ready */
	void (*ready)(void *arg, uint32_t generation);
	void *arg;
};

/* Reads the events.jsonl of a run folder with its segments. ERR_NOTFOUND, ERR_IO, ERR_CORRUPT: it
 * cannot be read, and some events may be missing. */
int rundir_agents_read(const char *run, const struct rundir_agents_reader *to, struct err *e);

/* Reads one line, with or without its newline. */
void rundir_agents_read_line(const char *line, size_t len, const struct rundir_agents_reader *to);

#endif
