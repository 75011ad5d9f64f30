/*
 * ledger_merge — merges lines of a ledger that continue each other, so that a long run's ledger stays
 * small. An audit of the merged lines proves what an audit of the old lines proved.
 *
 * Steps lines become one line with pieces (ledger_lines.h) if
 *   - they follow each other in one generation, and each begins at the step and at the position where
 *     the one before it ends;
 *   - they have the same batch and the same shares, and the shares tile the batch;
 *   - later start lines undo all of them or none of them.
 * A merged line takes further lines in, but two merged lines stay two: a digest over digests can only
 * be extended. All other lines stay as they are, also those that cannot be read. Heads are removed.
 *
 * An audit finds where read tokens differ from the data only to the merged line, not to the piece.
 */
#ifndef MUSTER_AGENT_ENGINE_DATA_LEDGER_MERGE_H
#define MUSTER_AGENT_ENGINE_DATA_LEDGER_MERGE_H

#include "base/buf.h"
#include "base/err.h"

#include <stddef.h>

struct ledger_merger; /* one thread */

int data_ledger_merger_open(struct ledger_merger **out, struct err *e);
void data_ledger_merger_close(struct ledger_merger *m); /* takes NULL */
/* At first, the lines of earlier files: they say which generation the first lines continue. */
int data_ledger_merger_precede(struct ledger_merger *m, const char *line, size_t n, struct err *e);
/* Then all lines are looked at, in their order and without their newlines. ERR_UNSUPPORTED: a newer
 * muster wrote them. */
int data_ledger_merger_look(struct ledger_merger *m, const char *line, size_t n, struct err *e);
/* At last the same lines are added, and the merged lines appended to `out`. */
int data_ledger_merger_add(struct ledger_merger *m, const char *line, size_t n, struct buf *out,
			   struct err *e);
/* Appends the last line. */
int data_ledger_merger_end(struct ledger_merger *m, struct buf *out, struct err *e);

#endif
