/*
 * parts — the parts of a tokenizer, for the files of agent/engine/text/ only.
 */
#ifndef MUSTER_AGENT_ENGINE_TEXT_PARTS_H
#define MUSTER_AGENT_ENGINE_TEXT_PARTS_H

#include "agent/engine/text/added.h"
#include "agent/engine/text/merges.h"
#include "agent/engine/text/normalize.h"
#include "agent/engine/text/split.h"
#include "agent/engine/text/tokenizer.h"
#include "agent/engine/text/vocab.h"

#include <jansson.h>

/* The character that vocabularies of characters use for a blank: U+2581. */
#define BLANK_MARK "\xe2\x96\x81"

enum { TOKENIZER_SPLITS = 16, TOKENIZER_TEMPLATE = 16, TOKENIZER_FILE_MAX = 1 << 28 };

/* When a blank is put before a piece of text (the text between added tokens). */
enum tokenizer_lead {
	LEAD_NEVER,
	LEAD_ALWAYS,  /* before each piece */
	LEAD_MISSING, /* unless the piece starts with a blank */
	LEAD_FIRST,   /* unless it starts with a blank, and only before the first piece of a text */
};

struct tokenizer {
	struct vocab vocab; /* by text: bytes if byte-level; " " in place of "▁" */
	struct merges merges;
	/* byte-level: the byte's id; otherwise the id of the fallback token <0xNN>; -1: none */
	int32_t byte_ids[256];
	int32_t unk; /* -1: none */
	bool byte_level, byte_fallback, fuse_unk, ignore_merges;
	bool blanks;                  /* "▁" means " " */
	struct normalizer normalizer; /* the steps before the blanks and the lead */
	/* the normalizer replaces blanks and adds the lead, before normalized added tokens are
	 * searched */
	bool normalizes;
	/* no merge crosses the position before a blank: a text may be split there */
	bool cut_blanks;
	enum tokenizer_lead lead;
	bool strip_lead; /* decoding drops one blank at the start of a text */
	struct split *splits[TOKENIZER_SPLITS];
	int n_splits;
	bool classes; /* some of them use Unicode's character classes */
	struct added_token *added;
	int32_t n_added;
	struct added_set raw, normalized;
	int32_t before[TOKENIZER_TEMPLATE];
	size_t n_before;
};

/* Read the parts of the file into their fields, in this order: pre_tokenizer and normalizer decide
 * how the texts of the others are written. Errors name the part, not the file. NULL and JSON's null
 * mean that the part is missing. */
int text_read_normalizer(struct tokenizer *t, const json_t *o, struct err *e);
int text_read_pre_tokenizer(struct tokenizer *t, const json_t *o, struct err *e);
int text_read_model(struct tokenizer *t, const json_t *o, struct err *e);
int text_read_added_tokens(struct tokenizer *t, const json_t *list, const json_t *vocab,
			   struct err *e);
int text_read_post_processor(struct tokenizer *t, const json_t *o, struct err *e);
int text_read_decoder(struct tokenizer *t, const json_t *o, struct err *e);

/* Fails with the object's type: "normalizer Nmt: not supported; known …". */
int text_refuse_part(const char *what, const json_t *o, const char *known, struct err *e);
bool text_part_is(const json_t *o, const char *type);
/* A boolean field; `missing` if it does not exist or is null. */
bool text_part_flag(const json_t *o, const char *key, bool missing);
const char *text_part_text(const json_t *o, const char *key); /* "": none */
/* Calls `one` for the object, or in order for each member of a Sequence (its field `list`). */
typedef int part_reader(struct tokenizer *t, const json_t *o, struct err *e);
int text_part_each(struct tokenizer *t, const json_t *o, const char *list, const char *what,
		   part_reader *one, struct err *e);

/* Appends the text of a token that tokenizer.json has written; false: no text can contain this
 * token. */
bool text_token_text(const struct tokenizer *t, const char *written, size_t len, struct buf *out);

#endif
