/*
 * err — how every function of muster fails.
 *
 * A function that can fail returns 0 or -1 and takes a `struct err *` as its last argument. On
 * failure the err holds a code, for programs, and a text, for people: it names the object, the
 * cause and the remedy. Libraries return errors; only a main and the supervisor print them.
 * Outputs are set only after success. The err may be NULL; the text is lost then. A text can hold
 * names from outside and ends on a terminal, so each is one line and passes through human_plain.
 */
#ifndef MUSTER_BASE_ERR_H
#define MUSTER_BASE_ERR_H

#include <stdarg.h>
#include <stdbool.h>

/* Each row: the code, and its word in logs and JSON. */
#define ERR_CODES(X) \
	X(ERR_NONE, "none")               /* no error */ \
	X(ERR_USAGE, "usage")             /* the command line or a job file */ \
	X(ERR_IO, "io")                   /* a file or a disk */ \
	X(ERR_FULL, "full")               /* a disk, a quota or a limit of file sizes */ \
	X(ERR_NET, "net")                 /* a socket or a peer's connection */ \
	X(ERR_NOMEM, "no-memory")         /* memory, descriptors, processes */ \
	X(ERR_PROTO, "protocol")          /* a peer broke the protocol */ \
	X(ERR_AUTH, "auth")               /* a peer did not prove its identity */ \
	X(ERR_STALE, "stale")             /* a message of another generation */ \
	X(ERR_CORRUPT, "corrupt")         /* stored data is damaged */ \
	X(ERR_NOTFOUND, "not-found")      /* something does not exist */ \
	X(ERR_UNSUPPORTED, "unsupported") /* legal, but not implemented */ \
	X(ERR_NOFIT, "no-fit")            /* the machines cannot hold the plan */ \
	X(ERR_TIMEOUT, "timeout")         /* a time limit has passed */ \
	X(ERR_ABORTED, "aborted")         /* stopped from outside */ \
	X(ERR_PEER, "peer")               /* another rank died or failed */ \
	X(ERR_DENIED, "denied")           /* the system refuses it: permissions */ \
	X(ERR_NUMERIC, "numeric")         /* NaN, infinity, overflow */ \
	X(ERR_DEVICE, "device")           /* a GPU is lost or broken */ \
	X(ERR_REPLICAS, "replicas")       /* ranks that must hold the same numbers differ */ \
	X(ERR_STUCK, "stuck")             /* a process cannot be ended */ \
	X(ERR_TASK, "task")               /* a task of the user's program failed */ \
	X(ERR_INTERNAL, "internal")       /* a bug in muster */

enum err_code {
#define ERR_ENUM(code, word) code,
	ERR_CODES(ERR_ENUM)
#undef ERR_ENUM
};

struct err {
	enum err_code code;
	char text[1000];
	bool brief; /* set by a caller that needs no remedy; one that takes long to find is left out */
};

#define ERR_INIT \
	{ \
		ERR_NONE, "", false \
	}
#define ERR_BRIEF \
	{ \
		ERR_NONE, "", true \
	}

/* The word of a code, such as "io"; never NULL. */
const char *err_word(enum err_code code);

/* Sets code and text; returns -1, so that a function can `return err_set(…)`. */
int err_set(struct err *e, enum err_code code, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* As err_set, and appends ": " and the text of errno (read on entry). */
int err_errno(struct err *e, enum err_code code, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* Puts context and ": " in front of the text that is there; returns -1. */
int err_prefix(struct err *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
