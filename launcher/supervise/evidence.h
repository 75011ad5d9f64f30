/*
 * evidence — what the agents see on their nodes (message health), and the reason of a slow rank
 * that follows from it.
 *
 * An agent sends its findings when they change, so the last ones stay valid. The reason of a slow
 * rank is the cause that explains the largest part of the window:
 *
 *     stopped     its process did not run, though it had a core        message progress, stalled_s
 *     findings    throttling, other processes, memory, GPU, network …  message health
 *     clock       its cores or its GPU run slower than its peers'      message health
 *     no core     it waited for a core, and no finding explains more   message progress, delay_s
 *
 * A finding that is an alarm is a defect of a device, even if no rank is slow: it is printed,
 * recorded and noted against the node once per node, device and kind.
 *
 * health.jsonl gets a line for a window in which a rank was slow, and for findings of other ranks,
 * if they differ from those of its last line, or after EVIDENCE_LINE_S. A healthy run has no lines.
 *
 * Only the files of this room include it.
 */
#ifndef MUSTER_LAUNCHER_SUPERVISE_EVIDENCE_H
#define MUSTER_LAUNCHER_SUPERVISE_EVIDENCE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	EVIDENCE_LINE_S = 600,  /* from one line of a rank to the next one that says the same */
	EVIDENCE_FINDINGS = 32, /* at most, in a message */
	EVIDENCE_ALARMS = 1024  /* that are remembered; more of them are not printed */
};

struct rank_evidence {
	json_t *findings; /* of the last message; NULL: none has come */
	int64_t step;
	double clock, gpu_clock; /* MHz; 0: unknown */
	uint64_t written;        /* what its last line said, as a hash; 0: it has none */
	double written_at;       /* time */
};

struct evidence {
	int world, n_nodes;
	struct rank_evidence *ranks; /* [world]; NULL: nothing is kept */
	int *watcher;     /* [n_nodes]: the rank that watches what the node's ranks share; -1 */
	uint64_t *alarms; /* hashes of those that were given in this run */
	int n_alarms;
};

struct supervisor;
struct msg_health;
struct err;

/* A generation has started. */
void supervise_evidence_reset(struct supervisor *s);
void supervise_evidence_close(struct supervisor *s);
/* Whether the rank watches its node. */
bool supervise_evidence_watches(const struct supervisor *s, int rank);
/* ERR_PROTO: the findings are malformed. */
int supervise_evidence_note(struct supervisor *s, int rank, const struct msg_health *m,
			    struct err *e);

/* A window of a rank in which the ranks were compared. */
struct evidence_window {
	double seconds, stalled, delay; /* of the window: all, not run at all, without a core */
	double pace, peers;             /* seconds per step: its own, its peers' */
	int64_t steps;
	bool slow;
	double clock, gpu_clock; /* medians of its peers; 0: unknown */
};

/* Why the rank was slow in this window. Writes "; reason". *node: whether the whole node is the
 * cause. Returns the kind of the cause, "" if there is none. */
const char *supervise_evidence_explain(const struct supervisor *s, int rank,
				       const struct evidence_window *w, char *out, size_t size,
				       bool *node);
/* The strongest finding about a disk, of any rank: writes "on node, …" or returns false. */
bool supervise_evidence_disk(const struct supervisor *s, char *out, size_t size);
/* Writes the rank's line of the window, if it says something new. */
void supervise_evidence_record(struct supervisor *s, int rank, const struct evidence_window *w);

#endif
