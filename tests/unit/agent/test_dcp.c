/* Tests the readers of DCP folders on what no PyTorch writes: pickles and archives that are hostile,
 * and chunks that do not tile their tensor. tests/cli/foreign.bats has the real ones. */
#include "agent/engine/dcp/archive.h"
#include "agent/engine/dcp/zip.h"
#include "base/buf.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <zlib.h>

#include <cmocka.h>

/* --- pickles --- */

/* A text with its length: pickles hold NULs. */
#define BYTES(text) text, sizeof(text) - 1

static void pickles_of_values_are_read(void **state)
{
	/* (1, -2, 300, 2^40, True, None, {"a": [1.5, b"xy"]}) of protocol 4, and the same list twice */
	static const char text[] =
		"\x80\x04(K\x01J\xfe\xff\xff\xffM\x2c\x01\x8a\x06\x00\x00\x00\x00\x00\x01\x88N}"
		"\x94\x8c\x01"
		"a]\x94(G?\xf8\x00\x00\x00\x00\x00\x00"
		"C\x02xyesh\x01t.";
	struct dcp_pickle p;
	struct err e = ERR_INIT;
	int64_t number;
	(void)state;
	if (dcp_pickle_parse(BYTES(text), "t", &p, &e))
		fail_msg("%s", e.text);
	static const int64_t want[] = { 1, -2, 300, (int64_t)1 << 40 };
	for (int i = 0; i < 4; i++) {
		assert_true(dcp_value_int(dcp_value_item(p.root, i), &number));
		assert_true(number == want[i]);
	}
	assert_true(dcp_value_item(p.root, 4)->truth);
	assert_int_equal(dcp_value_item(p.root, 5)->kind, DCP_NONE);
	const struct dcp_value *list = dcp_value_member(dcp_value_item(p.root, 6), "a");
	assert_ptr_equal(list, dcp_value_item(p.root, 7));
	assert_int_equal(list->n, 2);
	assert_true(list->items[0]->real == 1.5);
	assert_int_equal(list->items[1]->length, 2);
	assert_null(dcp_value_item(p.root, 8));
	dcp_pickle_free(&p);
}

static void hostile_pickles_are_refused_with_the_cause(void **state)
{
	/* clang-format off */
	static const struct { const char *text; size_t n; enum err_code code; const char *why; } cases[] = {
		{ BYTES(""), ERR_CORRUPT, "it ends early" },
		{ BYTES("\x80\x02"), ERR_CORRUPT, "it ends early" },
		{ BYTES("\x80\x09N."), ERR_CORRUPT, "protocol" },
		{ BYTES("\x80\x02N.x"), ERR_CORRUPT, "bytes follow its end" },
		{ BYTES("\x80\x02NN."), ERR_CORRUPT, "left over" },
		{ BYTES("\x80\x02(."), ERR_CORRUPT, "left over" },
		{ BYTES("\x80\x02."), ERR_CORRUPT, "left over" },
		{ BYTES("\x80\x02R."), ERR_CORRUPT, "its stack is empty" },
		{ BYTES("\x80\x02N(R."), ERR_CORRUPT, "its stack is empty" },
		{ BYTES("\x80\x02K\x01)R."), ERR_CORRUPT, "it calls what is not a name" },
		{ BYTES("\x80\x02t."), ERR_CORRUPT, "a mark is missing" },
		{ BYTES("\x80\x02Na."), ERR_CORRUPT, "its stack is empty" },
		{ BYTES("\x80\x02NNa."), ERR_CORRUPT, "not a list" },
		{ BYTES("\x80\x02}(Nu."), ERR_CORRUPT, "cannot hold" },
		{ BYTES("\x80\x02](Nu."), ERR_CORRUPT, "cannot hold" },
		{ BYTES("\x80\x02Nq\x05."), ERR_CORRUPT, "out of order" },
		{ BYTES("\x80\x02Nr\xff\xff\xff\xff."), ERR_CORRUPT, "out of order" },
		{ BYTES("\x80\x02h\x00."), ERR_CORRUPT, "does not exist" },
		{ BYTES("\x80\x02X\xff\xff\xff\x7f."), ERR_CORRUPT, "it ends early" },
		{ BYTES("\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\xff."), ERR_CORRUPT, "it ends early" },
		{ BYTES("\x80\x04\x95\xff\xff\xff\xff\xff\xff\xff\xff."), ERR_CORRUPT, "it ends early" },
		{ BYTES("\x80\x02\x8a\x09\x01\x02\x03\x04\x05\x06\x07\x08\x09."), ERR_CORRUPT, "64 bits" },
		{ BYTES("\x80\x02" "ctorch\nSize\n)R)b)b."), ERR_CORRUPT, "a state where there can be none" },
		{ BYTES("\x80\x02" "ctorch\nSize\n)b."), ERR_CORRUPT, "a state where there can be none" },
		{ BYTES("\x80\x02" "ccollections\nOrderedDict\n]\x85R."), ERR_CORRUPT, "a mapping has arguments" },
		{ BYTES("\x80\x02" "cos\nsystem\nX\x02\x00\x00\x00ls\x85R."), ERR_UNSUPPORTED, "names os.system" },
		{ BYTES("\x80\x02" "cbuiltins\neval\n."), ERR_UNSUPPORTED, "names builtins.eval" },
		{ BYTES("\x80\x02" "ctorch\nload\n."), ERR_UNSUPPORTED, "names torch.load" },
		{ BYTES("\x80\x02" "ctorc\nSize\n."), ERR_UNSUPPORTED, "names torc.Size" },
		{ BYTES("\x80\x02" "ctorch\nSiz\n."), ERR_UNSUPPORTED, "names torch.Siz" },
		{ BYTES("\x80\x02" "ctorch\nSize"), ERR_CORRUPT, "it ends early" },
		{ BYTES("\x80\x04\x8c\x02os\x8c\x06system\x93."), ERR_UNSUPPORTED, "names os.system" },
		{ BYTES("\x80\x04K\x01K\x01\x93."), ERR_CORRUPT, "a name is not a text" },
		{ BYTES("(S'ls'\nios\nsystem\n."), ERR_UNSUPPORTED, "opcode 0x53 at byte 1" },
		{ BYTES("(ios\nsystem\n."), ERR_UNSUPPORTED, "opcode 0x69 at byte 1" },
		{ BYTES("\x80\x02(o."), ERR_UNSUPPORTED, "opcode 0x6f" },
		{ BYTES("\x80\x02\x82\x01."), ERR_UNSUPPORTED, "opcode 0x82" }, /* the extension registry */
		{ BYTES("\x80\x04)}\x92."), ERR_UNSUPPORTED, "opcode 0x92" },  /* NEWOBJ_EX */
		{ BYTES("Pid\n."), ERR_UNSUPPORTED, "opcode 0x50" },
	};
	/* clang-format on */
	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct dcp_pickle p;
		struct err e = ERR_INIT;
		if (!dcp_pickle_parse(cases[i].text, cases[i].n, "t", &p, &e))
			fail_msg("case %zu is read", i);
		if (e.code != cases[i].code || !strstr(e.text, cases[i].why))
			fail_msg("case %zu: %s", i, e.text);
	}
}

/* Parses `unit`, n times. */
static void expect_limit(const char *unit, int n, const char *why)
{
	struct buf b = BUF_INIT;
	struct dcp_pickle p;
	struct err e = ERR_INIT;
	buf_puts(&b, "\x80\x02");
	for (int i = 0; i < n; i++)
		buf_puts(&b, unit);
	assert_int_equal(dcp_pickle_parse(b.data, b.len, "t", &p, &e), -1);
	if (!strstr(e.text, why))
		fail_msg("%s", e.text);
	buf_fini(&b);
}

static void depth_and_stack_have_limits(void **state)
{
	(void)state;
	expect_limit("(", DCP_PICKLE_DEPTH_MAX, "it ends early");
	expect_limit("(", DCP_PICKLE_DEPTH_MAX + 1, "nested too deeply");
	expect_limit("N", DCP_PICKLE_STACK_MAX, "it ends early");
	expect_limit("N", DCP_PICKLE_STACK_MAX + 1, "stack is too deep");
}

static void a_list_that_holds_itself_is_read_and_freed(void **state)
{
	struct dcp_pickle p;
	struct err e = ERR_INIT;
	(void)state;
	assert_int_equal(dcp_pickle_parse(BYTES("\x80\x02]q\x00h\x00"
						"a."),
					  "t", &p, &e),
			 0);
	assert_ptr_equal(dcp_value_item(p.root, 0), p.root);
	dcp_pickle_free(&p);
}

/* --- chunks --- */

static void add_size(struct buf *b, const int *numbers, int n)
{
	buf_puts(b, "ctorch\nSize\n(");
	for (int i = 0; i < n; i++)
		buf_printf(b, "K%c", numbers[i]);
	buf_puts(b, "t\x85R");
}

static void add_text(struct buf *b, const char *text)
{
	const char length[4] = { (char)strlen(text) };
	buf_add(b, "X", 1);
	buf_add(b, length, 4);
	buf_puts(b, text);
}

#define MODULE "ctorch.distributed.checkpoint.metadata\n"

/* Writes a .metadata of one tensor "t" of [4, 4] float32 with chunks {offset 0, 1, size 0, 1}. The
 * last one of `missing` chunks has no file. */
static void write_metadata(struct buf *b, const int (*chunks)[4], int n, int missing)
{
	static const int whole[] = { 4, 4 };
	buf_puts(b, "\x80\x02" MODULE "Metadata\n)\x81}(");
	add_text(b, "state_dict_metadata");
	buf_puts(b, "}(");
	add_text(b, "t");
	buf_puts(b, MODULE "TensorStorageMetadata\n)\x81}(");
	add_text(b, "properties");
	buf_puts(b, MODULE "TensorProperties\n)\x81(ctorch\nfloat32\ntb");
	add_text(b, "size");
	add_size(b, whole, 2);
	add_text(b, "chunks");
	buf_puts(b, "](");
	for (int i = 0; i < n; i++) {
		buf_puts(b, MODULE "ChunkStorageMetadata\n)\x81}(");
		add_text(b, "offsets");
		add_size(b, chunks[i], 2);
		add_text(b, "sizes");
		add_size(b, chunks[i] + 2, 2);
		buf_puts(b, "ub");
	}
	buf_puts(b, "eubu");
	add_text(b, "storage_data");
	buf_puts(b, "}(");
	for (int i = 0; i < n - missing; i++) {
		buf_puts(b, MODULE "MetadataIndex\n)\x81}(");
		add_text(b, "fqn");
		add_text(b, "t");
		add_text(b, "offset");
		add_size(b, chunks[i], 2);
		buf_puts(b, "ubctorch.distributed.checkpoint.filesystem\n_StorageInfo\n)\x81}(");
		add_text(b, "relative_path");
		add_text(b, "f");
		add_text(b, "offset");
		buf_puts(b, "K\x01");
		add_text(b, "length");
		buf_puts(b, "K\x01ub");
	}
	buf_puts(b, "uub.");
}

static void chunks_must_tile_their_tensor(void **state)
{
	/* clang-format off */
	static const struct { int n, missing; int chunks[4][4]; const char *why; } cases[] = {
		{ 1, 0, { { 0, 0, 4, 4 } }, NULL },
		{ 3, 0, { { 2, 0, 2, 1 }, { 0, 0, 2, 4 }, { 2, 1, 2, 3 } }, NULL },
		{ 2, 0, { { 0, 0, 4, 4 }, { 4, 0, 0, 4 } }, NULL }, /* an empty one */
		{ 1, 0, { { 0, 0, 3, 4 } }, "its chunks do not cover it" },
		{ 2, 0, { { 0, 0, 2, 4 }, { 1, 0, 2, 4 } }, "its chunks overlap" },
		{ 2, 0, { { 0, 0, 4, 3 }, { 0, 2, 4, 2 } }, "its chunks overlap" },
		{ 1, 0, { { 1, 0, 4, 4 } }, "lies outside it" },
		{ 2, 1, { { 0, 0, 2, 4 }, { 2, 0, 2, 4 } }, "names no file for one of its chunks" },
		{ 0, 0, { { 0 } }, "its chunks do not cover it" },
	};
	/* clang-format on */
	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct buf b = BUF_INIT;
		struct dcp_metadata m;
		struct err e = ERR_INIT;
		write_metadata(&b, cases[i].chunks, cases[i].n, cases[i].missing);
		if (dcp_metadata_parse(b.data, b.len, "t", &m, &e))
			fail_msg("case %zu: %s", i, e.text);
		assert_int_equal(m.n, 1);
		int rc = dcp_metadata_chunks(&m, &m.tensors[0], &e);
		if ((cases[i].why != NULL) != (rc != 0) ||
		    (cases[i].why && !strstr(e.text, cases[i].why)))
			fail_msg("case %zu: %s", i, e.text);
		dcp_metadata_free(&m);
		buf_fini(&b);
	}
}

/* --- archives --- */

/* What a test changes in an archive of one float32 tensor of [2, 3]. */
struct change {
	const char *pickle; /* NULL: the right one */
	const char *name;   /* of the storage's entry */
	int method, flags;
	bool same;   /* the second entry's header is the first one's */
	int stretch; /* bytes by which the directory lengthens the first entry */
	bool wrong_crc;
	int extra_bytes; /* of the storage */
	int shift;       /* of the directory's offset in the end record */
	enum err_code code;
	const char *why; /* NULL: it is right */
};

#define HEAD \
	"\x80\x02" \
	"ctorch._utils\n_rebuild_tensor_v2\n((X\x07\x00\x00\x00storagectorch\n"
#define STORAGE \
	HEAD "FloatStorage\nX\x01\x00\x00\x00" \
	     "0X\x03\x00\x00\x00" \
	     "cpuK\x06tQ"
#define TAIL \
	"\x89" \
	"ccollections\nOrderedDict\n)RtR."
#define RIGHT  STORAGE "K\x00K\x02K\x03\x86K\x03K\x01\x86" TAIL
#define TURNED STORAGE "K\x00K\x02K\x03\x86K\x01K\x02\x86" TAIL

/* A string with NULs, and how long it is. */
static size_t pickle_length(const char *pickle)
{
	for (size_t n = 0;; n++)
		if (!memcmp(pickle + n, ")RtR.", 5))
			return n + 5;
}

static void add_number(struct buf *b, uint64_t number, int width)
{
	for (int i = 0; i < width; i++) {
		const char byte = (char)(i < 8 ? number >> 8 * i : 0);
		buf_add(b, &byte, 1);
	}
}

struct written {
	const char *name;
	uint32_t crc;
	uint64_t size, at;
};

static void add_entry(struct buf *b, const struct change *c, const char *name, const void *data,
		      size_t n, struct written *w)
{
	*w = (struct written){ name, (uint32_t)crc32(0, data, (uInt)n), n, b->len };
	buf_puts(b, "PK\3\4");
	add_number(b, 0, 2);
	add_number(b, (uint64_t)c->flags, 2);
	add_number(b, (uint64_t)c->method, 2);
	add_number(b, 0, 4);
	add_number(b, w->crc, 4);
	add_number(b, n, 4);
	add_number(b, n, 4);
	add_number(b, strlen(name), 2);
	add_number(b, 0, 2);
	buf_puts(b, name);
	buf_add(b, data, n);
	w->crc ^= c->wrong_crc;
}

static void add_central(struct buf *b, const struct change *c, const struct written *w)
{
	buf_puts(b, "PK\1\2");
	add_number(b, 0, 4);
	add_number(b, (uint64_t)c->flags, 2);
	add_number(b, (uint64_t)c->method, 2);
	add_number(b, 0, 4);
	add_number(b, w->crc, 4);
	add_number(b, w->size, 4);
	add_number(b, w->size, 4);
	add_number(b, strlen(w->name), 2);
	add_number(b, 0, 12);
	add_number(b, w->at, 4);
	buf_puts(b, w->name);
}

static void write_archive(struct buf *b, const struct change *c)
{
	static const float numbers[8] = { 0, 1, 2, 3, 4, 5 };
	static const char right[] = RIGHT;
	const char *pickle = c->pickle ? c->pickle : right;
	struct written w[2];
	add_entry(b, c, "a/data.pkl", pickle, pickle_length(pickle), &w[0]);
	add_entry(b, c, c->name ? c->name : "a/data/0", numbers, 24 + (size_t)c->extra_bytes,
		  &w[1]);
	w[0].size += (uint64_t)c->stretch;
	if (c->same)
		w[1] = (struct written){ "a/data.pk2", w[0].crc, w[0].size, w[0].at };
	size_t at = b->len;
	add_central(b, c, &w[0]);
	add_central(b, c, &w[1]);
	size_t size = b->len - at;
	buf_puts(b, "PK\5\6");
	add_number(b, 0, 4);
	add_number(b, 2, 2);
	add_number(b, 2, 2);
	add_number(b, size, 4);
	add_number(b, at + (size_t)c->shift, 4);
	add_number(b, 0, 2);
}

static int read_back(const struct buf *b, struct dcp_archive *out, struct err *e)
{
	const struct dcp_tensor t = {
		.name = "t", .dims = 2, .shape = { 2, 3 }, .dtype = "float32"
	};
	struct dcp_chunk c = { .hi = { 2, 3 }, .at = 7, .length = (int64_t)b->len };
	int fd = memfd_create("archive", MFD_CLOEXEC);
	assert_true(pwrite(fd, b->data, b->len, 7) == (ssize_t)b->len);
	int rc = dcp_archive_read(fd, "f", &t, &c, out, e);
	float first;
	if (!rc) {
		assert_true(pread(fd, &first, sizeof first, out->at + 8) == sizeof first);
		assert_true(first == 2);
	}
	close(fd);
	return rc;
}

static void archives_other_than_those_of_torch_are_refused(void **state)
{
	/* clang-format off */
	static const struct change cases[] = {
		{ .why = NULL },
		{ .pickle = TURNED, .why = NULL },
		{ .method = 8, .code = ERR_UNSUPPORTED, .why = "compressed" },
		{ .flags = 1, .code = ERR_UNSUPPORTED, .why = "encrypted" },
		{ .name = "a/../0", .code = ERR_CORRUPT, .why = "not a plain relative path" },
		{ .name = "a/..", .code = ERR_CORRUPT, .why = "not a plain relative path" },
		{ .name = "/data/0", .code = ERR_CORRUPT, .why = "not a plain relative path" },
		{ .name = "a\\data\\0", .code = ERR_CORRUPT, .why = "not a plain relative path" },
		{ .name = "a/data.pkl", .code = ERR_CORRUPT, .why = "two entries have the same name" },
		{ .name = "a/data/1", .code = ERR_CORRUPT, .why = "its storage has another size" },
		{ .same = true, .code = ERR_CORRUPT, .why = "not that of its directory" },
		{ .stretch = 1, .code = ERR_CORRUPT, .why = "another size than its directory" },
		{ .stretch = 1, .flags = 8, .code = ERR_CORRUPT, .why = "its entries overlap" },
		{ .stretch = 200, .flags = 8, .code = ERR_CORRUPT, .why = "an entry reaches into the directory" },
		{ .wrong_crc = true, .code = ERR_CORRUPT, .why = "the CRC of a/data.pkl" },
		{ .extra_bytes = 4, .code = ERR_CORRUPT, .why = "its storage has another size" },
		{ .extra_bytes = -4, .code = ERR_CORRUPT, .why = "its storage has another size" },
		{ .shift = 1, .code = ERR_CORRUPT, .why = "its directory is not where it should be" },
		{ .pickle = STORAGE "K\x01K\x02K\x03\x86K\x03K\x01\x86" TAIL, .code = ERR_CORRUPT, .why = "out of its storage" },
		{ .pickle = STORAGE "K\x00K\x02K\x03\x86K\x04K\x01\x86" TAIL, .code = ERR_CORRUPT, .why = "out of its storage" },
		{ .pickle = STORAGE "J\xff\xff\xff\xffK\x02K\x03\x86K\x03K\x01\x86" TAIL, .code = ERR_CORRUPT, .why = "its shape is invalid" },
		{ .pickle = STORAGE "K\x00K\x03K\x02\x86K\x02K\x01\x86" TAIL, .code = ERR_CORRUPT, .why = "not that of the chunk" },
		{ .pickle = STORAGE "K\x00K\x06\x85K\x01\x85" TAIL, .code = ERR_CORRUPT, .why = "its shape is invalid" },
		{ .pickle = STORAGE "K\x00K\x02K\x03\x86J\xff\xff\xff\xffK\x01\x86" TAIL, .code = ERR_CORRUPT, .why = "its shape is invalid" },
		{ .pickle = HEAD "HalfStorage\nX\x01\x00\x00\x00" "0X\x03\x00\x00\x00" "cpuK\x06tQK\x00K\x02K\x03\x86K\x03K\x01\x86" TAIL,
		  .code = ERR_CORRUPT, .why = "its dtype is not that of" },
		{ .pickle = HEAD "LongStorage\nX\x01\x00\x00\x00" "0X\x03\x00\x00\x00" "cpuK\x06tQK\x00K\x02K\x03\x86K\x03K\x01\x86" TAIL,
		  .code = ERR_UNSUPPORTED, .why = "names torch.LongStorage" },
		{ .pickle = "\x80\x02" "ccollections\nOrderedDict\n)RtR.", .code = ERR_CORRUPT, .why = "damaged pickle" },
	};
	/* clang-format on */
	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct buf b = BUF_INIT;
		struct dcp_archive a;
		struct err e = ERR_INIT;
		write_archive(&b, &cases[i]);
		if (cases[i].pickle && cases[i].why == NULL) {
			/* transposed: element [0, 1] is the third number */
			assert_int_equal(read_back(&b, &a, &e), 0);
			assert_true(a.stride[0] == 1 && a.stride[1] == 2);
		} else {
			int rc = read_back(&b, &a, &e);
			if (e.code != cases[i].code || (rc != 0) != (cases[i].why != NULL) ||
			    (cases[i].why && !strstr(e.text, cases[i].why)))
				fail_msg("case %zu: %s", i, e.text);
		}
		buf_fini(&b);
	}
}

static void an_archive_that_is_cut_anywhere_is_refused(void **state)
{
	struct buf b = BUF_INIT;
	struct dcp_archive a;
	struct err e = ERR_INIT;
	const struct change none = { 0 };
	(void)state;
	write_archive(&b, &none);
	assert_int_equal(read_back(&b, &a, &e), 0);
	for (b.len--; b.len; b.len--)
		assert_int_equal(read_back(&b, &a, &e), -1);
	buf_fini(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(pickles_of_values_are_read),
		cmocka_unit_test(hostile_pickles_are_refused_with_the_cause),
		cmocka_unit_test(depth_and_stack_have_limits),
		cmocka_unit_test(a_list_that_holds_itself_is_read_and_freed),
		cmocka_unit_test(chunks_must_tile_their_tensor),
		cmocka_unit_test(archives_other_than_those_of_torch_are_refused),
		cmocka_unit_test(an_archive_that_is_cut_anywhere_is_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
