/*
 * reader — reads a Hugging Face folder, or one of torch.distributed.checkpoint or Megatron (dcp.h):
 * its model, and then its tensors one by one.
 *
 * hf_reader_open proves everything that can be proven without the numbers. It refuses a folder that
 * is not a causal language model in safetensors, with a remedy (unsupported.h); a config.json of a
 * model that muster does not have (config.h); and missing or extra tensors (weights.h, dcp.h). One tensor
 * is in memory at a time, and twice if it is transposed.
 */
#ifndef MUSTER_AGENT_ENGINE_HF_READER_H
#define MUSTER_AGENT_ENGINE_HF_READER_H

#include "agent/engine/hf/names.h"
#include "base/err.h"
#include "plan/spec/job/job.h"

#include <stdint.h>

struct hf_reader;

/* Receives a warning, for example about NaNs; reading continues. */
typedef void hf_reader_note(void *arg, const char *text);

/* config: the folder that has config.json, or NULL if `folder` has it. seq: see hf_config_read. */
int hf_reader_open(const char *folder, const char *config, int64_t seq, struct hf_reader **out,
		   struct err *e);
void hf_reader_close(struct hf_reader *s);

/* Borrowed. */
const struct job *hf_reader_job(const struct hf_reader *s);
const struct hf_names *hf_reader_names(const struct hf_reader *s);

/* Receives each of muster's tensors, [rows, columns] in fp32, in the order of the names' parts. A
 * result other than 0 ends the reading. */
typedef int hf_reader_put(void *arg, const struct hf_part *part, int64_t columns, const float *data,
			  struct err *e);

/* "huggingface", "torch_dcp" or "megatron". */
const char *hf_reader_format(const struct hf_reader *s);

/* `note` may be NULL. It receives how many tensors contain NaNs or infinities, and the names of the
 * first HF_NOTES of them. */
enum { HF_NOTES = 8 };
int hf_reader_read(struct hf_reader *s, hf_reader_put *put, hf_reader_note *note, void *arg,
		   struct err *e);

#endif
