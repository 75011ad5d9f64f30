/*
 * side — the files of a Hugging Face folder that are no weights: tokenizer, chat template, settings
 * of generation, licence.
 *
 * A closed table (side.c) says which there are and how large each may be. An import takes those
 * that are there along, byte for byte (agent/engine/ckpt/attached.h), and an export writes them again.
 * config.json is taken along too: at export its architecture is muster's own, and of the original
 * only the keys of a second closed table are kept, such as the ids of the special tokens. Code
 * (auto_map, *.py) is never carried.
 */
#ifndef MUSTER_AGENT_ENGINE_HF_SIDE_H
#define MUSTER_AGENT_ENGINE_HF_SIDE_H

#include "agent/engine/ckpt/attached.h"
#include "base/err.h"

#include <jansson.h>
#include <stdint.h>

/* Reads what is there of the table; finds the model's name: _name_or_path of config.json, or that
 * of the cache's folder that it lies in (models--ORG--NAME/snapshots/…). *out is empty after a
 * failure. left_out is called with a sentence for each link out of the folder, which is not taken
 * along; NULL: such links are followed, for who reads the files only. */
int hf_side_take(const char *folder, void (*left_out)(void *arg, const char *text), void *arg,
		 struct attached *out, struct err *e);

/* Whether an export writes this file as it is: of the table, and not config.json. */
bool hf_side_exported(const char *name);

/* Sets in `config`, which muster wrote, the keys of the carried config.json that are kept: those of
 * the right type. A carried file that is no JSON object adds nothing. */
int hf_side_add_keys(const struct attached *c, json_t *config, struct err *e);

/* Ids of the tokens that end a text: eos_token_id of generation_config.json, without it that of
 * config.json: a number or a list. Returns how many, at most HF_SIDE_ENDS; ids outside [0, vocab) are
 * left out. */
enum { HF_SIDE_ENDS = 16 };
int hf_side_ends(const struct attached *c, int64_t vocab, int32_t out[HF_SIDE_ENDS]);

#endif
