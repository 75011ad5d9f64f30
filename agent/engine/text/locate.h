/*
 * locate — the tokenizer that a person means by a word: a tokenizer.json, or a folder that holds
 * one.
 *
 * A folder may be one of Hugging Face, or a checkpoint that carries its model's tokenizer. One
 * whose tokenizer is only there in another form (tokenizer.model, vocab.json) is refused with the
 * command that writes a tokenizer.json beside it.
 */
#ifndef MUSTER_AGENT_ENGINE_TEXT_LOCATE_H
#define MUSTER_AGENT_ENGINE_TEXT_LOCATE_H

#include "agent/engine/text/tokenizer.h"

/* As tokenizer_open, of what `word` names. */
int tokenizer_open_named(const char *word, struct tokenizer **out, struct err *e);

/* Why a folder has no tokenizer.json, and what to do: sets *e to ERR_NOTFOUND, returns -1. */
int tokenizer_lacking(const char *folder, struct err *e);

#endif
