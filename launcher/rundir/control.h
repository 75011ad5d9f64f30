/*
 * control — the file `control` of a run folder: where a console reaches the run's supervisor.
 *
 * A console is a command of the run's owner, such as `muster stop`, on any host that sees the run
 * folder. The supervisor writes the file, mode 0600, when it listens (launcher/supervise/console.h),
 * and removes it at its end. The file of a supervisor that was killed stays until the next one
 * starts; its address then refuses connections or belongs to a process that does not know the
 * secret.
 *
 * The file has the secret with which both ends prove who they are (base/auth.h). It is therefore
 * read only if it belongs to the reader's user and nobody else may read it.
 */
#ifndef MUSTER_LAUNCHER_RUNDIR_CONTROL_H
#define MUSTER_LAUNCHER_RUNDIR_CONTROL_H

#include "base/err.h"
#include "base/fields.h"
#include "base/messages.h"
#include "launcher/rundir/rundir.h"

enum { RUNDIR_CONTROL_VERSION = 1 };

/* clang-format off */

#define RUNDIR_CONTROL_FIELDS(F) \
	F(version, INT,  REQUIRED, "of this format") \
	F(address, TEXT, REQUIRED, "\"host:port\"") \
	F(secret,  TEXT, REQUIRED, "64 hex digits") \
	F(auth,    TEXT, REQUIRED, "what else both ends must prove: munge_parse() reads it") \
	F(host,    TEXT, REQUIRED, "the supervisor's host") \
	MSG_PROCESS_FIELDS(F)

/* clang-format on */

struct rundir_control {
	RUNDIR_CONTROL_FIELDS(FIELDS_MEMBER)
};

int rundir_control_save(struct rundir *r, const struct rundir_control *c, struct err *e);
void rundir_control_remove(struct rundir *r);

/* Reads the file of this run folder; *object is a new reference, from which *out borrows. ERR_NOTFOUND:
 * there is none. ERR_AUTH: others may read it, or it belongs to another user. ERR_PROTO: it is
 * malformed, or of a newer version. */
int rundir_control_load(const char *run, json_t **object, struct rundir_control *out,
			struct err *e);
/* The same for the text of the file. */
int rundir_control_parse(const char *text, size_t len, json_t **object, struct rundir_control *out,
			 struct err *e);

#endif
