/*
 * ckpt — checkpoints that are proven.
 *
 * A checkpoint is a folder DIR/step-00000400 with
 *     shard-00003.safetensors   what world rank 3 wrote: its own slices
 *     MANIFEST.json             written last: step and state, model, layout, every file with its
 *                               size, every tensor slice with its global shape, box, file, offset
 *                               and XXH3-128 digest (taken from the snapshot in memory), and a digest of itself
 * It is written as an attempt (.attempt-STEP-GENERATION-NONCE), proven to cover every tensor
 * exactly once, renamed. A folder without a valid MANIFEST is not a checkpoint. `latest` is found by reading
 * manifests: highest step, never by time or by a pointer file.
 *
 * Any layout loads any other's: a loader asks for boxes of global tensors.
 */
#ifndef MUSTER_AGENT_CKPT_CKPT_H
#define MUSTER_AGENT_CKPT_CKPT_H

#include "base/err.h"
#include "libcomm/comm.h"
#include "plan/model.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

/* A box of a global tensor in this rank's memory: row-major, dense, fp32. */
struct ckpt_tensor {
	char name[96];        /* "layers.0.attn.q.weight", "optim.m.layers.0.attn.q.weight" */
	int dims;             /* 1 or 2 */
	int64_t shape[2];     /* global */
	int64_t lo[2], hi[2]; /* the box */
	float *data;
};

/* Everything that is not a tensor. */
struct ckpt_state {
	int64_t step;         /* finished steps */
	int64_t samples;      /* consumed */
	uint64_t seed;
	int64_t total_steps;  /* the learning-rate schedule's length when it was written */
};

struct ckpt_writer; /* one an agent */

struct ckpt_options {
	const char *dir;        /* holds the step- folders */
	int64_t keep;           /* newest ones kept after a success; 0: all */
	uint32_t generation;
	json_t *model;          /* what must be equal to load it: family and sizes; borrowed */
	json_t *layout;         /* tp, dp, pp: for people; borrowed */
};

/* Collective over `world`; the writer keeps a group of its own for its background thread. */
int ckpt_writer_open(struct comm *world, const struct ckpt_options *opt, struct ckpt_writer **out, struct err *e);
/* Waits for a write under way. Takes NULL. */
void ckpt_writer_close(struct ckpt_writer *w);

/* Collective. Copies the tensors to host memory and returns (the stall); a thread digests,
 * writes, proves and commits. The union over ranks must cover each tensor exactly once: the caller
 * gives each slice on one dp rank only. Fails when the previous one failed; waits for it when it is still under way. */
int ckpt_save(struct ckpt_writer *w, const struct ckpt_state *state, const struct ckpt_tensor *tensors, int n, struct err *e);
/* Waits until the last save is committed. */
int ckpt_wait(struct ckpt_writer *w, struct err *e);

struct ckpt_report {
	int64_t step;
	char path[1024];
	int64_t bytes;
	double seconds, stall_s;
};
/* 1 once for each commit since the last call (on world rank 0), else 0. Never waits. */
int ckpt_committed(struct ckpt_writer *w, struct ckpt_report *out);

/* The newest valid checkpoint under dir for this model; *path is to be freed, NULL when there is none. Damaged
 * ones are skipped, each with a line to `note` (may be NULL). Only the manifest and file sizes are read. */
int ckpt_latest(const char *dir, json_t *model, char **path, void (*note)(const char *text, void *arg), void *arg, struct err *e);

/* Fills the boxes from whichever shards hold them; digests of the slices read are verified. ERR_CORRUPT names file and tensor.
 * Not collective. */
int ckpt_load(const char *path, json_t *model, struct ckpt_state *state, struct ckpt_tensor *tensors, int n, struct err *e);

/* Reads everything and compares: sizes, digests, headers, coverage. */
int ckpt_verify(const char *path, struct err *e);

#endif
