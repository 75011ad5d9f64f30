/*
 * tokenizer — text to token ids and back, as a Hugging Face tokenizer.json says.
 *
 * What is read of such a file (https://huggingface.co/docs/tokenizers; anything else is refused by
 * name):
 *
 *     model           type BPE: vocab, merges ("a b" or ["a", "b"]), unk_token, fuse_unk,
 *                     byte_fallback, ignore_merges
 *     added_tokens    content, id, special, lstrip, rstrip, normalized
 *     normalizer      null; NFC, NFD, NFKC, NFKD, Lowercase, StripAccents, Strip, Replace, Prepend
 *                     (normalize.h), alone or in a Sequence; behind Prepend and Replace of " " by
 *                     "▁" only those that such blanks are nothing to
 *     pre_tokenizer   null; ByteLevel, Split (Isolated, or Removed inverted), Digits, in Sequences;
 *                     Metaspace that does not split
 *     post_processor  null; ByteLevel, TemplateProcessing, in Sequences
 *     decoder         null; ByteLevel; Replace of "▁", ByteFallback, Fuse, Strip, in Sequences
 *
 * So there are two kinds: byte-level vocabularies (GPT-2, LLaMA-3), whose tokens are bytes, and
 * those whose tokens are characters, with "▁" for a blank and bytes as the last resort (LLaMA-2,
 * Mixtral).
 *
 * Ids are those of Hugging Face's `tokenizers` for every text that is UTF-8. Other bytes are no
 * word of any pattern: each is encoded by itself, so that a byte-level vocabulary gives any bytes
 * back as they were.
 *
 * A tokenizer is read-only once open, any thread may use it; encoders and decoders belong to one
 * thread.
 */
#ifndef MUSTER_AGENT_ENGINE_TEXT_TOKENIZER_H
#define MUSTER_AGENT_ENGINE_TEXT_TOKENIZER_H

#include "base/buf.h"
#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tokenizer;

int tokenizer_open(const char *path, struct tokenizer **out, struct err *e);
/* The same of a file's text; `name` stands for the file in errors. */
int tokenizer_parse(const char *text, size_t n, const char *name, struct tokenizer **out,
		    struct err *e);
void tokenizer_close(struct tokenizer *t);

/* One more than the largest id: what a model's vocab must be at least. */
int32_t tokenizer_vocab(const struct tokenizer *t);
/* The id of an added token, or of the vocabulary's token with this text; -1: there is none. */
int32_t tokenizer_id(const struct tokenizer *t, const char *text);
/* Ids that the post-processor puts before a text (a beginning-of-text token, such as <s>); those
 * behind one are not kept: a text goes on. */
const int32_t *tokenizer_before(const struct tokenizer *t, size_t *n);

/* Takes the ids of a text, some at a time, in order; what it returns other than 0 ends the
 * encoding. */
typedef int tokenizer_put(void *arg, const int32_t *ids, size_t n, struct err *e);

struct encoder; /* one thread's memory, and the words that it met before */
int text_encoder_open(const struct tokenizer *t, struct encoder **out, struct err *e);
void text_encoder_close(struct encoder *c);
/* The ids of the whole text, without those of the post-processor. */
int text_encoder_encode(struct encoder *c, const char *text, size_t n, tokenizer_put *put,
			void *arg, struct err *e);
enum { ENCODER_NOTE = 320 };
/* How many characters of all texts so far are newer than the Unicode tables by which they were
 * split (newer.h): the ids of their words may not be Hugging Face's. `note` says it for people, and
 * names the first one; "" when there are none. */
int64_t text_encoder_unassigned(const struct encoder *c, char note[ENCODER_NOTE]);

/* Ids to text as they come. What it appends is whole characters where the text is UTF-8: a
 * character's first bytes wait for the rest. Special tokens have no text. */
struct decoder;
int text_decoder_open(const struct tokenizer *t, struct decoder **out, struct err *e);
void text_decoder_close(struct decoder *d);
/* Begins a text with ids that are printed already, such as a prompt's: what text_decoder_put then
 * appends continues it. Together both are the text of all the ids, so a blank before the first new
 * word is kept. ERR_USAGE as text_decoder_put. */
int text_decoder_begin(struct decoder *d, const int32_t *ids, size_t n, struct err *e);
/* ERR_USAGE for an id that the vocabulary lacks. A failed `out` is the caller's to see. */
int text_decoder_put(struct decoder *d, int32_t id, struct buf *out, struct err *e);
/* Appends what waits still, and begins another text. */
void text_decoder_end(struct decoder *d, struct buf *out);

#endif
