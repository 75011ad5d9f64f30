/*
 * gen_model — the model that `muster generate` speaks with: of a checkpoint that any layout has
 * written, or of a Hugging Face folder, which is read as it is.
 *
 * What came with the model comes with it here: its tokenizer, and the ids of the tokens that end a
 * text.
 */
#ifndef MUSTER_AGENT_TOOLS_GEN_MODEL_H
#define MUSTER_AGENT_TOOLS_GEN_MODEL_H

#include "agent/engine/ckpt/attached.h"
#include "agent/engine/generate/lm.h"
#include "agent/engine/hf/reader.h"

#include <limits.h>

struct gen_model {
	char path[PATH_MAX]; /* of the checkpoint, or the folder */
	int64_t step;        /* 0 for a folder */
	struct model_shape shape;
	struct attached attached;
	struct hf_reader *folder; /* NULL: a checkpoint */
};

/* word: a folder of Hugging Face, a checkpoint, or a run's folder or its ckpt folder: then the
 * newest valid one. No weights are read yet. */
int tool_gen_model_open(const char *word, struct gen_model *out, struct err *e);
void tool_gen_model_close(struct gen_model *m);

/* Fills the weights of `lm`, which was opened for the model's shape (with any seq where
 * positions are rotary). note: hf_reader_read's. */
int tool_gen_model_load(struct gen_model *m, struct lm *lm, hf_reader_note *note, void *arg,
			struct err *e);

#endif
