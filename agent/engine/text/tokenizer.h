/*
 * tokenizer — converts text to token ids and back, as a Hugging Face tokenizer.json specifies.
 *
 * The following parts of such a file are supported (https://huggingface.co/docs/tokenizers); an
 * error names anything else:
 *
 *     model           type BPE: vocab, merges ("a b" or ["a", "b"]), unk_token, fuse_unk,
 *                     byte_fallback, ignore_merges
 *     added_tokens    content, id, special, lstrip, rstrip, normalized
 *     normalizer      null; NFC, NFD, NFKC, NFKD, Lowercase, StripAccents, Strip, Replace, Prepend
 *                     (normalize.h), alone or in a Sequence; after Prepend and Replace of " " by
 *                     "▁" only those that do not change such blanks
 *     pre_tokenizer   null; ByteLevel, Split (Isolated, or Removed inverted), Digits, in Sequences;
 *                     Metaspace that does not split
 *     post_processor  null; ByteLevel, TemplateProcessing, in Sequences
 *     decoder         null; ByteLevel; Replace of "▁", ByteFallback, Fuse, Strip, in Sequences
 *
 * So there are two types: byte-level vocabularies (GPT-2, LLaMA-3), whose tokens are bytes, and
 * vocabularies of characters (LLaMA-2, Mixtral), with "▁" for a blank and bytes as the last resort.
 *
 * Ids are those of Hugging Face's `tokenizers` for every text that is UTF-8. Other bytes match no
 * pattern: each is encoded by itself, so that a byte-level vocabulary reproduces any bytes.
 *
 * A tokenizer is read-only once open, and any thread may use it; encoders and decoders belong to one
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
/* Parses a file's text; `name` is the file's name in errors. */
int tokenizer_parse(const char *text, size_t n, const char *name, struct tokenizer **out,
		    struct err *e);
void tokenizer_close(struct tokenizer *t);

/* One more than the largest id: the smallest vocab that a model may have. */
int32_t tokenizer_vocab(const struct tokenizer *t);
/* The id of the added token, or of the vocabulary's token, with this text; -1: none. */
int32_t tokenizer_id(const struct tokenizer *t, const char *text);
/* The ids that the post-processor puts before a text (a beginning-of-text token, such as <s>). Those
 * that it puts after a text are ignored, because the text continues. */
const int32_t *tokenizer_before(const struct tokenizer *t, size_t *n);

/* Receives the ids of a text in order, some at a time; a nonzero result ends the encoding. */
typedef int tokenizer_put(void *arg, const int32_t *ids, size_t n, struct err *e);

struct encoder; /* one thread's memory, and a cache of words */
int text_encoder_open(const struct tokenizer *t, struct encoder **out, struct err *e);
void text_encoder_close(struct encoder *c);
/* Encodes a whole text, without the ids of the post-processor. */
int text_encoder_encode(struct encoder *c, const char *text, size_t n, tokenizer_put *put,
			void *arg, struct err *e);
enum { ENCODER_NOTE = 320 };
/* The number of characters in all texts so far that the Unicode tables used for splitting do not
 * have (unassigned.h): the ids of their words may differ from Hugging Face's. `note` is a text about
 * it that names the first one; "": none. */
int64_t text_encoder_unassigned(const struct encoder *c, char note[ENCODER_NOTE]);

/* Converts ids to text as they come. It appends whole characters if the text is UTF-8: the first
 * bytes of a character wait for the rest. Special tokens have no text. */
struct decoder;
int text_decoder_open(const struct tokenizer *t, struct decoder **out, struct err *e);
void text_decoder_close(struct decoder *d);
/* Begins a text with ids that are printed already, such as a prompt's; text_decoder_put then
 * continues it. Together they are the text of all ids, so a blank before the first new word is kept.
 * ERR_USAGE as in text_decoder_put. */
int text_decoder_begin(struct decoder *d, const int32_t *ids, size_t n, struct err *e);
/* Appends the text of an id. ERR_USAGE if the vocabulary does not have it. The caller checks
 * whether `out` failed. */
int text_decoder_put(struct decoder *d, int32_t id, struct buf *out, struct err *e);
/* Appends the bytes that still wait, and begins another text. */
void text_decoder_end(struct decoder *d, struct buf *out);

#endif
