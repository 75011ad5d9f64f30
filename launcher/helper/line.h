/*
 * line — the helper's connection to the supervisor: a socket and a channel (base/auth.h) on the
 * helper's loop.
 *
 * The supervisor is found lost if it closes the connection, or if its host does not answer for
 * LINE_SILENCE_S seconds, or if the supervisor has sent no message LINE_START_S seconds after the
 * start.
 */
#ifndef MUSTER_LAUNCHER_HELPER_LINE_H
#define MUSTER_LAUNCHER_HELPER_LINE_H

#include "base/auth.h"
#include "base/err.h"
#include "base/msg.h"

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

enum { LINE_CONNECT_S = 30, LINE_SILENCE_S = 20, LINE_START_S = 60 };

struct line;

struct line_options {
	uv_loop_t *loop;
	const char *address;
	const char *secret; /* 64 hex digits */
	uint32_t generation;
	const struct voucher *voucher; /* NULL: the secret is enough; borrowed */
	void (*message)(void *arg, const struct msg *m);
	/* The supervisor is gone; called at most once. */
	void (*lost)(void *arg, const struct err *why);
	void *arg;
};

/* Connects, which takes at most LINE_CONNECT_S. */
int helper_line_open(const struct line_options *o, struct line **out, struct err *e);
/* Queues a message; takes over `body`. A failure is reported by lost(). */
void helper_line_send(struct line *l, enum msg_type type, json_t *body);
/* Whether everything has been handed to the kernel. */
bool helper_line_sent(const struct line *l);
/* Frees it once the loop has closed its handles. Takes NULL. */
void helper_line_close(struct line *l);

#endif
