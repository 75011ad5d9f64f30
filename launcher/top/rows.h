/*
 * rows — the rows of the table: one per rank or per node, sorted and filtered.
 */
#ifndef MUSTER_LAUNCHER_TOP_ROWS_H
#define MUSTER_LAUNCHER_TOP_ROWS_H

#include "launcher/top/facts.h"

/* clang-format off */

/* id, name for people; what is most remarkable comes first */
#define TOP_SORTS(X) \
	X(RANK,   "rank") \
	X(NODE,   "node") \
	X(STEP,   "step") \
	X(OWN,    "own time") \
	X(WAIT,   "wait") \
	X(MEMORY, "memory") \
	X(MARK,   "what stands out")

/* clang-format on */

enum top_sort {
#define TOP_SORT_ENUM(id, name) TOP_BY_##id,
	TOP_SORTS(TOP_SORT_ENUM)
#undef TOP_SORT_ENUM
		TOP_SORT_COUNT
};

enum { TOP_FILTER = 64 };

struct top_order {
	bool nodes; /* a row per node */
	enum top_sort sort;
	bool reverse;
	char filter[TOP_FILTER]; /* rows whose node contains it; "": all */
};

/* How remarkable a row is. */
enum top_mark { TOP_MARK_NONE, TOP_MARK_WARN, TOP_MARK_BAD };

struct top_row {
	int rank;         /* of a node: the first one in the table */
	int ranks;        /* how many it stands for */
	const char *node; /* borrowed */
	const char *place, *phase;
	int64_t step;                     /* of a node: the lowest */
	double own_s, wait_s, peak_bytes; /* of a node: the greatest */
	enum top_mark mark;
	char what[300]; /* why it stands out */
};

struct top_rows {
	struct top_row *of;
	int n;
	bool has_own, has_wait, has_memory, has_phase; /* of any row */
};

/* The rows borrow from the facts. ERR_NOMEM. */
int top_rows_make(struct top_rows *rows, const struct top_facts *f, const struct top_order *o,
		  struct err *e);
void top_rows_free(struct top_rows *rows);

/* The row of this rank, or of its node; -1: it is in none. */
int top_rows_find(const struct top_rows *rows, const struct top_facts *f, int rank, bool nodes);

const char *top_sort_name(enum top_sort sort);

/* What stands out about a rank; "": nothing. */
enum top_mark top_rows_mark(const struct top_facts *f, int rank, char *what, size_t size);

#endif
