/*
 * stream — a checkpoint that one process writes alone, tensor after tensor, so that at most one
 * tensor is in memory.
 *
 * It has one shard, shard-00000.safetensors, and becomes visible in the same steps as in commit.h:
 * whole or not at all.
 */
#ifndef MUSTER_AGENT_ENGINE_CKPT_SAVE_STREAM_H
#define MUSTER_AGENT_ENGINE_CKPT_SAVE_STREAM_H

#include "agent/engine/ckpt/ckpt.h"

struct ckpt_stream;
struct attached;

struct ckpt_stream_options {
	const char *dir; /* holds the step- entries; is made if it does not exist */
	struct ckpt_state state;
	const struct attached *attached; /* files that go into it (attached.h); NULL: none */
	/* Borrowed until ckpt_stream_close, like every pointer here. */
	json_t *model, *layout;
	/* Names and shapes of the tensors in the order in which they are added. Boxes and data are
	 * ignored. */
	const struct ckpt_tensor *tensors;
	int n;
};

/* ERR_USAGE if `dir` holds a checkpoint of that step. */
int ckpt_stream_open(const struct ckpt_stream_options *opt, struct ckpt_stream **out,
		     struct err *e);
/* Appends the elements of the next tensor. */
int ckpt_stream_add_tensor(struct ckpt_stream *s, const float *data, struct err *e);
/* Syncs, proves and commits the checkpoint after the last tensor; sets its path. */
int ckpt_stream_commit(struct ckpt_stream *s, char path[1024], struct err *e);
/* Removes a checkpoint that was not committed. Takes NULL. */
void ckpt_stream_close(struct ckpt_stream *s);

#endif
