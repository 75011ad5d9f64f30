/*
 * card — README.md of an exported folder: the model card that transformers and the Hub know, short.
 *
 * A YAML header (library_name, pipeline_tag, base_model where it is known, tags), what the model
 * is, how far it was trained and with what loss, and how to load it. Paths of this machine are not
 * written.
 */
#ifndef MUSTER_AGENT_ENGINE_HF_CARD_H
#define MUSTER_AGENT_ENGINE_HF_CARD_H

#include "agent/engine/ckpt/manifest.h"
#include "agent/engine/hf/numbers.h"
#include "base/buf.h"
#include "plan/spec/job/job.h"

#include <stdint.h>

/* job: of defaults but for [model]. */
void hf_card_write(const struct manifest *m, const struct job *job, int64_t params,
		   const struct hf_type *type, struct buf *out);

#endif
