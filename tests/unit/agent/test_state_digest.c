/*
 * Tests the sums of blocks and the state digest against the formula in sum.h: whatever the boxes
 * are, their sums add up to those of the whole tensor, and every changed bit changes them.
 */
#include "agent/engine/ckpt/format/state_digest.h"
#include "base/philox.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static uint32_t draw(uint32_t i)
{
	uint32_t out[4];
	philox4(philox_key(7, PHILOX_TEST, 1), i, out);
	return out[0];
}

struct tensor {
	int dims;
	int64_t shape[2], n;
	float *data;
};

/* Random bits, NaNs included. */
static struct tensor make(int dims, int64_t rows, int64_t columns)
{
	struct tensor t = { .dims = dims, .shape = { rows, columns }, .n = rows * columns };
	t.data = malloc((size_t)t.n * sizeof *t.data);
	assert_non_null(t.data);
	for (int64_t i = 0; i < t.n; i++) {
		uint32_t bits = draw((uint32_t)i);
		memcpy(&t.data[i], &bits, sizeof bits);
	}
	return t;
}

/* A box of the tensor, copied. */
static struct ckpt_tensor cut(const struct tensor *t, int64_t lo0, int64_t hi0, int64_t lo1,
			      int64_t hi1)
{
	struct ckpt_tensor box = { .dims = t->dims,
				   .shape = { t->shape[0], t->shape[1] },
				   .lo = { lo0, lo1 },
				   .hi = { hi0, hi1 } };
	float *to = box.data = malloc((size_t)((hi0 - lo0) * (hi1 - lo1) + 1) * sizeof *to);
	assert_non_null(to);
	for (int64_t i = lo0; i < hi0; i++)
		for (int64_t j = lo1; j < hi1; j++)
			memcpy(to++, &t->data[i * t->shape[1] + j], sizeof *to);
	return box;
}

static void add(struct ckpt_sums *s, const struct tensor *t, int64_t lo0, int64_t hi0, int64_t lo1,
		int64_t hi1)
{
	struct err e = ERR_INIT;
	if (lo1 == hi1)
		return; /* the box of a vector ignores its columns */
	struct ckpt_tensor box = cut(t, lo0, hi0, lo1, hi1);
	if (ckpt_sums_add_box(s, &box, NULL, &e))
		fail_msg("%s", e.text);
	free(box.data);
}

static struct ckpt_sums whole(const struct tensor *t)
{
	struct ckpt_sums s = { 0 };
	add(&s, t, 0, t->shape[0], 0, t->shape[1]);
	return s;
}

/* --- the formula of sum.h, element by element --- */

static uint64_t splitmix(uint64_t seed, uint64_t i)
{
	uint64_t x = seed;
	for (uint64_t k = 0; k <= i; k++)
		x += 0x9e3779b97f4a7c15ULL;
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
	return x ^ (x >> 31);
}

static ckpt_sum formula(const struct tensor *t, int64_t block)
{
	int64_t rows = t->dims == 1 ? 1 : t->shape[0],
		columns = t->dims == 1 ? t->shape[0] : t->shape[1];
	int64_t per_row = (columns + 2047) / 2048,
		per_block = (1 << 22) / (columns < 2048 ? columns : 2048);
	ckpt_sum total = 0;
	for (int64_t i = 0; i < rows * columns; i++) {
		int64_t column = i % columns, within = column % 2048;
		int64_t segment = i / columns * per_row + column / 2048;
		uint32_t bits;
		if (segment / per_block != block)
			continue;
		memcpy(&bits, &t->data[i], sizeof bits);
		ckpt_sum key = (ckpt_sum)splitmix(0x6d75737465722d41, 2 * (uint64_t)segment + 1)
				       << 64 |
			       splitmix(0x6d75737465722d41, 2 * (uint64_t)segment) | 1;
		uint64_t word = (uint64_t)bits << (within % 2 ? 32 : 0);
		total += key * ((ckpt_sum)word *
				(splitmix(0x6d75737465722d42, (uint64_t)within / 2) | 1));
	}
	return total;
}

static void the_sums_are_those_of_the_formula(void **state)
{
	(void)state;
	static const struct {
		int dims;
		int64_t rows, columns;
	} rows[] = { { 1, 1, 1 }, { 1, 2049, 1 }, { 2, 3, 5 }, { 2, 7, 4100 }, { 2, 40, 16 } };
	for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
		struct tensor t = make(rows[k].dims, rows[k].rows, rows[k].columns);
		struct ckpt_sums s = whole(&t);
		assert_int_equal(ckpt_blocks_of(t.dims, t.shape).n, 1);
		assert_true(ckpt_sums_get(&s, 0) == formula(&t, 0));
		ckpt_sums_fini(&s);
		free(t.data);
	}
}

/* Cuts a tensor at random into a grid of boxes whose rows and columns are odd or even. */
static void check_cuts(const struct tensor *t, uint32_t seed)
{
	struct ckpt_sums want = whole(t), have = { 0 };
	int64_t row[4] = { 0, draw(seed) % (t->shape[0] + 1), draw(seed + 1) % (t->shape[0] + 1),
			   t->shape[0] };
	int64_t column[4] = { 0, draw(seed + 2) % (t->shape[1] + 1),
			      draw(seed + 3) % (t->shape[1] + 1), t->shape[1] };
	for (int d = 0; d < 2; d++) {
		int64_t *v = d ? column : row;
		int64_t a = v[1] < v[2] ? v[1] : v[2], b = v[1] < v[2] ? v[2] : v[1];
		v[1] = a;
		v[2] = b;
	}
	for (int i = 2; i >= 0; i--) /* the order does not matter */
		for (int j = 0; j < 3; j++) {
			struct ckpt_sums part = { 0 };
			struct err e = ERR_INIT;
			add(&part, t, row[i], row[i + 1], column[j], column[j + 1]);
			assert_int_equal(ckpt_sums_merge(&have, &part, &e), 0);
			ckpt_sums_fini(&part);
		}
	if (!ckpt_sums_equal(&want, &have))
		fail_msg("%d × %d, seed %u: the parts do not add up to the whole", (int)t->shape[0],
			 (int)t->shape[1], seed);
	ckpt_sums_fini(&want);
	ckpt_sums_fini(&have);
}

static void the_sums_of_any_boxes_add_up_to_those_of_the_whole(void **state)
{
	(void)state;
	static const struct {
		int dims;
		int64_t rows, columns;
		int cuts;
	} rows[] = {
		{ 1, 37, 1, 20 },     { 1, 5000, 1, 20 },   { 2, 101, 12, 20 },
		{ 2, 24, 17, 20 },    { 2, 9, 2048, 20 },   { 2, 5, 6145, 20 },
		{ 2, 300000, 17, 3 }, { 2, 2100, 2049, 3 }, { 1, 9000001, 1, 3 },
	};
	for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
		struct tensor t = make(rows[k].dims, rows[k].rows, rows[k].columns);
		for (int i = 0; i < rows[k].cuts; i++)
			check_cuts(&t, (uint32_t)(1000 * k + 4 * (size_t)i));
		free(t.data);
	}
}

static void a_tensor_of_several_blocks_locates_a_change(void **state)
{
	(void)state;
	struct tensor t = make(2, 3000, 4096);
	struct ckpt_sums before = whole(&t);
	struct ckpt_blocks b = ckpt_blocks_of(t.dims, t.shape);
	assert_int_equal(b.n, 3);
	uint32_t bits;
	float *at = &t.data[2500 * 4096 + 4095];
	memcpy(&bits, at, sizeof bits);
	bits ^= 1;
	memcpy(at, &bits, sizeof bits);
	struct ckpt_sums after = whole(&t);
	for (int64_t i = 0; i < b.n; i++)
		assert_int_equal(ckpt_sums_get(&before, i) != ckpt_sums_get(&after, i), i == 2);
	ckpt_sums_fini(&before);
	ckpt_sums_fini(&after);
	free(t.data);
}

static void every_bit_of_every_element_counts(void **state)
{
	(void)state;
	struct tensor t = make(2, 5, 13);
	struct ckpt_sums clean = whole(&t);
	for (int64_t i = 0; i < t.n * 32; i++) {
		uint32_t bits;
		memcpy(&bits, &t.data[i / 32], sizeof bits);
		bits ^= 1U << (i % 32);
		memcpy(&t.data[i / 32], &bits, sizeof bits);
		struct ckpt_sums s = whole(&t);
		if (ckpt_sums_equal(&s, &clean))
			fail_msg("bit %d of element %d does not count", (int)(i % 32),
				 (int)(i / 32));
		ckpt_sums_fini(&s);
		bits ^= 1U << (i % 32);
		memcpy(&t.data[i / 32], &bits, sizeof bits);
	}
	ckpt_sums_fini(&clean);
	free(t.data);
}

static void swap(struct tensor *t, int64_t a, int64_t b)
{
	uint32_t x, y;
	memcpy(&x, &t->data[a], sizeof x);
	memcpy(&y, &t->data[b], sizeof y);
	memcpy(&t->data[a], &y, sizeof y);
	memcpy(&t->data[b], &x, sizeof x);
}

/* What a wrong reshard does: it exchanges elements, rows or columns, or moves a box. */
static void exchanged_elements_rows_and_columns_count(void **state)
{
	(void)state;
	struct tensor t = make(2, 24, 4100);
	struct ckpt_sums clean = whole(&t), s;
	for (uint32_t k = 0; k < 60; k++) {
		int64_t a = draw(2 * k) % 24, b = (a + 1 + draw(2 * k + 1) % 23) % 24;
		for (int64_t j = 0; j < (k % 3 == 0 ? 1 : k % 3 == 1 ? 4100 : 24); j++)
			if (k % 3 < 2)
				swap(&t, a * 4100 + j, b * 4100 + j);
			else
				swap(&t, j * 4100 + a, j * 4100 + 2048 + b);
		s = whole(&t);
		if (ckpt_sums_equal(&s, &clean))
			fail_msg("exchange %u is not found", k);
		ckpt_sums_fini(&clean);
		clean = s;
	}
	ckpt_sums_fini(&clean);
	free(t.data);
}

/* --- a device's memory --- */

struct device {
	int copies, fails_at;
};

/* The device has the bits of every element inverted, so that only a copy has its value. */
static int get_inverted(void *arg, void *to, const void *from, size_t bytes, struct err *e)
{
	struct device *d = arg;
	if (++d->copies == d->fails_at)
		return err_set(e, ERR_IO, "the device is gone");
	for (size_t i = 0; i < bytes; i++)
		((unsigned char *)to)[i] = (unsigned char)~((const unsigned char *)from)[i];
	return 0;
}

static void a_box_in_a_devices_memory_is_copied_to_be_digested(void **state)
{
	(void)state;
	struct err e = ERR_INIT;
	struct tensor t = make(2, 700, 1001); /* more than one piece, and an odd row */
	struct device device = { 0 };
	const struct ckpt_memory there = { .get = get_inverted, .arg = &device };
	struct ckpt_sums here = whole(&t), have = { 0 }, none = { 0 };
	struct ckpt_tensor box = { .dims = 2,
				   .shape = { 700, 1001 },
				   .hi = { 700, 1001 },
				   .data = t.data,
				   .there = &there };
	for (int64_t i = 0; i < t.n * (int64_t)sizeof(float); i++)
		((unsigned char *)t.data)[i] ^= 255;
	assert_int_equal(ckpt_sums_add_box(&have, &box, NULL, &e), 0);
	assert_true(device.copies > 1);
	assert_true(ckpt_sums_equal(&here, &have));
	device = (struct device){ .fails_at = 2 };
	assert_int_equal(ckpt_sums_add_box(&none, &box, NULL, &e), -1);
	assert_int_equal(e.code, ERR_IO);
	ckpt_sums_fini(&here);
	ckpt_sums_fini(&have);
	ckpt_sums_fini(&none);
	free(t.data);
}

/* --- the manifest --- */

static void start(struct manifest *m, int64_t step, const char *optimizer)
{
	struct ckpt_state s = { .step = step, .samples = 8, .seed = 3, .total_steps = 9 };
	json_t *empty = json_object();
	strcpy(s.optimizer, optimizer);
	ckpt_manifest_init(m, &s, 1, empty, empty);
	json_decref(empty);
}

/* One file that holds rows [lo, hi) of the tensor. */
static void add_part(struct manifest *m, const char *file, const char *name, const struct tensor *t,
		     int64_t lo, int64_t hi, bool sums)
{
	struct err e = ERR_INIT;
	struct manifest_file f = { .header = 8, .size = 8 + 4 * (hi - lo) * t->shape[1] };
	struct manifest_slice slice = { .file = m->n_files,
					.lo = { lo, 0 },
					.hi = { hi, t->shape[1] } };
	struct ckpt_sums s = { 0 };
	strcpy(f.name, file);
	add(&s, t, lo, hi, 0, t->shape[1]);
	if (ckpt_manifest_add_file(m, &f, &e) ||
	    ckpt_manifest_add_slice(m, name, t->dims, t->shape, &slice, &e) ||
	    (sums && ckpt_manifest_add_sums(m, name, &s, &e)))
		fail_msg("%s", e.text);
	ckpt_sums_fini(&s);
}

static struct digest root(const struct manifest *m)
{
	struct err e = ERR_INIT;
	struct digest d = { { 0 } };
	assert_int_equal(ckpt_state_digest(m, &d, &e), 1);
	return d;
}

static void the_root_covers_names_shapes_and_the_state_but_no_order(void **state)
{
	(void)state;
	struct tensor a = make(2, 4, 6), b = make(2, 6, 4);
	struct manifest m[6];
	static const struct {
		const char *first, *second, *optimizer;
		int64_t step;
		bool turned;
	} rows[6] = {
		{ "x", "y", "sgd", 5, false },  { "y", "x", "sgd", 5, true },
		{ "y", "x", "sgd", 5, false },  { "x", "y", "sgd", 6, false },
		{ "x", "y", "lion", 5, false }, { "x", "z", "sgd", 5, false },
	};
	for (int i = 0; i < 6; i++) {
		start(&m[i], rows[i].step, rows[i].optimizer);
		add_part(&m[i], "1", rows[i].first, rows[i].turned ? &b : &a, 0,
			 rows[i].turned ? 6 : 4, true);
		add_part(&m[i], "2", rows[i].second, rows[i].turned ? &a : &b, 0,
			 rows[i].turned ? 4 : 6, true);
	}
	struct digest first = root(&m[0]), same = root(&m[1]);
	assert_true(ckpt_digest_equal(&first, &same));
	for (int i = 2; i < 6; i++) {
		struct digest other = root(&m[i]);
		if (ckpt_digest_equal(&first, &other))
			fail_msg("row %d has the same digest", i);
	}
	for (int i = 0; i < 6; i++)
		ckpt_manifest_fini(&m[i]);
	free(a.data);
	free(b.data);
}

static void merged_parts_read_back_and_have_the_digest_of_the_whole(void **state)
{
	(void)state;
	struct err e = ERR_INIT;
	struct tensor t = make(2, 3000, 2000), zeros = make(1, 9, 1);
	struct manifest one, parts, part, again;
	struct buf text = BUF_INIT;
	memset(zeros.data, 0, 9 * sizeof(float));
	start(&one, 5, "sgd");
	start(&parts, 5, "sgd");
	add_part(&one, "1", "t", &t, 0, 3000, true);
	add_part(&one, "2", "z", &zeros, 0, 9, true);
	for (int i = 0; i < 3; i++) {
		struct manifest read;
		text = (struct buf)BUF_INIT;
		start(&part, 5, "sgd");
		add_part(&part,
			 i == 0   ? "1"
			 : i == 1 ? "2"
				  : "3",
			 "t", &t, 1000 * i, 1000 * (i + 1), true);
		ckpt_manifest_write(&part, &text);
		if (ckpt_manifest_parse(buf_str(&text), text.len, "part", &read, &e) ||
		    ckpt_manifest_merge(&parts, &read, &e))
			fail_msg("%s", e.text);
		ckpt_manifest_fini(&part);
		ckpt_manifest_fini(&read);
		buf_fini(&text);
	}
	add_part(&parts, "4", "z", &zeros, 0, 9, true);
	struct digest a = root(&one), b = root(&parts);
	assert_true(ckpt_digest_equal(&a, &b));
	ckpt_manifest_write(&parts, &text);
	if (ckpt_manifest_parse(buf_str(&text), text.len, "whole", &again, &e))
		fail_msg("%s", e.text);
	b = root(&again);
	assert_true(ckpt_digest_equal(&a, &b));
	ckpt_manifest_fini(&again);
	ckpt_manifest_fini(&one);
	ckpt_manifest_fini(&parts);
	buf_fini(&text);
	free(t.data);
	free(zeros.data);
}

static void a_part_without_sums_leaves_the_whole_without_a_digest(void **state)
{
	(void)state;
	struct err e = ERR_INIT;
	struct tensor t = make(2, 4, 6);
	for (int old = 0; old < 2; old++) {
		struct manifest m, part;
		struct digest d;
		start(&m, 5, "sgd");
		for (int i = 0; i < 2; i++) {
			start(&part, 5, "sgd");
			add_part(&part, i ? "2" : "1", "t", &t, 2 * i, 2 * i + 2, i != old);
			assert_int_equal(ckpt_manifest_merge(&m, &part, &e), 0);
			ckpt_manifest_fini(&part);
		}
		assert_int_equal(ckpt_state_digest(&m, &d, &e), 0);
		ckpt_manifest_fini(&m);
	}
	free(t.data);
}

/* Replaces the first occurrence and corrects the digest in the first line. */
static int parse_changed(const struct buf *text, const char *from, const char *to, struct err *e)
{
	struct buf out = BUF_INIT, file = BUF_INIT;
	struct manifest m;
	char hex[DIGEST_HEX];
	const char *body = strchr(text->data, '\n') + 1, *at = strstr(body, from);
	assert_non_null(at);
	buf_add(&out, body, (size_t)(at - body));
	buf_puts(&out, to);
	buf_puts(&out, at + strlen(from));
	struct digest d = ckpt_digest_of(out.data, out.len);
	ckpt_digest_hex(&d, hex);
	buf_printf(&file, "{\"digest\": \"%s\",\n%s", hex, out.data);
	*e = (struct err)ERR_INIT;
	int rc = ckpt_manifest_parse(file.data, file.len, "changed", &m, e);
	if (!rc)
		ckpt_manifest_fini(&m);
	buf_fini(&out);
	buf_fini(&file);
	return rc;
}

static void sums_that_do_not_fit_are_refused(void **state)
{
	(void)state;
	static const struct {
		const char *from, *to, *why;
	} rows[] = {
		{ "\"sums\": [0, \"", "\"sums\": [1, \"", "does not have" },
		{ "\"sums\": [0, \"", "\"sums\": [-1, \"", "does not have" },
		{ "\"sums\": [0, \"", "\"sums\": [0, \"00", "is not [first" },
		{ "\"sums\": [0, \"", "\"sums\": [0, \"00000000000000000000000000000000",
		  "does not have" },
		{ "\"sums\": [0, \"", "\"sums\": [0.5, \"", "is not [first" },
		{ "\"sums\": [0, \"", "\"no\": [0, \"", "state_digest" },
		{ "\"step\": 5", "\"step\": 6", "state_digest" },
		{ "\"state_digest\": \"", "\"state_digest\": \"0", "digest" },
		{ "\"state_digest\": \"", "\"state_gigest\": \"", "state_digest" },
	};
	struct err e = ERR_INIT;
	struct tensor t = make(2, 4, 6);
	struct manifest m;
	struct buf text = BUF_INIT;
	start(&m, 5, "sgd");
	add_part(&m, "1", "t", &t, 0, 4, true);
	ckpt_manifest_write(&m, &text);
	assert_int_equal(parse_changed(&text, "\"step\"", "\"step\"", &e), 0);
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		assert_int_equal(parse_changed(&text, rows[i].from, rows[i].to, &e), -1);
		if (!strstr(e.text, rows[i].why))
			fail_msg("row %zu: %s", i, e.text);
	}
	char *hex = strstr(text.data, "\"sums\": [0, \"") + 12;
	hex[5] = hex[5] == 'g' ? 'h' : 'g';
	assert_int_equal(parse_changed(&text, "\"step\"", "\"step\"", &e), -1);
	assert_non_null(strstr(e.text, "a sum is not"));
	buf_fini(&text);
	ckpt_manifest_fini(&m);
	free(t.data);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_sums_are_those_of_the_formula),
		cmocka_unit_test(the_sums_of_any_boxes_add_up_to_those_of_the_whole),
		cmocka_unit_test(a_tensor_of_several_blocks_locates_a_change),
		cmocka_unit_test(every_bit_of_every_element_counts),
		cmocka_unit_test(exchanged_elements_rows_and_columns_count),
		cmocka_unit_test(a_box_in_a_devices_memory_is_copied_to_be_digested),
		cmocka_unit_test(the_root_covers_names_shapes_and_the_state_but_no_order),
		cmocka_unit_test(merged_parts_read_back_and_have_the_digest_of_the_whole),
		cmocka_unit_test(a_part_without_sums_leaves_the_whole_without_a_digest),
		cmocka_unit_test(sums_that_do_not_fit_are_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
