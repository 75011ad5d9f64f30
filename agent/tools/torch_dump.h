/*
 * torch_dump — dumps of PyTorch's flight recorder as dumps of muster's (libcomm/flight/recorder.h),
 * so that the same code judges both.
 *
 * A dump of PyTorch does not hold its rank, which is in the file's name, nor the size of the world.
 * So all dumps are looked at first. A group is the list "process_group" of its entries, a name and a
 * description; its members are in "pg_config". Gloo writes no usable "pg_config". A group without
 * members there has all ranks of the world if it is the default group, otherwise the ranks in whose
 * dumps it occurs.
 *
 *     PyTorch                      muster
 *     scheduled, started           running: the rank has called it, and the others may have to wait
 *     completed                    done
 *     retired, but not completed   failed (NCCL: it has timed out); done (gloo, which never says
 *                                  completed)
 *
 * PyTorch does not record reductions, roots, the host or the time of the dump; the caller passes the
 * time of the file. It numbers the messages of a rank, not those of two ranks. If the recorder has
 * lost entries, messages cannot be matched, and none is blamed.
 */
#ifndef MUSTER_AGENT_TOOLS_TORCH_DUMP_H
#define MUSTER_AGENT_TOOLS_TORCH_DUMP_H

#include "base/err.h"

#include <jansson.h>
#include <stdint.h>

struct torch_world {
	int size;     /* the ranks that are known */
	json_t *seen; /* by the group's name, an object whose keys are ranks with entries of it */
};

/* Adds what a rank's dump shows of the world. dump: as tool_torch_read() gives it. */
int tool_torch_look(struct torch_world *w, const json_t *dump, int rank, struct err *e);
/* The rank's dump for comm_trace_add_json(), a new reference. All dumps have been looked at. */
json_t *tool_torch_convert(const struct torch_world *w, const json_t *dump, int rank,
			   int64_t time_us, struct err *e);
void tool_torch_world_fini(struct torch_world *w);

#endif
