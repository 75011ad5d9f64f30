/*
 * library — optional shared libraries, loaded when they are first needed.
 *
 * muster does not link to libraries that only some runs use: it starts faster, and a host without
 * them can do everything else. A module describes such a library once:
 *
 *	static struct munge_library { void *(*create)(void); … } lib;
 *	static const struct library_symbol symbols[] = {
 *		LIBRARY_NEEDS(munge_library, create, "munge_ctx_create"), …
 *	};
 *	static struct library munge = {
 *		.name = "libmunge", .files = { "libmunge.so.2" }, .code = ERR_UNSUPPORTED,
 *		.remedy = "install the package libmunge2",
 *		.symbols = symbols, .count = …, .table = &lib, .lock = PTHREAD_MUTEX_INITIALIZER,
 *	};
 *
 * It calls library_load before each use. The library stays loaded until the process ends.
 */
#ifndef MUSTER_BASE_LIBRARY_H
#define MUSTER_BASE_LIBRARY_H

#include "base/err.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

enum { LIBRARY_FILES = 4 };

struct library_symbol {
	const char *name;
	size_t offset; /* of its pointer in the table */
	bool optional; /* the pointer is NULL if the library lacks it */
};

/* A required symbol of a table that is a `struct type`. */
#define LIBRARY_NEEDS(type, member, symbol) \
	{ \
		symbol, offsetof(struct type, member), false \
	}

struct library {
	const char *name;                 /* as errors name it */
	const char *files[LIBRARY_FILES]; /* the first that loads is used; then NULL */
	enum err_code code;               /* of the error, if none loads */
	const char *remedy;               /* if none loads, or a symbol is missing */
	const struct library_symbol *symbols;
	int count;
	void *table;                 /* a struct of function pointers */
	int (*start)(struct err *e); /* optional: runs once, after the load */
	pthread_mutex_t lock;        /* of what follows */
	bool tried;
	struct err failure;
};

/* Loads the library at the first call; later calls give the same result. From any thread. The
 * error names the library, the cause and the remedy. ERR_UNSUPPORTED: a symbol is missing. */
int library_load(struct library *l, struct err *e);

/* Fills the table from a library that dlopen has loaded. Returns the name of the first required
 * symbol that is missing; NULL: none. */
const char *library_symbols(void *loaded, const struct library_symbol *symbols, int count,
			    void *table);

#endif
