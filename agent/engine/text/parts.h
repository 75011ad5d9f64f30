/*
 * parts — what a tokenizer consists of. Only files of agent/engine/text/ include this.
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

/* What stands for a blank in vocabularies of characters: U+2581. */
#define BLANK_MARK "\xe2\x96\x81"

enum { TOKENIZER_SPLITS = 16, TOKENIZER_TEMPLATE = 16, TOKENIZER_FILE_MOST = 1 << 28 };

/* When a blank is put before a piece of text (what lies between added tokens). */
enum tokenizer_lead {
	LEAD_NEVER,
	LEAD_ALWAYS,  /* before each */
	LEAD_MISSING, /* unless it starts with one */
	LEAD_FIRST,   /* the same, at the start of a text alone */
};

struct tokenizer {
	struct vocab vocab; /* by text: bytes of a byte-level one, " " for "▁" */
	struct merges merges;
	/* byte-level: of the byte; else of the fallback token <0xNN>; -1: none */
	int32_t byte_ids[256];
	int32_t unk; /* -1: none */
	bool byte_level, byte_fallback, fuse_unk, ignore_merges;
	bool blanks;                  /* "▁" stands for " " */
	struct normalizer normalizer; /* the rest of it, before its blanks and lead */
	/* the normalizer does that, and puts the lead: before normalized added tokens are looked
	 * for */
	bool normalizes;
	/* no merge reaches over the place before a blank: a text may be cut there */
	bool cut_blanks;
	enum tokenizer_lead lead;
	bool strip_lead; /* decoding drops one blank at the start of a text */
	struct split *splits[TOKENIZER_SPLITS];
	int n_splits;
	bool classes; /* some of them go by the classes of characters */
	struct added_token *added;
	int32_t n_added;
	struct added_set raw, normalized;
	int32_t before[TOKENIZER_TEMPLATE];
	size_t n_before;
};

/* The parts of the file, each into its fields, in this order: pre_tokenizer and normalizer tell how
 * the others' texts are written. Errors name the part, not the file. NULL and JSON's null are a
 * part that is not there. */
int text_read_normalizer(struct tokenizer *t, const json_t *o, struct err *e);
int text_read_pre_tokenizer(struct tokenizer *t, const json_t *o, struct err *e);
int text_read_model(struct tokenizer *t, const json_t *o, struct err *e);
int text_read_added_tokens(struct tokenizer *t, const json_t *list, const json_t *vocab,
			   struct err *e);
int text_read_post_processor(struct tokenizer *t, const json_t *o, struct err *e);
int text_read_decoder(struct tokenizer *t, const json_t *o, struct err *e);

/* Refuses an object by its type: "normalizer Nmt: not supported; known …". */
int text_refuse_part(const char *what, const json_t *o, const char *known, struct err *e);
bool text_part_is(const json_t *o, const char *type);
/* A boolean field; without it, or when it is null, what stands for it. */
bool text_part_flag(const json_t *o, const char *key, bool missing);
const char *text_part_text(const json_t *o, const char *key); /* "" when there is none */
/* Calls `one` for the object, or for each of a Sequence's members (its field `list`), one after
 * the other. */
typedef int part_reader(struct tokenizer *t, const json_t *o, struct err *e);
int text_part_each(struct tokenizer *t, const json_t *o, const char *list, const char *what,
		   part_reader *one, struct err *e);

/* The text of a token as tokenizer.json writes it, appended to `out`; false: no text can hold
 * this token. */
bool text_token_text(const struct tokenizer *t, const char *written, size_t len, struct buf *out);

#endif
