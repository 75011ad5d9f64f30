/* Tests llm.c's files, reading through blends, and where documents start. */
#include "agent/engine/data/data.h"
#include "agent/engine/data/llmc.h"
#include "agent/engine/data/tokens.h"
#include "tests/unit/tmpdir.h"

#include <dirent.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static char dir[64];

static const char *in_dir(const char *name)
{
	static char path[4][PATH_MAX];
	static int next;
	next = (next + 1) % 4;
	snprintf(path[next], sizeof path[next], "%s/%s", dir, name);
	return path[next];
}

static int make_dir(void **state)
{
	(void)state;
	return tmpdir_make(dir, sizeof dir) ? 0 : -1;
}

static int remove_dir(void **state)
{
	(void)state;
	DIR *d = opendir(dir);
	for (struct dirent *f; (f = readdir(d));)
		if (f->d_name[0] != '.')
			unlink(in_dir(f->d_name));
	closedir(d);
	return rmdir(dir);
}

/* Writes a Megatron file of u16 tokens, with one document for each length. The tokens are first,
 * first + 1, … */
static void write_megatron(const char *name, const int *lengths, int documents, int first)
{
	struct token_writer *w;
	assert_int_equal(data_token_writer_open(in_dir(name), TOKEN_U16, &w, NULL), 0);
	for (int i = 0; i < documents; i++) {
		for (int k = 0; k < lengths[i]; k++) {
			uint16_t v = (uint16_t)first++;
			assert_int_equal(data_token_writer_add(w, &v, 1, NULL), 0);
		}
		assert_int_equal(data_token_writer_end(w, NULL), 0);
	}
	assert_int_equal(data_token_writer_commit(w, NULL), 0);
	data_token_writer_close(w);
}

static void write_llmc(const char *name, int32_t magic, int32_t version, int32_t count,
		       const uint32_t *tokens, int n, int width)
{
	int32_t header[256] = { magic, version, count };
	FILE *f = fopen(in_dir(name), "w");
	assert_non_null(f);
	assert_int_equal(fwrite(header, sizeof header, 1, f), 1);
	for (int i = 0; i < n; i++)
		assert_int_equal(fwrite(&tokens[i], (size_t)width, 1, f), 1);
	assert_int_equal(fclose(f), 0);
}

static void both_forms_of_llmc_are_read(void **state)
{
	static const struct {
		int32_t magic, version, begin;
		int width;
		const char *type;
	} forms[] = { { 20240520, 1, 50256, 2, "u16" }, { 20240801, 7, 128000, 4, "u32" } };
	(void)state;
	for (int i = 0; i < 2; i++) {
		struct dataset *d;
		struct err e = ERR_INIT;
		uint32_t tokens[13] = { 9, 1, 2 };
		int64_t documents;
		int32_t in[12], to[12], starts[12];
		for (int k = 3; k < 13; k++)
			tokens[k] = (uint32_t)k;
		tokens[3] = tokens[6] = tokens[7] = (uint32_t)forms[i].begin;
		write_llmc("l.bin", forms[i].magic, forms[i].version, 13, tokens, 13,
			   forms[i].width);
		for (int k = 0; k < 2; k++) { /* the file, or its prefix */
			if (dataset_open(in_dir(k ? "l" : "l.bin"), 12, 0, &d, &e))
				fail_msg("%s", e.text);
			struct dataset_source s = dataset_source(d, 0);
			assert_string_equal(s.format, "llm.c");
			assert_string_equal(s.type, forms[i].type);
			assert_int_equal(s.tokens, 13);
			assert_int_equal(dataset_documents(d, 0, &documents, &e), 0);
			/* The first token always begins a document. */
			assert_int_equal(documents, 4);
			assert_int_equal(dataset_read(d, DATA_TRAIN, 1, 0, 1, 200000, in, to,
						      starts, &e),
					 0);
			static const int32_t want[12] = { 0, 0, 0, 3, 3, 3, 6, 7, 7, 7, 7, 7 };
			assert_memory_equal(starts, want, sizeof want);
			for (int t = 0; t < 12; t++) {
				assert_int_equal(in[t], tokens[t]);
				assert_int_equal(to[t], tokens[t + 1]);
			}
			dataset_close(d);
		}
	}
}

static void refused(const char *name, enum err_code code, const char *says)
{
	struct err e = ERR_INIT;
	struct dataset *d = NULL;
	if (!dataset_open(in_dir(name), 2, 0, &d, &e))
		fail_msg("%s was not refused", says);
	assert_null(d);
	if (e.code != code || !strstr(e.text, says))
		fail_msg("%s: %s: %s", says, err_word(e.code), e.text);
}

static void broken_files_of_llmc_are_named(void **state)
{
	static const uint32_t tokens[8] = { 1, 2, 3, 4, 5, 6, 7, 8 };
	(void)state;
	write_llmc("l.bin", 20240520, 2, 8, tokens, 8, 2);
	refused("l.bin", ERR_UNSUPPORTED,
		"version 2 of llm.c's token file 20240520, only 1 is read");
	write_llmc("l.bin", 20240522, 1, 8, tokens, 8, 2);
	refused("l.bin", ERR_CORRUPT, "not a token file of llm.c");
	write_llmc("l.bin", 20240520, 1, 9, tokens, 8, 2);
	refused("l.bin", ERR_CORRUPT, "1040 bytes, its header describes 1042 (9 u16 tokens)");
	write_llmc("l.bin", 20240520, 1, -8, tokens, 8, 2);
	refused("l.bin", ERR_CORRUPT, "its header describes 1008");
	write_llmc("l.bin", 20240801, 7, 8, tokens, 8, 2);
	refused("l.bin", ERR_CORRUPT, "its header describes 1056");
	write_llmc("l.bin", 20240520, 1, 8, tokens, 8, 2);
	for (int n = 1039; n >= 0; n -= n > 1000 ? 1 : 100) {
		assert_int_equal(truncate(in_dir("l.bin"), n), 0);
		refused("l.bin", ERR_CORRUPT, "l.bin");
	}
	refused("l", ERR_NOTFOUND, "l.idx: no such file");
	refused("", ERR_NOTFOUND, "no such file");
}

static void starts_follow_the_documents_of_the_index(void **state)
{
	static const int lengths[] = { 5, 1, 2, 4, 9, 3, 1 };
	(void)state;
	write_megatron("m", lengths, 7, 0);
	for (int seq = 1; seq <= 12; seq++) {
		struct dataset *d;
		int32_t in[12], to[12], starts[12], begin[25];
		for (int i = 0, at = 0; i < 7; at += lengths[i++])
			for (int k = 0; k < lengths[i]; k++)
				begin[at + k] = at;
		assert_int_equal(dataset_open(in_dir("m"), seq, 0, &d, NULL), 0);
		for (int64_t k = 0; k < dataset_samples(d, DATA_TRAIN); k++) {
			assert_int_equal(
				dataset_read(d, DATA_TRAIN, 3, k, 1, 30, in, to, starts, NULL), 0);
			for (int t = 0; t < seq; t++) {
				int want = begin[in[t]] - in[0];
				assert_int_equal(starts[t], want > 0 ? want : 0);
			}
		}
		dataset_close(d);
	}
}

/* Opens sources of 100, 60 and 11 samples. Their tokens identify them: a's are 0…, b's 10000…, c's
 * 20000…. */
static struct dataset *open_blend(double validation)
{
	char words[3 * PATH_MAX];
	struct err e = ERR_INIT;
	struct dataset *d;
	write_megatron("a", (int[]){ 401 }, 1, 0);
	write_megatron("b", (int[]){ 100, 143 }, 2, 10000);
	write_megatron("c", (int[]){ 46 }, 1, 20000);
	snprintf(words, sizeof words, "0.5 %s 0.3 %s 0.2 %s", in_dir("a"), in_dir("b"),
		 in_dir("c"));
	if (dataset_open(words, 4, validation, &d, &e))
		fail_msg("%s", e.text);
	return d;
}

static void a_blend_walks_each_source_through_its_own_epochs(void **state)
{
	struct dataset *d = open_blend(0);
	int seen[3][100] = { { 0 } }, rounds[3] = { 0 }, same = 0;
	(void)state;
	assert_int_equal(dataset_samples(d, DATA_TRAIN), 171);
	for (int64_t k = 0; k < 1000; k++) {
		int32_t in[4], to[4];
		struct data_place at = dataset_place(d, DATA_TRAIN, 5, k);
		int64_t n = dataset_source(d, at.source).samples[DATA_TRAIN];
		assert_int_equal(dataset_read(d, DATA_TRAIN, 5, k, 1, 30000, in, to, NULL, NULL),
				 0);
		assert_int_equal(in[0], at.source * 10000 + at.sample * 4);
		assert_int_equal(at.epoch, rounds[at.source] / n);
		assert_int_equal(seen[at.source][at.sample]++, at.epoch); /* once per epoch */
		assert_int_equal(dataset_count(d, at.source, k), rounds[at.source]++);
		same += at.source == 0 && at.epoch == 0 &&
			at.sample == dataset_place(d, DATA_TRAIN, 6, k).sample;
	}
	assert_int_equal(rounds[0], 500);
	assert_int_equal(rounds[1], 300);
	assert_int_equal(rounds[2], 200);
	assert_true(same < 10); /* another seed, another order */
	dataset_close(d);
}

static void sources_of_one_size_have_orders_of_their_own(void **state)
{
	char words[2 * PATH_MAX];
	struct dataset *d;
	int64_t order[2][100], same = 0;
	(void)state;
	write_megatron("a", (int[]){ 401 }, 1, 0);
	write_megatron("b", (int[]){ 401 }, 1, 10000);
	snprintf(words, sizeof words, "1 %s 1 %s", in_dir("a"), in_dir("b"));
	assert_int_equal(dataset_open(words, 4, 0, &d, NULL), 0);
	for (int64_t k = 0, n[2] = { 0 }; k < 200; k++) {
		struct data_place at = dataset_place(d, DATA_TRAIN, 1, k);
		order[at.source][n[at.source]++] = at.sample;
	}
	for (int i = 0; i < 100; i++)
		same += order[0][i] == order[1][i];
	assert_true(same < 10);
	dataset_close(d);
}

static void each_source_holds_out_its_own_end_in_its_own_order(void **state)
{
	struct dataset *d = open_blend(0.1);
	int32_t in[4], to[4];
	int64_t next[3] = { 0 };
	(void)state;
	assert_int_equal(dataset_samples(d, DATA_VALIDATION), 10 + 6 + 1);
	for (int64_t k = 0; k < 100; k++) {
		assert_int_equal(dataset_read(d, DATA_VALIDATION, (uint64_t)k, k, 1, 30000, in, to,
					      NULL, NULL),
				 0);
		struct dataset_source s = dataset_source(d, in[0] / 10000);
		assert_int_equal(in[0] % 10000 / 4,
				 s.samples[DATA_TRAIN] +
					 next[in[0] / 10000]++ % s.samples[DATA_VALIDATION]);
	}
	for (int64_t k = 0; k < 500; k++) {
		assert_int_equal(dataset_read(d, DATA_TRAIN, 1, k, 1, 30000, in, to, NULL, NULL),
				 0);
		assert_true(in[0] % 10000 / 4 <
			    dataset_source(d, in[0] / 10000).samples[DATA_TRAIN]);
	}
	assert_int_equal(next[0], 50);
	dataset_close(d);
}

static void a_lone_path_is_read_in_the_order_it_always_had(void **state)
{
	static const int64_t want[8] = { 12, 88, 45, 90, 2, 40, 92, 35 };
	struct dataset *d;
	(void)state;
	write_megatron("a", (int[]){ 401 }, 1, 0);
	assert_int_equal(dataset_open(in_dir("a"), 4, 0, &d, NULL), 0);
	for (int64_t k = 0; k < 8; k++)
		assert_int_equal(dataset_place(d, DATA_TRAIN, 7, 96 + k).sample, want[k]);
	dataset_close(d);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, make_dir, remove_dir)
	const struct CMUnitTest tests[] = {
		TEST(both_forms_of_llmc_are_read),
		TEST(broken_files_of_llmc_are_named),
		TEST(starts_follow_the_documents_of_the_index),
		TEST(a_blend_walks_each_source_through_its_own_epochs),
		TEST(sources_of_one_size_have_orders_of_their_own),
		TEST(each_source_holds_out_its_own_end_in_its_own_order),
		TEST(a_lone_path_is_read_in_the_order_it_always_had),
	};
	return cmocka_run_group_tests_name("data sources", tests, NULL, NULL);
}
