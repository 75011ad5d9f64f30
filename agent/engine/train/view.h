/*
 * view — where a rank's training state is in memory: masters and moments.
 *
 * Tensor 0 of a piece (store.h) is its masters. The next tensors are the optimizer's moments of
 * them. They are in the backend's memory or, with offload.optimizer on a device, in host memory.
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
	/* called for each piece that is loaded (agent/engine/ckpt/ckpt.h); NULL: none */
	const struct ckpt_watch *watch;
	/* receives the attached files of the checkpoint that is loaded
	 * (agent/engine/ckpt/attached.h); NULL: not on this rank */
	struct attached *attached;
};

/* Collective over the store's groups. Sets and publishes the initial parameters (model_init, with
 * the backend's number of threads). */
int train_state_init(const struct state_view *view, const struct model_shape *s, uint64_t seed,
		     struct err *e);

int train_state_tensors(const struct state_view *view);
/* Returns the address of the tensor's elements of the piece: [piece->count]. */
float *train_state_at(const struct state_view *view, const struct param_piece *piece, int tensor);
/* Whether the tensor is in host memory. */
bool train_state_on_host(const struct state_view *view, int tensor);

/* train_state_read copies elements [first, first + count) of the tensor to host memory, after all
 * queued work. train_state_write copies them from host memory. */
int train_state_read(const struct state_view *view, const struct param_piece *piece, int tensor,
		     int64_t first, int64_t count, float *out, struct err *e);
void train_state_write(const struct state_view *view, const struct param_piece *piece, int tensor,
		       int64_t first, int64_t count, const float *in);
/* Sets all tensors to zero. */
void train_state_clear(const struct state_view *view);

#endif
