/*
 * state — state.json: what a run does now, or how it ended.
 *
 * The supervisor replaces the file every 5 s, whenever the state changes, and at the end
 * (launcher/supervise/state.h). It answers consoles with the same object (launcher/rundir/control.h).
 * One table lists the fields, so the writer and all readers agree.
 *
 * The file is replaced by a rename, so a reader never sees half of one. It is not synced: after a
 * crash of the host it may be older than the other files, or be damaged.
 *
 * A reader accepts the versions up to RUNDIR_STATE_VERSION. Fields that it does not know are
 * ignored.
 */
#ifndef MUSTER_LAUNCHER_RUNDIR_STATE_H
#define MUSTER_LAUNCHER_RUNDIR_STATE_H

#include "base/err.h"
#include "base/fields.h"
#include "base/messages.h"
#include "launcher/rundir/rundir.h"

enum { RUNDIR_STATE_VERSION = 1 };

/* clang-format off */

/* id, word, whether a supervisor is at work, doc */
#define RUNDIR_STATES(X) \
	X(QUEUED,     "queued",     false, "its job waits in Slurm's queue") \
	X(STARTING,   "starting",   true,  "the nodes are checked, or the processes of the first generation start") \
	X(TRAINING,   "training",   true,  "all ranks train") \
	X(STOPPING,   "stopping",   true,  "the ranks write the last checkpoint, or end") \
	X(RESTARTING, "restarting", true,  "a generation was lost, or leaves in order to change its nodes, and another one follows") \
	X(WAITING,    "waiting",    true,  "for a lost node to return") \
	X(UPLOADING,  "uploading",  true,  "training has ended; checkpoints are copied to checkpoint.remote") \
	X(DONE,       "done",       false, "all steps are done") \
	X(STOPPED,    "stopped",    false, "it stopped on purpose; the same command continues it") \
	X(FAILED,     "failed",     false, "the job failed") \
	X(GAVE_UP,    "gave-up",    false, "no restart was left") \
	X(LOST,       "lost",       false, "its supervisor is gone and said nothing; only readers say so, no file does")

#define RUNDIR_STATE_FIELDS(F) \
	F(version,    INT,    REQUIRED, "of this format") \
	F(muster,     TEXT,   REQUIRED, "the version of muster") \
	F(name,       LINE,   REQUIRED, "the run's name") \
	F(state,      TEXT,   REQUIRED, "a word of RUNDIR_STATES (launcher/rundir/state.h)") \
	F(reason,     LINE,   OPTIONAL, "why it stops, or has ended") \
	F(status,     INT,    OPTIONAL, "the exit status of `muster run`, once it has ended") \
	F(since,      NUMBER, REQUIRED, "when it came into this state, in seconds since 1970") \
	F(started,    NUMBER, REQUIRED, "when this `muster run` began, in seconds since 1970") \
	F(time,       NUMBER, REQUIRED, "when this object was made, in seconds since 1970") \
	F(mono,       NUMBER, REQUIRED, "the same in seconds of the host's monotonic clock") \
	F(generation, COUNT,  REQUIRED, "of the present or the last launch; 0: there was none") \
	F(restarts,   COUNT,  REQUIRED, "that count against [restart] max_restarts") \
	F(step,       COUNT,  OPTIONAL, "finished steps") \
	F(steps,      COUNT,  REQUIRED, "of the whole run") \
	F(loss,       NUMBER, OPTIONAL, "of the last step") \
	F(eval_loss,  NUMBER, OPTIONAL, "of the last evaluation") \
	F(eval_step,  COUNT,  OPTIONAL, "of the last evaluation") \
	F(grad_norm,  NUMBER, OPTIONAL, "of the last step") \
	F(lr,         NUMBER, OPTIONAL, "of the last step") \
	F(tokens_s,   NUMBER, OPTIONAL, "tokens per second, smoothed") \
	F(step_s,     NUMBER, OPTIONAL, "seconds of a step, smoothed") \
	F(predicted_s, NUMBER, REQUIRED, "seconds of a step by the plan; not finite: the job runs a program") \
	F(least_s,    NUMBER, OPTIONAL, "a step likely takes at least these seconds; absent: the error of predictions is unknown, as on processors") \
	F(most_s,     NUMBER, OPTIONAL, "a step likely takes at most these seconds") \
	F(eta_s,      NUMBER, OPTIONAL, "seconds until the last step") \
	F(goodput,    NUMBER, OPTIONAL, "the share of the time of all devices that went into steps that count") \
	F(account,    JSON,   OPTIONAL, "where the time went up to now: the fields of a line of time.jsonl") \
	F(checkpoint, JSON,   OPTIONAL, "the last one: struct rundir_state_ckpt") \
	F(next_checkpoint, JSON, OPTIONAL, "the next one that is due: struct rundir_state_next") \
	F(world,      INT,    REQUIRED, "number of ranks") \
	F(layout,     TEXT,   REQUIRED, "the degrees of parallelism, such as \"dp 2 × tp 4\"") \
	F(nodes,      INT,    REQUIRED, "nodes that have ranks") \
	F(job,        TEXT,   OPTIONAL, "the id of the Slurm job") \
	F(host,       TEXT,   REQUIRED, "of the supervisor") \
	MSG_PROCESS_FIELDS(F) \
	F(folder,     LINE,   REQUIRED, "in which `muster run` was given") \
	F(ends,       NUMBER, OPTIONAL, "when the job's time limit ends it, in seconds since 1970") \
	F(lost_lines, COUNT,  OPTIONAL, "lines of events and metrics that could not be written") \
	F(warnings,   JSON,   REQUIRED, "those that hold: a list of struct rundir_state_warning") \
	F(stand_out,  JSON,   REQUIRED, "ranks and nodes that stand out: a list of struct rundir_state_spot")

#define RUNDIR_STATE_CKPT_FIELDS(F) \
	F(step,    COUNT,  REQUIRED, "its step") \
	F(time,    NUMBER, REQUIRED, "when it was committed, in seconds since 1970") \
	F(path,    TEXT,   REQUIRED, "its folder") \
	F(bytes,   COUNT,  REQUIRED, "its size") \
	F(seconds, NUMBER, REQUIRED, "from the snapshot to the commit")

#define RUNDIR_STATE_NEXT_FIELDS(F) \
	F(step,  COUNT,  REQUIRED, "its step") \
	F(eta_s, NUMBER, OPTIONAL, "seconds until then")

#define RUNDIR_STATE_SPOT_FIELDS(F) \
	F(rank, INT,  OPTIONAL, "absent: the whole node") \
	F(node, TEXT, REQUIRED, "its name") \
	F(what, LINE, REQUIRED, "what is wrong with it, a clause for people")

#define RUNDIR_STATE_WARNING_FIELDS(F) \
	F(id,     TEXT,   REQUIRED, "of the rule, such as \"loss-spike\"") \
	F(since,  NUMBER, OPTIONAL, "in seconds since 1970") \
	F(text,   LINE,   REQUIRED, "what it is, a clause for people") \
	F(remedy, LINE,   OPTIONAL, "what to do")

/* A rank as consoles see it: an element of the list `ranks` of console_answer. */
#define RUNDIR_STATE_RANK_FIELDS(F) \
	F(rank,       INT,    REQUIRED, "the rank") \
	F(node,       TEXT,   REQUIRED, "its node") \
	F(phase,      TEXT,   REQUIRED, "what it does, such as \"forward\"; \"\": it is not connected") \
	F(step,       INT64,  REQUIRED, "the step that it is in; -1: unknown") \
	F(silent_s,   NUMBER, REQUIRED, "seconds since its last message; null: it is not connected") \
	F(still_s,    NUMBER, REQUIRED, "seconds since it moved; null: it is not connected") \
	F(own_s,      NUMBER, OPTIONAL, "seconds of a step in which it waited for no other rank, in the last window") \
	F(peers_s,    NUMBER, OPTIONAL, "the same of its peers") \
	F(wait_s,     NUMBER, OPTIONAL, "seconds of a step that it spent in communication, most of it waiting for others") \
	F(parts,      JSON,   OPTIONAL, "an object: the seconds of each part of its steps and in evaluations, since it was ready (base/time_parts.h)") \
	F(peak_bytes, COUNT,  OPTIONAL, "peak device memory") \
	F(slow,       FLAG,   REQUIRED, "whether it is slower than its peers")

#define RUNDIR_STATE_TABLES(X) \
	X(state,      RUNDIR_STATE_FIELDS) \
	X(state_ckpt, RUNDIR_STATE_CKPT_FIELDS) \
	X(state_next, RUNDIR_STATE_NEXT_FIELDS) \
	X(state_spot, RUNDIR_STATE_SPOT_FIELDS) \
	X(state_warning, RUNDIR_STATE_WARNING_FIELDS) \
	X(state_rank, RUNDIR_STATE_RANK_FIELDS)

enum rundir_state_id {
#define RUNDIR_STATE_ENUM(id, word, active, doc) RUNDIR_STATE_##id,
	RUNDIR_STATES(RUNDIR_STATE_ENUM)
#undef RUNDIR_STATE_ENUM
	RUNDIR_STATE_COUNT
};

/*
 * json_t *rundir_<table>_json(const struct rundir_<table> *from)
 *     A new object; NULL if there is no memory or a text is not UTF-8.
 * int rundir_<table>_read(const json_t *object, struct rundir_<table> *to, struct err *e)
 *     Fills *to, which borrows its texts and objects. ERR_PROTO names the field that is missing or
 *     invalid.
 */
#define RUNDIR_STATE_STRUCT(table, FIELDS) \
	struct rundir_##table { FIELDS(FIELDS_MEMBER) }; \
	json_t *rundir_##table##_json(const struct rundir_##table *from); \
	int rundir_##table##_read(const json_t *object, struct rundir_##table *to, struct err *e);
RUNDIR_STATE_TABLES(RUNDIR_STATE_STRUCT)
#undef RUNDIR_STATE_STRUCT

/* clang-format on */

/* "unknown" for RUNDIR_STATE_COUNT. */
const char *rundir_state_word(enum rundir_state_id id);
/* RUNDIR_STATE_COUNT: there is no such word. */
enum rundir_state_id rundir_state_find(const char *word);
/* Whether a supervisor is at work in this state; false for RUNDIR_STATE_COUNT. */
bool rundir_state_active(enum rundir_state_id id);

/* Replaces state.json. Borrows `object`. */
int rundir_state_save(struct rundir *r, const json_t *object, struct err *e);

/* Checks the object of a file or of a console, and fills *out from it. ERR_PROTO: it is malformed, or
 * of a newer version. */
int rundir_state_check(const json_t *object, struct rundir_state *out, struct err *e);
/* Reads the text of state.json; *object is a new reference, from which *out borrows. ERR_PROTO:
 * as above. */
int rundir_state_parse(const char *text, size_t len, json_t **object, struct rundir_state *out,
		       struct err *e);
/* The same for the file of this run folder. ERR_NOTFOUND: there is none. */
int rundir_state_load(const char *run, json_t **object, struct rundir_state *out, struct err *e);

#endif
