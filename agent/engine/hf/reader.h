/*
 * reader — a Hugging Face folder that is read: its model, and each of the model's tensors in turn.
 *
 * Opening proves all there is to prove without the numbers: what is no folder of a causal language
 * model in safetensors is refused with what to do about it (kind.h), config.json must be of a model
 * that muster has (config.h), and the tensors must be exactly its own (weights.h). One tensor of
 * theirs is in memory at a time, twice when it is transposed.
 */
#ifndef MUSTER_AGENT_ENGINE_HF_READER_H
#define MUSTER_AGENT_ENGINE_HF_READER_H

#include "agent/engine/hf/names.h"
#include "base/err.h"
#include "plan/spec/job/job.h"

#include <stdint.h>

struct hf_reader;

/* A remark that stops nothing, such as numbers that are none. */
typedef void hf_reader_note(void *arg, const char *text);

/* seq: hf_config_read's. */
int hf_reader_open(const char *folder, int64_t seq, struct hf_reader **out, struct err *e);
void hf_reader_close(struct hf_reader *s);

/* Borrowed. */
const struct job *hf_reader_job(const struct hf_reader *s);
const struct hf_names *hf_reader_names(const struct hf_reader *s);

/* Gets each tensor of ours, in the order of names' parts: [rows, columns] in fp32. What it
 * returns other than 0 ends the reading. */
typedef int hf_reader_put(void *arg, const struct hf_part *part, int64_t columns, const float *data,
			  struct err *e);

/* note, which may be NULL, hears of the tensors that hold NaNs or infinities, with how many: the
 * first HF_NOTES by name. */
enum { HF_NOTES = 8 };
int hf_reader_read(struct hf_reader *s, hf_reader_put *put, hf_reader_note *note, void *arg,
		   struct err *e);

#endif
