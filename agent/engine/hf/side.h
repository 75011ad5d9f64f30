/*
 * side — the files of a Hugging Face folder that are not weights: tokenizer, chat template,
 * generation settings, licence.
 *
 * A closed table (side.c) lists these files and the largest size of each. Import copies the ones
 * that exist into the checkpoint, byte for byte (agent/engine/ckpt/format/attached.h), and export writes
 * them out again. config.json is copied, too, but export writes muster's own architecture: of the
 * original it keeps only the keys of a second closed table, such as the ids of special tokens. Code
 * (auto_map, *.py) is never copied.
 */
#ifndef MUSTER_AGENT_ENGINE_HF_SIDE_H
#define MUSTER_AGENT_ENGINE_HF_SIDE_H

#include "agent/engine/ckpt/format/attached.h"
#include "base/err.h"

#include <jansson.h>
#include <stdint.h>

/* Reads the table's files that exist in the folder. Finds the model's name: _name_or_path of
 * config.json, or the name in the path of the Hub's cache (models--ORG--NAME/snapshots/…). After a
 * failure *out is empty. A link that leads out of the folder is skipped, and left_out receives a
 * sentence about it. If left_out is NULL, such links are followed; that is for callers that only
 * read the files. */
int hf_side_take(const char *folder, void (*left_out)(void *arg, const char *text), void *arg,
		 struct attached *out, struct err *e);

/* Whether export writes this file unchanged: it is in the table, and is not config.json. */
bool hf_side_exported(const char *name);

/* Adds to `config`, which muster wrote, the keys of the carried config.json that export keeps, if
 * they have the right type. A carried file that is not a JSON object adds nothing. */
int hf_side_add_keys(const struct attached *c, json_t *config, struct err *e);

/* The ids of the tokens that end a text: eos_token_id of generation_config.json, or, if that has
 * none, of config.json; a number or a list. Returns how many there are, at most HF_SIDE_ENDS; skips
 * ids outside [0, vocab). */
enum { HF_SIDE_ENDS = 16 };
int hf_side_ends(const struct attached *c, int64_t vocab, int32_t out[HF_SIDE_ENDS]);

#endif
