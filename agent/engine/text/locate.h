/*
 * locate — opens the tokenizer that a user names: a tokenizer.json, or a folder that holds one.
 *
 * The folder may be one of Hugging Face, or a checkpoint with its model's tokenizer attached. If a
 * folder holds its tokenizer only in another form (tokenizer.model, vocab.json), the error gives
 * the command that writes a tokenizer.json next to it.
 */
#ifndef MUSTER_AGENT_ENGINE_TEXT_LOCATE_H
#define MUSTER_AGENT_ENGINE_TEXT_LOCATE_H

#include "agent/engine/text/tokenizer.h"

/* Opens the tokenizer that `word` names, like tokenizer_open. */
int tokenizer_open_named(const char *word, struct tokenizer **out, struct err *e);

/* Sets *e to ERR_NOTFOUND with the reason why a folder has no tokenizer.json and the remedy;
 * returns -1. */
int tokenizer_lacking(const char *folder, struct err *e);

#endif
