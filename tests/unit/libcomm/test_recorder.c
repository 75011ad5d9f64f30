/* The flight recorder: what it keeps, who may read it when, and what mismatched programs leave
 * behind. */
#include "base/buf.h"
#include "base/file.h"
#include "base/run_paths.h"
#include "libcomm/flight/diagnose.h"
#include "libcomm/group.h"
#include "tests/unit/libcomm/ranks.h"
#include "tests/unit/libcomm/ranks_hurry.h"
#include "tests/unit/tmpdir.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include <cmocka.h>

static char dir[200];

#define TAKEN(call) \
	do { \
		struct err why = ERR_INIT; \
		RANK_CHECK((call) == 0, "%s: %s", #call, why.text); \
	} while (0)

/* --- The ring --- */

static const struct op reduction = {
	.kind = OP_ALL_REDUCE, .count = 4, .type = COMM_I64, .redop = COMM_MAX
};

static void go_through(struct recorder *r, struct op op, uint32_t seq, bool failed)
{
	struct op_signature sign = comm_op_sign(&op, seq, 2);
	comm_recorder_begin(r, &op, &sign, "tree");
	comm_recorder_end(r, failed);
}

static void the_last_operations_are_kept(void **state)
{
	static struct record out[RECORDER_OPS];
	struct recorder *r;
	(void)state;
	assert_int_equal(comm_recorder_open(2, &r, NULL), 0);
	assert_int_equal(comm_recorder_read(r, out), 0);
	for (uint32_t i = 1; i <= 1000; i++)
		go_through(r, reduction, i, i == 999);
	assert_int_equal(comm_recorder_read(r, out), RECORDER_OPS);
	for (uint32_t i = 0; i < RECORDER_OPS; i++) {
		assert_int_equal(out[i].number, 1000 - RECORDER_OPS + 1 + i);
		assert_int_equal(out[i].seq, out[i].number);
		assert_int_equal(out[i].state, out[i].seq == 999 ? RECORD_FAILED : RECORD_DONE);
		assert_int_equal(out[i].bytes, 32);
		assert_true(out[i].start > 0 && out[i].end >= out[i].start && !out[i].queued);
		assert_string_equal(out[i].algorithm, "tree");
	}
	comm_recorder_close(r);
}

static void messages_are_counted_by_peer(void **state)
{
	static struct record out[RECORDER_OPS];
	float data[4];
	struct comm_p2p list[] = { { true, { data }, 4, COMM_F32, 1 },
				   { false, { data }, 2, COMM_F32, 1 },
				   { true, { data }, 1, COMM_F32, 1 } };
	struct op op = { .kind = OP_P2P, .p2p = list, .n = 3 };
	struct recorder *r;
	(void)state;
	assert_int_equal(comm_recorder_open(2, &r, NULL), 0);
	go_through(r, op, 1, false);
	go_through(r, op, 2, false);
	assert_int_equal(comm_recorder_read(r, out), 2);
	assert_int_equal(out[1].listed, 3);
	assert_int_equal(out[1].bytes, 28);
	assert_true(out[1].message[2].send && out[1].message[2].nth == 4 &&
		    out[1].message[2].bytes == 4);
	assert_true(!out[1].message[1].send && out[1].message[1].nth == 2);
	comm_recorder_close(r);
}

/* There are more queued operations than the ring has room for. Those that have not ended keep their
 * place. */
static void queued_operations_are_not_overwritten(void **state)
{
	static struct record out[RECORDER_OPS];
	enum { QUEUED = RECORDER_OPS + 50 };
	struct recorder *r;
	uint64_t number[QUEUED];
	(void)state;
	assert_int_equal(comm_recorder_open(2, &r, NULL), 0);
	for (int i = 0; i < QUEUED; i++)
		number[i] = comm_recorder_queue(r, &reduction);
	assert_int_equal(comm_recorder_read(r, out), RECORDER_OPS);
	assert_int_equal(out[0].number, 1);
	assert_int_equal(out[0].state, RECORD_QUEUED);
	for (int i = 0; i < QUEUED; i++) {
		struct op op = reduction;
		op.record = number[i];
		go_through(r, op, (uint32_t)i + 1, false);
	}
	assert_int_equal(comm_recorder_read(r, out), RECORDER_OPS);
	assert_int_equal(out[RECORDER_OPS - 1].number, QUEUED);
	for (int i = 0; i < RECORDER_OPS; i++)
		assert_int_equal(out[i].state, RECORD_DONE);
	comm_recorder_close(r);
}

/* The ring has long lost the first of them. What ends before the tape or after it is not on it. */
static void a_tape_has_every_operation(void **state)
{
	enum { TAPED = 10 * RECORDER_OPS };
	struct recorder *r;
	int64_t lost;
	int n;
	(void)state;
	assert_int_equal(comm_recorder_open(2, &r, NULL), 0);
	for (int turn = 0; turn < 2; turn++) {
		uint32_t first = turn ? TAPED + 12 : 6, before = first - 5;
		for (uint32_t i = before; i < first; i++)
			go_through(r, reduction, i, false);
		comm_recorder_tape_start(r);
		for (uint32_t i = first; i < first + TAPED; i++)
			go_through(r, reduction, i, false);
		struct record *ops = comm_recorder_tape_stop(r, &n, &lost);
		go_through(r, reduction, first + TAPED, false);
		assert_int_equal(n, TAPED);
		assert_int_equal(lost, 0);
		for (uint32_t i = 0; i < TAPED; i++) {
			assert_int_equal(ops[i].seq, first + i);
			assert_int_equal(ops[i].state, RECORD_DONE);
			assert_true(ops[i].start > 0 && ops[i].end >= ops[i].start);
		}
		free(ops);
	}
	comm_recorder_close(r);
}

static void a_full_tape_counts_what_it_lost(void **state)
{
	struct recorder *r;
	int64_t lost;
	int n;
	(void)state;
	assert_int_equal(comm_recorder_open(2, &r, NULL), 0);
	comm_recorder_tape_start(r);
	for (uint32_t i = 1; i <= COMM_TAPE_OPS + 7; i++)
		go_through(r, reduction, i, false);
	struct record *ops = comm_recorder_tape_stop(r, &n, &lost);
	assert_int_equal(n, COMM_TAPE_OPS);
	assert_int_equal(lost, 7);
	assert_int_equal(ops[COMM_TAPE_OPS - 1].seq, COMM_TAPE_OPS);
	free(ops);
	comm_recorder_close(r);
}

struct pair {
	struct recorder *r;
	atomic_bool leave;
};

static void *write_on(void *arg)
{
	struct pair *p = arg;
	for (uint32_t i = 1; !atomic_load(&p->leave); i++) {
		struct op op = reduction;
		op.count = i; /* the fields that are read must match */
		go_through(p->r, op, i, false);
	}
	return NULL;
}

static void reading_meets_no_half_written_operation(void **state)
{
	static struct record out[RECORDER_OPS];
	struct pair p = { .leave = false };
	pthread_t writer;
	(void)state;
	assert_int_equal(comm_recorder_open(2, &p.r, NULL), 0);
	assert_int_equal(pthread_create(&writer, NULL, write_on, &p), 0);
	for (int times = 0; times < 300; times++)
		for (int i = 0, n = comm_recorder_read(p.r, out); i < n; i++) {
			assert_int_equal(out[i].seq, out[i].number);
			assert_int_equal(out[i].bytes, out[i].number * 8);
		}
	atomic_store(&p.leave, true);
	pthread_join(writer, NULL);
	comm_recorder_close(p.r);
}

/* Operations that the ring has lost are still counted: a rank that joined long ago is not
 * missed. */
static void operations_lost_from_the_ring_count_as_begun(void **state)
{
	float data[4];
	struct comm_p2p one = { true, { data }, 4, COMM_F32, 1 };
	struct op op = { .kind = OP_P2P, .p2p = &one, .n = 1 };
	struct recorder *r;
	uint32_t collectives, messages;
	(void)state;
	assert_int_equal(comm_recorder_open(2, &r, NULL), 0);
	go_through(r, reduction, 1, false);
	for (uint32_t i = 1; i <= 2 * RECORDER_OPS; i++)
		go_through(r, op, i, false);
	comm_recorder_counts(r, &collectives, &messages);
	assert_int_equal(collectives, 1);
	assert_int_equal(messages, 2 * RECORDER_OPS);
	comm_recorder_close(r);
}

/* --- Dumps of a world --- */

static void recorder_path(int rank, char out[RUN_PATH])
{
	run_path_recorder(out, dir, rank);
}

static int read_dump(struct trace *t, int rank, struct err *e)
{
	char path[RUN_PATH];
	struct buf text = BUF_INIT;
	recorder_path(rank, path);
	int rc = file_slurp(path, TRACE_FILE, &text, e);
	if (rc == 0)
		rc = comm_trace_add(t, text.data, text.len, path, e);
	buf_fini(&text);
	return rc;
}

static void *dump_on(void *arg)
{
	struct comm *w = arg;
	struct err e = ERR_INIT;
	char path[RUN_PATH];
	recorder_path(comm_rank(w), path);
	for (int i = 0; i < 50; i++)
		if (comm_dump(w, path, &e))
			return strdup(e.text);
	return NULL;
}

/* Runs blocking and asynchronous operations and opens and closes groups, while another thread
 * dumps. */
static int busy(struct comm *w, void *arg)
{
	pthread_t thread;
	void *failed;
	int64_t v[64] = { 0 };
	(void)arg;
	RANK_CHECK(pthread_create(&thread, NULL, dump_on, w) == 0, "no thread");
	for (int round = 0; round < 12; round++) {
		struct comm *g;
		struct comm_request *req[40];
		TAKEN(comm_split(w, comm_rank(w) % 2, 0, "a \"name\"\n", &g, &why));
		for (int i = 0; i < 40; i++)
			TAKEN(comm_all_reduce_start(g, v, v, 64, COMM_I64, COMM_SUM, &req[i],
						    &why));
		for (int i = 0; i < 40; i++)
			TAKEN(comm_wait(req[i], &why));
		struct comm_p2p ring[] = { { true, { v }, 8, COMM_I64, 1 - comm_rank(g) },
					   { false, { v + 8 }, 8, COMM_I64, 1 - comm_rank(g) } };
		TAKEN(comm_batch_send_recv(g, ring, 2, &why));
		TAKEN(comm_barrier(w, &why));
		if (round < 11)
			comm_close(g);
	}
	RANK_CHECK(pthread_join(thread, &failed) == 0 && !failed, "%s", (char *)failed);
	RANK_CHECK(!dump_on(w), "the last dump");
	return 0;
}

static void dumping_disturbs_nothing(void **state)
{
	struct ranks r = { .n = 4, .timeout_s = PATIENT_WAIT_S, .fn = busy };
	struct trace t = { 0 };
	struct diagnosis d;
	struct err e = ERR_INIT;
	(void)state;
	assert_int_equal(ranks_run(&r), 0);
	for (int rank = 0; rank < 4; rank++)
		if (read_dump(&t, rank, &e))
			fail_msg("%s", e.text);
	assert_int_equal(t.n, 3); /* the world and two halves */
	assert_int_equal(t.ranks[0].n, 2);
	assert_int_equal(t.ranks[0].parts[0].n, 41);
	/* the text is harmless on a terminal */
	assert_string_equal(t.ranks[0].parts[0].group->name, "a \"name\" ");
	assert_int_equal(comm_diagnose(&t, &d, &e), 0);
	assert_int_equal(d.finding, COMM_FINDING_NONE);
	comm_diagnosis_fini(&d);
	comm_trace_fini(&t);
}

/* The tape is taken from 2 groups. One of them is closed, and operations follow, before its text is made,
 * which happens while another thread could hold the world's lock: here it is this one. */
static int write_late(struct comm *w, void *arg)
{
	enum { TAPED = 300 };
	struct comm *g;
	struct comm_tape *tape;
	struct buf text = BUF_INIT;
	struct trace t = { 0 };
	int64_t v[2] = { 0 };
	(void)arg;
	TAKEN(comm_split(w, 0, 0, "closed", &g, &why));
	int64_t before = comm_ops_begun(w);
	comm_tape_start(w);
	for (int i = 0; i < TAPED; i++)
		TAKEN(comm_all_reduce(g, v, v, 2, COMM_I64, COMM_SUM, &why));
	TAKEN(comm_barrier(w, &why));
	RANK_CHECK(comm_ops_begun(w) - before == TAPED + 1, "%lld operations",
		   (long long)(comm_ops_begun(w) - before));
	TAKEN(comm_tape_stop(w, &tape, &why));
	RANK_CHECK(comm_tape_lost(tape) == 0, "operations are lost");
	comm_close(g);
	for (int i = 0; i < TAPED; i++)
		TAKEN(comm_barrier(w, &why));
	pthread_mutex_lock(&w->world->lock);
	TAKEN(comm_tape_write(tape, &text, &why));
	pthread_mutex_unlock(&w->world->lock);
	comm_tape_free(tape);
	TAKEN(comm_trace_add(&t, text.data, text.len, "the tape", &why));
	const struct trace_rank *own = &t.ranks[comm_rank(w)];
	RANK_CHECK(own->n == 2, "%d groups", own->n);
	for (int i = 0; i < 2; i++) {
		bool closed = !strcmp(own->parts[i].group->name, "closed");
		RANK_CHECK(own->parts[i].n == (closed ? TAPED : 1), "%s: %d operations",
			   own->parts[i].group->name, own->parts[i].n);
	}
	comm_trace_fini(&t);
	buf_fini(&text);
	return 0;
}

static void the_text_of_a_tape_needs_no_lock_and_no_group(void **state)
{
	struct ranks r = { .n = 2, .timeout_s = PATIENT_WAIT_S, .fn = write_late };
	(void)state;
	assert_int_equal(ranks_run(&r), 0);
}

static int dump_nowhere(struct comm *w, void *arg)
{
	struct err e = ERR_INIT;
	(void)arg;
	RANK_CHECK(comm_dump(w, "/nonexistent/dump.json", &e) < 0 && e.code == ERR_IO &&
			   strstr(e.text, "/nonexistent"),
		   "%s", e.text);
	return 0;
}

static void a_dump_that_cannot_be_written_is_an_error_of_its_own(void **state)
{
	struct ranks r = { .n = 1, .fn = dump_nowhere };
	(void)state;
	assert_int_equal(ranks_run(&r), 0);
}

/* --- Programs that are wrong on purpose --- */

static int other_op(struct comm *w, void *arg)
{
	float v[16] = { 0 }, out[64];
	struct err e = ERR_INIT;
	(void)arg;
	TAKEN(comm_barrier(w, &why));
	int rc = comm_rank(w) == 2 ? comm_all_gather(w, v, out, 16, COMM_F32, &e)
				   : comm_all_reduce(w, v, v, 16, COMM_F32, COMM_SUM, &e);
	RANK_CHECK(rc < 0, "two operations at once went well");
	return 0;
}

static int other_size(struct comm *w, void *arg)
{
	float v[16] = { 0 };
	struct err e = ERR_INIT;
	(void)arg;
	TAKEN(comm_barrier(w, &why));
	RANK_CHECK(comm_all_reduce(w, v, v, comm_rank(w) == 1 ? 15 : 16, COMM_F32, COMM_SUM, &e) <
			   0,
		   "two sizes at once went well");
	return 0;
}

/* Rank 3 calls the two in the other order. */
static int other_order(struct comm *w, void *arg)
{
	float v[16] = { 0 };
	struct err e = ERR_INIT;
	(void)arg;
	TAKEN(comm_barrier(w, &why));
	int rc = comm_rank(w) == 3 ? comm_broadcast(w, v, 16, COMM_F32, 0, &e)
				   : comm_all_reduce(w, v, v, 16, COMM_F32, COMM_SUM, &e);
	if (rc == 0)
		rc = comm_rank(w) == 3 ? comm_all_reduce(w, v, v, 16, COMM_F32, COMM_SUM, &e)
				       : comm_broadcast(w, v, 16, COMM_F32, 0, &e);
	RANK_CHECK(rc < 0, "two orders at once went well");
	return 0;
}

static int other_op_of_two(struct comm *w, void *arg)
{
	struct err e = ERR_INIT;
	float v = 0;
	(void)arg;
	int rc = comm_rank(w) ? comm_barrier(w, &e)
			      : comm_all_reduce(w, &v, &v, 1, COMM_F32, COMM_SUM, &e);
	RANK_CHECK(rc < 0 && e.code != ERR_USAGE, "two operations at once went well");
	return 0;
}

static int says_why(struct comm *w, void *arg)
{
	struct err e = ERR_INIT;
	(void)arg;
	comm_abort(w, "enough");
	RANK_CHECK(comm_barrier(w, &e) < 0 && e.code == ERR_ABORTED, "%s", e.text);
	RANK_CHECK(strstr(e.text, "enough") && strstr(e.text, "/dev/null/trace"), "%s", e.text);
	return 0;
}

/* Both have the same size: only the numbers would be wrong. */
static int sum_and_max(struct comm *w, void *arg)
{
	int64_t v = comm_rank(w);
	struct err e = ERR_INIT;
	(void)arg;
	RANK_CHECK(comm_all_reduce(w, &v, &v, 1, COMM_I64, comm_rank(w) ? COMM_MAX : COMM_SUM, &e) <
			   0,
		   "it went well");
	RANK_CHECK(e.code == ERR_PROTO || e.code == ERR_PEER, "%s", e.text);
	return 0;
}

static void another_reduction_is_refused_over_the_network(void **state)
{
	struct ranks r = {
		.n = 4, .timeout_s = PATIENT_WAIT_S, .backend = "tcp", .fn = sum_and_max
	};
	(void)state;
	assert_int_equal(ranks_run(&r), 0);
}

/* Rank 1 is busy elsewhere until the others have given up. */
static int one_missing(struct comm *w, void *arg)
{
	atomic_int *given_up = arg;
	float v[16] = { 0 };
	char path[RUN_PATH];
	struct err e = ERR_INIT;
	TAKEN(comm_barrier(w, &why));
	TAKEN(comm_all_reduce(w, v, v, 16, COMM_F32, COMM_SUM, &why));
	if (comm_rank(w) != 1) {
		ranks_hurry(w, 3);
		RANK_CHECK(comm_barrier(w, &e) < 0, "it went well without rank 1");
		atomic_fetch_add(given_up, 1);
		return 0;
	}
	while (atomic_load(given_up) < comm_size(w) - 1)
		usleep(1000);
	recorder_path(1, path);
	TAKEN(comm_dump(w, path, &why));
	return 0;
}

static int across_groups(struct comm *w, void *arg)
{
	struct comm *a, *b;
	struct err e = ERR_INIT;
	(void)arg;
	TAKEN(comm_split(w, 0, 0, "a", &a, &why));
	TAKEN(comm_split(w, 0, 0, "b", &b, &why));
	ranks_hurry(w, 3);
	RANK_CHECK(comm_barrier(comm_rank(w) ? a : b, &e) < 0 ||
			   comm_barrier(comm_rank(w) ? b : a, &e) < 0,
		   "it did not block");
	return 0;
}

/* clang-format off */
static const struct program {
	int (*fn)(struct comm *w, void *arg);
	int ranks;
	const char *begin, *end; /* of the sentence; the text between them may give a duration */
} programs[] = {
	{ other_op, 4, "group world: rank 2 called all_gather of 64 bytes as number 3 where ranks 0-1, 3 called all_reduce of 64 bytes", "" },
	{ other_size, 4, "group world: rank 1 called all_reduce of 60 bytes as number 3 where ranks 0, 2-3 called all_reduce of 64 bytes", "" },
	{ other_order, 4, "group world: rank 3 called broadcast of 64 bytes as number 3 where ranks 0-2 called all_reduce of 64 bytes", "" },
	{ one_missing, 4, "rank 1 (host-a) never reached barrier number 4 of group world; ranks 0, 2-3 have been waiting for it for ",
	  " s; its last operation was all_reduce number 3 of group world, done" },
	{ across_groups, 2, "ranks wait for each other: rank 0 in barrier number 1 of group b for rank 1, rank 1 in barrier number 1 of "
			    "group a for rank 0", "" },
};
/* clang-format on */

static void diagnose_program(const struct program *p, const char *backend)
{
	atomic_int *given_up = ranks_shared(sizeof *given_up);
	struct ranks r = { .n = p->ranks,
			   .timeout_s = PATIENT_WAIT_S,
			   .fn = p->fn,
			   .arg = given_up,
			   .backend = backend,
			   .dump_dir = dir };
	struct trace t = { 0 };
	struct diagnosis d;
	struct err e = ERR_INIT;
	assert_int_equal(ranks_run(&r), 0);
	for (int rank = 0; rank < p->ranks; rank++)
		if (read_dump(&t, rank, &e))
			fail_msg("%s", e.text);
	assert_int_equal(comm_diagnose(&t, &d, &e), 0);
	const char *text = buf_str(&d.text);
	/* Over messages, the world may fail before the last rank reaches its own call. The sentence
	 * then names fewer ranks. */
	if (d.finding == COMM_FINDING_MISMATCH && !strcmp(backend, "tcp")) {
		assert_true(!*p->end && d.op->seq == 3 && d.group->size == p->ranks);
		text = p->begin;
	}
	size_t begin = strlen(p->begin), end = strlen(p->end), n = strlen(text);
	if (n < begin + end || strncmp(text, p->begin, begin) || strcmp(text + n - end, p->end) ||
	    (!end && n != begin))
		fail_msg("%s: %s\nin place of\n%s … %s", backend, text, p->begin, p->end);
	comm_diagnosis_fini(&d);
	comm_trace_fini(&t);
	munmap(given_up, sizeof *given_up);
}

static void a_mismatched_program_is_diagnosed_in_one_sentence(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof programs / sizeof *programs; i++) {
		diagnose_program(&programs[i], "shm");
		diagnose_program(&programs[i], "tcp");
	}
}

static void dumps_are_private_and_leave_nothing_half(void **state)
{
	struct ranks r = {
		.n = 2, .timeout_s = PATIENT_WAIT_S, .fn = other_op_of_two, .dump_dir = dir
	};
	char path[RUN_PATH], command[300], left[8] = "";
	struct stat st;
	(void)state;
	assert_int_equal(ranks_run(&r), 0);
	recorder_path(0, path);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	snprintf(command, sizeof command, "ls %s | grep -vc '^comm-[0-9]*\\.json$'", dir);
	FILE *ls = popen(command, "r");
	assert_true(ls && fgets(left, sizeof left, ls));
	pclose(ls);
	assert_string_equal(left, "0\n");
}

static void a_folder_that_cannot_be_created_is_reported_with_the_error(void **state)
{
	struct ranks r = {
		.n = 2, .timeout_s = PATIENT_WAIT_S, .fn = says_why, .dump_dir = "/dev/null/trace"
	};
	(void)state;
	assert_int_equal(ranks_run(&r), 0);
}

static int make_dir(void **state)
{
	(void)state;
	return tmpdir_make(dir, sizeof dir) ? 0 : -1;
}

static int remove_dir(void **state)
{
	char command[300];
	(void)state;
	snprintf(command, sizeof command, "rm -rf '%s'", dir);
	return system(command);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_last_operations_are_kept),
		cmocka_unit_test(operations_lost_from_the_ring_count_as_begun),
		cmocka_unit_test(another_reduction_is_refused_over_the_network),
		cmocka_unit_test(messages_are_counted_by_peer),
		cmocka_unit_test(queued_operations_are_not_overwritten),
		cmocka_unit_test(a_tape_has_every_operation),
		cmocka_unit_test(a_full_tape_counts_what_it_lost),
		cmocka_unit_test(reading_meets_no_half_written_operation),
		cmocka_unit_test(dumping_disturbs_nothing),
		cmocka_unit_test(the_text_of_a_tape_needs_no_lock_and_no_group),
		cmocka_unit_test(a_dump_that_cannot_be_written_is_an_error_of_its_own),
		cmocka_unit_test(a_mismatched_program_is_diagnosed_in_one_sentence),
		cmocka_unit_test(dumps_are_private_and_leave_nothing_half),
		cmocka_unit_test(a_folder_that_cannot_be_created_is_reported_with_the_error),
	};
	return cmocka_run_group_tests_name("flight recorder", tests, make_dir, remove_dir);
}
