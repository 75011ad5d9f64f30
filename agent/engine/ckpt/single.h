/*
 * single — a checkpoint that one process writes alone, tensor after tensor: never more of it in
 * memory than one.
 *
 * It has one shard, shard-00000.safetensors. The same steps as in commit.h make it a checkpoint or
 * nothing.
 */
#ifndef MUSTER_AGENT_ENGINE_CKPT_SINGLE_H
#define MUSTER_AGENT_ENGINE_CKPT_SINGLE_H

#include "agent/engine/ckpt/ckpt.h"

struct ckpt_stream;
struct attached;

struct ckpt_stream_options {
	const char *dir; /* holds the step- folders; is made */
	struct ckpt_state state;
	const struct attached *carry; /* files that go into it (carry.h); NULL: none */
	json_t *model, *layout;    /* borrowed until ckpt_stream_close, as all here */
	/* The tensors that will come, in their order: names and shapes; boxes and data are not
	 * looked at. */
	const struct ckpt_tensor *tensors;
	int n;
};

/* ERR_USAGE when `dir` holds a checkpoint of that step already. */
int ckpt_stream_open(const struct ckpt_stream_options *opt, struct ckpt_stream **out, struct err *e);
/* The next tensor's numbers. */
int ckpt_stream_add_tensor(struct ckpt_stream *s, const float *data, struct err *e);
/* All have been added: syncs, proves, commits. path: of the checkpoint. */
int ckpt_stream_commit(struct ckpt_stream *s, char path[1024], struct err *e);
/* Removes what was not committed. Takes NULL. */
void ckpt_stream_close(struct ckpt_stream *s);

#endif
