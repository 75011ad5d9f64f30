/*
 * log_parts — the log of one rank: <node>-<rank>.log, which stays below a bound.
 *
 * At a quarter of the bound the file becomes <node>-<rank>.<n>.log (base/segments.h), and a new one
 * begins. Then the oldest parts are removed that are beyond the bound. The agent itself writes the
 * file, and its descriptor stays the same, so no line is lost at a split.
 *
 * The log is in logs/ of the run folder, or in a folder of the node, from which it can be
 * collected: then it moves to the run folder, and all later lines are written there, also those of
 * later generations.
 */
#ifndef MUSTER_AGENT_LOG_PARTS_H
#define MUSTER_AGENT_LOG_PARTS_H

#include "base/err.h"
#include "base/run_paths.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum { AGENT_LOG_NAME = 300 };

struct agent_log {
	char folder[RUN_PATH];
	char shared[RUN_PATH];     /* where it is collected to; "": it is there */
	char name[AGENT_LOG_NAME]; /* of the file */
	int fd;                    /* -1: it is not open */
	int64_t keep;              /* the bound in bytes; 0: none */
	bool left;                 /* it is in the run folder, but older lines of it are not */
	pthread_mutex_t lock;      /* folder and shared: a thread collects while others write */
};

struct agent_log_place {
	const char *run;   /* the run folder */
	const char *local; /* the folder of the node, which exists; NULL: it is in the run folder */
	const char *node;
	int rank;
};

/* The name of its file. */
void agent_log_name(char out[AGENT_LOG_NAME], const struct agent_log_place *at);
/* Opens the log to append to it. keep: the bound in bytes; 0: none. */
int agent_log_open(struct agent_log *l, const struct agent_log_place *at, int64_t keep,
		   struct err *e);
/* The size at which the file is to be split; 0: never. */
int64_t agent_log_most(const struct agent_log *l);
/* The size of the file, and with its parts. */
int64_t agent_log_size(const struct agent_log *l);
int64_t agent_log_whole_size(const struct agent_log *l);
/* The number of the last part in a folder; 0: there is none. */
uint32_t agent_log_last_part(const char *folder, const char *name);
/* Splits the file. If it cannot, the file grows on. */
void agent_log_split(struct agent_log *l);
/* Whether the log is in the run folder. */
bool agent_log_is_shared(const struct agent_log_place *at);
/* log_collect.c: moves the log, which is the one that base/log.h writes, to the run folder with its parts, and
 * goes on there. Other threads may write meanwhile; no line is lost. Does nothing if the log is there. After an
 * error, or if the process dies, each line is in one of the two folders; if it dies in the moment in which a file
 * is removed, perhaps in both. ERR_ABORTED: *stop became true. */
int agent_log_collect(struct agent_log *l, const atomic_bool *stop, struct err *e);
/* The same for the log of a rank that does not run any more. ERR_NOTFOUND: neither folder has it. ERR_PEER: its
 * agent still writes it. */
int agent_log_collect_of(const struct agent_log_place *at, const atomic_bool *stop, struct err *e);
/* An agent died while it collected this log: what it has written since then goes back to where the log is. */
void agent_log_recover(const struct agent_log *l);
void agent_log_close(struct agent_log *l);

#endif
