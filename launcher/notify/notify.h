/*
 * notify — sends notifications about a run to an address, to a command, or to both.
 *
 * Each of the two is an outlet with a queue and a thread of its own (outlet.h), so that neither an
 * address nor a command that hangs delays the other one, or the run. A notification is tried again
 * after an error that may pass, with back-off. A queue holds NOTIFY_QUEUE notifications; if it is full,
 * the oldest one is dropped, and the next one that is delivered counts those that were lost.
 *
 * To an address goes a POST with a body in JSON; a command gets the same body on its standard input.
 * The body is an object of the fields of NOTIFY_FIELDS; for Slack it is {"text": …}. New fields may
 * be added without a new version.
 *
 * Secrets: the address and the token are read when this is opened. They are kept in memory only, and no
 * error contains them: of an address it shows the host.
 *
 * All functions are called from one thread.
 */
#ifndef MUSTER_LAUNCHER_NOTIFY_NOTIFY_H
#define MUSTER_LAUNCHER_NOTIFY_NOTIFY_H

#include "base/err.h"
#include "base/fields.h"

#include <stdbool.h>
#include <stdint.h>

enum { NOTIFY_VERSION = 1, NOTIFY_QUEUE = 64, NOTIFY_WHY = 400 };

#define NOTIFY_FORMAT "muster/notification"

/* clang-format off */

/* The fields that notify_send() sets are those down to `dropped`. */
#define NOTIFY_FIELDS(F) \
	F(format,     TEXT,   REQUIRED, "\"" NOTIFY_FORMAT "\"") \
	F(version,    COUNT,  REQUIRED, "1; a reader of a higher version must look at it again") \
	F(time,       NUMBER, REQUIRED, "seconds since 1970") \
	F(number,     COUNT,  REQUIRED, "counts the notifications of this start of the run, from 1; a repeated delivery has the same number") \
	F(dropped,    COUNT,  REQUIRED, "notifications before this one that were not delivered since the last one that was") \
	F(event,      TEXT,   REQUIRED, "started, restarted, stalled, diverged, stopped, done, failed, slow or warning") \
	F(text,       LINE,   REQUIRED, "what happened, for people") \
	F(remedy,     LINE,   OPTIONAL, "what a person can do") \
	F(warning,    TEXT,   OPTIONAL, "slow and warning: which one, such as loss-spike") \
	F(holds,      FLAG,   OPTIONAL, "slow and warning: whether it begins; otherwise it ends") \
	F(run,        TEXT,   REQUIRED, "name of the run") \
	F(folder,     LINE,   REQUIRED, "the run folder") \
	F(host,       TEXT,   REQUIRED, "host of muster run") \
	F(job,        TEXT,   OPTIONAL, "Slurm's job id") \
	F(generation, COUNT,  REQUIRED, "number of the generation; 0: none has started") \
	F(restarts,   COUNT,  REQUIRED, "restarts since muster run began") \
	F(step,       COUNT,  OPTIONAL, "last finished step") \
	F(steps,      COUNT,  REQUIRED, "steps of the whole run") \
	F(loss,       NUMBER, OPTIONAL, "training loss of that step; null: it is not finite")

struct notify_message { NOTIFY_FIELDS(FIELDS_MEMBER) };

/* clang-format on */

struct notify_options {
	const char *url;         /* "": url_file; then the variable MUSTER_NOTIFY_URL; then none */
	const char *url_file;    /* "": none */
	const char *secret_file; /* "": the variable MUSTER_NOTIFY_TOKEN; then no token */
	const char *ca_file;     /* "": the system's certificates */
	const char *command;     /* "": none */
	bool slack;
};

struct notify;

/* *out is NULL after an error, and if the options name neither an address nor a command. Nothing is
 * connected or started yet. */
int notify_open(const struct notify_options *o, struct notify **out, struct err *e);

/* Queues the notification for each outlet. It never waits. *m gets its first fields. */
void notify_send(struct notify *n, struct notify_message *m);

/* True: a notification was not delivered for a reason that was not told before. */
bool notify_trouble(struct notify *n, char why[NOTIFY_WHY]);

struct notify_result {
	int64_t lost;         /* notifications that an outlet has not delivered */
	char why[NOTIFY_WHY]; /* the last reason */
};

/* Waits up to patience_s for what is queued, cuts the rest, and frees everything. Takes NULL. */
void notify_close(struct notify *n, double patience_s, struct notify_result *out);

#endif
