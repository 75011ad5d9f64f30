/*
 * import — converts a Hugging Face folder to a checkpoint of muster, and back.
 *
 * Import writes DIR/step-00000000, a checkpoint of step 0 without optimizer state
 * (agent/engine/train/state.h: the moments start at zero). It contains the tokenizer and the other
 * files of the model (side.h). Import also writes DIR/model.ini, a job file with the matching
 * [model] section and a checkpoint.resume that names the checkpoint. Export writes a new folder with
 * config.json, the files that the checkpoint carries, a model card (card.h), and model.safetensors.
 * If the weights are larger than shard_size, it writes model-00001-of-0000N.safetensors and an index
 * instead.
 *
 * Both hold one tensor of the Hugging Face folder in memory at a time, and twice if they transpose
 * it. A failure leaves no files behind.
 */
#ifndef MUSTER_AGENT_ENGINE_HF_IMPORT_H
#define MUSTER_AGENT_ENGINE_HF_IMPORT_H

#include "agent/engine/ckpt/format/manifest.h"
#include "agent/engine/hf/numbers.h"
#include "agent/engine/hf/reader.h"
#include "base/buf.h"
#include "base/err.h"
#include "plan/spec/job/job.h"

struct hf_report {
	struct job job;  /* its [model] section */
	int64_t tensors; /* in the Hugging Face folder */
	int64_t params, bytes;
	int files;
	int carried;     /* files that came with the model */
	char path[1024]; /* of the checkpoint, or the folder */
};

/* Receives warnings (reader.h, hf_reader_note). */
struct hf_listener {
	hf_reader_note *note;
	void *arg;
};

struct hf_import_options {
	const char *folder, *dir;
	/* The folder with config.json and the tokenizer; NULL: `folder`. */
	const char *config;
	int64_t seq;                        /* see hf_config_read */
	const struct hf_listener *listener; /* may be NULL */
};

int hf_import(const struct hf_import_options *opt, struct hf_report *report, struct err *e);

/* path, m: the checkpoint and its manifest. folder must not exist, or be empty. */
int hf_export(const char *path, const struct manifest *m, const char *folder,
	      const struct hf_type *type, int64_t shard_size, struct hf_report *report,
	      struct err *e);

/* Appends the job file of an imported model. */
void hf_job_file(const struct hf_report *report, struct buf *out);

#endif
