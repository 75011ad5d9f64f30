/*
 * gen_model — the model of `muster generate`: from a checkpoint of any layout, or from a Hugging
 * Face folder, which is read as it is.
 *
 * It includes the model's attached files: its tokenizer, and the ids of the tokens that end a text.
 */
#ifndef MUSTER_AGENT_TOOLS_GEN_MODEL_H
#define MUSTER_AGENT_TOOLS_GEN_MODEL_H

#include "agent/engine/ckpt/format/attached.h"
#include "agent/engine/generate/lm.h"
#include "agent/engine/hf/reader.h"

#include <limits.h>

struct gen_model {
	char path[PATH_MAX]; /* of the checkpoint or the folder */
	int64_t step;        /* 0 for a folder */
	struct model_shape shape;
	struct attached attached;
	struct hf_reader *folder; /* NULL: a checkpoint */
};

/* word: a folder of Hugging Face, a checkpoint, or a run's folder or its ckpt folder; then the last
 * valid checkpoint is used. No weights are read yet. */
int tool_gen_model_open(const char *word, struct gen_model *out, struct err *e);
void tool_gen_model_close(struct gen_model *m);

/* Fills the weights of `lm`, which was opened for the model's shape (with any seq if positions are
 * rotary). note: as in hf_reader_read. */
int tool_gen_model_load(struct gen_model *m, struct lm *lm, hf_reader_note *note, void *arg,
			struct err *e);

#endif
