/* Tests manifests. A written manifest reads back, no byte may change, and the boxes must cover
 * each tensor exactly once. */
#include "agent/engine/ckpt/format/manifest.h"
#include "base/philox.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const struct ckpt_state state_of_test = { .step = 400,
						 .samples = 3200,
						 .seed = UINT64_MAX,
						 .total_steps = 1000,
						 .data = { "/data/gr\xc3\xb6\xc3\x9f"
							   "e \"1\"",
							   0.25, 900 },
						 .optimizer = "sgd",
						 .numbers = { { "good_steps", 12 },
							      { "loss_scale", 65536 } },
						 .n_numbers = 2 };

static void start(struct manifest *m)
{
	json_t *model = json_pack("{s:s, s:i, s:f}", "family", "gpt2", "hidden", 768, "norm_eps",
				  1e-5);
	json_t *layout = json_pack("{s:i}", "tp", 2);
	ckpt_manifest_init(m, &state_of_test, 3, model, layout);
	json_decref(model);
	json_decref(layout);
}

struct box {
	int64_t lo0, hi0, lo1, hi1;
};

/* Adds one tensor "t". Its boxes are in one file, in sequence. */
static int add_boxes(struct manifest *m, int64_t rows, int64_t columns, const struct box *boxes,
		     int n, struct err *e)
{
	struct manifest_file f = { .name = "shard-00000.safetensors", .header = 64, .size = 64 };
	int64_t shape[2] = { rows, columns }, at = 0;
	for (int i = 0; i < n; i++)
		f.size += 4 * (boxes[i].hi0 - boxes[i].lo0) * (boxes[i].hi1 - boxes[i].lo1);
	if (ckpt_manifest_add_file(m, &f, e))
		return -1;
	for (int i = 0; i < n; i++) {
		struct manifest_slice s = { .offset = at,
					    .lo = { boxes[i].lo0, boxes[i].lo1 },
					    .hi = { boxes[i].hi0, boxes[i].hi1 } };
		s.digest = ckpt_digest_of(&i, sizeof i);
		if (ckpt_manifest_add_slice(m, "t", columns > 0 ? 2 : 1, shape, &s, e))
			return -1;
		at += ckpt_slice_bytes(&s);
	}
	return 0;
}

static void expect_proof(int64_t rows, int64_t columns, const struct box *boxes, int n,
			 const char *says)
{
	struct err e = ERR_INIT;
	struct manifest m;
	start(&m);
	if (add_boxes(&m, rows, columns, boxes, n, &e))
		fail_msg("%s", e.text);
	int rc = ckpt_manifest_prove(&m, &e);
	if (says ? !rc || e.code != ERR_CORRUPT || !strstr(e.text, says) : rc)
		fail_msg("rc %d: %s; expected: %s", rc, e.text, says ? says : "a proof");
	ckpt_manifest_fini(&m);
}

static void boxes_that_tile_are_proven(void **state)
{
	static const struct box rows[] = { { 4, 7, 0, 5 }, { 0, 4, 0, 5 }, { 7, 9, 0, 5 } };
	static const struct box pinwheel[] = {
		{ 0, 1, 0, 2 }, { 0, 2, 2, 3 }, { 2, 3, 1, 3 }, { 1, 3, 0, 1 }, { 1, 2, 1, 2 }
	};
	static const struct box vector[] = { { 2, 5, 0, 1 }, { 0, 2, 0, 1 } };
	static const struct box one[] = { { 0, 1, 0, 1 } };
	(void)state;
	expect_proof(9, 5, rows, 3, NULL);
	expect_proof(3, 3, pinwheel, 5, NULL);
	expect_proof(5, 0, vector, 2, NULL);
	expect_proof(1, 1, one, 1, NULL);
}

static void holes_and_overlaps_are_named(void **state)
{
	static const struct box hole[] = { { 0, 4, 0, 5 }, { 5, 9, 0, 5 } };
	static const struct box centre[] = {
		{ 0, 1, 0, 2 }, { 0, 2, 2, 3 }, { 2, 3, 1, 3 }, { 1, 3, 0, 1 }
	};
	static const struct box rows[] = { { 0, 5, 0, 5 }, { 4, 9, 0, 5 } };
	static const struct box twice[] = { { 0, 3, 0, 3 }, { 0, 3, 0, 3 } };
	static const struct box inside[] = { { 0, 9, 0, 9 }, { 3, 4, 3, 4 } };
	static const struct box corner[] = { { 0, 2, 0, 2 }, { 1, 3, 1, 3 } };
	/* The volume is correct, but the boxes overlap and leave a hole. */
	static const struct box traded[] = { { 0, 2, 0, 3 }, { 1, 3, 0, 3 } };
	static const struct box vector[] = { { 0, 3, 0, 1 }, { 2, 5, 0, 1 } };
	(void)state;
	expect_proof(9, 5, hole, 2, "tensor t: 5 of its 45 elements are in no shard");
	expect_proof(3, 3, centre, 4, "1 of its 9 elements");
	expect_proof(9, 5, rows, 2, "tensor t: rows [4, 9) × columns [0, 5) are there twice");
	expect_proof(3, 3, twice, 2, "there twice");
	expect_proof(9, 9, inside, 2, "there twice");
	expect_proof(3, 3, corner, 2, "there twice");
	expect_proof(4, 3, traded, 2, "there twice");
	expect_proof(5, 0, vector, 2, "there twice");
}

/* Repeatedly splits a random box in two at a random place. */
static int cut_at_random(uint64_t seed, int64_t rows, int64_t columns, struct box *out, int most)
{
	int n = 1;
	out[0] = (struct box){ 0, rows, 0, columns };
	for (uint64_t k = 0; n < most; k++) {
		uint32_t r[4];
		philox4(philox_key(seed, PHILOX_TEST, 0), k, r);
		struct box *b = &out[r[0] % (uint32_t)n], *c = &out[n];
		int64_t high = b->hi0 - b->lo0, wide = b->hi1 - b->lo1;
		if (high * wide == 1)
			continue;
		*c = *b;
		if ((r[1] & 1 && high > 1) || wide == 1)
			b->hi0 = c->lo0 = b->lo0 + 1 + r[2] % (high - 1);
		else
			b->hi1 = c->lo1 = b->lo1 + 1 + r[2] % (wide - 1);
		n++;
	}
	return n;
}

static void random_tilings_are_proven_and_their_damages_found(void **state)
{
	struct box boxes[60];
	(void)state;
	for (uint64_t seed = 0; seed < 300; seed++) {
		int n = cut_at_random(seed, 13, 17, boxes, 2 + (int)(seed % 58));
		int k = (int)(seed % (uint64_t)n);
		struct box was = boxes[k];
		expect_proof(13, 17, boxes, n, NULL);
		boxes[k] = boxes[n - 1];
		expect_proof(13, 17, boxes, n - 1, "are in no shard");
		boxes[k] = was;
		if (was.hi1 < 17) {
			boxes[k].hi1++;
			expect_proof(13, 17, boxes, n, "there twice");
		} else if (was.lo0 > 0) {
			boxes[k].lo0--;
			expect_proof(13, 17, boxes, n, "there twice");
		}
	}
}

static void a_large_grid_is_proven(void **state)
{
	enum { ROWS = 1000, COLUMNS = 200 };
	static struct box boxes[ROWS * COLUMNS];
	(void)state;
	for (int i = 0; i < ROWS * COLUMNS; i++)
		boxes[i] = (struct box){ i / COLUMNS, i / COLUMNS + 1, i % COLUMNS,
					 i % COLUMNS + 1 };
	expect_proof(ROWS, COLUMNS, boxes, ROWS * COLUMNS, NULL);
}

static void slices_must_tile_their_file(void **state)
{
	struct err e = ERR_INIT;
	struct manifest m;
	static const struct box two[] = { { 0, 1, 0, 2 }, { 1, 2, 0, 2 } };
	(void)state;
	start(&m);
	assert_int_equal(add_boxes(&m, 2, 2, two, 2, &e), 0);
	m.tensors[0].slices[1].offset = 0;
	assert_int_equal(ckpt_manifest_prove(&m, &e), -1);
	assert_non_null(strstr(e.text, "begins at byte 0 of its buffer, not at 8"));
	m.tensors[0].slices[1].offset = 8;
	m.files[0].size += 4;
	assert_int_equal(ckpt_manifest_prove(&m, &e), -1);
	assert_non_null(strstr(e.text, "its slices end at byte 16 of a buffer of 20"));
	ckpt_manifest_fini(&m);
}

static void invalid_contents_are_refused(void **state)
{
	struct err e = ERR_INIT;
	struct manifest m;
	struct manifest_file f = { .name = "a", .size = 108, .header = 8 };
	int64_t shape[2] = { 5, 5 }, other[2] = { 5, 6 }, huge[2] = { INT64_MAX / 2, 4 };
	struct manifest_slice s = { .lo = { 0, 0 }, .hi = { 5, 5 } };
	(void)state;
	start(&m);
	assert_int_equal(ckpt_manifest_add_file(&m, &f, &e), 0);
	assert_int_equal(ckpt_manifest_add_file(&m, &f, &e), -1);
	assert_non_null(strstr(e.text, "listed twice"));
	static const char *const names[] = { "", ".hidden", "a/b", "..", "a b", "a\"b" };
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		strcpy(f.name, names[i]);
		assert_int_equal(ckpt_manifest_add_file(&m, &f, &e), -1);
	}
	assert_int_equal(ckpt_manifest_add_slice(&m, "a\"b", 2, shape, &s, &e), -1);
	assert_int_equal(ckpt_manifest_add_slice(&m, "t", 3, shape, &s, &e), -1);
	assert_int_equal(ckpt_manifest_add_slice(&m, "t", 2, huge, &s, &e), -1);
	assert_non_null(strstr(e.text, "overflows"));
	assert_int_equal(ckpt_manifest_add_slice(&m, "t", 2, shape, &s, &e), 0);
	assert_int_equal(ckpt_manifest_add_slice(&m, "t", 2, other, &s, &e), -1);
	assert_non_null(strstr(e.text, "disagree about its shape"));
	/* clang-format off */
	static const struct manifest_slice bad[] = {
		{ .file = 1, .hi = { 1, 1 } }, { .file = -1, .hi = { 1, 1 } }, { .hi = { 0, 1 } }, { .hi = { 6, 1 } },
		{ .lo = { -1, 0 }, .hi = { 1, 1 } }, { .offset = 101, .hi = { 1, 1 } }, { .offset = -1, .hi = { 1, 1 } },
		{ .offset = 4, .hi = { 5, 5 } }, { .offset = INT64_MAX, .hi = { 1, 1 } },
	};
	/* clang-format on */
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		assert_int_equal(ckpt_manifest_add_slice(&m, "t", 2, shape, &bad[i], &e), -1);
	ckpt_manifest_fini(&m);
}

static void write_one(struct buf *out)
{
	struct err e = ERR_INIT;
	struct manifest m;
	static const struct box two[] = { { 0, 1, 0, 2 }, { 1, 2, 0, 2 } };
	start(&m);
	assert_int_equal(add_boxes(&m, 2, 2, two, 2, &e), 0);
	ckpt_manifest_write(&m, out);
	ckpt_manifest_fini(&m);
}

static void what_is_written_reads_back(void **state)
{
	struct err e = ERR_INIT;
	struct manifest m;
	struct buf text = BUF_INIT, again = BUF_INIT;
	(void)state;
	write_one(&text);
	if (ckpt_manifest_parse(text.data, text.len, "M", &m, &e))
		fail_msg("%s", e.text);
	assert_int_equal(ckpt_manifest_prove(&m, &e), 0);
	assert_memory_equal(&m.state, &state_of_test, sizeof m.state);
	assert_int_equal(m.generation, 3);
	assert_string_equal(json_string_value(json_object_get(m.model, "family")), "gpt2");
	assert_int_equal(ckpt_manifest_find(&m, "t")->n, 2);
	assert_null(ckpt_manifest_find(&m, "u"));
	ckpt_manifest_write(&m, &again);
	assert_string_equal(again.data, text.data);
	ckpt_manifest_fini(&m);
	buf_fini(&text);
	buf_fini(&again);
}

static void numbers_have_names(void **state)
{
	struct ckpt_state s = { 0 };
	struct err e = ERR_INIT;
	char name[CKPT_WORD];
	(void)state;
	assert_true(ckpt_number(&s, "loss_scale", 7) == 7);
	for (int i = 0; i < CKPT_NUMBERS; i++) {
		snprintf(name, sizeof name, "number_%d", i);
		assert_int_equal(ckpt_number_set(&s, name, i, &e), 0);
	}
	assert_int_equal(ckpt_number_set(&s, "number_3", 99, &e), 0);
	assert_true(ckpt_number(&s, "number_3", 0) == 99);
	assert_int_equal(s.n_numbers, CKPT_NUMBERS);
	assert_int_equal(ckpt_number_set(&s, "one_more", 1, &e), -1);
	assert_int_equal(ckpt_number_set(&s, "number_3", INFINITY, &e), -1);
	s.n_numbers = 0;
	assert_int_equal(ckpt_number_set(&s, "", 1, &e), -1);
	assert_int_equal(ckpt_number_set(&s, "a b", 1, &e), -1);
	assert_int_equal(ckpt_number_set(&s, "a_name_of_more_than_thirty_one_letters", 1, &e), -1);
	assert_int_equal(e.code, ERR_INTERNAL);
}

/* A manifest may hold any finite number. */
static void a_number_that_is_no_count_counts_nothing(void **state)
{
	static const struct {
		double number;
		int64_t count;
	} rows[] = { { 0, 0 },  { 12, 12 },  { 9007199254740992.0, 1LL << 53 },
		     { -1, 0 }, { 1e16, 0 }, { 1e300, 0 } };
	struct ckpt_state s = { 0 };
	(void)state;
	assert_int_equal(ckpt_count(&s, "skipped"), 0);
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		assert_int_equal(ckpt_number_set(&s, "skipped", rows[i].number, NULL), 0);
		assert_int_equal(ckpt_count(&s, "skipped"), rows[i].count);
	}
}

/* Older manifests lack the data, the optimizer and the numbers. */
static void one_without_the_data_is_read(void **state)
{
	struct err e = ERR_INIT;
	struct manifest m, back;
	struct ckpt_state old = state_of_test;
	struct buf text = BUF_INIT;
	(void)state;
	memset(&old.data, 0, sizeof old.data);
	memset(old.optimizer, 0, sizeof old.optimizer);
	memset(old.numbers, 0, sizeof old.numbers);
	old.n_numbers = 0;
	start(&m);
	m.state = old;
	ckpt_manifest_write(&m, &text);
	assert_null(strstr(text.data, "\"data\""));
	assert_null(strstr(text.data, "\"optimizer\""));
	assert_null(strstr(text.data, "\"numbers\""));
	if (ckpt_manifest_parse(text.data, text.len, "M", &back, &e))
		fail_msg("%s", e.text);
	assert_memory_equal(&back.state, &old, sizeof old);
	ckpt_manifest_fini(&back);
	ckpt_manifest_fini(&m);
	buf_fini(&text);
}

static void every_changed_or_missing_byte_is_detected(void **state)
{
	struct manifest m;
	struct buf text = BUF_INIT;
	(void)state;
	write_one(&text);
	for (size_t i = 0; i < text.len; i++) {
		struct err e = ERR_INIT;
		assert_int_equal(ckpt_manifest_parse(text.data, i, "M", &m, &e), -1);
		assert_int_equal(e.code, ERR_CORRUPT);
		text.data[i] ^= (char)(1 << (i % 8));
		assert_int_equal(ckpt_manifest_parse(text.data, text.len, "M", &m, &e), -1);
		assert_int_equal(e.code, ERR_CORRUPT);
		text.data[i] ^= (char)(1 << (i % 8));
	}
	buf_add(&text, "\n", 1);
	assert_int_equal(ckpt_manifest_parse(text.data, text.len, "M", &m, NULL), -1);
	buf_fini(&text);
}

/* The digest is corrected. A bug or a manual edit could write such a manifest. */
static void a_field_that_is_wrong_is_named(void **state)
{
	/* clang-format off */
	static const struct {
		const char *from, *to, *says;
	} edits[] = {
		{ "muster-checkpoint", "other", "format is not" },
		{ "\"version\": 1", "\"version\": 3", "version 3 of the format, this muster reads 1" },
		{ "\"version\": 1", "\"version\": 2", "it has no slices" },
		{ "\"step\": 400", "\"step\": -1", "\"step\" is -1; it must be at least 0" },
		{ "\"step\": 400", "\"step\": 1.5", "\"step\" is missing or is not an integer" },
		{ "\"samples\": 3200, ", "", "\"samples\" is missing" },
		{ "18446744073709551615", "18446744073709551616", "seed is missing or is not a number" },
		{ "\"18446744073709551615\"", "\"-1\"", "seed is missing or is not a number" },
		{ "\"generation\": 3", "\"generation\": 4294967296", "generation is too large" },
		{ "\"layout\": {\"tp\":2}", "\"layout\": []", "layout is not an object" },
		{ "\"layout\"", "\"more\": 0, \"layout\"", "fields that this muster does not know" },
		{ "\"layout\"", "\"step\": 0, \"layout\"", "duplicate object key" },
		{ "\"validation\":0.25", "\"validation\":\"5 %\"", "data is not" },
		{ "\"validation\":0.25", "\"validation\":0.25,\"seq\":1", "data is not" },
		{ "\"samples\":900", "\"samples\":0", "\"samples\" is 0; it must be at least 1" },
		{ "\"optimizer\": \"sgd\"", "\"optimizer\": \"S G D\"", "optimizer is not a word" },
		{ "\"optimizer\": \"sgd\"", "\"optimizer\": 3", "optimizer is not a word" },
		{ "\"optimizer\": \"sgd\"", "\"optimizer\": \"a_word_of_more_than_thirty_one_letters\"", "optimizer is not a word" },
		{ "\"numbers\": {", "\"numbers\": {\"%n\": 1,", "a name or a number that cannot be" },
		{ "65536.0", "\"much\"", "a name or a number that cannot be" },
		{ "\"numbers\": {", "\"numbers\": {\"a\":1,\"b\":1,\"c\":1,\"d\":1,\"e\":1,\"f\":1,\"g\":1,", "too many of them" },
		{ "{\"good_steps\":12.0,\"loss_scale\":65536.0}", "{}", "numbers is not an object, or is empty" },
		{ "{\"good_steps\":12.0,\"loss_scale\":65536.0}", "7", "numbers is not an object, or is empty" },
		{ "shard-00000", "../shard-00000", "a name that is empty, too long or not made of" },
		{ "F32", "F16", "dtype is F16" },
		{ "\"shape\": [2, 2]", "\"shape\": [2, 2, 1]", "has not 1 or 2 numbers" },
		{ "\"shape\": [2, 2]", "\"shape\": [3, 2]", NULL },
		{ "[0, 8, ", "[0, 8, 8, ", "a slice is not [file, offset" },
		{ "[0, 8, ", "[1, 8, ", "file 1 of 1" },
		{ "[1, 0], [2, 2]", "[1, 0], [2, 3]", "is empty or outside its 2 columns" },
		{ "[1, 0], [2, 2]", "[1], [2, 2]", "another length than the shape" },
	};
	/* clang-format on */
	(void)state;
	for (size_t i = 0; i < sizeof edits / sizeof *edits; i++) {
		struct err e = ERR_INIT;
		struct manifest m;
		struct buf text = BUF_INIT, fields = BUF_INIT;
		char hex[DIGEST_HEX];
		write_one(&text);
		char *behind = strchr(text.data, '\n') + 1, *at = strstr(behind, edits[i].from);
		assert_non_null(at);
		buf_add(&fields, behind, (size_t)(at - behind));
		buf_puts(&fields, edits[i].to);
		buf_puts(&fields, at + strlen(edits[i].from));
		struct digest d = ckpt_digest_of(fields.data, fields.len);
		ckpt_digest_hex(&d, hex);
		buf_clear(&text);
		buf_printf(&text, "{\"digest\": \"%s\",\n%s", hex, fields.data);
		int rc = ckpt_manifest_parse(text.data, text.len, "M", &m, &e);
		if (!edits[i].says) {
			assert_int_equal(rc, 0); /* well-formed, but not a whole checkpoint */
			assert_int_equal(ckpt_manifest_prove(&m, &e), -1);
			ckpt_manifest_fini(&m);
		} else if (!rc || !strstr(e.text, edits[i].says)) {
			fail_msg("%s: %s", edits[i].says, e.text);
		}
		buf_fini(&text);
		buf_fini(&fields);
	}
}

static void another_model_is_named_by_its_field(void **state)
{
	/* clang-format off */
	static const struct {
		const char *want, *says;
	} models[] = {
		{ "{\"family\": \"gpt2\", \"hidden\": 768, \"norm_eps\": 1e-5}", NULL },
		{ "{\"family\": \"gpt2\", \"hidden\": 1024, \"norm_eps\": 1e-5}", "model.hidden: the checkpoint has 768, this job 1024" },
		{ "{\"family\": \"llama\", \"hidden\": 768, \"norm_eps\": 1e-5}", "model.family: the checkpoint has \"gpt2\", this job \"llama\"" },
		{ "{\"family\": \"gpt2\", \"hidden\": 768}", "model.norm_eps: the checkpoint has 1e-5, this job none" },
		{ "{\"family\": \"gpt2\", \"hidden\": 768, \"norm_eps\": 1e-5, \"rope\": true}", "model.rope: the checkpoint has none, this job true" },
	};
	/* clang-format on */
	struct err e = ERR_INIT;
	struct manifest m;
	struct buf text = BUF_INIT;
	(void)state;
	write_one(&text);
	assert_int_equal(ckpt_manifest_parse(text.data, text.len, "M", &m, &e), 0);
	assert_int_equal(ckpt_manifest_check_model(&m, NULL, &e), 0);
	for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
		json_t *want = json_loads(models[i].want, 0, NULL);
		int rc = ckpt_manifest_check_model(&m, want, &e);
		assert_int_equal(rc, models[i].says ? -1 : 0);
		if (rc && !strstr(e.text, models[i].says))
			fail_msg("%s: %s", models[i].says, e.text);
		json_decref(want);
	}
	ckpt_manifest_fini(&m);
	buf_fini(&text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(boxes_that_tile_are_proven),
		cmocka_unit_test(holes_and_overlaps_are_named),
		cmocka_unit_test(random_tilings_are_proven_and_their_damages_found),
		cmocka_unit_test(a_large_grid_is_proven),
		cmocka_unit_test(slices_must_tile_their_file),
		cmocka_unit_test(invalid_contents_are_refused),
		cmocka_unit_test(what_is_written_reads_back),
		cmocka_unit_test(numbers_have_names),
		cmocka_unit_test(a_number_that_is_no_count_counts_nothing),
		cmocka_unit_test(one_without_the_data_is_read),
		cmocka_unit_test(every_changed_or_missing_byte_is_detected),
		cmocka_unit_test(a_field_that_is_wrong_is_named),
		cmocka_unit_test(another_model_is_named_by_its_field),
	};
	return cmocka_run_group_tests_name("manifest", tests, NULL, NULL);
}
