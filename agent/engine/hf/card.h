/*
 * card — README.md of an exported folder: a short model card, in the form that transformers and the
 * Hub read.
 *
 * It has a YAML header (library_name, pipeline_tag, base_model if known, tags). The text gives the
 * kind of model, how far it was trained and with which loss, and how to load it. It contains no
 * paths of this machine.
 */
#ifndef MUSTER_AGENT_ENGINE_HF_CARD_H
#define MUSTER_AGENT_ENGINE_HF_CARD_H

#include "agent/engine/ckpt/format/manifest.h"
#include "agent/engine/hf/numbers.h"
#include "base/buf.h"
#include "plan/spec/job/job.h"

#include <stdint.h>

/* Appends the card to `out`. Only the [model] section of `job` is read. */
void hf_card_write(const struct manifest *m, const struct job *job, int64_t params,
		   const struct hf_type *type, struct buf *out);

#endif
