/*
 * state — the part of a training run that a checkpoint holds: its tensors by name, where they are
 * in a rank's memory, and how they are saved and loaded.
 *
 * Tensors: every parameter under its global name (fp32 masters), and the optimizer's states of it
 * as optim.STATE.NAME, such as optim.m.NAME and optim.v.NAME with AdamW. A rank saves the counted
 * range of each of its pieces (param_store.h). Such a range of a row-major box is at most three
 * boxes: the rest of a row, whole rows, and the beginning of a row. Loading requests exactly the
 * pieces that a rank holds, so that any layout and any ZeRO stage loads the checkpoints of all
 * others.
 *
 * A checkpoint names the optimizer of its states. States of another optimizer are refused
 * (ERR_USAGE), because states that start at zero in the middle of a run would make its first steps
 * far too long. A checkpoint of step 0 may hold no states (CKPT_NO_OPTIMIZER), as imported ones do.
 * The states then start at zero, under any optimizer.
 *
 * The other files: state_tensors.c accesses the tensors in memory, state_init.c sets the initial
 * parameters, state_model.c describes the model, state_check.c compares a checkpoint with the model
 * that it names, and resume.h chooses the checkpoint.
 */
#ifndef MUSTER_AGENT_ENGINE_TRAIN_STATE_H
#define MUSTER_AGENT_ENGINE_TRAIN_STATE_H

#include "agent/engine/ckpt/ckpt.h"
#include "agent/engine/optim/optim.h"
#include "agent/engine/parallel/param_store.h"
#include "base/err.h"
#include "libcomm/comm.h"
#include "plan/spec/job/job.h"
#include "plan/spec/model/model.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct attached; /* agent/engine/ckpt/format/attached.h */
struct manifest; /* agent/engine/ckpt/format/manifest.h */

/* Where a rank's state is in memory; all pointers are borrowed. Tensor 0 of a piece (param_store.h)
 * is its masters, and the next tensors are the optimizer's states of them. They are in the
 * backend's memory or, with offload.optimizer on a device, in the host's memory. */
struct train_state {
	struct param_store *store;
	struct optim *optim;
	/* called for each piece that is loaded (agent/engine/ckpt/ckpt.h); NULL: none */
	const struct ckpt_watch *watch;
	/* receives the attached files of the checkpoint that is loaded; NULL: not on this rank */
	struct attached *attached;
};

/* Collective over the store's groups. Sets and publishes the initial parameters (model_init, with
 * the backend's number of threads). */
int train_state_init(const struct train_state *state, const struct model_shape *s, uint64_t seed,
		     struct err *e);

/* --- Tensors in memory --- */

int train_state_tensors(const struct train_state *state);
/* Returns the address of the tensor's elements of the piece: [piece->count]. NULL: the piece has no
 * such tensor. */
float *train_state_at(const struct train_state *state, const struct param_piece *piece, int tensor);
/* Whether the tensor is in the host's memory. */
bool train_state_on_host(const struct train_state *state, int tensor);

/* Waits until no operation in progress reads or writes the tensors: gathers of parameters, which
 * stage 1 and 2 of ZeRO in fp32 make in place in the masters, and copies of offloaded tensors.
 * Whatever writes tensors other than by the next three functions calls this first. */
int train_state_settle(const struct train_state *state, struct err *e);
/* train_state_read copies elements [first, first + count) of the tensor to the host's memory, after
 * all queued work. train_state_write copies them from the host's memory, after all transfers in
 * progress (train_state_settle). */
int train_state_read(const struct train_state *state, const struct param_piece *piece, int tensor,
		     int64_t first, int64_t count, float *out, struct err *e);
int train_state_write(const struct train_state *state, const struct param_piece *piece, int tensor,
		      int64_t first, int64_t count, const float *in, struct err *e);
/* Sets all tensors to zero, likewise. */
int train_state_clear(const struct train_state *state, struct err *e);

/* --- The model in a checkpoint --- */

/* The part of a model that a checkpoint must agree with to be loaded: family and sizes. A new
 * reference. */
json_t *train_state_model(const struct model_shape *s);
/* The inverse: returns a job with defaults that has this [model] section. ERR_UNSUPPORTED: this
 * version of muster does not have such a model; ERR_CORRUPT: a field is missing. */
int train_state_model_job(json_t *model, struct job *out, struct err *e);

/* Compares the tensors of a proven manifest with the model and the optimizer that it names.
 * ERR_CORRUPT names the first tensor that is missing, has another shape, or belongs to neither. */
int train_state_check(const struct manifest *m, struct err *e);

/* The tensors of a whole checkpoint of the model under this optimizer: names and shapes. The caller
 * frees the list. */
int train_state_whole(const struct model_shape *s, enum job_optimizer kind,
		      struct ckpt_tensor **list, int *n, struct err *e);

/* --- Load and save --- */

struct ckpt_local_found;
struct ckpt_store;

/* Where a checkpoint is loaded from. */
struct train_source {
	const char *path;
	/* it is in the folders of the nodes (agent/engine/ckpt/places/local.h); NULL: in `path` alone */
	const struct ckpt_local_found *local;
	/* what the ranks have of it in memory is not read, on all ranks or on none (NULL) */
	const struct ckpt_store *memory;
};

/* Collective. Loads a checkpoint into the state and sets *at; the ranks share the reading. Every
 * rank returns the same result, and in *culprit the rank whose error it is
 * (agent/engine/ckpt/load/exchange.h). The state may be partly loaded after a failure. */
int train_state_load(struct comm *world, const struct train_source *from, json_t *model,
		     const struct train_state *state, struct ckpt_state *at, int *culprit,
		     struct err *e);
/* Collective. Proves that the ranks hold the state of the checkpoint that they have loaded
 * (agent/engine/ckpt/format/state_digest.h). Each element is digested by the one rank that would save it. */
int train_state_check_loaded(struct comm *world, const struct train_source *from,
			     const struct train_state *state, struct err *e);
struct ckpt_mirror;

/* Collective. Loads the newest state of which a copy of every shard is in the memory of the ranks
 * (agent/engine/ckpt/load/exchange.h), as train_state_load does, and proves that the ranks hold it. 1: loaded;
 * 0: there is none. */
int train_state_recover(struct comm *world, const struct ckpt_store *store, json_t *model,
			const struct train_state *state, struct ckpt_state *at, int *culprit,
			struct err *e);
/* Collective. Copies the state of *at in memory (agent/engine/ckpt/memory/mirror.h), whose optimizer is set
 * from the state. ckpt_mirror_start follows. */
int train_state_copy(struct ckpt_mirror *m, const struct ckpt_state *at,
		     const struct train_state *state, struct err *e);
/* Bytes of what this rank saves. */
int train_state_bytes(const struct train_state *state, double *bytes, struct err *e);
/* Prepares the memory of the first save (ckpt_writer_prepare). */
void train_state_prepare_save(struct ckpt_writer *w, const struct train_state *state);
/* Collective. Starts the checkpoint of *at in the tiers `where` (enum ckpt_where), whose optimizer
 * is set from the state. Fails if the
 * previous save failed; that failure is returned once, and another call starts this save. */
int train_state_save(struct ckpt_writer *w, unsigned where, const struct ckpt_state *at,
		     const struct train_state *state, struct err *e);

#endif
