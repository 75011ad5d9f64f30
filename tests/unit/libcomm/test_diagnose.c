/* Dumps, and the sentence that the diagnosis derives from them. */
#include "base/buf.h"
#include "libcomm/flight/diagnose.h"

#include <ctype.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { RANKS = 8, TIME = 100 /* s, when all dumps are made */ };

/*
 * A rank in short form: its groups, each "NAME MEMBERS: OP …", with a semicolon between them. NULL:
 * the rank has left no dump. An op is
 *
 *     KIND[/BYTES][=ROOT][~TYPE]   or   [>PEER/BYTES][<PEER/BYTES]… for messages,
 *         with peers as world ranks
 *
 * followed by its progress: nothing for done, "?" queued, "!SECONDS" running since then, "x
 * SECONDS" failed. "+N": the ring has lost N operations. A done operation began at second 1 + its
 * number.
 */
struct spec {
	const char *what;
	const char *rank[RANKS];
	const char *sentence;
	enum comm_finding finding;
};

/* clang-format off */
static const struct spec specs[] = {
	{ "all is well", { "world 01: barrier", "world 01: barrier" },
	  "no disagreement: every operation that was begun has ended", COMM_FINDING_NONE },
	{ "no dump at all but one, in which nothing waits", { "world 012: barrier", NULL, NULL },
	  "no disagreement: every operation that was begun has ended; there are dumps of 1 of 3 ranks", COMM_FINDING_NONE },
	{ "data is under way", { "world 01: all_reduce/8!90", "world 01: all_reduce/8!95" },
	  "no disagreement: all have come to all_reduce number 1 of group world, which has taken 10 s", COMM_FINDING_NONE },

	{ "another operation",
	  { "dp0 0123: +16 all_reduce/8192!90", "dp0 0123: +16 all_reduce/8192!90", "dp0 0123: +16 all_reduce/8192!90",
	    "dp0 0123: +16 all_gather/4096!90" },
	  "group dp0: rank 3 called all_gather of 4096 bytes as number 17 where ranks 0-2 called all_reduce of 8192 bytes",
	  COMM_FINDING_MISMATCH },
	{ "another size", { "world 01: barrier all_reduce/8!90", "world 01: barrier all_reduce/16!90" },
	  "group world: rank 1 called all_reduce of 16 bytes as number 2 where rank 0 called all_reduce of 8 bytes", COMM_FINDING_MISMATCH },
	{ "another type", { "world 012: all_reduce/8~i64!9", "world 012: all_reduce/8!9", "world 012: all_reduce/8!9" },
	  "group world: rank 0 called all_reduce of 8 bytes, i64 as number 1 where ranks 1-2 called all_reduce of 8 bytes, f32",
	  COMM_FINDING_MISMATCH },
	{ "another root; the group's ranks are not the world's",
	  { "world 012: barrier", "tp 12: broadcast/8=0!9", "tp 12: broadcast/8=1!9" },
	  "group tp: rank 2 called broadcast of 8 bytes, root rank 2 as number 1 where rank 1 called broadcast of 8 bytes, root rank 1",
	  COMM_FINDING_MISMATCH },
	{ "three opinions", { "world 0123: barrier!9", "world 0123: all_gather/8!9", "world 0123: barrier!9", "world 0123: all_reduce/8!9" },
	  "group world: rank 1 called all_gather of 8 bytes as number 1, rank 3 called all_reduce of 8 bytes where ranks 0, 2 "
	  "called barrier", COMM_FINDING_MISMATCH },
	{ "of two groups the one that differed first",
	  { "a 01: barrier!50; b 01: barrier!40", "a 01: all_reduce/8!50; b 01: all_reduce/8!40" },
	  "group b: rank 1 called all_reduce of 8 bytes as number 1 where rank 0 called barrier", COMM_FINDING_MISMATCH },
	{ "the ranks of an all_to_all may give different sizes", { "world 01: all_to_all/8 barrier", "world 01: all_to_all/16 barrier" },
	  "no disagreement: every operation that was begun has ended", COMM_FINDING_NONE },
	{ "rings that reach back differently far", { "world 01: +300 barrier", "world 01: all_reduce/8 +299 barrier" },
	  "no disagreement: every operation that was begun has ended", COMM_FINDING_NONE },
	{ "a failed operation counts as one that waits", { "world 01: barrier x10", "world 01: all_reduce/8 x10" },
	  "group world: rank 1 called all_reduce of 8 bytes as number 1 where rank 0 called barrier", COMM_FINDING_MISMATCH },

	{ "one does not come, and what it did last",
	  { "pp0 05: +8 >5/4", "world 01234567: barrier", NULL, NULL, "tp1 4567: +39 all_reduce/8!90",
	    "tp1 4567: +38 all_reduce/8; pp0 05: +48 <0/4", "tp1 4567: +39 all_reduce/8!87.7", "tp1 4567: +39 all_reduce/8!95" },
	  "rank 5 (f) never reached all_reduce number 40 of group tp1; ranks 4, 6-7 have been waiting for it for 12.3 s; its last operation "
	  "was send/recv number 49 of group pp0, done", COMM_FINDING_MISSING },
	{ "one is queued elsewhere", { "world 01: barrier!99", "world 01: barrier?" },
	  "rank 1 (b) never reached barrier number 1 of group world; rank 0 has been waiting for it for 1 s; its last operation was barrier of "
	  "group world, still queued", COMM_FINDING_MISSING },
	{ "one was killed", { "world 0123: barrier!90", "world 0123: barrier!90", "world 0123: barrier!91", NULL },
	  "ranks 0-2 have been waiting for 10 s in barrier number 1 of group world for rank 3, of which there is no dump", COMM_FINDING_MISSING },
	{ "whom all wait for, through others",
	  { "dp 02: barrier!90; tp 01: barrier", "tp 01: barrier; dp 13: barrier!80", NULL, "dp 13: +0; tp 23: barrier!85" },
	  "rank 3 has been waiting for 15 s in barrier number 1 of group tp of ranks 2-3 for rank 2, of which there is no dump", COMM_FINDING_MISSING },
	{ "two do not come", { "world 012: barrier!90", "world 012: +0", "world 012: +0" },
	  "ranks 1-2 never reached barrier number 1 of group world; rank 0 has been waiting for them for 10 s; rank 1: it has called nothing; "
	  "rank 2: it has called nothing", COMM_FINDING_MISSING },
	{ "it does not receive", { "pp 01: >1/4096!90", "pp 01: barrier" },
	  "rank 1 (b) never began to receive the 4096 bytes that rank 0 sends in send/recv number 1 of group pp; rank 0 has been waiting for it for 10 s; its last "
	  "operation was barrier number 1 of group pp, done", COMM_FINDING_MISSING },
	{ "it does not send", { "pp 01: <1/64 <1/64!90", "pp 01: >0/64" },
	  "rank 1 (b) never began to send the 64 bytes that rank 0 expects in send/recv number 2 of group pp; rank 0 has been waiting for it for 10 s; its last "
	  "operation was send/recv number 1 of group pp, done", COMM_FINDING_MISSING },

	{ "a message of another size", { "pp 01: >1/4096!90", "pp 01: <0/8192!90" },
	  "group pp: rank 0 sends 4096 bytes to rank 1 in send/recv number 1 where rank 1 receives 8192 bytes in its number 1",
	  COMM_FINDING_MESSAGE },
	{ "of several messages one is not met", { "pp 012: >1/8<2/8!90", "pp 012: <0/8", "pp 012: +0" },
	  "rank 2 (c) never began to send the 8 bytes that rank 0 expects in send/recv number 1 of group pp; rank 0 has been waiting for it for 10 s; it has called "
	  "nothing", COMM_FINDING_MISSING },

	{ "both send first", { "pp 01: >1/8!90", "pp 01: >0/8!90" },
	  "ranks wait for each other: rank 0 in send/recv number 1 of group pp for rank 1, rank 1 in send/recv number 1 of group pp for "
	  "rank 0", COMM_FINDING_DEADLOCK },
	{ "groups in another order", { "a 01: barrier!90; b 01: +0", "a 01: +0; b 01: barrier!90" },
	  "ranks wait for each other: rank 0 in barrier number 1 of group a for rank 1, rank 1 in barrier number 1 of group b for rank 0",
	  COMM_FINDING_DEADLOCK },
	{ "one alone in a collective of another group",
	  { "dp 012: barrier!90; w 0123: +0", "dp 012: barrier!90; w 0123: +0", "w 0123: barrier!90; dp 012: +0", "w 0123: +0" },
	  "ranks wait for each other: rank 0 in barrier number 1 of group dp for rank 2, rank 2 in barrier number 1 of group w for rank 0; "
	  "rank 2 (c) alone is in barrier number 1 of group w", COMM_FINDING_DEADLOCK },
	{ "a circle of three, and one who waits for it",
	  { "x 01: barrier!90; z 20: +0", "y 12: barrier!90; x 01: +0", "z 20: barrier!90; y 12: +0", "w 03: barrier!50" },
	  "ranks wait for each other: rank 0 in barrier number 1 of group x for rank 1, rank 1 in barrier number 1 of group y for rank "
	  "2, rank 2 in barrier number 1 of group z for rank 0", COMM_FINDING_DEADLOCK },
};
/* clang-format on */

/* --- From short to JSON --- */

struct counts {
	int number, seq, messages, sent[RANKS], received[RANKS];
};

static int member_of(const char *members, char rank)
{
	const char *at = strchr(members, rank);
	assert_non_null(at);
	return (int)(at - members);
}

/* Parses ">1/8<2/8"; returns where it stops. */
static const char *put_messages(struct buf *b, const char *s, const char *members, struct counts *c)
{
	struct buf list = BUF_INIT;
	int n = 0, bytes, all = 0;
	while (*s == '>' || *s == '<') {
		bool send = *s == '>';
		int peer = member_of(members, s[1]), used = 0;
		sscanf(s + 2, "/%d%n", &bytes, &used);
		buf_printf(&list, "%s{\"%s\": %d, \"nth\": %d, \"bytes\": %d}", n++ ? "," : "",
			   send ? "to" : "from", peer, ++(send ? c->sent : c->received)[peer],
			   bytes);
		all += bytes;
		s += 2 + used;
	}
	buf_printf(b,
		   "\"op\": \"send/recv\", \"seq\": %d, \"bytes\": %d, \"messages\": %d, "
		   "\"peers\": [%s]",
		   ++c->messages, all, n, buf_str(&list));
	buf_fini(&list);
	return s;
}

static const char *put_collective(struct buf *b, const char *s, struct counts *c)
{
	char kind[32], type[8] = "f32";
	int n = 0, bytes = 0, root = 0, used;
	while (isalpha((unsigned char)s[n]) || s[n] == '_')
		n++;
	snprintf(kind, sizeof kind, "%.*s", n, s);
	s += n;
	if (sscanf(s, "/%d%n", &bytes, &used) == 1)
		s += used;
	if (sscanf(s, "=%d%n", &root, &used) == 1)
		s += used;
	if (sscanf(s, "~%7[a-z0-9]%n", type, &used) == 1)
		s += used;
	buf_printf(
		b,
		"\"op\": \"%s\", \"type\": \"%s\", \"redop\": \"sum\", \"root\": %d, \"bytes\": %d",
		kind, type, root, bytes);
	if (*s != '?')
		buf_printf(b, ", \"seq\": %d", ++c->seq);
	return s;
}

static const char *put_op(struct buf *b, const char *s, const char *members, struct counts *c)
{
	double since = 0;
	int used = 0;
	buf_printf(b, "{\"number\": %d, ", ++c->number);
	s = *s == '>' || *s == '<' ? put_messages(b, s, members, c) : put_collective(b, s, c);
	if (*s == '?') {
		buf_puts(b, ", \"state\": \"queued\"}");
		return s + 1;
	}
	if (sscanf(s, "!%lf%n", &since, &used) == 1)
		buf_printf(b, ", \"state\": \"running\", \"start_us\": %.0f}", since * 1e6);
	else if (sscanf(s, " x%lf%n", &since, &used) == 1)
		buf_printf(b, ", \"state\": \"failed\", \"start_us\": %.0f, \"end_us\": %.0f}",
			   since * 1e6, since * 1e6 + 1e6);
	else
		buf_printf(b, ", \"state\": \"done\", \"start_us\": %d, \"end_us\": %d}",
			   1000000 + c->number, 1000001 + c->number);
	return s + used;
}

/* One group; returns where the next one begins. */
static const char *put_group(struct buf *b, const char *s, int rank)
{
	char name[32], members[RANKS + 1];
	struct counts c = { 0 };
	struct buf ops = BUF_INIT;
	int used, any = 0, lost;
	unsigned id = 0;
	assert_int_equal(sscanf(s, "%31s %8[0-7]: %n", name, members, &used), 2);
	for (const char *p = name; *p; p++)
		id = id * 31 + (unsigned)*p;
	for (const char *p = members; *p; p++)
		id = id * 31 + (unsigned)*p;
	for (s += used; *s;) {
		if (sscanf(s, "+%d %n", &lost, &used) == 1) {
			c.number += lost;
			c.seq += lost;
			c.messages += lost;
			s += used;
			continue;
		}
		if (*s == ';') {
			s += 2;
			break;
		}
		buf_puts(&ops, any++ ? "," : "");
		s = put_op(&ops, s, members, &c);
		s += *s == ' ';
	}
	buf_printf(b,
		   "{\"name\": \"%s\", \"id\": \"%016x\", \"backend\": \"shm\", \"rank\": %d, "
		   "\"members\": [",
		   name, id, member_of(members, (char)('0' + rank)));
	for (const char *p = members; *p; p++)
		buf_printf(b, "%s%c", p > members ? "," : "", *p);
	buf_printf(b, "], \"seq\": %d, \"messages\": %d, \"ops\": [%s]}", c.seq, c.messages,
		   buf_str(&ops));
	buf_fini(&ops);
	return s;
}

static void put_rank(struct buf *b, const struct spec *spec, int rank, int size)
{
	const char *s = spec->rank[rank];
	buf_printf(b,
		   "{\"muster_comm_dump\": 1, \"rank\": %d, \"size\": %d, \"host\": \"%c\", "
		   "\"time_us\": %d, \"error\": null, \"groups\": [",
		   rank, size, 'a' + rank, TIME * 1000000);
	while (*s) {
		s = put_group(b, s, rank);
		buf_puts(b, *s ? "," : "");
	}
	buf_puts(b, "]}");
}

/* The world size: the highest rank that any group names, plus 1. */
static int size_of(const struct spec *spec)
{
	int size = 0;
	for (int r = 0; r < RANKS; r++)
		for (const char *s = spec->rank[r]; s && *s; s++)
			if (isdigit((unsigned char)*s) && s[-1] == ' ' &&
			    isdigit((unsigned char)s[1]) && s[strspn(s, "01234567")] == ':')
				for (; *s != ':'; s++)
					size = *s - '0' >= size ? *s - '0' + 1 : size;
	return size;
}

static void read_spec(const struct spec *spec, struct trace *t)
{
	struct err e = ERR_INIT;
	for (int r = 0; r < RANKS; r++) {
		struct buf b = BUF_INIT;
		if (!spec->rank[r])
			continue;
		put_rank(&b, spec, r, size_of(spec));
		if (comm_trace_add(t, b.data, b.len, "dump", &e))
			fail_msg("%s, rank %d: %s\n%s", spec->what, r, e.text, buf_str(&b));
		buf_fini(&b);
	}
}

static void dumps_give_the_expected_sentence(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) {
		struct trace t = { 0 };
		struct diagnosis d;
		struct err e = ERR_INIT;
		read_spec(&specs[i], &t);
		assert_int_equal(comm_diagnose(&t, &d, &e), 0);
		if (strcmp(buf_str(&d.text), specs[i].sentence) || d.finding != specs[i].finding)
			fail_msg("%s:\n  %s (%s)\nin place of\n  %s", specs[i].what,
				 buf_str(&d.text), comm_finding_word(d.finding), specs[i].sentence);
		comm_diagnosis_fini(&d);
		comm_trace_fini(&t);
	}
}

/* --- What is no dump --- */

#define HEAD \
	"{\"muster_comm_dump\": 1, \"rank\": 0, \"size\": 2, \"host\": \"a\", \"time_us\": 5, " \
	"\"groups\": "
#define GROUP(members, rank, ops) \
	HEAD "[{\"name\": \"g\", \"id\": \"0000000000000001\", \"rank\": " rank \
	     ", \"members\": " members ", \"seq\": 1, \"ops\": " ops "}]}"
#define OP(fields) GROUP("[0, 1]", "0", "[{\"number\": 1, \"state\": \"done\", " fields "}]")

static void a_file_that_is_not_a_dump_is_refused_by_name(void **state)
{
	/* clang-format off */
	static const char *const bad[] = {
		"", "[]", "{}", "{\"muster_comm_dump\": 2}", HEAD "7}", HEAD "[3]}",
		"{\"muster_comm_dump\": 1, \"rank\": 2, \"size\": 2, \"time_us\": 5, \"groups\": []}",
		"{\"muster_comm_dump\": 1, \"rank\": 0, \"size\": 99999999, \"time_us\": 5, \"groups\": []}",
		GROUP("[0, 2]", "0", "[]"), GROUP("[0, 0]", "0", "[]"), GROUP("[1, 0]", "0", "[]"), GROUP("[0, 1]", "2", "[]"),
		GROUP("[]", "0", "[]"), GROUP("[0, 1]", "0", "{}"),
		OP("\"op\": \"frobnicate\", \"seq\": 1, \"bytes\": 1"), OP("\"op\": \"barrier\", \"seq\": 0, \"bytes\": 1"),
		OP("\"op\": \"barrier\", \"seq\": 1, \"bytes\": -1"), OP("\"op\": \"broadcast\", \"type\": \"f32\", \"root\": 2, \"seq\": 1, \"bytes\": 1"),
		OP("\"op\": \"send/recv\", \"seq\": 1, \"bytes\": 1, \"messages\": 0, \"peers\": [{\"to\": 1, \"nth\": 1, \"bytes\": 1}]"),
		OP("\"op\": \"send/recv\", \"seq\": 1, \"bytes\": 1, \"messages\": 1, \"peers\": [{\"to\": 2, \"nth\": 1, \"bytes\": 1}]"),
	};
	/* clang-format on */
	(void)state;
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		struct trace t = { 0 };
		struct err e = ERR_INIT;
		if (comm_trace_add(&t, bad[i], strlen(bad[i]), "x.json", &e) == 0 ||
		    e.code != ERR_CORRUPT || !strstr(e.text, "x.json"))
			fail_msg("%s: %s", bad[i], e.text);
		comm_trace_fini(&t);
	}
}

static void dumps_of_different_worlds_are_not_mixed(void **state)
{
	static const char one[] = GROUP("[0, 1]", "0", "[]");
	static const char *const others[] = {
		one, /* the same rank */
		"{\"muster_comm_dump\": 1, \"rank\": 1, \"size\": 3, \"time_us\": 5, \"groups\": "
		"[]}",
		"{\"muster_comm_dump\": 1, \"rank\": 1, \"size\": 2, \"time_us\": 5, \"groups\": "
		"[{\"name\": \"g\", \"id\": \"0000000000000001\", "
		"\"rank\": 0, \"members\": [1], \"seq\": 0, \"ops\": []}]}",
	};
	(void)state;
	for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
		struct trace t = { 0 };
		struct err e = ERR_INIT;
		assert_int_equal(comm_trace_add(&t, one, strlen(one), "one", &e), 0);
		assert_int_equal(comm_trace_add(&t, others[i], strlen(others[i]), "other", &e), -1);
		comm_trace_fini(&t);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(dumps_give_the_expected_sentence),
		cmocka_unit_test(a_file_that_is_not_a_dump_is_refused_by_name),
		cmocka_unit_test(dumps_of_different_worlds_are_not_mixed),
	};
	return cmocka_run_group_tests_name("diagnose", tests, NULL, NULL);
}
