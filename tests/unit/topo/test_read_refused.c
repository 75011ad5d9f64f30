/* Texts that describe no machine: broken, truncated, hostile. */
#include "tests/unit/topo/taken.h"

#include "topo/read/read.h"

#include "base/buf.h"
#include "base/file.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define KINDS(inside) \
	"{\"format\": \"muster cluster 1\", \"kinds\": [{\"name\": \"k\", \"devices\": 2" inside \
	"}], \"nodes\": [{\"names\": \"n\"}]}"
#define SYSTEM(inside) "<system version=\"1\"><cpu numaid=\"0\">" inside "</cpu></system>"
#define GPU_ROWS       "GPU0 X NV1 0-3\nGPU1 NV1 X 0-3\n"

/* Broken texts of all formats, and the words of the error that show why. */
/* clang-format off */
static const struct {
	const char *text, *why;
} broken[] = {
	{ "", "it is empty" },
	{ " ", "format is unknown" },
	{ "hello", "format is unknown" },
	{ "<svg/>", "format is unknown" },
	{ "<topology>", "it:1" },
	{ "<topology>\n<object type=\"Machine\">\n", "it:3" },
	{ "<topology>\n<object type=\"Machine\"\n</topology>", "it:3" },
	{ "<topology/>", "neither a GPU nor a core" },
	{ "<!DOCTYPE topology [<!ENTITY a \"b\">]><topology>&a;</topology>", "entities" },
	{ "<!DOCTYPE topology [<!ENTITY % a SYSTEM \"/etc/passwd\"> %a;]><topology/>", "entities" },
	{ "<!DOCTYPE topology SYSTEM \"hwloc2.dtd\"><topology>&a;</topology>", "entity" },
	{ "<topology><object type=\"PU\"/><distances2 name=\"NVLinkBandwidth\" nbobjs=\"0\"/></topology>", "no objects" },
	{ "<topology><object type=\"PU\"/>\n<distances2 name=\"NVLinkBandwidth\" nbobjs=\"2\"><indexes>1</indexes></distances2></topology>",
	  "it:2: matrix of distances: fewer objects" },
	{ "<topology><object type=\"PU\"/><distances2 name=\"NVLinkBandwidth\" nbobjs=\"1\"><indexes>1</indexes><u64values>x</u64values></distances2>"
	  "</topology>", "not a number" },
	{ "<topology><object type=\"PU\"/><distances2 name=\"NVLinkBandwidth\" nbobjs=\"1\"><indexes>1</indexes><u64values>1 2</u64values>"
	  "</distances2></topology>", "more values" },
	{ "<system version=\"1\"/>", "no <cpu>" },
	{ "<graphs version=\"1\"/>", "NCCL_TOPO_DUMP_FILE" },
	{ SYSTEM(""), "names no GPU" },
	{ "<system version=\"1\">\n<cpu>\n</cpu></system>", "it:2: <cpu>: it has no numaid" },
	{ "<system version=\"1\"><cpu numaid=\"99999\"/></system>", "not the number of a NUMA domain" },
	{ SYSTEM("\n<pci busid=\"0000:00:16.0\"/>"), "it:2: <pci>: it has no class" },
	{ SYSTEM("<pci busid=\"0000:00:16.0\" class=\"0x030200\"><gpu dev=\"0\" sm=\"80\"><nvlink target=\"0\" count=\"-1\"/></gpu></pci>"), "its count" },
	{ "GPU0 GPU1 CPU Affinity\nGPU0 X NV1 0-3\n", "row of GPU1 is missing" },
	{ "GPU0 GPU1 CPU Affinity\nGPU0 X NV1\nGPU1 NV1\n", "it:3: fewer entries" },
	{ "GPU0 GPU1 CPU Affinity\nGPU0 NV1 X\nGPU1 NV1 X\n", "it:2: its X" },
	{ "GPU0 GPU1 CPU Affinity\nGPU0 X FOO\nGPU1 NV1 X\n", "it:2: fewer entries than columns, or one that is none" },
	{ "GPU0 GPU1 CPU Affinity\nGPU0 X NV99\nGPU1 NV1 X\n", "it:2" },
	{ "GPU0 GPU1 CPU Affinity\n" GPU_ROWS "GPU1 NV1 X 0-3\n", "it:4: a row of a GPU" },
	{ "GPU0 GPU1 CPU Affinity NUMA Affinity\nGPU0 X SYS 0-3 99999999\nGPU1 SYS X 0 0\n", "NUMA affinity" },
	{ "{", "it:1" },
	{ "{}", "\"format\"" },
	{ "{\"format\": \"muster cluster 1\"}", "\"kinds\"" },
	{ "{\"format\": \"muster cluster 1\", \"kinds\": [{\"devices\": 1}]}", "kinds[0]: \"name\": it is missing" },
	{ "{\"format\": \"muster cluster 1\", \"kinds\": [{\"name\": \"\", \"devices\": 1}]}", "it is empty" },
	{ "{\"format\": \"muster cluster 1\", \"kinds\": [{\"name\": \"k\", \"devices\": 0}]}", "kinds[0]: \"devices\": it must be a whole number from 1" },
	{ KINDS(", \"memory\": -1"), "\"memory\": it must be a number" },
	{ KINDS(", \"switched\": 1"), "true or false" },
	{ KINDS(", \"device\": \"\\u001b[2J\""), "control characters" },
	{ KINDS(", \"device\": \"\xc2\x9b" "2J\""), "control characters" },
	{ KINDS(", \"device\": \"a\\u202eb\""), "control characters" },
	{ KINDS(", \"device\": \"\\uffff\""), "control characters" },
	{ KINDS(", \"parts\": [{}]"), "an entry for each device" },
	{ KINDS(", \"parts\": [{\"nic\": 0}, {}]"), "kinds[0].parts[0]: \"nic\": it is not an index" },
	{ KINDS(", \"parts\": [{}, {\"numa\": 1}]"), "kinds[0].parts[1]: \"numa\"" },
	{ KINDS(", \"link_types\": [{\"kind\": \"X\"}], \"links\": [[0, 0], [0, 0]]"), "the diagonal" },
	{ KINDS(", \"link_types\": [{\"kind\": \"Y\"}], \"links\": [[0, 0], [0, 0]]"), "kinds[0].link_types[0]: \"kind\": it must be one of" },
	{ KINDS(", \"links\": [[0, 0], [0, 0]]"), "not an index into link_types" },
	{ KINDS(", \"link_types\": [{\"kind\": \"X\"}], \"links\": [[0, 0]]"), "a row for each device" },
	{ "{\"format\": \"muster cluster 1\", \"kinds\": [{\"name\": \"k\", \"devices\": 2}], \"nodes\": [{\"names\": \"n[0-\"}]}", "nodes[0]: \"names\"" },
	{ "{\"format\": \"muster cluster 1\", \"kinds\": [{\"name\": \"k\", \"devices\": 2}], \"nodes\": [{\"names\": \"n\\u001bc\"}]}", "control characters" },
	{ "{\"format\": \"muster cluster 1\", \"kinds\": [{\"name\": \"k\", \"devices\": 2}], \"nodes\": [{\"names\": \"a b\"}]}", "blanks" },
	{ "{\"format\": \"muster cluster 1\", \"kinds\": [{\"name\": \"k\", \"devices\": 2}], \"nodes\": [{\"names\": \"n\", \"kind\": 1}]}", "\"kind\"" },
	{ "{\"format\": \"muster cluster 1\", \"kinds\": [{\"name\": \"k\", \"devices\": 65536}], \"nodes\": [{\"names\": \"n[0-9999]\"}]}", "more nodes" },
	{ "{\"format\": \"muster cluster 1\", \"kinds\": [{\"name\": \"k\", \"devices\": 2}], \"switches\": [{\"parent\": 0}]}", "stands before" },
};
/* clang-format on */

static void what_is_broken_is_refused_with_its_place(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
		struct cluster c;
		struct err e = ERR_INIT;
		const struct topo_text in = { .file = "it",
					      .text = broken[i].text,
					      .len = strlen(broken[i].text) };
		if (!topo_read_text(&in, &c, &e))
			fail_msg("taken: %s", broken[i].text);
		if (e.code != ERR_USAGE || strncmp(e.text, "it:", 3) ||
		    !strstr(e.text, broken[i].why))
			fail_msg("%s\nis refused with \"%s\", without \"%s\"", broken[i].text,
				 e.text, broken[i].why);
	}
}

/* A file that is truncated at any byte is refused, or it is read as the rest of a table that is
 * still valid. */
static void cut_files_are_refused(void **state)
{
	(void)state;
	static const char *const files[] = { "hwloc-3.xml", "hwloc-1.xml", "nccl-dump.xml",
					     "cluster.json" };
	for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
		char path[128];
		struct buf text = BUF_INIT;
		snprintf(path, sizeof path, "tests/machines/%s", files[i]);
		assert_int_equal(file_slurp(path, 1 << 20, &text, NULL), 0);
		const char *end = strrchr(buf_str(&text), files[i][0] == 'c' ? '}' : '>');
		for (size_t len = 0; len < (size_t)(end - text.data); len += 7) {
			struct cluster c;
			struct err e = ERR_INIT;
			char *cut = strndup(text.data, len);
			const struct topo_text in = { .file = "it", .text = cut, .len = len };
			assert_int_equal(topo_read_text(&in, &c, &e), -1);
			assert_int_equal(e.code, ERR_USAGE);
			free(cut);
		}
		buf_fini(&text);
	}
}

static void deep_and_wide_documents_are_refused(void **state)
{
	(void)state;
	struct buf deep = BUF_INIT, wide = BUF_INIT;
	struct cluster c;
	struct err e = ERR_INIT;
	for (int i = 0; i < 200; i++)
		buf_puts(&deep, i ? "<object>" : "<topology>");
	buf_puts(&wide, "<topology><object");
	for (int i = 0; i < 100; i++)
		buf_printf(&wide, " a%d=\"\"", i);
	buf_puts(&wide, "/></topology>");
	const struct topo_text in = { .file = "it", .text = buf_str(&deep), .len = deep.len };
	assert_int_equal(topo_read_text(&in, &c, &e), -1);
	assert_non_null(strstr(e.text, "deeper"));
	const struct topo_text in2 = { .file = "it", .text = buf_str(&wide), .len = wide.len };
	assert_int_equal(topo_read_text(&in2, &c, &e), -1);
	assert_non_null(strstr(e.text, "attributes"));
	buf_fini(&deep);
	buf_fini(&wide);
}

static void more_devices_than_a_machine_has_are_refused(void **state)
{
	(void)state;
	struct buf text = BUF_INIT;
	struct cluster c;
	struct err e = ERR_INIT;
	buf_puts(&text, "<system version=\"1\"><cpu numaid=\"0\">");
	for (int i = 0; i < 1025; i++)
		buf_printf(&text, "<pci busid=\"%04x:00:00.0\" class=\"0x030200\"/>", i);
	buf_puts(&text, "</cpu></system>");
	const struct topo_text in = { .file = "it", .text = buf_str(&text), .len = text.len };
	assert_int_equal(topo_read_text(&in, &c, &e), -1);
	assert_non_null(strstr(e.text, "more than 1024 devices"));
	buf_fini(&text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_broken_is_refused_with_its_place),
		cmocka_unit_test(cut_files_are_refused),
		cmocka_unit_test(deep_and_wide_documents_are_refused),
		cmocka_unit_test(more_devices_than_a_machine_has_are_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
