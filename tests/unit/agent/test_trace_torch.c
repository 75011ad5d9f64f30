/* Dumps of PyTorch's flight recorder, and the sentence that the diagnosis derives from them. */
#include "agent/tools/torch_dump.h"
#include "agent/tools/torch_files.h"
#include "agent/tools/torch_read.h"
#include "libcomm/flight/diagnose.h"
#include "tests/unit/tmpdir.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* --- Real dumps (tests/golden/make_flight.py) ------------------------------------------- */

static void judge(struct torch_files *f, enum comm_finding finding, const char *sentence)
{
	struct trace t = { 0 };
	struct diagnosis d;
	struct err e = ERR_INIT;
	struct buf left_out = BUF_INIT;
	if (tool_torch_files_read(f, &t, &left_out, &e))
		fail_msg("%s", e.text);
	assert_int_equal(comm_diagnose(&t, &d, &e), 0);
	buf_puts(&d.text, buf_str(&left_out));
	if (!strstr(buf_str(&d.text), sentence))
		fail_msg("\"%s\" is not in \"%s\"", sentence, buf_str(&d.text));
	assert_int_equal(d.finding, finding);
	comm_diagnosis_fini(&d);
	comm_trace_fini(&t);
	tool_torch_files_fini(f);
	buf_fini(&left_out);
}

static void add_ranks(struct torch_files *f, const char *folder, const char *ranks,
		      const char *after)
{
	for (; *ranks; ranks++) {
		char path[200];
		snprintf(path, sizeof path, "tests/golden/flight/%s/torch-%c%s", folder, *ranks,
			 after);
		assert_int_equal(tool_torch_file_rank(path), *ranks - '0');
		assert_int_equal(tool_torch_files_add(f, path, *ranks - '0', true, NULL), 0);
	}
}

static void the_rank_that_does_not_come_is_named(void **state)
{
	(void)state;
	struct torch_files f = { 0 };
	add_ranks(&f, "absent", "3021", "");
	judge(&f, COMM_FINDING_MISSING,
	      "rank 2 never reached all_reduce number 2 of group default_pg; ranks 0-1, 3 have "
	      "been waiting for it");
	add_ranks(&f, "absent-json", "0123", ".json");
	judge(&f, COMM_FINDING_MISSING,
	      "its last operation was all_reduce number 1 of group default_pg, done");
	add_ranks(&f, "nccl", "0123", "");
	judge(&f, COMM_FINDING_MISSING,
	      "rank 2 never reached _all_gather_base number 1 of group mesh_tp of ranks 2-3; rank "
	      "3 has been waiting for it");
}

static void a_rank_without_a_dump_is_named(void **state)
{
	(void)state;
	struct torch_files f = { 0 };
	add_ranks(&f, "absent", "013", "");
	judge(&f, COMM_FINDING_MISSING,
	      "in all_reduce number 2 of group default_pg for rank 2, of which there is no dump");
}

static void ranks_that_call_different_operations_are_named(void **state)
{
	(void)state;
	struct torch_files f = { 0 };
	add_ranks(&f, "different", "0123", "");
	judge(&f, COMM_FINDING_MISMATCH,
	      "group default_pg: rank 3 called broadcast of 16 bytes as number 2 where ranks 0-2 "
	      "called barrier");
}

/* --- Entries ------------------------------------------------------------------------------ */

enum { RANKS = 4 };

/* The entries of each rank, separated by semicolons: "NAME SEQ BYTES STATE", in group "0" of all
 * ranks. STATE is "c" completed, "s" scheduled or "r" scheduled, but retired. A first entry "lost": the
 * recorder has lost entries. */
/* clang-format off */
static const struct spec {
	const char *what, *rank[RANKS], *sentence;
	enum comm_finding finding;
} specs[] = {
	{ "all have come", { "nccl:all_reduce 1 8 s", "nccl:all_reduce 1 8 s" },
	  "no disagreement: all have come to all_reduce number 1 of group default_pg", COMM_FINDING_NONE },
	{ "several are scheduled, and the first one counts",
	  { "nccl:all_reduce 1 8 c; nccl:all_reduce 2 8 s; nccl:barrier 3 1 s", "nccl:all_reduce 1 8 c" },
	  "rank 1 never reached all_reduce number 2 of group default_pg; rank 0 has been waiting", COMM_FINDING_MISSING },
	{ "another size", { "nccl:all_reduce 1 8 s", "nccl:all_reduce 1 16 s", "nccl:all_reduce 1 8 s" },
	  "rank 1 called all_reduce of 16 bytes as number 1 where ranks 0, 2 called all_reduce of 8 bytes", COMM_FINDING_MISMATCH },
	{ "another form of an operation", { "nccl:all_gather 1 8 s", "nccl:_all_gather_base 1 8 s", "nccl:all_gather 1 8 s" },
	  "rank 1 called _all_gather_base of 8 bytes as number 1 where ranks 0, 2 called all_gather of 8 bytes", COMM_FINDING_MISMATCH },
	{ "uneven sizes are no mismatch", { "nccl:all_gather_v 1 8 c", "nccl:all_gather_v 1 16 c" },
	  "no disagreement: every operation that was begun has ended", COMM_FINDING_NONE },
	{ "an operation that muster does not know", { "nccl:split 1 8 s", "" },
	  "rank 1 never reached split number 1 of group default_pg", COMM_FINDING_MISSING },
	{ "a watchdog has given up", { "nccl:barrier 1 1 r", "" }, "rank 1 never reached barrier number 1", COMM_FINDING_MISSING },
	{ "gloo retires what has ended", { "gloo:barrier 1 1 r", "gloo:barrier 1 1 r" },
	  "no disagreement: every operation that was begun has ended", COMM_FINDING_NONE },
	{ "coalesced operations of different sizes",
	  { "nccl:all_reduce 1 8 s; nccl:all_reduce 1 8 s; nccl:coalesced 1 0 s", "nccl:all_reduce 1 8 s; nccl:coalesced 1 0 s",
	    "nccl:all_reduce 1 16 s; nccl:coalesced 1 0 s" },
	  "rank 1 called coalesced of 8 bytes as number 1 where ranks 0, 2 called coalesced of 16 bytes", COMM_FINDING_MISMATCH },

	{ "a message that is not sent", { "nccl:recv_0<-1 1 8 s", "nccl:send_1->0 1 8 c; nccl:barrier 1 1 s" },
	  "no disagreement", COMM_FINDING_NONE },
	{ "a second message that is not sent", { "nccl:recv_0<-1 1 8 c; nccl:recv_0<-1 2 8 s", "nccl:send_1->0 1 8 c" },
	  "rank 1 never began to send the 8 bytes that rank 0 expects in send/recv number 2", COMM_FINDING_MISSING },
	{ "a message of another size", { "nccl:recv_0<-1 1 8 s", "nccl:send_1->0 1 16 s" },
	  "rank 1 sends 16 bytes to rank 0 in send/recv number 1 where rank 0 receives 8 bytes", COMM_FINDING_MESSAGE },
	{ "each sends first", { "nccl:send_0->1 1 8 s; ", "nccl:send_1->0 1 8 s" }, "ranks wait for each other", COMM_FINDING_DEADLOCK },
	{ "coalesced messages", { "nccl:send_0->1 1 8 s; nccl:recv_0<-1 1 8 s; p2p:coalesced 1 0 s", "nccl:barrier 1 1 c" },
	  "rank 1 never began to receive the 8 bytes that rank 0 sends in send/recv number 1", COMM_FINDING_MISSING },
	{ "coalesced messages that meet", { "nccl:send_0->1 1 8 s; nccl:recv_0<-1 1 8 s; p2p:coalesced 1 0 s",
					    "nccl:send_1->0 1 8 s; nccl:recv_1<-0 1 8 s; p2p:coalesced 1 0 s" },
	  "no disagreement: all have come to send/recv number 1", COMM_FINDING_NONE },
	{ "coalesced messages without numbers of their own",
	  { "nccl:send_0->1 0 8 s; nccl:recv_0<-1 0 8 s; p2p:coalesced 0 0 c; nccl:send_0->1 0 8 s; nccl:recv_0<-1 0 8 s; p2p:coalesced 0 0 s",
	    "nccl:send_1->0 0 8 s; nccl:recv_1<-0 0 8 s; p2p:coalesced 0 0 c; nccl:barrier 1 1 c" },
	  "rank 1 never began to receive the 8 bytes that rank 0 sends in send/recv number 1", COMM_FINDING_MISSING },
	{ "coalesced messages that do not say that they are some", { "nccl:send_0->1 3 8 s; nccl:recv_0<-1 3 8 s; nccl:coalesced 3 0 s", "" },
	  "rank 1 never began to receive the 8 bytes that rank 0 sends in send/recv number 3", COMM_FINDING_MISSING },
	{ "messages are not matched if entries are lost", { "lost; nccl:recv_0<-1 7 8 c; nccl:recv_0<-1 8 8 s", "nccl:send_1->0 1 8 c" },
	  "no disagreement", COMM_FINDING_NONE },
	{ "a message from anybody", { "gloo:recv_0<-? 1 8 s", "" }, "no disagreement", COMM_FINDING_NONE },
};
/* clang-format on */

static json_t *entry_of(const char *text, int number)
{
	char name[64], state;
	int seq, bytes;
	assert_int_equal(sscanf(text, " %63s %d %d %c", name, &seq, &bytes, &state), 4);
	bool p2p = strchr(name, '_') && strpbrk(name, "<>");
	if (p2p)
		*strrchr(name, '_') = ' ';
	return json_pack("{s:i, s:[s, s], s:s, s:i, s:i, s:[[i]], s:[s], s:[[i]], s:[s], s:s, s:b, "
			 "s:I, s:b}",
			 "record_id", number, "process_group", "0", "default_pg", "profiling_name",
			 name, "collective_seq_id", seq, "p2p_seq_id", seq, "input_sizes", bytes,
			 "input_dtypes", "Byte", "output_sizes", bytes, "output_dtypes", "Byte",
			 "state", state == 'c' ? "completed" : "scheduled", "retired", state == 'r',
			 "time_created_ns", (json_int_t)(number + 1) * 1000000, "is_p2p",
			 p2p || !strncmp(name, "p2p:", 4));
}

/* ranks: of the world. */
static json_t *dump_of(const char *entries, const char *ranks)
{
	json_t *list = json_array();
	int number = 0;
	for (const char *at = entries; *at; at += *at == ';') {
		if (!strncmp(at, "lost", 4))
			number = 500;
		else if (strspn(at, " ") < strcspn(at, ";"))
			json_array_append_new(list, entry_of(at, number++));
		at += strcspn(at, ";");
	}
	return json_pack("{s:s, s:{s:{s:s}}, s:o}", "version", "2.10", "pg_config", "0", "ranks",
			 ranks, "entries", list);
}

static void check_spec(const struct spec *s)
{
	struct torch_world w = { 0 };
	struct trace t = { 0 };
	struct diagnosis d;
	struct err e = ERR_INIT;
	json_t *dumps[RANKS] = { NULL };
	char ranks[32] = "[0";
	for (int r = 1; r < RANKS && s->rank[r]; r++)
		snprintf(ranks + strlen(ranks), sizeof ranks - strlen(ranks), ", %d", r);
	strcat(ranks, "]");
	for (int r = 0; r < RANKS && s->rank[r]; r++) {
		dumps[r] = dump_of(s->rank[r], ranks);
		assert_int_equal(tool_torch_look(&w, dumps[r], r, &e), 0);
	}
	for (int r = 0; r < RANKS && dumps[r]; r++) {
		json_t *ours = tool_torch_convert(&w, dumps[r], r, 60000000, &e);
		if (!ours || comm_trace_add_json(&t, ours, "it", &e))
			fail_msg("%s: %s", s->what, e.text);
		json_decref(ours);
		json_decref(dumps[r]);
	}
	assert_int_equal(comm_diagnose(&t, &d, &e), 0);
	if (!strstr(buf_str(&d.text), s->sentence) || d.finding != s->finding)
		fail_msg("%s: \"%s\" is not in \"%s\"", s->what, s->sentence, buf_str(&d.text));
	comm_diagnosis_fini(&d);
	comm_trace_fini(&t);
	tool_torch_world_fini(&w);
}

static void each_dump_gives_its_sentence(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof specs / sizeof *specs; i++)
		check_spec(&specs[i]);
}

static void damaged_entries_are_refused(void **state)
{
	(void)state;
	static const char *const entries[] = {
		"7",
		"{\"record_id\": -1}",
		"{\"record_id\": 1, \"collective_seq_id\": \"x\"}",
		"{\"record_id\": 1, \"collective_seq_id\": 1, \"profiling_name\": "
		"\"nccl:all_reduce\", "
		"\"input_sizes\": [[-5]]}",
		"{\"record_id\": 1, \"collective_seq_id\": 1, \"profiling_name\": "
		"\"nccl:all_reduce\", "
		"\"input_sizes\": [[4294967296, 4294967296]], \"input_dtypes\": [\"Float\"]}",
	};
	for (size_t i = 0; i < sizeof entries / sizeof *entries; i++) {
		struct torch_world w = { 0 };
		struct err e = ERR_INIT;
		json_t *dump = json_object(),
		       *entry = json_loads(entries[i], JSON_DECODE_ANY, NULL);
		assert_non_null(entry);
		json_object_set_new(dump, "entries", json_pack("[o]", entry));
		assert_int_equal(tool_torch_look(&w, dump, 0, &e), 0);
		assert_null(tool_torch_convert(&w, dump, 0, 1, &e));
		assert_int_equal(e.code, ERR_CORRUPT);
		assert_int_equal(strncmp(e.text, "entry 0: ", 9), 0);
		json_decref(dump);
		tool_torch_world_fini(&w);
	}
}

/* --- Pickles -------------------------------------------------------------------------------- */

#define VERSION "X\x07\0\0\0versionX\x04\0\0\0002.10"

static int read_bytes(const char *bytes, size_t n, json_t **out, struct err *e)
{
	*out = NULL;
	*e = (struct err)ERR_INIT;
	return tool_torch_read(bytes, n, "it", out, e);
}

static void the_typed_lists_of_pytorch_are_lists(void **state)
{
	(void)state;
	static const char bytes[] = "\x80\x02}(" VERSION
				    "X\x05\0\0\0sizesctorch.jit._pickle\nbuild_intlist\n"
				    "(](K\x04K\x05"
				    "etRX\x06\0\0\0frames](NNeX\x03\0\0\0nulNu.";
	json_t *o;
	struct err e;
	if (read_bytes(bytes, sizeof bytes - 1, &o, &e))
		fail_msg("%s", e.text);
	char *text = json_dumps(o, JSON_COMPACT | JSON_SORT_KEYS);
	assert_string_equal(text, "{\"nul\":null,\"sizes\":[4,5],\"version\":\"2.10\"}");
	free(text);
	json_decref(o);
}

static void what_is_no_plain_value_is_refused(void **state)
{
	(void)state;
	/* clang-format off */
	static const struct {
		const char *bytes;
		size_t n;
		const char *words;
	} cases[] = {
#define CASE(bytes, words) { bytes, sizeof(bytes) - 1, words }
		CASE("\x80\x02" "cos\nsystem\n(X\x02\0\0\0idtR.", "names os.system, which no tensor needs; nothing of it was run (byte 13)"),
		CASE("\x80\x02" "(X\x02\0\0\0idios\nsystem\n.", "opcode 0x69 at byte 10"),
		CASE("\x80\x02}(" VERSION, "byte"),
		CASE("\x80\x02}(" VERSION "u.more", "byte"),
		CASE("\x80\x02}(" VERSION "X\x01\0\0\0a\x8d\xff\xff\xff\xff\xff\xff\xff\xffu.", "byte"),
		CASE("\x80\x02}(" VERSION "ctorch\nSize\nNu.", "a key is not a text"),
		CASE("\x80\x02}(" VERSION "X\x01\0\0\0active_jobs", "byte"),
		CASE("\x80\x02}(" VERSION "X\x01\0\0\0actorch\nfloat32\nu.", "no recorder writes"),
		CASE("\x80\x02}(" VERSION "X\x01\0\0\0aX\x01\0\0\0\xffu.", "not UTF-8"),
		CASE("\x80\x02}(X\x01\0\0\0aNu.", "version 2"),
		CASE("\x80\x02]q\0h\0a.", "too deep"),
#undef CASE
	};
	/* clang-format on */
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		json_t *o;
		struct err e;
		assert_int_equal(read_bytes(cases[i].bytes, cases[i].n, &o, &e), -1);
		if (!strstr(e.text, cases[i].words))
			fail_msg("case %zu: %s", i, e.text);
		assert_null(o);
	}
}

/* Seven lists, each of which holds the one before it 64 times: 64^7 values in a few hundred bytes. */
static void a_pickle_cannot_stand_for_endless_values(void **state)
{
	(void)state;
	struct buf b = BUF_INIT;
	struct err e;
	json_t *o;
	buf_add(&b, "\x80\x02](](NNNNeq\0", 13);
	for (int level = 1; level < 7; level++) {
		buf_puts(&b, "](");
		for (int i = 0; i < 64; i++) {
			char get[2] = { 'h', (char)(level - 1) };
			buf_add(&b, get, 2);
		}
		char put[3] = { 'e', 'q', (char)level };
		buf_add(&b, put, 3);
	}
	buf_puts(&b, "e.");
	assert_int_equal(read_bytes(b.data, b.len, &o, &e), -1);
	assert_non_null(strstr(e.text, "too many"));
	buf_fini(&b);
}

/* --- Files ----------------------------------------------------------------------------------- */

static void a_damaged_file_of_a_run_is_left_out(void **state)
{
	(void)state;
	char dir[256], path[300];
	struct torch_files f = { 0 };
	assert_true(tmpdir_make(dir, sizeof dir));
	snprintf(path, sizeof path, "%s/torch-2", dir);
	FILE *out = fopen(path, "w");
	assert_true(out && fwrite("\x80\x02}(", 1, 4, out) == 4 && !fclose(out));
	add_ranks(&f, "absent", "013", "");
	assert_int_equal(tool_torch_files_add(&f, path, 2, true, NULL), 0);
	judge(&f, COMM_FINDING_MISSING, "for rank 2, of which there is no dump; ");

	struct trace t = { 0 };
	struct err e = ERR_INIT;
	struct buf left_out = BUF_INIT;
	assert_int_equal(tool_torch_files_add(&f, path, 2, true, NULL), 0); /* alone */
	assert_int_equal(tool_torch_files_read(&f, &t, &left_out, &e), -1);
	assert_non_null(strstr(e.text, "torch-2"));
	buf_clear(&left_out);
	f.list[0].own = false;
	add_ranks(&f, "absent", "0", ""); /* a file that the user named has to be read */
	assert_int_equal(tool_torch_files_read(&f, &t, &left_out, &e), -1);
	tool_torch_files_fini(&f);
	buf_fini(&left_out);
	unlink(path);
	rmdir(dir);
}

static void a_named_file_is_one_of_pytorch_by_its_name_or_its_bytes(void **state)
{
	(void)state;
	assert_int_equal(tool_torch_file_rank("/x/nccl_trace_rank_12"), 12);
	assert_int_equal(tool_torch_file_rank("torch-3.json"), 3);
	assert_int_equal(tool_torch_file_rank("comm-3.json"), -1);
	assert_int_equal(tool_torch_file_rank("/no/such/file7"), -1);
	assert_int_equal(tool_torch_file_rank("/proc/self/exe"), -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_rank_that_does_not_come_is_named),
		cmocka_unit_test(a_rank_without_a_dump_is_named),
		cmocka_unit_test(ranks_that_call_different_operations_are_named),
		cmocka_unit_test(each_dump_gives_its_sentence),
		cmocka_unit_test(damaged_entries_are_refused),
		cmocka_unit_test(the_typed_lists_of_pytorch_are_lists),
		cmocka_unit_test(what_is_no_plain_value_is_refused),
		cmocka_unit_test(a_pickle_cannot_stand_for_endless_values),
		cmocka_unit_test(a_damaged_file_of_a_run_is_left_out),
		cmocka_unit_test(a_named_file_is_one_of_pytorch_by_its_name_or_its_bytes),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
