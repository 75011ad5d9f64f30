/*
 * job_notify — what a run notifies of, and the words of [notify] on and [notify] command.
 *
 * To add a notice: add a row here, and call supervise_notice() where it happens
 * (launcher/supervise/notices.h).
 */
#ifndef MUSTER_PLAN_SPEC_JOB_NOTIFY_H
#define MUSTER_PLAN_SPEC_JOB_NOTIFY_H

#include "base/buf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* clang-format off */

/* ENUM, word, doc */
#define JOB_NOTICES(X) \
	X(STARTED,   "started",   "training begins") \
	X(RESTARTED, "restarted", "training goes on after a loss, or on other nodes") \
	X(STALLED,   "stalled",   "no rank makes progress any more, or an agent is silent") \
	X(DIVERGED,  "diverged",  "the numbers of a step are bad") \
	X(STOPPED,   "stopped",   "the run has stopped on purpose") \
	X(DONE,      "done",      "all steps are done") \
	X(FAILED,    "failed",    "the run has failed, or no restart is left") \
	X(SLOW,      "slow",      "a warning about a slow rank or slow checkpoints begins or ends") \
	X(WARNING,   "warning",   "another warning begins or ends")

#define JOB_NOTICES_DEFAULT "restarted, stalled, diverged, stopped, done, failed, slow, warning"

#define JOB_NOTICES_ROW(ENUM, word, doc) word " (" doc "), "
#define JOB_NOTICES_HELP JOB_NOTICES(JOB_NOTICES_ROW) "or none."

enum job_notice {
#define JOB_NOTICES_ENUM(ENUM, word, doc) JOB_NOTICE_##ENUM,
	JOB_NOTICES(JOB_NOTICES_ENUM)
#undef JOB_NOTICES_ENUM
	JOB_NOTICE_COUNT
};

/* clang-format on */

const char *job_notice_word(enum job_notice notice);
/* Whether the list `on`, which is valid, has this notice. */
bool job_notice_wanted(const char *on, enum job_notice notice);

/* Reads the list; returns 0, or -1 after appending "cause; remedy" to `why`. */
int job_notices_check(const char *on, struct buf *why);

/* Whether notifications may be posted to this address: https, or http to this host; without a user
 * name. Returns 0, or -1 after appending "cause; remedy" to `why`. The text does not contain the
 * address. */
int job_notify_address_check(const char *url, struct buf *why);

/* Splits a command into words at its blanks. The words and the array, which a NULL ends, are one
 * block of memory that the caller frees. NULL: no memory. */
char **job_notify_words(const char *command);

#endif
