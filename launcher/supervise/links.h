/*
 * links — the supervisor's end of the control connections, on the loop.
 *
 * Each accepted connection is a link: a socket and a channel (base/auth.h). A
 * link that has not been claimed (supervise_link_claim, once its hello was found good)
 * is a stranger, and must be claimed within `patience` seconds. Nobody can keep the agents out:
 *
 * - A connection that another user of this host has made is closed at once (base/owner.h).
 * - A stranger whose first packet does not prove the secret is closed at once.
 * - Strangers that have said nothing are few at a time, in all and from each address. The
 *   oldest one makes room for the next, so the listener never waits for any of them.
 *
 * A frame that does not open, or that the receiver does not accept, ends its link and nothing else.
 *
 * When no descriptor or no memory is left for a visitor, `trouble` says so, once a
 * generation: to the person it would look like agents that do not report. The
 * listener then rests until the next tick, or until a link goes.
 *
 * A new generation (supervise_links_renew) closes every link of the one before and
 * admits only who knows the new secret.
 */
#ifndef MUSTER_LAUNCHER_SUPERVISE_LINKS_H
#define MUSTER_LAUNCHER_SUPERVISE_LINKS_H

#include "base/auth.h"
#include "base/err.h"
#include "base/msg.h"

#include <stdint.h>
#include <uv.h>

struct links;
struct link;

struct links_options {
	uv_loop_t *loop;
	/* non-blocking; -1: only supervise_links_adopt. Closed by supervise_links_close. */
	int listener;
	int most;             /* silent strangers at a time, */
	int most_per_address; /* and from one address */
	double patience;      /* seconds */
	/* agents must have a MUNGE credential, too; NULL: the secret is enough. Borrowed */
	const struct voucher *voucher;
	/* A whole message; it is the callee's only during the call. */
	void (*message)(void *arg, struct link *l, const struct msg *m);
	/* The other side ended the link, or broke the rules; never called for
	 * supervise_link_drop. rank: as claimed, or -1. */
	void (*closed)(void *arg, int rank, const struct err *why);
	/* Visitors cannot be let in; the first time of a generation. */
	void (*trouble)(void *arg, const struct err *why);
	void *arg;
};

int supervise_links_open(const struct links_options *o, struct links **out, struct err *e);
/* Frees everything once the loop has run its closing callbacks. */
void supervise_links_close(struct links *ls);

void supervise_links_renew(struct links *ls, const unsigned char secret[AUTH_SECRET_BYTES],
			   uint32_t generation, double now);
/* Takes over a connected socket. */
int supervise_links_adopt(struct links *ls, int fd, struct err *e);
/* Drops strangers whose time is over; now in seconds of any clock that goes forward. */
void supervise_links_tick(struct links *ls, double now);
/* Strangers there now. */
int supervise_links_strangers(const struct links *ls);

void supervise_link_claim(struct link *l, int rank);
int supervise_link_rank(const struct link *l); /* -1: not claimed */
/* Borrows body. What cannot be written now is kept and written later. */
int supervise_link_send(struct link *l, enum msg_type type, json_t *body, struct err *e);
/* Delivers what has arrived already: the last words of a process that has ended. The callbacks
 * may drop the link. */
void supervise_link_read_out(struct link *l);
void supervise_link_drop(struct link *l);

#endif
