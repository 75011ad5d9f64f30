/* start — reads the message helper_start: which agents the helper of a node starts. */
#ifndef MUSTER_LAUNCHER_HELPER_START_H
#define MUSTER_LAUNCHER_HELPER_START_H

#include "base/err.h"
#include "base/messages.h"
#include "plan/spec/job/job.h"

enum { HELPER_WORLD_MOST = 1 << 20 };

struct helper_start {
	struct msg_helper_start m; /* borrows from the message */
	enum job_bind bind;
	int world;
	int *node_of; /* world */
	int n;        /* agents of this node, at least 1 */
	int *ranks;   /* n, ascending */
	int *threads; /* n */
};

/* Borrows from `body`. ERR_PROTO: a field is missing, or the lists do not fit each other. The caller
 * calls helper_start_fini(), also after an error. */
int helper_start_read(const json_t *body, struct helper_start *s, struct err *e);
void helper_start_fini(struct helper_start *s);

#endif
