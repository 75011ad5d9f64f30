/* Tests packed slices: manifests of many slices read back as they were, and no other text reads. */
#include "agent/engine/ckpt/format/packed.h"
#include "agent/engine/ckpt/format/state_digest.h"
#include "base/clock.h"
#include "tests/large.h"
#include "tests/unit/agent/ckpt_fixture.h"

#include <sys/resource.h>

static uint32_t draw(uint32_t seed, uint32_t i)
{
	uint32_t out[4];
	philox4(philox_key(seed, PHILOX_TEST, 5), i, out);
	return out[0];
}

struct list {
	struct manifest_slice slices[64];
	int64_t n;
};

static int append(void *arg, const struct manifest_slice *s, struct err *e)
{
	struct list *l = arg;
	(void)e;
	assert_true(l->n < 64);
	l->slices[l->n++] = *s;
	return 0;
}

static void any_slices_read_back(void **state)
{
	(void)state;
	static const int64_t sizes[] = { 0, 1, 63, 64, 127, 128, 1 << 20, INT64_MAX / 4 };
	for (uint32_t seed = 0; seed < 400; seed++) {
		struct manifest_slice slices[64] = { { 0 } };
		struct manifest_tensor t = { .dims = 1 + (int)(seed % 2),
					     .slices = slices,
					     .n = 1 + draw(seed, 0) % 60 };
		for (int64_t i = 0; i < t.n; i++) {
			struct manifest_slice *s = &slices[i];
			uint32_t k = 1 + 8 * (uint32_t)i;
			s->file = sizes[draw(seed, k) % 8];
			s->offset = sizes[draw(seed, k + 1) % 8];
			for (int d = 0; d < t.dims; d++) {
				s->lo[d] = sizes[draw(seed, k + 2 + (uint32_t)d) % 8];
				s->hi[d] = s->lo[d] + sizes[draw(seed, k + 4 + (uint32_t)d) % 8];
			}
			s->digest = ckpt_digest_of(&k, sizeof k);
		}
		struct buf text = BUF_INIT;
		struct list back = { .n = 0 };
		struct err e = ERR_INIT;
		ckpt_packed_write(&t, &text);
		if (ckpt_packed_read(buf_str(&text), text.len, t.dims, append, &back, &e))
			fail_msg("seed %u: %s", seed, e.text);
		assert_int_equal(back.n, t.n);
		assert_memory_equal(back.slices, slices, (size_t)t.n * sizeof *slices);
		buf_fini(&text);
	}
}

/* The text of one slice [0, 1) of file 0 at 0, whose digest is zeros, in base64: bytes 00 00 00 01
 * and 16 zeros. */
static void only_what_is_written_is_read(void **state)
{
	(void)state;
	static const struct {
		const char *text, *what;
		int64_t slices; /* -1: refused */
	} rows[] = {
		{ "AAAAAQAAAAAAAAAAAAAAAAAAAAA=", "as it is written", 1 },
		{ "AAAAAQAAAAAAAAAAAAAAAAAAAAAAAAABAAAAAAAAAAAAAAAAAAAAAA==", "two slices", 2 },
		{ "AAAAAQAAAAAAAAAAAAAAAAAAAAB=", "a bit beyond the end", -1 },
		{ "AAAAAQAAAAAAAAAAAAAAAAAAAAA", "no padding", -1 },
		{ "AAAAAQAAAA==AAAAAAAAAAAAAAA=", "padding inside", -1 },
		{ "AAAAAQAAAAAAAAAAAAAAAAAAAA-=", "another alphabet", -1 },
		{ "AAAAAQAAAAAAAAAAAAAAAAAAAAAA", "a byte that is left", -1 },
		{ "AAAAAQAAAAAAAAAAAAAAAAAAAA==", "a digest that is too short", -1 },
		{ "gAAAAAEAAAAAAAAAAAAAAAAAAAAA", "a number in more bytes than it needs", -1 },
		{ "AQAAAQAAAAAAAAAAAAAAAAAAAAA=", "file -1", -1 },
		{ "AAABAQAAAAAAAAAAAAAAAAAAAAA=", "a box that begins at -1", -1 },
		{ "AP///////////wEAAQAAAAAAAAAAAAAAAAAAAAA=", "offset -1", -1 },
		{ "AP///////////wIAAQAAAAAAAAAAAAAAAAAAAAA=", "a number of more than 64 bits", -1 },
		{ "AP////////////8BAAEAAAAAAAAAAAAAAAAAAAAA", "a number that does not end", -1 },
		{ "AAD+//////////8BAgAAAAAAAAAAAAAAAAAAAAA=", "a box that ends beyond 2^63", -1 },
	};
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct list l = { .n = 0 };
		struct err e = ERR_INIT;
		int rc = ckpt_packed_read(rows[i].text, strlen(rows[i].text), 1, append, &l, &e);
		if ((rc == 0) != (rows[i].slices > 0) || (rc == 0 && l.n != rows[i].slices) ||
		    (rc && e.code != ERR_CORRUPT))
			fail_msg("%s: %d, %d slices: %s", rows[i].what, rc, (int)l.n, e.text);
	}
}

static void a_checkpoint_with_packed_slices_loads_in_any_layout(void **state)
{
	(void)state;
	struct fix_layout from = { 3, 2, 5 }, to = { 2, 2, 0 };
	struct err e = ERR_INIT;
	struct manifest m;
	struct buf plain = BUF_INIT, packed = BUF_INIT, again = BUF_INIT;
	fix_write(&from, 9);
	assert_int_equal(ckpt_manifest_load(fix_path(9, NULL), &m, &e), 0);
	ckpt_manifest_write(&m, &plain);
	ckpt_manifest_write_as(&m, true, &packed);
	ckpt_manifest_fini(&m);
	assert_non_null(strstr(buf_str(&plain), "\"version\": 1"));
	assert_non_null(strstr(buf_str(&packed), "\"version\": 2"));
	assert_true(packed.len < plain.len);
	assert_int_equal(file_replace(fix_path(9, MANIFEST_NAME), packed.data, packed.len, &e), 0);
	fix_load(fix_path(9, NULL), &to, 9);
	if (ckpt_verify(fix_path(9, NULL), &e))
		fail_msg("%s", e.text);
	assert_int_equal(ckpt_manifest_load(fix_path(9, NULL), &m, &e), 0);
	ckpt_manifest_write(&m, &again); /* a small one is plain */
	assert_int_equal(again.len, plain.len);
	assert_memory_equal(again.data, plain.data, plain.len);
	ckpt_manifest_fini(&m);
	buf_fini(&plain);
	buf_fini(&packed);
	buf_fini(&again);
}

/* --- many ranks --- */

/* Ranks of 64-way cut tensors, `each` slices on every rank. */
static void make_many(struct manifest *m, int ranks, int each)
{
	struct err e = ERR_INIT;
	struct ckpt_state s = { .step = 1000, .samples = 1, .seed = 1, .total_steps = 2000 };
	json_t *empty = json_object();
	ckpt_manifest_init(m, &s, 1, empty, empty);
	json_decref(empty);
	for (int r = 0; r < ranks; r++) {
		struct manifest_file f = { .header = 4096,
					   .size = 4096 + (int64_t)each * 128 * 2048 * 4,
					   .digest = ckpt_digest_of(&r, sizeof r) };
		snprintf(f.name, sizeof f.name, "shard-%05d.safetensors", r);
		assert_int_equal(ckpt_manifest_add_file(m, &f, &e), 0);
	}
	for (int r = 0; r < ranks; r++)
		for (int k = 0; k < each; k++) {
			char name[96];
			int part = r % 64, group = r / 64;
			int of = group == (ranks - 1) / 64 && ranks % 64 ? ranks % 64 : 64;
			int64_t shape[2] = { 128 * of, 2048 }, id = (int64_t)r * each + k;
			struct manifest_slice slice = { .file = r,
							.offset = (int64_t)k * 128 * 2048 * 4,
							.lo = { 128 * part, 0 },
							.hi = { 128 * part + 128, 2048 },
							.digest = ckpt_digest_of(&id, sizeof id) };
			ckpt_sum sum = (ckpt_sum)id << 64 | 1;
			struct ckpt_sums sums = { 0, 1, &sum };
			snprintf(name, sizeof name, "optim.m.layers.%d.mlp.experts.%d.up.weight",
				 group, k);
			if (ckpt_manifest_add_slice(m, name, 2, shape, &slice, &e) ||
			    ckpt_manifest_add_sums(m, name, &sums, &e))
				fail_msg("%s", e.text);
		}
}

static long peak_kb(void)
{
	struct rusage u;
	getrusage(RUSAGE_SELF, &u);
	return u.ru_maxrss;
}

static void parse_timed(const struct buf *text, const char *what, struct manifest *out)
{
	struct err e = ERR_INIT;
	long before = peak_kb();
	double begun = clock_s();
	if (ckpt_manifest_parse(text->data, text->len, what, out, &e))
		fail_msg("%s", e.text);
	double parsed = clock_s();
	if (ckpt_manifest_prove(out, &e))
		fail_msg("%s", e.text);
	print_message("%s: %.1f MB, parsed in %.3f s, proven in %.3f s, peak memory + %.0f MB\n",
		      what, (double)text->len / 1e6, parsed - begun, clock_s() - parsed,
		      (double)(peak_kb() - before) / 1e3);
}

/* The packed one is parsed first, so that its peak of memory is its own. */
static void the_manifest_of_many_ranks_is_packed_by_itself(void **state)
{
	(void)state;
	int ranks = large_run() ? 10000 : 200, each = 40;
	struct manifest m, packed, plain;
	struct buf small = BUF_INIT, big = BUF_INIT, again = BUF_INIT;
	make_many(&m, ranks, each);
	ckpt_manifest_write(&m, &small);
	ckpt_manifest_write_as(&m, false, &big);
	assert_non_null(strstr(buf_str(&small), "\"version\": 2"));
	assert_true(small.len < big.len * 6 / 10);
	print_message("%d ranks, %d slices\n", ranks, ranks * each);
	parse_timed(&small, "packed", &packed);
	parse_timed(&big, "plain", &plain);
	ckpt_manifest_write_as(&packed, false, &again);
	assert_int_equal(again.len, big.len);
	assert_memory_equal(again.data, big.data, big.len);
	ckpt_manifest_fini(&m);
	ckpt_manifest_fini(&packed);
	ckpt_manifest_fini(&plain);
	buf_fini(&small);
	buf_fini(&big);
	buf_fini(&again);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, fix_setup, fix_teardown)
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(any_slices_read_back),
		cmocka_unit_test(only_what_is_written_is_read),
		TEST(a_checkpoint_with_packed_slices_loads_in_any_layout),
		cmocka_unit_test(the_manifest_of_many_ranks_is_packed_by_itself),
	};
	return cmocka_run_group_tests_name("packed slices", tests, NULL, NULL);
}
