/* `data pack` reads from a file exactly what the library that made the file reads from it
 * (tests/golden/make_packs.py). */
#include "agent/engine/data/pack.h"
#include "agent/engine/data/pack_ids.h"
#include "agent/engine/data/pack_format.h"
#include "base/file.h"
#include "tests/unit/tmpdir.h"

#include <dirent.h>
#include <endian.h>
#include <fcntl.h>
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static char *golden(const char *name)
{
	static char path[160];
	snprintf(path, sizeof path, "tests/golden/packs/%s", name);
	return path;
}

static char *tmp_dir(void)
{
	static char dir[128];
	assert_non_null(tmpdir_make(dir, sizeof dir));
	return dir;
}

static void tmp_dir_remove(const char *dir)
{
	DIR *d = opendir(dir);
	assert_non_null(d);
	for (struct dirent *entry; (entry = readdir(d));)
		if (entry->d_name[0] != '.')
			unlinkat(dirfd(d), entry->d_name, 0);
	closedir(d);
	assert_int_equal(rmdir(dir), 0);
}

static json_t *load_documents(const char *key)
{
	json_t *file = json_load_file(golden("documents.json"), JSON_ALLOW_NUL, NULL),
	       *o = json_object_get(file, key);
	assert_non_null(o);
	json_incref(o);
	json_decref(file);
	return o;
}

/* Documents as a list of JSON strings. */
struct collected {
	json_t *list;
	struct buf text;
};

static int collect(void *arg, const char *text, size_t n, bool last, struct err *e)
{
	struct collected *c = arg;
	(void)e;
	buf_add(&c->text, text, n);
	if (last) {
		assert_int_equal(
			json_array_append_new(c->list,
					      json_stringn_nocheck(buf_str(&c->text), c->text.len)),
			0);
		buf_clear(&c->text);
	}
	return 0;
}

static int read_file(const char *file, const struct document_options *opt,
		     struct document_counts *counts, json_t **list, struct err *e)
{
	struct collected c = { .list = json_array(), .text = BUF_INIT };
	const struct document_sink sink = { collect, &c };
	int rc = data_documents_read(file, opt, &sink, counts, e);
	buf_fini(&c.text);
	*list = c.list;
	return rc;
}

/* Compares the documents, without the empty ones. */
static void check_documents(const char *name, const json_t *list, const json_t *want,
			    const struct document_counts *counts)
{
	size_t k = 0;
	for (size_t i = 0; i < json_array_size(want); i++) {
		const json_t *one = json_array_get(want, i);
		if (json_string_length(one) && !json_equal(one, json_array_get(list, k++)))
			fail_msg("%s: document %zu is not what Python reads", name, i);
	}
	assert_int_equal(json_array_size(list), k);
	assert_int_equal(counts->documents, k);
	assert_int_equal(counts->empty, json_array_size(want) - k);
	assert_int_equal(counts->files, 1);
}

static void documents_are_those_that_python_reads(void **state)
{
	json_t *texts = load_documents("texts"), *want;
	const char *name;
	(void)state;
	assert_int_equal(json_object_size(texts), 7);
	json_object_foreach(texts, name, want)
	{
		for (int whole = 0; whole < 2; whole++) {
			struct err e = ERR_INIT;
			struct document_options opt = { .whole = whole };
			struct document_counts counts = { 0 };
			json_t *list;
			if (read_file(golden(name), &opt, &counts, &list, &e))
				fail_msg("%s: %s", name, e.text);
			check_documents(name, list, want, &counts);
			json_decref(list);
		}
	}
	json_decref(texts);
}

static void a_field_may_be_a_path(void **state)
{
	struct err e = ERR_INIT;
	struct document_options opt = { .field = "meta.body" };
	struct document_counts counts = { 0 };
	json_t *want = load_documents("bodies"), *list;
	(void)state;
	assert_int_equal(read_file(golden("lines.jsonl"), &opt, &counts, &list, &e), 0);
	check_documents("lines.jsonl", list, want, &counts);
	json_decref(list);
	json_decref(want);
}

/* The files are cut at each byte. A cut file is refused, or, if the cut is between two members or
 * frames, it gives the whole documents before the cut. */
static void compressed_files_that_were_cut_are_refused(void **state)
{
	static const char *const names[] = { "lines.json.gz", "lines.jsonl.zst" };
	char *dir = tmp_dir();
	(void)state;
	for (size_t i = 0; i < 2; i++) {
		struct buf file = BUF_INIT;
		struct err e = ERR_INIT;
		json_t *texts = load_documents("texts"), *want = json_object_get(texts, names[i]);
		int whole = 0;
		char path[200];
		assert_int_equal(file_slurp(golden(names[i]), 10000, &file, &e), 0);
		snprintf(path, sizeof path, "%s/%s", dir, names[i]);
		for (size_t n = 4; n < file.len; n++) {
			struct document_options opt = { 0 };
			struct document_counts counts = { 0 };
			json_t *list;
			assert_int_equal(file_replace(path, file.data, n, &e), 0);
			if (read_file(path, &opt, &counts, &list, &e)) {
				assert_int_equal(e.code, ERR_CORRUPT);
				assert_non_null(strstr(e.text, names[i]));
			} else {
				whole++;
				assert_true(counts.documents + counts.empty == 0 ||
					    counts.documents + counts.empty == 3 ||
					    (size_t)(counts.documents + counts.empty) ==
						    json_array_size(want));
			}
			json_decref(list);
		}
		assert_true(whole > 0);
		/* The padding of a tape has 512 places to cut. */
		assert_true((size_t)whole < file.len / 5 + 520);
		file.data[60] ^= 0x20; /* the checksum, or an earlier check, detects this */
		struct document_options opt = { 0 };
		struct document_counts counts = { 0 };
		json_t *list;
		assert_int_equal(file_replace(path, file.data, file.len, &e), 0);
		assert_int_equal(read_file(path, &opt, &counts, &list, &e), -1);
		assert_int_equal(e.code, ERR_CORRUPT);
		json_decref(list);
		json_decref(texts);
		buf_fini(&file);
	}
	tmp_dir_remove(dir);
}

static void what_follows_the_last_member_is_refused(void **state)
{
	static const char *const names[] = { "lines.json.gz", "lines.jsonl.zst" };
	char *dir = tmp_dir();
	(void)state;
	for (size_t i = 0; i < 2; i++) {
		struct buf file = BUF_INIT;
		struct err e = ERR_INIT;
		struct document_options opt = { 0 };
		struct document_counts counts = { 0 };
		json_t *list;
		char path[200];
		assert_int_equal(file_slurp(golden(names[i]), 10000, &file, &e), 0);
		buf_puts(&file, "garbage");
		snprintf(path, sizeof path, "%s/%s", dir, names[i]);
		assert_int_equal(file_replace(path, file.data, file.len, &e), 0);
		assert_int_equal(read_file(path, &opt, &counts, &list, &e), -1);
		assert_non_null(strstr(e.text, "other bytes behind its end"));
		json_decref(list);
		buf_fini(&file);
	}
	tmp_dir_remove(dir);
}

static void lines_that_cannot_be_are_refused_with_their_number(void **state)
{
	/* clang-format off */
	static const struct {
		const char *line, *why;
	} rows[] = {
		{ "{\"text\": \"x\"", "(column" },
		{ "{\"text\": \"x\"} more", "end of file expected" },
		{ "\"text\"", "'[' or '{' expected near" },
		{ "[\"text\"]", "it is not an object" },
		{ "{\"body\": \"x\", \"id\": 7}", "there is no field \"text\"; the object has \"body\", \"id\": name the one to pack with --field" },
		{ "{}", "the object has none" },
		{ "{\"text\": null}", "the field \"text\" is null, not a string" },
		{ "{\"text\": 1}", "is a number" },
		{ "{\"text\": [\"x\"]}", "is a list" },
		{ "{\"text\": \"\\ud800\"}", "half of a surrogate pair is not a character" },
		{ "{\"text\": \"\\udc00\\ud800\"}", "half of a surrogate pair is not a character" },
		{ "{\"text\": \"\xff\"}", "unable to decode byte 0xff" },
		{ "{\"text\": NaN}", "invalid token near 'NaN'" },
	};
	/* clang-format on */
	char *dir = tmp_dir(), path[200];
	(void)state;
	snprintf(path, sizeof path, "%s/a.jsonl", dir);
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
		for (int skip = 0; skip < 2; skip++) {
			struct err e = ERR_INIT;
			struct document_options opt = { .skip_bad = skip };
			struct document_counts counts = { 0 };
			json_t *list;
			struct buf text = BUF_INIT;
			buf_printf(&text, "{\"text\": \"one\"}\n%s\n{\"text\": \"two\"}\n",
				   rows[i].line);
			assert_int_equal(file_replace(path, text.data, text.len, &e), 0);
			int rc = read_file(path, &opt, &counts, &list, &e);
			const char *said = skip ? counts.first_skipped : e.text;
			if (rc != (skip ? 0 : -1) ||
			    !strstr(said, skip ? "a.jsonl:2: " : rows[i].why) ||
			    !strstr(said, "a.jsonl:2: "))
				fail_msg("%s: \"%s\", wanted \"%s\"", rows[i].line, said,
					 rows[i].why);
			assert_int_equal(counts.skipped, skip);
			assert_int_equal(json_array_size(list), skip ? 2 : 1);
			json_decref(list);
			buf_fini(&text);
		}
	tmp_dir_remove(dir);
}

/* A line comes in many pieces, and is longer than one piece can hold. */
static void long_lines_are_whole(void **state)
{
	enum { LONG = 3000000 };
	char *dir = tmp_dir(), path[200], *letters = malloc(LONG + 1);
	struct err e = ERR_INIT;
	struct document_options opt = { 0 };
	struct document_counts counts = { 0 };
	struct buf text = BUF_INIT;
	json_t *list;
	(void)state;
	assert_non_null(letters);
	for (size_t i = 0; i < LONG; i++)
		letters[i] = (char)('a' + i % 23);
	letters[LONG] = '\0';
	for (int i = 0; i < 3; i++)
		buf_printf(&text, "{\"text\": \"%s\"}\n", letters + i);
	snprintf(path, sizeof path, "%s/a.jsonl", dir);
	assert_int_equal(file_replace(path, text.data, text.len, &e), 0);
	assert_int_equal(read_file(path, &opt, &counts, &list, &e), 0);
	assert_int_equal(json_array_size(list), 3);
	for (size_t i = 0; i < 3; i++)
		assert_string_equal(json_string_value(json_array_get(list, i)), letters + i);
	json_decref(list);
	buf_fini(&text);
	free(letters);
	tmp_dir_remove(dir);
}

static void other_kinds_are_refused_by_name(void **state)
{
	/* clang-format off */
	static const struct {
		const char *file, *kind, *command;
	} rows[] = {
		{ "table.parquet", "is a Parquet file", "pyarrow.parquet" },  { "file.arrow", "is an Arrow file", "a.ipc.open_file" },
		{ "stream.arrow", "is an Arrow stream", "a.ipc.open_stream" }, { "table.feather", "is an Arrow file", "a.ipc.open_file" },
		{ "ids.npy", "is a NumPy array", "--dtype i32" },              { "ids.npz", "is NumPy arrays", "--dtype i32" },
		{ "text.xz", "is compressed by xz", "xz -dk" },                { "text.bz2", "is compressed by bzip2", "bzip2 -dk" },
		{ "text.zip", "is a zip archive", "unzip" },                   { "text.tar.gz", "is a tar archive", "tar -xf" },
		{ "text.gz.gz", "is compressed by gzip inside", "unpack" },    { "text.utf16", "is text in UTF-16", "iconv -f UTF-16" },
		{ "object.pkl", "is a Python pickle", "write text" },          { "list.json", "a list of JSON", "jq -c '.[]'" },
		{ "train.i64", "is not text (59 NULs in its first 72 bytes)", "--raw" },
	};
	/* clang-format on */
	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct err e = ERR_INIT;
		struct document_options opt = { 0 };
		struct document_counts counts = { 0 };
		json_t *list;
		int rc = read_file(golden(rows[i].file), &opt, &counts, &list, &e);
		if (!rc || e.code != ERR_UNSUPPORTED || !strstr(e.text, rows[i].kind) ||
		    !strstr(e.text, rows[i].command) || !strstr(e.text, rows[i].file))
			fail_msg("%s: %s", rows[i].file, rc ? e.text : "it was read");
		json_decref(list);
		opt.raw = true;
		assert_int_equal(read_file(golden(rows[i].file), &opt, &counts, &list, &e), 0);
		json_decref(list);
	}
}

/* No file was opened, so none is closed. */
static void a_folder_is_refused_and_standard_input_stays_open(void **state)
{
	struct err e = ERR_INIT;
	struct document_options opt = { 0 };
	struct document_counts counts = { 0 };
	json_t *list;
	(void)state;
	assert_int_not_equal(fcntl(STDIN_FILENO, F_GETFD), -1);
	assert_int_equal(read_file("tests/golden/packs", &opt, &counts, &list, &e), -1);
	assert_non_null(strstr(e.text, "is a folder"));
	json_decref(list);
	assert_int_not_equal(fcntl(STDIN_FILENO, F_GETFD), -1);
}

static void commands_for_lines_quote_the_file(void **state)
{
	static const struct {
		const char *text, *command;
	} rows[] = {
		{ "[{}]\n", "jq -c '.[]' 'it'\\''s.json' >'it'\\''s.json'.jsonl" },
		{ "{\n", "`jq -c . 'it'\\''s.json'`" },
	};
	char *dir = tmp_dir();
	int here = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	(void)state;
	assert_true(here >= 0 && !chdir(dir));
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct err e = ERR_INIT;
		struct document_options opt = { 0 };
		struct document_counts counts = { 0 };
		json_t *list;
		assert_int_equal(file_replace("it's.json", rows[i].text, strlen(rows[i].text), &e),
				 0);
		assert_int_equal(read_file("it's.json", &opt, &counts, &list, &e), -1);
		if (!strstr(e.text, rows[i].command))
			fail_msg("%s", e.text);
		json_decref(list);
	}
	assert_int_equal(fchdir(here), 0);
	close(here);
	tmp_dir_remove(dir);
}

static void names_decide_where_bytes_cannot(void **state)
{
	/* clang-format off */
	static const struct {
		const char *name, *bytes;
		size_t n;
		const char *field, *cause; /* cause NULL: the file is accepted */
	} rows[] = {
		{ "corpus.pt", "olá", 4, NULL, NULL }, /* Portuguese */
		{ "model.pt", "PK\x03\x04", 4, NULL, "weights of PyTorch" },
		{ "x.tfrecord", "\x80\x81", 2, NULL, "records of TensorFlow" },
		{ "latin-1", "caf\xe9", 4, NULL, NULL },
		{ "it's a.xz", "\xfd" "7zXZ\0", 6, NULL, "xz -dk 'it'\\''s a.xz'" },
		{ "a.parquet", "PAR1", 4, "body", "columns=[\"body\"]" },
		/* the name of the field adds no word to a command */
		{ "a.parquet", "PAR1", 4, "\"]'; x", "columns=[\"text\"]" },
	};
	/* clang-format on */
	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct err e = ERR_INIT;
		int rc = data_pack_format_check(rows[i].name, rows[i].bytes, rows[i].n,
						rows[i].field, &e);
		bool right = rows[i].cause ? rc == -1 && strstr(e.text, rows[i].cause) : rc == 0;
		if (!right)
			fail_msg("%s: %d, \"%s\"", rows[i].name, rc, e.text);
	}
}

static void names_mark_files_with_lines_of_json(void **state)
{
	static const struct {
		const char *name;
		bool field, lines;
	} rows[] = {
		{ "a.JSONL", false, true },   { "a.ndjson.zst", false, true },
		{ "a.json.gz", false, true }, { "a.txt.gz", true, false },
		{ "a.gz", false, false },     { "/dev/stdin", true, true },
	};
	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
		if (data_pack_format_is_lines(rows[i].name, rows[i].field) != rows[i].lines)
			fail_msg("%s", rows[i].name);
}

static void pack_array(const char *prefix, char *file, const struct pack_ids_options *opt,
		       struct pack_ids_report *report)
{
	struct err e = ERR_INIT;
	if (data_pack_ids(prefix, &file, 1, opt, report, &e))
		fail_msg("%s: %s", file, e.text);
}

static void arrays_of_ids_keep_their_ids(void **state)
{
	static const struct {
		const char *file, *type;
	} rows[] = { { "train.bin", "u16" },
		     { "train.u32", "u32" },
		     { "train.u32", "i32" },
		     { "train.i64", "i64" } };
	char *dir = tmp_dir(), prefix[160], bin[170];
	json_t *ids = load_documents("ids");
	(void)state;
	snprintf(prefix, sizeof prefix, "%s/ids", dir);
	snprintf(bin, sizeof bin, "%s.bin", prefix);
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct err e = ERR_INIT;
		struct pack_ids_report r;
		struct buf out = BUF_INIT;
		const json_t *want = json_object_get(ids, rows[i].file);
		pack_array(prefix, golden(rows[i].file),
			   &(struct pack_ids_options){
				   .type = rows[i].type, .end = 50256, .vocab = 65536 },
			   &r);
		assert_int_equal(r.tokens, json_array_size(want));
		assert_int_equal(r.largest, 65535);
		/* 2 documents end after their 50256, and 1 at the end of the file. */
		assert_int_equal(r.documents, 3);
		assert_int_equal(file_slurp(bin, 1000, &out, &e), 0);
		size_t width = r.type == TOKEN_U16 ? 2 : 4;
		assert_int_equal(out.len, width * json_array_size(want));
		for (size_t k = 0; k < json_array_size(want); k++) {
			uint32_t id = 0;
			memcpy(&id, out.data + k * width, width);
			assert_int_equal(le32toh(id), json_integer_value(json_array_get(want, k)));
		}
		buf_fini(&out);
		pack_array(prefix, golden(rows[i].file),
			   &(struct pack_ids_options){ .type = rows[i].type, .end = -1 }, &r);
		assert_int_equal(r.documents, 1);
	}
	json_decref(ids);
	tmp_dir_remove(dir);
}

static void arrays_that_are_not_of_the_type_are_refused(void **state)
{
	/* clang-format off */
	static const struct {
		const char *file;
		struct pack_ids_options opt;
		const char *why;
	} rows[] = {
		{ "train.bin", { "u16", -1, 50257 }, "train.bin: token 7 is 65535, and ids are 0 to 50256" },
		{ "train.bin", { "u32", -1, 0 }, "train.bin: 18 bytes are not a whole number of ids of 4 bytes (u32)" },
		{ "train.bin", { "u8", -1, 0 }, "--dtype u8: no such type of token ids; known: u16, u32, i32, i64" },
		{ "train.i64", { "u16", -1, 1 }, "train.i64: token 0 is 15496, and ids are 0 to 0" },
		{ "ids.npy", { "u16", -1, 0 }, "ids.npy: is a NumPy array" },
		{ "lines.json.gz", { "i64", -1, 0 }, "and ids are 0 to 2147483647" },
	};
	/* clang-format on */
	char *dir = tmp_dir(), prefix[160];
	(void)state;
	snprintf(prefix, sizeof prefix, "%s/ids", dir);
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct err e = ERR_INIT;
		struct pack_ids_report r;
		char *file = golden(rows[i].file);
		if (!data_pack_ids(prefix, &file, 1, &rows[i].opt, &r, &e) ||
		    !strstr(e.text, rows[i].why))
			fail_msg("%s: \"%s\", wanted \"%s\"", rows[i].file, e.text, rows[i].why);
	}
	tmp_dir_remove(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(documents_are_those_that_python_reads),
		cmocka_unit_test(a_field_may_be_a_path),
		cmocka_unit_test(compressed_files_that_were_cut_are_refused),
		cmocka_unit_test(what_follows_the_last_member_is_refused),
		cmocka_unit_test(lines_that_cannot_be_are_refused_with_their_number),
		cmocka_unit_test(long_lines_are_whole),
		cmocka_unit_test(other_kinds_are_refused_by_name),
		cmocka_unit_test(a_folder_is_refused_and_standard_input_stays_open),
		cmocka_unit_test(commands_for_lines_quote_the_file),
		cmocka_unit_test(names_decide_where_bytes_cannot),
		cmocka_unit_test(names_mark_files_with_lines_of_json),
		cmocka_unit_test(arrays_of_ids_keep_their_ids),
		cmocka_unit_test(arrays_that_are_not_of_the_type_are_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
