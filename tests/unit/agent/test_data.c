/* Tests packing, reading, and every way in which token files can be invalid. */
#include "agent/engine/data/data.h"
#include "agent/engine/data/idx.h"
#include "agent/engine/data/pack.h"
#include "agent/engine/data/tokens.h"
#include "base/file.h"
#include "tests/unit/tmpdir.h"

#include <dirent.h>
#include <limits.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char dir[64], prefix[80];

static const char *in_dir(const char *name)
{
	static char path[PATH_MAX];
	snprintf(path, sizeof path, "%s/%s", dir, name);
	return path;
}

static int make_dir(void **state)
{
	(void)state;
	if (!tmpdir_make(dir, sizeof dir))
		return -1;
	snprintf(prefix, sizeof prefix, "%s/d", dir);
	return 0;
}

static int files_in_dir(bool remove_them)
{
	int n = 0;
	DIR *d = opendir(dir);
	for (struct dirent *f; (f = readdir(d));)
		if (f->d_name[0] != '.') {
			n++;
			if (remove_them)
				unlink(in_dir(f->d_name));
		}
	closedir(d);
	return n;
}

static int remove_dir(void **state)
{
	(void)state;
	files_in_dir(true);
	return rmdir(dir);
}

static void write_file(const char *path, const void *data, size_t n)
{
	FILE *f = fopen(path, "w");
	assert_non_null(f);
	assert_int_equal(fwrite(data, 1, n, f), n);
	assert_int_equal(fclose(f), 0);
}

/* Writes tokens 0, 1, 2 … mod `vocab`, as `documents` documents of 50 tokens. */
static void write_tokens(enum token_type type, int documents, int vocab)
{
	struct err e = ERR_INIT;
	struct token_writer *w;
	assert_int_equal(data_token_writer_open(prefix, type, &w, &e), 0);
	for (int i = 0; i < documents * 50; i++) {
		int64_t v = i % vocab; /* little-endian: its first bytes are a smaller token */
		assert_int_equal(data_token_writer_add(w, &v, 1, &e), 0);
		if (i % 50 == 49)
			assert_int_equal(data_token_writer_end(w, &e), 0);
	}
	assert_int_equal(data_token_writer_commit(w, &e), 0);
	data_token_writer_close(w);
}

static int64_t documents_of(const struct dataset *d)
{
	int64_t n = -1;
	assert_int_equal(dataset_documents(d, 0, &n, NULL), 0);
	return n;
}

static void every_token_type_reads_back(void **state)
{
	static const enum token_type all[] = { TOKEN_U8,  TOKEN_I8,  TOKEN_I16,
					       TOKEN_U16, TOKEN_I32, TOKEN_I64 };
	(void)state;
	for (size_t k = 0; k < sizeof all / sizeof *all; k++) {
		struct err e = ERR_INIT;
		struct dataset *d;
		int32_t in[3 * 10], to[3 * 10];
		write_tokens(all[k], 4, 120);
		assert_int_equal(dataset_open(prefix, 10, 0, &d, &e), 0);
		assert_int_equal(dataset_tokens(d), 200);
		assert_int_equal(documents_of(d), 4);
		assert_string_equal(dataset_source(d, 0).type, data_token_word(all[k]));
		assert_int_equal(dataset_samples(d, DATA_TRAIN), 19);
		assert_int_equal(dataset_samples(d, DATA_VALIDATION), 0);
		assert_int_equal(dataset_read(d, DATA_TRAIN, 5, 17, 3, 120, in, to, NULL, &e), 0);
		for (int s = 0; s < 3; s++) {
			int64_t at = 10 * dataset_place(d, DATA_TRAIN, 5, 17 + s).sample;
			for (int i = 0; i < 10; i++) {
				assert_int_equal(in[s * 10 + i], (at + i) % 120);
				assert_int_equal(to[s * 10 + i], (at + i + 1) % 120);
			}
		}
		dataset_close(d);
	}
}

static void an_epoch_reads_each_training_sample_once_and_no_held_out_one(void **state)
{
	struct err e = ERR_INIT;
	struct dataset *d;
	int32_t in[4], to[4];
	int seen[50] = { 0 };
	(void)state;
	write_tokens(TOKEN_U16, 4, 60000);
	assert_int_equal(dataset_open(prefix, 4, 0.1, &d, &e), 0);
	int64_t train = dataset_samples(d, DATA_TRAIN), held = dataset_samples(d, DATA_VALIDATION);
	assert_int_equal(train + held, 49);
	assert_int_equal(held, 5);
	for (int64_t k = 0; k < train; k++) {
		assert_int_equal(dataset_read(d, DATA_TRAIN, 1, 3 * train + k, 1, 60000, in, to,
					      NULL, &e),
				 0);
		assert_in_range(in[0] / 4, 0, train - 1);
		assert_int_equal(seen[in[0] / 4]++, 0);
	}
	for (int64_t k = 0; k < 2 * held; k++) {
		assert_int_equal(dataset_read(d, DATA_VALIDATION, 1, k, 1, 60000, in, to, NULL, &e),
				 0);
		assert_int_equal(in[0] / 4, train + k % held);
	}
	dataset_close(d);
}

static void the_order_differs_by_epoch_and_not_by_batch(void **state)
{
	struct err e = ERR_INIT;
	struct dataset *d;
	int32_t one[4], all[6 * 4], to[6 * 4];
	int same = 0;
	(void)state;
	write_tokens(TOKEN_U16, 40, 60000);
	assert_int_equal(dataset_open(prefix, 4, 0, &d, &e), 0);
	int64_t n = dataset_samples(d, DATA_TRAIN);
	for (int64_t k = 0; k < n; k++)
		same += dataset_place(d, DATA_TRAIN, 1, k).sample ==
			dataset_place(d, DATA_TRAIN, 1, n + k).sample;
	assert_true(same < 10);
	/* These samples cross the epoch's end. */
	assert_int_equal(dataset_read(d, DATA_TRAIN, 1, n - 3, 6, 60000, all, to, NULL, &e), 0);
	for (int i = 0; i < 6; i++) {
		assert_int_equal(
			dataset_read(d, DATA_TRAIN, 1, n - 3 + i, 1, 60000, one, to, NULL, &e), 0);
		assert_memory_equal(one, all + 4 * i, sizeof one);
	}
	dataset_close(d);
}

static void a_small_share_holds_out_one_sample(void **state)
{
	struct err e = ERR_INIT;
	struct dataset *d;
	(void)state;
	write_tokens(TOKEN_U8, 2, 100);
	assert_int_equal(dataset_open(prefix, 10, 1e-9, &d, &e), 0);
	assert_int_equal(dataset_samples(d, DATA_VALIDATION), 1);
	dataset_close(d);
}

static void a_token_outside_the_vocabulary_is_named(void **state)
{
	struct err e = ERR_INIT;
	struct dataset *d;
	int32_t in[100], to[100];
	(void)state;
	write_tokens(TOKEN_U16, 4, 180);
	assert_int_equal(dataset_open(prefix, 100, 0, &d, &e), 0);
	assert_int_equal(dataset_read(d, DATA_TRAIN, 0, 0, 1, 100, in, to, NULL, &e), -1);
	assert_int_equal(e.code, ERR_CORRUPT);
	assert_non_null(strstr(e.text, "token 100 at byte 200 is outside the vocabulary of 100"));
	dataset_close(d);
}

static void too_few_tokens_are_refused(void **state)
{
	struct err e = ERR_INIT;
	struct dataset *d = NULL;
	(void)state;
	write_tokens(TOKEN_U8, 1, 100);
	assert_int_equal(dataset_open(prefix, 50, 0, &d, &e), -1);
	assert_int_equal(e.code, ERR_USAGE);
	assert_int_equal(dataset_open(prefix, 49, 0.5, &d, &e), -1);
	assert_null(d);
	assert_int_equal(dataset_open(prefix, 49, 0, &d, &e), 0);
	dataset_close(d);
}

/* --- broken files --- */

struct damage {
	const char *what;
	int at; /* byte of the index */
	int64_t value;
	int width;
	enum err_code code;
	const char *says;
};

/* The index of 4 documents of 50 u8 tokens has 122 bytes: 34, then 4 lengths at 34, 4 pointers at
 * 50, and 5 boundaries at 82. */
/* clang-format off */
static const struct damage damages[] = {
	{ "magic", 3, 'X', 1, ERR_CORRUPT, "not a Megatron index" },
	{ "version", 9, 2, 8, ERR_UNSUPPORTED, "index version 2" },
	{ "float tokens", 17, 7, 1, ERR_UNSUPPORTED, "type code 7" },
	{ "type 0", 17, 0, 1, ERR_UNSUPPORTED, "type code 0" },
	{ "type 255", 17, 255, 1, ERR_UNSUPPORTED, "type code 255" },
	{ "wider type", 17, 4, 1, ERR_CORRUPT, "starts at byte 50, but those before it end at 200" },
	{ "more sequences", 18, 5, 8, ERR_CORRUPT, "do not hold its 5 sequences" },
	{ "sequences whose sum overflows to the right size", 18, (1ll << 62) + 4, 8, ERR_CORRUPT, "do not hold its" },
	{ "negative sequences", 18, -1, 8, ERR_CORRUPT, "do not hold its" },
	{ "boundaries whose sum overflows to the right size", 26, (1ll << 61) + 5, 8, ERR_CORRUPT, "do not hold its" },
	{ "negative length", 34, -50, 4, ERR_CORRUPT, "sequence 0 has the length -50" },
	{ "longer sequence", 34, 51, 4, ERR_CORRUPT, "sequence 1 starts at byte 50, but those before it end at 51" },
	{ "longer last sequence", 46, 51, 4, ERR_CORRUPT, "its index describes 201" },
	{ "first pointer", 50, 1, 8, ERR_CORRUPT, "sequence 0 starts at byte 1," },
	{ "huge pointer", 74, INT64_MIN, 8, ERR_CORRUPT, "sequence 3 starts at byte -9223372036854775808" },
	{ "first document", 82, 1, 8, ERR_CORRUPT, "does not start at sequence 0" },
	{ "backward document", 98, 0, 8, ERR_CORRUPT, "document 1 ends at sequence 0, outside [1, 4]" },
	{ "last document", 114, 3, 8, ERR_CORRUPT, "end at sequence 3 of 4" },
	{ "document beyond the end", 114, 5, 8, ERR_CORRUPT, "outside [3, 4]" },
};
/* clang-format on */

static void expect_refused(enum err_code code, const char *says, const char *what)
{
	struct err e = ERR_INIT;
	struct dataset *d = NULL;
	if (dataset_open(prefix, 10, 0, &d, &e) == 0)
		fail_msg("%s was not refused", what);
	assert_null(d);
	if (e.code != code || !strstr(e.text, says))
		fail_msg("%s: %s: %s", what, err_word(e.code), e.text);
}

static void every_damage_of_the_index_is_named(void **state)
{
	struct buf good = BUF_INIT;
	(void)state;
	write_tokens(TOKEN_U8, 4, 120);
	assert_int_equal(file_slurp(in_dir("d.idx"), 4096, &good, NULL), 0);
	assert_int_equal(good.len, 122);
	for (size_t i = 0; i < sizeof damages / sizeof *damages; i++) {
		char bytes[122];
		memcpy(bytes, good.data, sizeof bytes);
		memcpy(bytes + damages[i].at, &damages[i].value, (size_t)damages[i].width);
		write_file(in_dir("d.idx"), bytes, sizeof bytes);
		expect_refused(damages[i].code, damages[i].says, damages[i].what);
	}
	buf_fini(&good);
}

static void a_cut_or_longer_file_is_refused_at_every_length(void **state)
{
	struct buf good = BUF_INIT;
	(void)state;
	write_tokens(TOKEN_U8, 4, 120);
	assert_int_equal(file_slurp(in_dir("d.idx"), 4096, &good, NULL), 0);
	for (size_t n = 0; n < good.len; n++) {
		write_file(in_dir("d.idx"), good.data, n);
		expect_refused(ERR_CORRUPT, "d.idx", "a cut index");
	}
	buf_add(&good, "x", 1);
	write_file(in_dir("d.idx"), good.data, good.len);
	expect_refused(ERR_CORRUPT, "d.idx", "a longer index");
	write_file(in_dir("d.idx"), good.data, good.len - 1);
	for (int n = 0; n <= 250; n += 50) {
		assert_int_equal(truncate(in_dir("d.bin"), n), 0);
		if (n != 200)
			expect_refused(ERR_CORRUPT, "d.bin", "a cut or longer bin");
	}
	buf_fini(&good);
}

static void missing_files_are_named(void **state)
{
	(void)state;
	expect_refused(ERR_NOTFOUND, "d.idx: no such file", "no files");
	write_tokens(TOKEN_U8, 4, 120);
	unlink(in_dir("d.bin"));
	expect_refused(ERR_NOTFOUND, "d.bin: cannot open", "no bin");
}

static void a_file_that_shrinks_while_mapped_is_refused(void **state)
{
	struct err e = ERR_INIT;
	struct dataset *d;
	int32_t in[10], to[10];
	(void)state;
	write_tokens(TOKEN_U8, 400, 120);
	assert_int_equal(dataset_open(prefix, 10, 0, &d, &e), 0);
	assert_int_equal(truncate(in_dir("d.bin"), 10), 0);
	assert_int_equal(dataset_read(d, DATA_TRAIN, 1, 0, 1, 256, in, to, NULL, &e), -1);
	assert_non_null(strstr(e.text, "shrank"));
	dataset_close(d);
}

/* --- packing --- */

static void packing_makes_one_document_a_file(void **state)
{
	struct err e = ERR_INIT;
	struct pack_report r;
	struct buf bin = BUF_INIT;
	char a[80], b[80], c[80];
	(void)state;
	snprintf(a, sizeof a, "%s/a", dir);
	snprintf(b, sizeof b, "%s/b", dir);
	snprintf(c, sizeof c, "%s/c", dir);
	write_file(a, "hello ", 6);
	write_file(b, "", 0);
	write_file(c, "w\xc3\xb6rld\0!", 8);
	char *files[] = { a, b, c };
	assert_int_equal(data_pack_files(prefix, files, 3, &(struct document_options){ 0 }, &r, &e),
			 0);
	assert_int_equal(r.read.files, 3);
	assert_int_equal(r.read.empty, 1);
	assert_int_equal(r.tokens, 14);
	assert_int_equal(file_slurp(in_dir("d.bin"), 100, &bin, &e), 0);
	assert_int_equal(bin.len, 14);
	assert_memory_equal(bin.data, "hello w\xc3\xb6rld\0!", 14);
	struct dataset *d;
	assert_int_equal(dataset_open(prefix, 3, 0, &d, &e), 0);
	assert_int_equal(documents_of(d), 2);
	dataset_close(d);
	struct stat st;
	assert_int_equal(stat(in_dir("d.bin"), &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	assert_int_equal(files_in_dir(false), 5);
	buf_fini(&bin);
}

static void a_failed_pack_leaves_the_old_files_and_nothing_else(void **state)
{
	struct err e = ERR_INIT;
	struct pack_report r;
	char a[80], missing[80], *files[2] = { a, missing };
	(void)state;
	snprintf(a, sizeof a, "%s/a", dir);
	snprintf(missing, sizeof missing, "%s/missing", dir);
	write_tokens(TOKEN_U8, 4, 120);
	write_file(a, "new text", 8);
	assert_int_equal(data_pack_files(prefix, files, 2, &(struct document_options){ 0 }, &r, &e),
			 -1);
	assert_int_equal(e.code, ERR_NOTFOUND);
	assert_non_null(strstr(e.text, "missing"));
	files[1] = dir;
	assert_int_equal(data_pack_files(prefix, files, 2, &(struct document_options){ 0 }, &r, &e),
			 -1);
	assert_int_equal(e.code, ERR_USAGE);
	assert_int_equal(data_pack_files(prefix, files, 0, &(struct document_options){ 0 }, &r, &e),
			 -1);
	assert_int_equal(files_in_dir(false), 3);
	struct dataset *d;
	assert_int_equal(dataset_open(prefix, 10, 0, &d, &e), 0);
	assert_int_equal(dataset_tokens(d), 200);
	dataset_close(d);
}

static void a_link_that_lies_in_wait_is_not_followed(void **state)
{
	(void)state;
	char trap[PATH_MAX], treasure[PATH_MAX];
	struct buf text = BUF_INIT;
	snprintf(treasure, sizeof treasure, "%s/treasure", dir);
	snprintf(trap, sizeof trap, "%s.bin.tmp.%ld", prefix, (long)getpid());
	write_file(treasure, "gold", 4);
	assert_int_equal(symlink(treasure, trap), 0);
	write_tokens(TOKEN_U8, 3, 200);
	assert_int_equal(file_slurp(treasure, 100, &text, NULL), 0);
	assert_string_equal(buf_str(&text), "gold");
	buf_fini(&text);
}

static void a_full_disk_fails_the_pack(void **state)
{
	struct err e = ERR_INIT;
	struct pack_report r;
	struct rlimit was, small;
	static char text[100000];
	char a[80], *files[1] = { a };
	(void)state;
	snprintf(a, sizeof a, "%s/a", dir);
	write_file(a, text, sizeof text);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &was), 0);
	small = was;
	small.rlim_cur = 50000;
	signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
	int rc = data_pack_files(prefix, files, 1, &(struct document_options){ .raw = true }, &r,
				 &e);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
	assert_int_equal(rc, -1);
	assert_int_equal(e.code, ERR_IO);
	assert_int_equal(files_in_dir(false), 1);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, make_dir, remove_dir)
	const struct CMUnitTest tests[] = {
		TEST(every_token_type_reads_back),
		TEST(an_epoch_reads_each_training_sample_once_and_no_held_out_one),
		TEST(the_order_differs_by_epoch_and_not_by_batch),
		TEST(a_small_share_holds_out_one_sample),
		TEST(a_token_outside_the_vocabulary_is_named),
		TEST(too_few_tokens_are_refused),
		TEST(every_damage_of_the_index_is_named),
		TEST(a_cut_or_longer_file_is_refused_at_every_length),
		TEST(missing_files_are_named),
		TEST(a_file_that_shrinks_while_mapped_is_refused),
		TEST(packing_makes_one_document_a_file),
		TEST(a_failed_pack_leaves_the_old_files_and_nothing_else),
		TEST(a_link_that_lies_in_wait_is_not_followed),
		TEST(a_full_disk_fails_the_pack),
	};
	return cmocka_run_group_tests_name("data", tests, NULL, NULL);
}
