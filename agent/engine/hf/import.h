/*
 * import — a Hugging Face folder to a checkpoint of ours, and back.
 *
 * Import writes DIR/step-00000000, a checkpoint of step 0 without optimizer state
 * (agent/engine/train/state.h: moments begin at zero), with the tokenizer and what else came with
 * the model (side.h), and DIR/model.ini, a job file with the [model] section that fits it and
 * checkpoint.resume naming it. Export writes a new folder with config.json and model.safetensors,
 * or, when there is more than shard_size, model-00001-of-0000N.safetensors and an index, the files
 * that the checkpoint carries, and a model card (card.h). Each holds one tensor of theirs in memory
 * at a time, twice when it is transposed, and leaves nothing behind when it fails.
 */
#ifndef MUSTER_AGENT_ENGINE_HF_IMPORT_H
#define MUSTER_AGENT_ENGINE_HF_IMPORT_H

#include "agent/engine/ckpt/manifest.h"
#include "agent/engine/hf/numbers.h"
#include "agent/engine/hf/reader.h"
#include "base/buf.h"
#include "base/err.h"
#include "plan/spec/job/job.h"

struct hf_report {
	struct job job;  /* its [model] */
	int64_t tensors; /* of theirs */
	int64_t params, bytes;
	int files;
	int carried;     /* files that came with the model */
	char path[1024]; /* of the checkpoint, or the folder */
};

/* Hears of what stops nothing (reader.h, hf_reader_note). */
struct hf_listener {
	hf_reader_note *note;
	void *arg;
};

/* seq: hf_config_read's. listener may be NULL. */
int hf_import(const char *folder, const char *dir, int64_t seq, const struct hf_listener *listener,
	      struct hf_report *report, struct err *e);

/* path, m: the checkpoint's. folder: must not be there, or be empty. */
int hf_export(const char *path, const struct manifest *m, const char *folder,
	      const struct hf_type *type, int64_t shard_size, struct hf_report *report,
	      struct err *e);

/* The job file of an imported model. */
void hf_job_file(const struct hf_report *report, struct buf *out);

#endif
