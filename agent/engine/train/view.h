/*
 * view — a rank's training state in memory: masters and moments, wherever they lie.
 *
 * Of each piece (store.h) tensor 0 is the masters, those after it are the optimizer's moments of
 * them. They lie in the backend's memory or, with offload.optimizer on a device, in the host's.
 */
#ifndef MUSTER_AGENT_ENGINE_TRAIN_VIEW_H
#define MUSTER_AGENT_ENGINE_TRAIN_VIEW_H

#include "agent/engine/optim/optim.h"
#include "agent/engine/parallel/param_store.h"
#include "base/err.h"
#include "plan/spec/model/model.h"

#include <stdbool.h>
#include <stdint.h>

struct ckpt_watch;
struct attached;

struct state_view {
	struct param_store *store;
	struct optim *optim;
	/* hears of each piece that is loaded into it (agent/engine/ckpt/ckpt.h); NULL: nobody */
	const struct ckpt_watch *watch;
	/* gets the files that lie in the checkpoint that is loaded (agent/engine/ckpt/carry.h);
	 * NULL: not on this rank */
	struct attached *carry;
};

/* Collective over the store's groups. The parameters of the job's beginning (model_init, by the
 * backend's number of threads), published. */
int train_state_init(const struct state_view *view, const struct model_shape *s, uint64_t seed,
		     struct err *e);

int train_state_tensors(const struct state_view *view);
/* Where the tensor's part of the piece lies: [piece->count]. */
float *train_state_at(const struct state_view *view, const struct param_piece *piece, int tensor);
/* Whether that is memory of the host. */
bool train_state_on_host(const struct state_view *view, int tensor);

/* Copies elements [first, first + count) of it to the host's memory, after what is queued; and
 * from it. */
int train_state_read(const struct state_view *view, const struct param_piece *piece, int tensor,
		     int64_t first, int64_t count, float *out, struct err *e);
void train_state_write(const struct state_view *view, const struct param_piece *piece, int tensor,
		       int64_t first, int64_t count, const float *in);
/* All of it becomes zero. */
void train_state_clear(const struct state_view *view);

#endif
