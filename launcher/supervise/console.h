/*
 * console — answers the commands of the run's owner: muster status, stop, checkpoint, trace,
 * logs and top.
 *
 * Consoles have a listener and a secret of their own, which last for the whole run, as guards have
 * (guard.h). Both are in the file `control` of the run folder (launcher/rundir/control.h). The
 * listener is on the host of the agents' one: the loopback interface of a local run, under Slurm the
 * interface that the agents use. A console passes the checks of launcher/connections.h; its hello
 * must name CONSOLE_VERSION.
 *
 *     stop        as a signal does: the ranks finish the step and write a checkpoint
 *     stop-now    as a second Ctrl-C does
 *     checkpoint  the ranks write a checkpoint after the step, and train on; a second answer tells of
 *                 its commit. A request that comes meanwhile waits for the same checkpoint. If
 *                 the last finished step has a checkpoint already, that is the answer
 *     trace       the ranks record the next `count` steps; a second answer follows when all have
 *                 written them (console_trace.h)
 *     logs        logs that stay on the nodes move to the run folder; a second answer follows when all have
 *                 (collect.h)
 *     state       the object of state.json, made now
 *     ranks       CONSOLE_RANKS ranks at most, from a given one on
 *
 * A console never delays the loop: it has at most one answer that is queued, and is dropped if it
 * asks again, or what it awaits has come, before it has taken that. CONSOLES consoles are served;
 * another one takes the place of the one that was quiet for the longest time.
 *
 * A run that cannot listen trains all the same.
 *
 * Only the files of this room include it.
 */
#ifndef MUSTER_LAUNCHER_SUPERVISE_CONSOLE_H
#define MUSTER_LAUNCHER_SUPERVISE_CONSOLE_H

#include "base/auth.h"
#include "base/net.h"
#include "launcher/supervise/console_trace.h"

#include <stdbool.h>
#include <stdint.h>

enum { CONSOLES = 32, CONSOLE_RANKS = 256 };

struct supervisor;
struct connection;

struct console {
	struct connection *line; /* NULL: the place is free */
	char who[128];
	double heard; /* time */
	enum console_awaits {
		CONSOLE_AWAITS_NOTHING,
		CONSOLE_AWAITS_CKPT,
		CONSOLE_AWAITS_TRACE,
		CONSOLE_AWAITS_LOGS
	} awaits;
};

struct console_state {
	struct connections *connections; /* NULL: the run has no listener */
	struct console consoles[CONSOLES];
	/* a checkpoint that was asked for */
	bool saving;
	int number; /* of the last request */
	uint32_t generation;
	int64_t step; /* a checkpoint of this step or of a later one is the answer */
	struct console_trace trace;
};

/* An answer that cannot be sent ends the connection. */
void supervise_console_answer(struct console *k, const struct msg_console_answer *a);
/* Answers all consoles that await this; they await nothing then. */
void supervise_console_tell_all(struct supervisor *s, enum console_awaits what,
				const struct msg_console_answer *a);

/* Listens, and writes the file. */
void supervise_console_open(struct supervisor *s);
void supervise_console_tick(struct supervisor *s);
/* A checkpoint was committed in the folder that all ranks share. */
void supervise_console_note_ckpt(struct supervisor *s, int64_t step, const char *path);
/* A checkpoint that was asked for was not committed. */
void supervise_console_note_failure(struct supervisor *s, int64_t step, const char *why);
/* Removes the file. The loop must run once more. */
void supervise_console_close(struct supervisor *s);

#endif
