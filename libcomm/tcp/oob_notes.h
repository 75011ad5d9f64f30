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
	uint32_t turn; /* of a question, and of its answer */
	int32_t rank;  /* answer: whom it waits for; heard, failed: whose words these are */
	char text[NOTE_TEXT];
};
_Static_assert(sizeof(struct note) == 24 + NOTE_TEXT, "a note has no padding");

struct oob_connection { /* a connection */
	int peer, fd;
	struct records *records;     /* NULL: notes go as they are */
	struct handshake *handshake; /* of a call; NULL: both have proved themselves */
	int retries;                 /* how often the other end had no time to hear it */
	struct note in, out;
	size_t got, put; /* bytes of them; put == sizeof out: nothing to be sent */
	bool answer;     /* owes one, to this question: */
	uint32_t turn;
	uint64_t group;
	bool last; /* has begun its last note */
};

/* Tells every thread that waits for a rank or for an answer to look again. Under the world's
 * lock. */
void comm_oob_announce(struct world *w);

/* Reads and handles all notes that have arrived. 0; -1 with *error (an errno, 0: closed in good
 * order) when the connection has ended. */
int comm_oob_receive_notes(struct world *w, struct oob_connection *l, int *error);
/* Sends all notes that are due and that the socket takes. 0; -1 with *error. */
int comm_oob_send_notes(struct world *w, struct oob_connection *l, int *error);
/* Whether a note is only partly sent. */
bool comm_oob_is_sending(const struct oob_connection *l);
/* Makes NOTE_LEFT the next note, unless another one is partly sent. */
void comm_oob_say_goodbye(struct oob_connection *l);

#endif
