/*
 * oob_notes — the notes that an out-of-band connection (oob.h) carries: their format, what a rank
 * does with each, and which one it sends next. For oob.c.
 */
#ifndef MUSTER_LIBCOMM_TCP_OOB_NOTES_H
#define MUSTER_LIBCOMM_TCP_OOB_NOTES_H

#include "libcomm/tcp/handshake.h"
#include "libcomm/tcp/oob.h"

enum { NOTE_TEXT = 1000 };

enum note_kind { NOTE_ASK = 1, NOTE_ANSWER, NOTE_CAUSE, NOTE_FAILED, NOTE_LEFT };

struct note {
	uint32_t magic, kind;
	uint64_t group;
	uint32_t turn; /* number of a question, also in its answer */
	int32_t rank;  /* answer: whom it waits for; cause, failed: whose error it is */
	char text[NOTE_TEXT];
};
_Static_assert(sizeof(struct note) == 24 + NOTE_TEXT, "a note has no padding");

struct oob_connection {
	int peer, fd;
	struct records *records;     /* NULL: notes are sent as they are */
	struct handshake *handshake; /* while connecting; NULL: both ends have authenticated */
	int retries;                 /* how often the other end closed the connection before it
				      * authenticated */
	struct note in, out;
	size_t got, put; /* bytes of in and out; put == sizeof out: nothing to send */
	bool answer;     /* owes an answer to this question: */
	uint32_t turn;
	uint64_t group;
	bool last; /* its last note has been begun */
};

/* Wakes every thread that waits for a rank or for an answer, so that it checks again. Under the
 * world's lock. */
void comm_oob_announce(struct world *w);

/* Reads and handles all notes that have arrived. 0; -1 with *error (an errno, 0: closed in good
 * order) when the connection has ended. */
int comm_oob_receive_notes(struct world *w, struct oob_connection *conn, int *error);
/* Sends all notes that are due and that the socket takes. 0; -1 with *error. */
int comm_oob_send_notes(struct world *w, struct oob_connection *conn, int *error);
/* Whether a note is only partly sent. */
bool comm_oob_is_sending(const struct oob_connection *conn);
/* Makes NOTE_LEFT the next note, unless another one is partly sent. */
void comm_oob_say_goodbye(struct oob_connection *conn);

#endif
