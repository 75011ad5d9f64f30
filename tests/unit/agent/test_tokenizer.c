/* Tokenizers produce the ids that Hugging Face's library produced
 * (tests/golden/make_tokenizers.py). They refuse unknown features by name. */
#include "agent/engine/text/merges.h"
#include "agent/engine/text/unassigned.h"
#include "agent/engine/text/split.h"
#include "agent/engine/text/tokenizer.h"
#include "base/file.h"
#include "base/philox.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char *const names[] = { "gpt2",      "llama3", "added",  "sequence", "mixtral",
				     "metaspace", "nfc",    "folded", "nfkc",     "nfkd" };
enum { NAMES = sizeof names / sizeof *names };

static const char *golden(const char *name, const char *ending)
{
	static char path[128];
	snprintf(path, sizeof path, "tests/golden/text/%s.%s", name, ending);
	return path;
}

static struct tokenizer *open_tokenizer(const char *name)
{
	struct err e = ERR_INIT;
	struct tokenizer *t;
	if (tokenizer_open(golden(name, "json"), &t, &e))
		fail_msg("%s", e.text);
	return t;
}

static int collect(void *arg, const int32_t *ids, size_t n, struct err *e)
{
	(void)e;
	buf_add(arg, ids, n * sizeof *ids);
	return 0;
}

static void encode(struct encoder *c, const char *text, size_t n, struct buf *ids)
{
	struct err e = ERR_INIT;
	buf_clear(ids);
	if (text_encoder_encode(c, text, n, collect, ids, &e))
		fail_msg("%s", e.text);
}

/* Decodes the ids one after another. */
static void decode(struct decoder *d, const struct buf *ids, struct buf *text)
{
	buf_clear(text);
	for (size_t i = 0; i < ids->len; i += sizeof(int32_t)) {
		struct err e = ERR_INIT;
		int32_t id;
		memcpy(&id, ids->data + i, sizeof id);
		if (text_decoder_put(d, id, text, &e))
			fail_msg("%s", e.text);
	}
	text_decoder_end(d, text);
}

static void check_case(const char *name, struct encoder *c, struct decoder *d, const json_t *one)
{
	struct buf text = BUF_INIT, ids = BUF_INIT, back = BUF_INIT;
	const char *hex = json_string_value(json_object_get(one, "hex"));
	const json_t *want = json_object_get(one, "ids"), *said = json_object_get(one, "text");
	for (const char *at = hex; *at; at += 2) {
		unsigned byte;
		assert_int_equal(sscanf(at, "%2x", &byte), 1);
		buf_add(&text, &(char){ (char)byte }, 1);
	}
	encode(c, buf_str(&text), text.len, &ids);
	for (size_t i = 0; i < json_array_size(want) || i < ids.len / sizeof(int32_t); i++) {
		int32_t id = -1;
		if (i < ids.len / sizeof id)
			memcpy(&id, ids.data + i * sizeof id, sizeof id);
		if (i >= json_array_size(want) || id != json_integer_value(json_array_get(want, i)))
			fail_msg("%s: text %s: id %zu is %d of %zu, not as wanted (%zu ids)", name,
				 hex, i, (int)id, ids.len / sizeof id, json_array_size(want));
	}
	decode(d, &ids, &back);
	if (said && (json_string_length(said) != back.len ||
		     memcmp(json_string_value(said), buf_str(&back), back.len)))
		fail_msg("%s: text %s: decoded \"%s\", not \"%s\"", name, hex, buf_str(&back),
			 json_string_value(said));
	buf_fini(&text);
	buf_fini(&ids);
	buf_fini(&back);
}

/* Decodes the ids from number `prompt` on, after the ids before them. */
static void check_continuation(const char *name, struct decoder *d, const json_t *one)
{
	struct err e = ERR_INIT;
	struct buf text = BUF_INIT;
	const json_t *list = json_object_get(one, "ids"), *want = json_object_get(one, "text");
	size_t prompt = (size_t)json_integer_value(json_object_get(one, "prompt")),
	       n = json_array_size(list);
	int32_t ids[n];
	for (size_t i = 0; i < n; i++)
		ids[i] = (int32_t)json_integer_value(json_array_get(list, i));
	assert_int_equal(text_decoder_begin(d, ids, prompt, &e), 0);
	for (size_t i = prompt; i < n; i++)
		assert_int_equal(text_decoder_put(d, ids[i], &text, &e), 0);
	text_decoder_end(d, &text);
	if (json_string_length(want) != text.len ||
	    memcmp(json_string_value(want), buf_str(&text), text.len))
		fail_msg("%s: behind %zu ids: \"%s\", not \"%s\"", name, prompt, buf_str(&text),
			 json_string_value(want));
	buf_fini(&text);
}

static void a_text_goes_on_behind_a_prompt_as_the_library_prints_it(void **state)
{
	(void)state;
	for (int i = 0; i < NAMES; i++) {
		struct err e = ERR_INIT;
		struct tokenizer *t = open_tokenizer(names[i]);
		struct decoder *d;
		json_t *file = json_load_file(golden(names[i], "ids"), JSON_ALLOW_NUL, NULL), *one;
		size_t k;
		assert_int_equal(text_decoder_open(t, &d, &e), 0);
		assert_true(json_array_size(json_object_get(file, "continuations")) > 15);
		json_array_foreach(json_object_get(file, "continuations"), k, one)
			check_continuation(names[i], d, one);
		int32_t none = tokenizer_vocab(t);
		assert_int_equal(text_decoder_begin(d, &none, 1, &e), -1);
		json_decref(file);
		text_decoder_close(d);
		tokenizer_close(t);
	}
}

static void ids_and_texts_are_those_of_the_library(void **state)
{
	(void)state;
	for (int i = 0; i < NAMES; i++) {
		struct err e = ERR_INIT;
		struct tokenizer *t = open_tokenizer(names[i]);
		struct encoder *c;
		struct decoder *d;
		json_t *file = json_load_file(golden(names[i], "ids"), JSON_ALLOW_NUL, NULL), *one;
		size_t k, n;
		assert_non_null(file);
		assert_int_equal(text_encoder_open(t, &c, &e), 0);
		assert_int_equal(text_decoder_open(t, &d, &e), 0);
		assert_true(json_array_size(json_object_get(file, "cases")) > 90);
		for (int again = 0; again < 2; again++) /* also words seen before */
			json_array_foreach(json_object_get(file, "cases"), k, one)
				check_case(names[i], c, d, one);
		const int32_t *before = tokenizer_before(t, &n);
		const json_t *want = json_object_get(file, "before");
		assert_int_equal(n, json_array_size(want));
		for (k = 0; k < n; k++)
			assert_int_equal(before[k], json_integer_value(json_array_get(want, k)));
		json_decref(file);
		text_encoder_close(c);
		text_decoder_close(d);
		tokenizer_close(t);
	}
}

/* Produces random bytes of all kinds: texts, truncated characters, and arbitrary bytes. */
static size_t random_bytes(uint64_t number, char *out, size_t most)
{
	static const char *const parts[] = { " ",  "  ", "\n",  "the",           "'s",
					     "é",  "中", "😀",   "\xff",          "\xe2\x82",
					     "12", "▁",  "<s>", "<|endoftext|>", "\t",
					     "." };
	size_t n = 0;
	for (uint64_t i = 0; n + 16 < most; i++) {
		uint32_t r[4];
		philox4(philox_key(number, PHILOX_TEST, 5), i, r);
		if (r[0] % 40 == 0)
			break;
		const char *part = parts[r[1] % (sizeof parts / sizeof *parts)];
		size_t len = r[0] % 3 ? strlen(part) : 1;
		memcpy(out + n, r[0] % 3 ? part : (const char *)&r[2], len);
		n += len;
	}
	return n;
}

static void byte_level_vocabularies_give_any_bytes_back(void **state)
{
	(void)state;
	for (int i = 0; i < 2; i++) {
		struct err e = ERR_INIT;
		struct tokenizer *t = open_tokenizer(i ? "sequence" : "gpt2");
		struct encoder *c;
		struct buf ids = BUF_INIT, text = BUF_INIT;
		assert_int_equal(text_encoder_open(t, &c, &e), 0);
		for (uint64_t number = 0; number < 2000; number++) {
			char bytes[400];
			size_t n = random_bytes(number, bytes, sizeof bytes);
			encode(c, bytes, n, &ids);
			buf_clear(&text);
			for (size_t k = 0; k < ids.len; k += sizeof(int32_t)) {
				int32_t id;
				/* Special tokens have no text, so the test inserts theirs. */
				struct decoder *d;
				memcpy(&id, ids.data + k, sizeof id);
				if (id == tokenizer_id(t, "<|endoftext|>")) {
					buf_puts(&text, "<|endoftext|>");
					continue;
				}
				assert_int_equal(text_decoder_open(t, &d, &e), 0);
				assert_int_equal(text_decoder_put(d, id, &text, &e), 0);
				text_decoder_end(d, &text);
				text_decoder_close(d);
			}
			assert_int_equal(text.len, n);
			assert_memory_equal(buf_str(&text), bytes, n);
		}
		buf_fini(&ids);
		buf_fini(&text);
		text_encoder_close(c);
		tokenizer_close(t);
	}
}

static void text_streams_in_whole_characters(void **state)
{
	static const char said[] = "naïve 中文 🦊 \xf0\x9f x";
	struct err e = ERR_INIT;
	struct tokenizer *t = open_tokenizer("gpt2");
	struct encoder *c;
	struct decoder *d;
	struct buf ids = BUF_INIT, text = BUF_INIT;
	(void)state;
	assert_int_equal(text_encoder_open(t, &c, &e), 0);
	assert_int_equal(text_decoder_open(t, &d, &e), 0);
	encode(c, "🦊", 4, &ids);
	assert_true(ids.len > sizeof(int32_t)); /* several tokens form the one character */
	encode(c, said, sizeof said - 1, &ids);
	for (size_t i = 0; i < ids.len; i += sizeof(int32_t)) {
		int32_t id;
		memcpy(&id, ids.data + i, sizeof id);
		assert_int_equal(text_decoder_put(d, id, &text, &e), 0);
		size_t smile = (size_t)(strstr(said, "🦊") - said);
		assert_true(text.len <= smile || text.len >= smile + 4);
	}
	text_decoder_end(d, &text);
	assert_int_equal(text.len, sizeof said - 1);
	assert_memory_equal(text.data, said, text.len);
	assert_int_equal(text_decoder_put(d, tokenizer_vocab(t), &text, &e), -1);
	assert_non_null(strstr(e.text, "is not in the vocabulary"));
	assert_int_equal(text_decoder_put(d, -1, &text, &e), -1);
	buf_fini(&ids);
	buf_fini(&text);
	text_encoder_close(c);
	text_decoder_close(d);
	tokenizer_close(t);
}

/* One word of many symbols takes n log n steps. With n² steps, this test would take hours. */
static void long_words_take_near_linear_time(void **state)
{
	enum { LONG = 2000000 };
	struct err e = ERR_INIT;
	char *text = malloc(LONG);
	assert_non_null(text);
	(void)state;
	for (int i = 0; i < 2; i++) {
		struct tokenizer *t = open_tokenizer(i ? "metaspace" : "gpt2");
		struct encoder *c;
		struct decoder *d;
		struct buf ids = BUF_INIT, back = BUF_INIT;
		for (size_t k = 0; k < LONG; k++)
			text[k] = i && k % 7 == 6 ? ' ' : "thequickbrownfox"[(k * 7 + k / 5) % 16];
		assert_int_equal(text_encoder_open(t, &c, &e), 0);
		assert_int_equal(text_decoder_open(t, &d, &e), 0);
		encode(c, text, LONG, &ids);
		decode(d, &ids, &back);
		assert_int_equal(back.len, LONG);
		assert_memory_equal(back.data, text, LONG);
		buf_fini(&ids);
		buf_fini(&back);
		text_encoder_close(c);
		text_decoder_close(d);
		tokenizer_close(t);
	}
	free(text);
}

enum { SYMBOLS = 200, LETTERS = 3 };

/* Applies the rule of merges.h literally. rank and becomes: [SYMBOLS, SYMBOLS] by pair. */
static size_t merge_slowly(const uint32_t *rank, const int32_t *becomes, int32_t *word, size_t n)
{
	for (;;) {
		size_t best = n;
		for (size_t i = 0; i + 1 < n; i++)
			if (rank[word[i] * SYMBOLS + word[i + 1]] != UINT32_MAX &&
			    (best == n || rank[word[i] * SYMBOLS + word[i + 1]] <
						  rank[word[best] * SYMBOLS + word[best + 1]]))
				best = i;
		if (best == n)
			return n;
		word[best] = becomes[word[best] * SYMBOLS + word[best + 1]];
		memmove(word + best + 1, word + best + 2, (n - best - 2) * sizeof *word);
		n--;
	}
}

static void the_lowest_rank_merges_first_in_short_and_long_words(void **state)
{
	static uint32_t rank[SYMBOLS * SYMBOLS];
	static int32_t becomes[SYMBOLS * SYMBOLS];
	(void)state;
	for (uint64_t round = 0; round < 60; round++) {
		struct err e = ERR_INIT;
		struct merges m;
		struct merges_work work = { 0 };
		assert_int_equal(text_merges_init(&m, SYMBOLS, &e), 0);
		memset(rank, 0xff, sizeof rank);
		/* Each symbol is made of any two earlier ones, and the ranks are in any order. */
		for (int32_t made = LETTERS; made < SYMBOLS; made++) {
			uint32_t r[4];
			philox4(philox_key(round, PHILOX_TEST, 6), (uint64_t)made, r);
			int32_t left = (int32_t)(r[0] % (uint32_t)made),
				right = (int32_t)(r[1] % (uint32_t)made);
			if (rank[left * SYMBOLS + right] != UINT32_MAX)
				continue;
			rank[left * SYMBOLS + right] = r[2] % 1000 * SYMBOLS + (uint32_t)made;
			becomes[left * SYMBOLS + right] = made;
			text_merges_put(&m, left, right, rank[left * SYMBOLS + right], made);
		}
		for (size_t n = 1; n <= 400; n += 19) {
			int32_t fast[400], slow[400];
			size_t left, want;
			for (size_t i = 0; i < n; i++) {
				uint32_t r[4];
				philox4(philox_key(round, PHILOX_TEST, 7), n * 1000 + i, r);
				fast[i] = slow[i] = (int32_t)(r[0] % LETTERS);
			}
			assert_int_equal(text_merges_apply(&m, &work, fast, n, &left, &e), 0);
			want = merge_slowly(rank, becomes, slow, n);
			assert_int_equal(left, want);
			assert_memory_equal(fast, slow, want * sizeof *slow);
		}
		text_merges_work_fini(&work);
		text_merges_fini(&m);
	}
}

static int refuse(void *arg, const int32_t *ids, size_t n, struct err *e)
{
	(void)arg;
	(void)ids;
	return err_set(e, ERR_IO, "no room for %zu", n);
}

/* Each character is tested once. The number of unassigned characters is that of Unicode 14,
 * without its 66 noncharacters. */
static void characters_newer_than_the_classes_are_counted(void **state)
{
	enum { UNASSIGNED_IN_14 = 829768 };
	struct err e = ERR_INIT;
	struct unassigned_counter *w;
	struct buf all = BUF_INIT;
	uint32_t first;
	(void)state;
	for (uint32_t c = 1; c < 0x110000; c++) {
		char bytes[4] = { (char)(0xf0 | c >> 18), (char)(0x80 | (c >> 12 & 63)),
				  (char)(0x80 | (c >> 6 & 63)), (char)(0x80 | (c & 63)) };
		size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
		bytes[3] = n == 1 ? (char)c : bytes[3];
		bytes[2] = n == 2 ? (char)(0xc0 | c >> 6) : bytes[2];
		bytes[1] = n == 3 ? (char)(0xe0 | c >> 12) : bytes[1];
		if (c < 0xd800 || c > 0xdfff)
			buf_add(&all, bytes + 4 - n, n);
	}
	assert_int_equal(text_unassigned_open(&w, &e), 0);
	assert_int_equal(text_unassigned_scan(w, "plain, na\xc3\xafve \xe4\xb8\xad", 16, &e), 0);
	assert_int_equal(text_unassigned_count(w, &first), 0);
	assert_int_equal(text_unassigned_scan(w, all.data, all.len, &e), 0);
	int64_t n = text_unassigned_count(w, &first);
	if (strcmp(text_split_unicode(), "14.0.0"))
		assert_in_range(n, 100000, UNASSIGNED_IN_14);
	else
		assert_int_equal(n, UNASSIGNED_IN_14);
	assert_int_equal(first, 0x378);
	text_unassigned_close(w);
	buf_fini(&all);
}

static void what_takes_the_ids_may_fail(void **state)
{
	struct err e = ERR_INIT;
	struct tokenizer *t = open_tokenizer("gpt2");
	struct encoder *c;
	(void)state;
	assert_int_equal(text_encoder_open(t, &c, &e), 0);
	assert_int_equal(text_encoder_encode(c, "a b", 3, refuse, NULL, &e), -1);
	assert_int_equal(e.code, ERR_IO);
	text_encoder_close(c);
	tokenizer_close(t);
}

/* Merges `patch` into a small valid file. The refusal must contain `why`. NULL: the file is
 * valid. */
static void check_refusal(const char *patch, const char *why)
{
	static const char sound[] = "{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"b\": "
				    "1, \"ab\": 2, \"<u>\": 3}, \"merges\": [\"a b\"]},"
				    " \"pre_tokenizer\": null, \"added_tokens\": []}";
	struct err e = ERR_INIT;
	struct tokenizer *t = NULL;
	json_t *o = json_loads(sound, 0, NULL), *p = json_loads(patch, 0, NULL);
	assert_non_null(p);
	assert_int_equal(json_object_update_recursive(o, p), 0);
	char *text = json_dumps(o, 0);
	int rc = tokenizer_parse(text, strlen(text), "t.json", &t, &e);
	if (why && (!rc || !strstr(e.text, why) || strncmp(e.text, "t.json: ", 8)))
		fail_msg("%s: %s, wanted \"%s\"", patch, rc ? e.text : "read", why);
	if (!why && rc)
		fail_msg("%s: %s", patch, e.text);
	tokenizer_close(t);
	free(text);
	json_decref(o);
	json_decref(p);
}

static void what_is_not_known_is_refused_by_name(void **state)
{
	/* clang-format off */
	static const struct {
		const char *patch, *why;
	} rows[] = {
		{ "{}", NULL },
		{ "{\"model\": {\"type\": \"Unigram\"}}", "model Unigram: is not supported; muster supports BPE" },
		{ "{\"model\": {\"dropout\": 0.1}}", "model.dropout" },
		{ "{\"model\": {\"end_of_word_suffix\": \"</w>\"}}", "model.end_of_word_suffix: is not supported" },
		{ "{\"model\": {\"continuing_subword_prefix\": \"##\"}}", "model.continuing_subword_prefix: is not supported" },
		{ "{\"model\": {\"vocab\": {\"c\": 2}}}", "have the same id 2" },
		{ "{\"model\": {\"vocab\": {\"c\": -1}}}", "has the id -1; ids are" },
		{ "{\"model\": {\"vocab\": {\"c\": 99999999}}}", "has the id 99999999; ids are" },
		{ "{\"model\": {\"vocab\": {\"c\": \"x\"}}}", "the id of \"c\" is not an integer" },
		{ "{\"model\": {\"merges\": [\"a c\"]}}", "number 0 needs the token \"c\"" },
		{ "{\"model\": {\"merges\": [\"b a\"]}}", "needs the token \"ba\"" },
		{ "{\"model\": {\"merges\": [\"a b\", \"a b b\"]}}", "number 1 is neither" },
		{ "{\"model\": {\"merges\": [[\"a\", \"b\"]]}}", NULL },
		{ "{\"model\": {\"merges\": [[\"a\"]]}}", "number 0 is neither" },
		{ "{\"model\": {\"merges\": {}}}", "model.merges: is not a list" },
		{ "{\"normalizer\": {\"type\": \"NFC\"}}", NULL },
		{ "{\"normalizer\": {\"type\": \"Nmt\"}}", "normalizer Nmt: is not supported; muster supports NFC, NFD, NFKC, NFKD," },
		{ "{\"normalizer\": {\"type\": \"Precompiled\"}}", "normalizer Precompiled: is not supported" },
		{ "{\"normalizer\": {\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"Replace\", \"pattern\": {\"String\": \" \"}, \"content\": \"▁\"},"
		  " {\"type\": \"NFKC\"}]}}", "normalizer NFKC: is not supported after one that writes" },
		{ "{\"normalizer\": {\"type\": \"Replace\", \"pattern\": {\"Regex\": \"(\"}, \"content\": \"\"}}", "normalizer Replace: the pattern \"(\" cannot be compiled" },
		{ "{\"normalizer\": {\"type\": \"Replace\", \"pattern\": {\"String\": \"\"}, \"content\": \"\"}}", "normalizer Replace: the pattern is empty" },
		{ "{\"normalizer\": {\"type\": \"Replace\", \"pattern\": {}, \"content\": \"\"}}", "normalizer Replace: it has no string \"String\"" },
		{ "{\"normalizer\": {\"type\": \"Prepend\"}}", "normalizer Prepend: it has no string \"prepend\"" },
		{ "{\"normalizer\": {\"type\": \"Prepend\", \"prepend\": \"▁\"}}", "normalizer Prepend: is not supported without" },
		{ "{\"normalizer\": {\"type\": \"Sequence\"}}", "normalizer Sequence: has no list" },
		{ "{\"pre_tokenizer\": {\"type\": \"BertPreTokenizer\"}}", "pre_tokenizer BertPreTokenizer: is not supported" },
		{ "{\"pre_tokenizer\": {\"type\": \"Metaspace\", \"replacement\": \"▁\"}}", "pre_tokenizer Metaspace: is not supported if it splits" },
		{ "{\"pre_tokenizer\": {\"type\": \"Split\", \"pattern\": {\"Regex\": \"a\"}, \"behavior\": \"Removed\"}}", "behavior \"Removed\" is not" },
		{ "{\"pre_tokenizer\": {\"type\": \"Split\", \"pattern\": {\"Regex\": \"(\"}, \"behavior\": \"Isolated\"}}", "the pattern \"(\" cannot be compiled" },
		{ "{\"pre_tokenizer\": {\"type\": \"Split\", \"pattern\": {\"Regex\": \"a*\"}, \"behavior\": \"Isolated\"}}", "can match an empty text" },
		{ "{\"pre_tokenizer\": {\"type\": \"Split\", \"pattern\": {\"Regex\": \"a+\"}, \"behavior\": \"Isolated\"}}", NULL },
		{ "{\"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"ByteLevel\"}, {\"type\": \"Digits\"}]}}",
		  "pre_tokenizer Digits: is not supported after ByteLevel" },
		{ "{\"pre_tokenizer\": {\"type\": \"ByteLevel\"}, \"model\": {\"byte_fallback\": true}}", "model.byte_fallback: is not supported" },
		{ "{\"added_tokens\": [{\"content\": \"<u>\", \"id\": 4}]}", "another one in model.vocab" },
		{ "{\"added_tokens\": [{\"content\": \"<v>\", \"id\": 3}]}", "have the same id 3" },
		{ "{\"added_tokens\": [{\"content\": \"<v>\", \"id\": 4, \"single_word\": true}]}", "single_word, which is not supported" },
		{ "{\"added_tokens\": [{\"content\": \"\", \"id\": 4}]}", "number 0 has no content or no id" },
		{ "{\"post_processor\": {\"type\": \"BertProcessing\"}}", "post_processor BertProcessing: is not supported" },
		{ "{\"post_processor\": {\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": {\"id\": \"x\"}}]}}", "has no ids" },
		{ "{\"decoder\": {\"type\": \"WordPiece\"}}", "decoder WordPiece: is not supported" },
		{ "{\"truncation\": {\"max_length\": 5}}", "truncation: is not supported; set it to null" },
		{ "{\"padding\": {}}", "padding: is not supported" },
	};
	/* clang-format on */
	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
		check_refusal(rows[i].patch, rows[i].why);
}

/* Steps that each lengthen a text could fill any memory. */
static void a_normalizer_that_blows_up_is_refused(void **state)
{
	static const char head[] = "{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0}, "
				   "\"merges\": []}, \"normalizer\": {\"type\": \"Sequence\", "
				   "\"normalizers\": [";
	static const char step[] = "{\"type\": \"Replace\", \"pattern\": {\"String\": \"a\"}, "
				   "\"content\": \"aaaaaaaaaaaaaaaa\"}";
	struct err e = ERR_INIT;
	struct buf text = BUF_INIT, ids = BUF_INIT;
	struct tokenizer *t;
	struct encoder *c;
	(void)state;
	buf_puts(&text, head);
	for (int i = 0; i < 12; i++)
		buf_printf(&text, "%s%s", i ? ", " : "", step);
	buf_puts(&text, "]}}");
	assert_int_equal(tokenizer_parse(buf_str(&text), text.len, "t.json", &t, &e), 0);
	assert_int_equal(text_encoder_open(t, &c, &e), 0);
	assert_int_equal(text_encoder_encode(c, "a", 1, collect, &ids, &e), -1);
	assert_non_null(
		strstr(e.text, "normalizer Replace makes a text more than 32 times as long"));
	text_encoder_close(c);
	tokenizer_close(t);
	buf_fini(&text);
	buf_fini(&ids);
}

/* One letter has a million marks. Sorting them must take linear time. */
static void many_marks_take_linear_time(void **state)
{
	enum { MARKS = 1000000 };
	struct err e = ERR_INIT;
	struct tokenizer *t = open_tokenizer("nfc");
	struct encoder *c;
	struct buf text = BUF_INIT, ids = BUF_INIT;
	(void)state;
	buf_puts(&text, "x");
	for (int i = 0; i < MARKS; i++)
		buf_puts(&text, i % 2 ? "\u0301" : "\u0323");
	assert_int_equal(text_encoder_open(t, &c, &e), 0);
	encode(c, text.data, text.len, &ids);
	assert_true(ids.len > MARKS);
	text_encoder_close(c);
	tokenizer_close(t);
	buf_fini(&text);
	buf_fini(&ids);
}

static void a_text_that_the_vocabulary_lacks_is_refused(void **state)
{
	static const char file[] = "{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"b\": "
				   "1, \"ab\": 2}, \"merges\": [\"a b\"]}}";
	struct err e = ERR_INIT;
	struct tokenizer *t;
	struct encoder *c;
	struct buf ids = BUF_INIT;
	(void)state;
	assert_int_equal(tokenizer_parse(file, sizeof file - 1, "t.json", &t, &e), 0);
	assert_int_equal(text_encoder_open(t, &c, &e), 0);
	encode(c, "aab", 3, &ids);
	assert_int_equal(ids.len, 2 * sizeof(int32_t));
	assert_int_equal(text_encoder_encode(c, "a é", 4, collect, &ids, &e), -1);
	assert_non_null(strstr(e.text, "\" \" in the text (first byte 0x20) has no token"));
	buf_fini(&ids);
	text_encoder_close(c);
	tokenizer_close(t);
	assert_int_equal(tokenizer_parse("{", 1, "t.json", &t, &e), -1);
	assert_non_null(strstr(e.text, "t.json: line 1"));
	assert_int_equal(tokenizer_open("tests/golden/text/none", &t, &e), -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ids_and_texts_are_those_of_the_library),
		cmocka_unit_test(a_text_goes_on_behind_a_prompt_as_the_library_prints_it),
		cmocka_unit_test(byte_level_vocabularies_give_any_bytes_back),
		cmocka_unit_test(text_streams_in_whole_characters),
		cmocka_unit_test(long_words_take_near_linear_time),
		cmocka_unit_test(the_lowest_rank_merges_first_in_short_and_long_words),
		cmocka_unit_test(characters_newer_than_the_classes_are_counted),
		cmocka_unit_test(what_takes_the_ids_may_fail),
		cmocka_unit_test(what_is_not_known_is_refused_by_name),
		cmocka_unit_test(a_normalizer_that_blows_up_is_refused),
		cmocka_unit_test(many_marks_take_linear_time),
		cmocka_unit_test(a_text_that_the_vocabulary_lacks_is_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
