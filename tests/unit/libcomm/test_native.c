/*
 * Operations by the device's own library, on a fake device whose library does everything late and
 * waits for ever. libcomm must choose the library if each rank has a device, keep to the order of
 * the caller's stream, and never hang. It must name a rank that is late or dead, whatever the
 * library reports.
 */
#include "base/clock.h"
#include "tests/unit/libcomm/fake_device.h"
#include "tests/unit/libcomm/ranks.h"
#include "tests/unit/libcomm/ranks_hurry.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { COUNT = 1000 };

static int open_device(struct comm *world, const char *backend, struct comm **out)
{
	struct err e = ERR_INIT;
	struct comm_device_options opt = { .device = &fake_device, .backend = backend };
	RANK_CHECK(comm_on_device(world, &opt, "device", out, &e) == 0, "%s", e.text);
	return 0;
}

static int open_library(struct comm *world, struct comm **out)
{
	if (open_device(world, NULL, out))
		return 1;
	RANK_CHECK(!strcmp(comm_backend(*out), "fakes"), "the backend is %s", comm_backend(*out));
	return 0;
}

static int nothing_left(struct comm *device)
{
	comm_close(device);
	RANK_CHECK(fake_misuse() == 0, "the device was misused %d times", fake_misuse());
	RANK_CHECK(fake_open_things() == 0, "%d things of the device are still open",
		   fake_open_things());
	return 0;
}

/* --- Without faults --- */

struct data {
	int64_t *in, *out;                       /* the device's */
	int64_t given[COUNT], result[8 * COUNT]; /* the host's */
	int round;
	struct comm_request *req;
};

static void data_open(struct data *d)
{
	d->in = fake_memory(COUNT * sizeof *d->in);
	d->out = fake_memory(8 * COUNT * sizeof *d->out);
}

static void data_close(struct data *d)
{
	fake_release(d->in);
	fake_release(d->out);
}

/* The input comes late, the output is fetched late, and the input is overwritten late. */
static int data_begin(struct data *d, struct comm *c, int round, bool start)
{
	struct err e = ERR_INIT;
	for (int i = 0; i < COUNT; i++)
		d->given[i] = round * 1000 + comm_rank(c) * 7 + i;
	d->round = round;
	d->req = NULL;
	fake_kernel(d->in, d->given, sizeof d->given, NULL);
	struct comm_part parts[] = { { d->in, d->out, COUNT / 2 },
				     { d->in + COUNT / 2, d->out + COUNT / 2, COUNT - COUNT / 2 } };
	int rc = !start ? round % 2
				  ? comm_all_reduce(c, d->in, d->out, COUNT, COMM_I64, COMM_SUM, &e)
				  : comm_all_gather(c, d->in, d->out, COUNT, COMM_I64, &e)
		 : round % 2
			 ? comm_all_reduce_coalesced_start(c, parts, 2, COMM_I64, COMM_SUM, &d->req,
							   &e)
			 : comm_all_gather_start(c, d->in, d->out, COUNT, COMM_I64, &d->req, &e);
	RANK_CHECK(rc == 0, "round %d: %s", round, e.text);
	return 0;
}

static int data_fetch(struct data *d)
{
	static const int64_t junk[COUNT];
	struct err e = ERR_INIT;
	RANK_CHECK(comm_wait(d->req, &e) == 0, "round %d: %s", d->round, e.text);
	fake_kernel(d->result, d->out, sizeof d->result, NULL);
	fake_kernel(d->in, junk, sizeof junk, NULL);
	return 0;
}

static int data_check(const struct data *d, struct comm *c)
{
	int n = comm_size(c);
	for (int i = 0; i < COUNT; i++)
		for (int r = 0; r < n; r++) {
			int64_t base = d->round * 1000 + i;
			int64_t want = d->round % 2 ? n * base + 7 * n * (n - 1) / 2 : base + r * 7;
			int64_t got = d->result[d->round % 2 ? i : r * COUNT + i];
			RANK_CHECK(got == want, "round %d, element %d of rank %d: %lld, not %lld",
				   d->round, i, r, (long long)got, (long long)want);
		}
	return 0;
}

static int sums_and_splits(struct comm *world, void *arg)
{
	enum { ROUNDS = 200, OPEN = 4 };
	struct comm *c[3];
	static struct data d[3][OPEN];
	struct err e = ERR_INIT;
	int me = comm_rank(world);
	(void)arg;
	if (open_library(world, &c[0]))
		return 1;
	RANK_CHECK(comm_split(c[0], me % 2, -me, "half", &c[1], &e) == 0, "%s", e.text);
	RANK_CHECK(comm_split(c[0], me == 1 ? -1 : 0, 0, "rest", &c[2], &e) == 0, "%s", e.text);
	RANK_CHECK(!c[2] == (me == 1), "a negative color has a group");
	RANK_CHECK(!strcmp(comm_backend(c[1]), "fakes"), "%s", comm_backend(c[1]));
	for (int i = 0; i < 3 * OPEN; i++)
		data_open(&d[i % 3][i / 3]);
	for (int round = 0; round < ROUNDS; round += OPEN)
		for (int stage = 0; stage < 3; stage++) {
			for (int i = 0; i < 3 * OPEN; i++) {
				struct comm *group = c[i % 3];
				struct data *at = &d[i % 3][i / 3];
				if (group && (stage == 0   ? data_begin(at, group, round + i / 3,
									round / OPEN % 2)
					      : stage == 1 ? data_fetch(at)
							   : data_check(at, group)))
					return 1;
			}
			if (stage == 1)
				fake_finish(NULL);
		}
	for (int g = 0; g < 3; g++)
		RANK_CHECK(!c[g] || (comm_barrier(c[g], &e) == 0 && comm_sync(c[g], &e) == 0), "%s",
			   e.text);
	for (int i = 0; i < 3 * OPEN; i++)
		data_close(&d[i % 3][i / 3]);
	comm_close(c[1]);
	comm_close(c[2]);
	return nothing_left(c[0]);
}

static void the_library_keeps_to_the_stream(void **state)
{
	(void)state;
	struct ranks r = { .n = 4, .timeout_s = PATIENT_WAIT_S, .fn = sums_and_splits };
	fake_set_up(false);
	assert_int_equal(ranks_run(&r), 0);
	r.hosts = "aabc";
	fake_set_up(false);
	assert_int_equal(ranks_run(&r), 0);
}

static int lacks_the_library(struct comm *world, void *arg)
{
	struct comm *device;
	struct err e = ERR_INIT;
	struct comm_device_options opt = { .device = &fake_device, .backend = "fakes" };
	(void)arg;
	if (comm_rank(world) == 1)
		fake_set_fault(FAKE_NO_LIBRARY);
	if (open_device(world, NULL, &device))
		return 1;
	RANK_CHECK(!strcmp(comm_backend(device), "staged"), "the backend is %s",
		   comm_backend(device));
	RANK_CHECK(comm_on_device(world, &opt, "device", &device, &e) < 0 &&
			   e.code == ERR_UNSUPPORTED && strstr(e.text, "rank 1"),
		   "%s", e.text);
	RANK_CHECK(comm_rank(world) != 1 || strstr(e.text, "there is no libfakes.so"), "%s",
		   e.text);
	return 0;
}

static void one_rank_without_the_library_is_enough_for_staged(void **state)
{
	(void)state;
	struct ranks r = { .n = 3, .timeout_s = PATIENT_WAIT_S, .fn = lacks_the_library };
	fake_set_up(false);
	assert_int_equal(ranks_run(&r), 0);
}

/* --- Faults --- */

enum fault_case { NEVER_COMES, NEVER_COMES_ASYNC, DIES, DIES_EARLY, LIBRARY_FAILS, ABORTS, CLOSES };

struct scene {
	enum fault_case what;
	int culprit;
	const char *hosts;
	double timeout_s;
	enum err_code code;
	const char *text; /* the text of the others' errors */
};

static _Atomic int *cause_known; /* ranks that have seen the error; shared by all */

static void *abort_soon(void *arg)
{
	usleep(20000);
	comm_abort(arg, "enough");
	return NULL;
}

/* The culprit runs this instead of the second operation. */
static int misbehave(struct comm *world, struct comm *device, const struct scene *s)
{
	struct err e = ERR_INIT;
	int64_t *data = fake_memory(sizeof *data);
	switch (s->what) {
	case DIES:
	case DIES_EARLY:
		raise(SIGKILL);
		break;
	case CLOSES:
		fake_release(data);
		return nothing_left(device);
	case LIBRARY_FAILS:
		fake_set_fault(FAKE_LIBRARY_FAILS);
		RANK_CHECK(comm_all_reduce(device, data, data, 1, COMM_I64, COMM_SUM, &e) < 0 ||
				   comm_sync(device, &e) < 0,
			   "no error");
		RANK_CHECK(e.code == ERR_NET && strstr(e.text, "the cable is out"), "%s", e.text);
		fake_set_fault(FAKE_SOUND);
		return 0;
	case ABORTS:
	case NEVER_COMES:
	case NEVER_COMES_ASYNC:
		/* It learns of the fault at its next call. */
		while (atomic_load(cause_known) < comm_size(world) - 1)
			usleep(1000);
		RANK_CHECK(comm_all_reduce(device, data, data, 1, COMM_I64, COMM_SUM, &e) < 0 ||
				   comm_sync(device, &e) < 0,
			   "no error");
		RANK_CHECK(e.code == ERR_PEER && strstr(e.text, "gave up"), "%s", e.text);
		return 0;
	}
	return 0;
}

static int suffer(struct comm *world, struct comm *device, const struct scene *s)
{
	struct err e = ERR_INIT;
	int64_t *data = fake_memory(sizeof *data);
	struct comm_request *req = NULL;
	const int64_t before = clock_ns();
	pthread_t thread;
	if (s->what == ABORTS)
		pthread_create(&thread, NULL, abort_soon, world);
	int rc = s->what == NEVER_COMES_ASYNC
			 ? comm_all_reduce_start(device, data, data, 1, COMM_I64, COMM_SUM, &req,
						 &e)
			 : comm_all_reduce(device, data, data, 1, COMM_I64, COMM_SUM, &e);
	if (req && rc == 0)
		rc = comm_wait(req, &e);
	if (rc == 0)
		rc = comm_sync(device, &e);
	atomic_fetch_add(cause_known, 1);
	if (s->what == ABORTS)
		pthread_join(thread, NULL);
	RANK_CHECK(rc < 0, "rank %d has no error", comm_rank(world));
	/* The rank saw the fault itself, or learned it from the first rank that did. */
	RANK_CHECK((e.code == s->code || (e.code == ERR_PEER && strstr(e.text, "gave up"))) &&
			   strstr(e.text, s->text) &&
			   (s->what == ABORTS || strstr(e.text, "group device")),
		   "rank %d: %s: %s", comm_rank(world), err_word(e.code), e.text);
	/* not by the limit of silence, which is a minute */
	RANK_CHECK(s->timeout_s > 0 || clock_ns() - before < INT64_C(50000000000), "it took %g s",
		   (double)(clock_ns() - before) / 1e9);
	RANK_CHECK(comm_all_reduce(device, data, data, 1, COMM_I64, COMM_SUM, &e) < 0 &&
			   strstr(e.text, s->text),
		   "%s", e.text);
	RANK_CHECK(comm_sync(device, &e) < 0 && comm_barrier(world, &e) < 0, "the world goes on");
	fake_release(data);
	return nothing_left(device);
}

static int play(struct comm *world, void *arg)
{
	const struct scene *s = arg;
	struct comm *device;
	struct err e = ERR_INIT;
	bool culprit = comm_rank(world) == s->culprit;
	if (culprit && s->what == DIES_EARLY)
		fake_set_fault(FAKE_LIBRARY_FAILS); /* when its communicator begins */
	if (s->what != DIES_EARLY) {
		if (open_library(world, &device))
			return 1;
		RANK_CHECK(comm_barrier(device, &e) == 0 && comm_sync(device, &e) == 0 &&
				   comm_barrier(world, &e) == 0,
			   "%s", e.text); /* all have finished the first one */
		ranks_hurry(world, s->timeout_s);
		return culprit ? misbehave(world, device, s) : suffer(world, device, s);
	}
	struct comm_device_options opt = { .device = &fake_device };
	int rc = comm_on_device(world, &opt, "device", &device, &e);
	if (rc == 0) { /* before the culprit failed */
		rc = comm_barrier(world, &e);
		comm_close(device);
	}
	RANK_CHECK(rc < 0, "opened without rank %d", s->culprit);
	RANK_CHECK(strstr(e.text, s->text), "%s", e.text);
	RANK_CHECK(fake_open_things() == 0, "%d things of the device are still open",
		   fake_open_things());
	return 0;
}

static void every_fault_names_its_rank(void **state)
{
	(void)state;
	static const struct scene scenes[] = {
		{ NEVER_COMES, 2, NULL, 2, ERR_TIMEOUT, "rank 2 (world rank 2" },
		{ NEVER_COMES_ASYNC, 0, NULL, 2, ERR_TIMEOUT, "rank 0 (world rank 0" },
		{ DIES, 1, NULL, 0, ERR_PEER, "rank 1 (world rank 1" },
		{ DIES, 3, NULL, PATIENT_WAIT_S, ERR_PEER, "has died" },
		{ DIES_EARLY, 1, NULL, 0, ERR_NET, "the cable is out" },
		{ LIBRARY_FAILS, 1, NULL, 0, ERR_PEER, "the cable is out" },
		{ ABORTS, 0, NULL, 0, ERR_ABORTED, "enough" },
		{ CLOSES, 3, NULL, 0, ERR_PEER, "rank 3" },
	};
	for (size_t i = 0; i < sizeof scenes / sizeof *scenes; i++) {
		struct scene s = scenes[i];
		cause_known = ranks_shared(sizeof *cause_known);
		struct ranks r = {
			.n = 4, .hosts = s.hosts, .timeout_s = PATIENT_WAIT_S, .fn = play, .arg = &s
		};
		fake_set_up(false);
		ranks_start(&r);
		for (int k = 0; k < r.n; k++) {
			int rc = ranks_end(&r, k);
			if (rc != (s.what == DIES && k == s.culprit ? -SIGKILL : 0))
				fail_msg("scene %zu: rank %d ended with %d", i, k, rc);
		}
		munmap(r.board, sizeof *r.board);
		munmap(cause_known, sizeof *cause_known);
	}
}

/* An operation that no peer ever joins does not delay a close. */
static int leave_one_open(struct comm *world, void *arg)
{
	struct comm *device;
	struct err e = ERR_INIT;
	(void)arg;
	if (open_library(world, &device))
		return 1;
	int64_t *data = fake_memory(sizeof *data);
	RANK_CHECK(comm_rank(world) == 1 ||
			   comm_all_reduce(device, data, data, 1, COMM_I64, COMM_SUM, &e) == 0,
		   "%s", e.text);
	return 0; /* the operation owns the data until the world is closed */
}

static void closing_ends_operations_in_progress(void **state)
{
	(void)state;
	struct ranks r = { .n = 2, .timeout_s = 0, .fn = leave_one_open };
	fake_set_up(false);
	assert_int_equal(ranks_run(&r), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_library_keeps_to_the_stream),
		cmocka_unit_test(one_rank_without_the_library_is_enough_for_staged),
		cmocka_unit_test(every_fault_names_its_rank),
		cmocka_unit_test(closing_ends_operations_in_progress),
	};
	return cmocka_run_group_tests_name("comm on device memory, the device's library", tests,
					   NULL, NULL);
}
