/*
 * Operations on a device's memory through the host give the same bytes as on the host, keep to the
 * caller's stream, and leave nothing behind. They run on a fake device that does everything late.
 */
#include "tests/unit/libcomm/fake_device.h"
#include "tests/unit/libcomm/ranks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { KINDS = 15, LARGEST = 300001, JUNK = 0x5a };

struct call {
	struct comm *c;
	int kind;
	bool in_place, start;
	size_t count;
	char *in, *out;
};

/* Bytes for a block of this many elements from each rank, plus a guard. */
static size_t room(int n, size_t count)
{
	return (size_t)(n + 1) * count * 4 + 64;
}

/* The number of elements of rank r in an uneven vector; some are 0. */
static size_t part(const struct call *t, int r)
{
	return t->count * (size_t)(r % 3) / 2;
}

static int messages(const struct call *t, struct comm_p2p ops[4])
{
	int n = comm_size(t->c), me = comm_rank(t->c), next = (me + 1) % n,
	    before = (me + n - 1) % n;
	size_t one = t->count * 4;
	ops[0] = (struct comm_p2p){ false, { t->out }, t->count, COMM_I32, before };
	ops[1] = (struct comm_p2p){ true, { t->in }, t->count, COMM_I32, next };
	ops[2] = (struct comm_p2p){ true, { t->in + one }, t->count / 3, COMM_I32, next };
	ops[3] = (struct comm_p2p){ false, { t->out + one }, t->count / 3, COMM_I32, before };
	return 4;
}

#define EITHER(op, ...) \
	(t->start ? comm_##op##_start(t->c, __VA_ARGS__, req, e) : comm_##op(t->c, __VA_ARGS__, e))

static int start_call(const struct call *t, struct comm_request **req, struct err *e)
{
	int n = comm_size(t->c), me = comm_rank(t->c), last = n - 1;
	size_t own = (size_t)me * t->count * 4, counts[RANKS_MAX], gives[RANKS_MAX],
	       takes[RANKS_MAX];
	const char *own_in = t->in_place ? t->out + own : t->in;
	struct comm_p2p ops[4];
	for (int r = 0; r < n; r++) {
		counts[r] = part(t, r);
		gives[r] = part(t, me + 2 * r);
		takes[r] = part(t, r + 2 * me);
	}
	switch (t->kind) {
	case 0:
		return EITHER(all_reduce, t->in_place ? t->out : t->in, t->out, t->count, COMM_F32,
			      COMM_SUM);
	case 1:
		return EITHER(reduce, t->in, me == last ? t->out : NULL, t->count, COMM_BF16,
			      COMM_AVG, last);
	case 2:
		return EITHER(broadcast, t->out, t->count, COMM_F32, last);
	case 3:
		return EITHER(all_gather, own_in, t->out, t->count, COMM_I32);
	case 4:
		return EITHER(all_gatherv, t->in, t->out, counts, COMM_U8);
	case 5:
		return EITHER(reduce_scatter, t->in, t->in_place ? t->in + own : t->out, t->count,
			      COMM_I32, COMM_MAX);
	case 6:
		return EITHER(reduce_scatterv, t->in, t->out, counts, COMM_F32, COMM_PROD);
	case 7:
		return EITHER(all_to_all, t->in, t->out, t->count, COMM_F32);
	case 8:
		return EITHER(all_to_allv, t->in, gives, t->out, takes, COMM_F32);
	case 9:
		return EITHER(gather, own_in, t->out, t->count, COMM_F32, 0);
	case 10:
		return EITHER(gatherv, t->in, t->out, counts, COMM_F32, last);
	case 11:
		return EITHER(scatter, t->in, t->in_place && me == 0 ? t->in : t->out, t->count,
			      COMM_F32, 0);
	case 12:
		return EITHER(scatterv, t->in, t->out, counts, COMM_F32, last);
	case 13:
		return EITHER(batch_send_recv, ops, messages(t, ops));
	}
	return t->start ? comm_barrier_start(t->c, req, e) : comm_barrier(t->c, e);
}

static void fill_data(char *data, size_t bytes, int rank, int kind)
{
	for (size_t i = 0; i + 4 <= bytes; i += 4) {
		float f = (float)((int)((i * 7 + (size_t)rank * 131 + (size_t)kind * 17) % 1009) -
				  504) /
			  64.0f;
		memcpy(data + i, &f, 4);
	}
}

struct pair { /* the same call on the host and on the device */
	struct call host, device;
	char *given, *result;
	void *stream;
	struct comm_request *req;
};

static int pair_open(struct pair *p, struct comm *world, struct comm *device, void *stream)
{
	size_t bytes = room(comm_size(world), LARGEST);
	*p = (struct pair){
		.host = { .c = world, .in = malloc(bytes), .out = malloc(bytes) },
		.device = { .c = device, .in = fake_memory(bytes), .out = fake_memory(bytes) },
		.given = malloc(2 * bytes),
		.result = malloc(2 * bytes),
		.stream = stream
	};
	return p->host.in && p->host.out && p->given && p->result ? 0 : 1;
}

static void pair_close(struct pair *p)
{
	free(p->host.in);
	free(p->host.out);
	free(p->given);
	free(p->result);
	fake_release(p->device.in);
	fake_release(p->device.out);
}

/* The stream writes the inputs late, and overwrites them late after the call. */
static int pair_begin(struct pair *p, int kind, bool in_place, bool start, size_t count)
{
	struct err e = ERR_INIT;
	int me = comm_rank(p->host.c);
	size_t bytes = room(comm_size(p->host.c), count);
	p->host.kind = p->device.kind = kind;
	p->host.in_place = p->device.in_place = in_place;
	p->host.count = p->device.count = count;
	p->device.start = start;
	fill_data(p->given, bytes, me, kind);
	fill_data(p->given + bytes, bytes, me, kind + 1);
	memcpy(p->host.in, p->given, bytes);
	memcpy(p->host.out, p->given + bytes, bytes);
	memset(p->device.in, JUNK, bytes);
	memset(p->device.out, JUNK, bytes);
	fake_kernel(p->device.in, p->given, bytes, p->stream);
	fake_kernel(p->device.out, p->given + bytes, bytes, p->stream);
	RANK_CHECK(start_call(&p->device, &p->req, &e) == 0, "kind %d, count %zu: %s", kind, count,
		   e.text);
	return 0;
}

static int pair_end(struct pair *p)
{
	struct err e = ERR_INIT;
	size_t bytes = room(comm_size(p->host.c), p->host.count);
	if (p->device.start)
		RANK_CHECK(comm_wait(p->req, &e) == 0, "%s", e.text);
	fake_kernel(p->result, p->device.in, bytes, p->stream);
	fake_kernel(p->result + bytes, p->device.out, bytes, p->stream);
	RANK_CHECK(start_call(&p->host, NULL, &e) == 0, "host: %s", e.text);
	fake_finish(p->stream);
	RANK_CHECK(!memcmp(p->result, p->host.in, bytes),
		   "kind %d of %zu elements, in place %d: its input differs", p->host.kind,
		   p->host.count, p->host.in_place);
	RANK_CHECK(!memcmp(p->result + bytes, p->host.out, bytes),
		   "kind %d of %zu elements, in place %d: its output differs", p->host.kind,
		   p->host.count, p->host.in_place);
	return 0;
}

static int open_device(struct comm *world, const char *backend, struct comm **out)
{
	struct err e = ERR_INIT;
	struct comm_device_options opt = { .device = &fake_device, .backend = backend };
	RANK_CHECK(comm_on_device(world, &opt, "device", out, &e) == 0, "%s", e.text);
	RANK_CHECK(!strcmp(comm_backend(*out), "staged"), "the backend is %s", comm_backend(*out));
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

static int same_bytes(struct comm *world, void *arg)
{
	static const size_t counts[] = { 0, 1, 3, 1027, LARGEST };
	struct comm *device;
	struct pair p;
	void *stream;
	struct err e = ERR_INIT;
	(void)arg;
	if (open_device(world, "staged", &device))
		return 1;
	fake_device.stream_open(NULL, &stream, &e);
	comm_stream(device, stream);
	RANK_CHECK(pair_open(&p, world, device, stream) == 0, "no memory");
	for (int i = 0; i < 5 * KINDS * 2; i++)
		if (pair_begin(&p, i / 2 % KINDS, i % 2, false, counts[i / (2 * KINDS)]) ||
		    pair_end(&p))
			return 1;
	RANK_CHECK(comm_sync(device, &e) == 0, "%s", e.text);
	pair_close(&p);
	fake_device.stream_close(NULL, stream);
	return nothing_left(device);
}

static void staged_results_equal_those_on_the_host(void **state)
{
	(void)state;
	static const struct ranks configs[] = {
		{ .n = 1 },
		{ .n = 2, .backend = "tcp" },
		{ .n = 4 },
		{ .n = 4, .hosts = "aabb" },
		{ .n = 3, .hosts = "aba" },
	};
	for (size_t i = 0; i < sizeof configs / sizeof *configs; i++) {
		struct ranks r = configs[i];
		r.timeout_s = PATIENT_WAIT_S;
		r.fn = same_bytes;
		fake_set_up(true);
		assert_int_equal(ranks_run(&r), 0);
	}
}

/* Runs operations on the world's two halves and on the whole world at once, several at a time. */
static int overlap(struct comm *world, void *arg)
{
	enum { GROUPS = 2, OPEN = 3, ROUNDS = 10 };
	struct comm *device, *half, *host_half;
	static struct pair p[GROUPS][OPEN];
	struct err e = ERR_INIT;
	int color = comm_rank(world) % 2;
	(void)arg;
	if (open_device(world, NULL, &device))
		return 1;
	RANK_CHECK(comm_split(device, color, 0, "half", &half, &e) == 0, "%s", e.text);
	RANK_CHECK(comm_split(world, color, 0, "half", &host_half, &e) == 0, "%s", e.text);
	RANK_CHECK(!strcmp(comm_backend(half), "staged"), "%s", comm_backend(half));
	for (int i = 0; i < OPEN; i++)
		RANK_CHECK(!pair_open(&p[0][i], world, device, NULL) &&
				   !pair_open(&p[1][i], host_half, half, NULL),
			   "no memory");
	for (int round = 0; round < ROUNDS; round++) {
		for (int i = 0; i < GROUPS * OPEN; i++)
			if (pair_begin(&p[i % GROUPS][i / GROUPS], (round * OPEN + i) % KINDS,
				       false, true, 1 + (size_t)i * 20011))
				return 1;
		RANK_CHECK(comm_barrier(device, &e) < 0 && e.code == ERR_USAGE,
			   "a blocking call between: %s", e.text);
		RANK_CHECK(comm_split(device, 0, 0, "x", &half, &e) < 0 && e.code == ERR_USAGE,
			   "a split between: %s", e.text);
		for (int i = 0; i < GROUPS * OPEN; i++)
			if (pair_end(&p[i % GROUPS][i / GROUPS]))
				return 1;
	}
	for (int i = 0; i < GROUPS * OPEN; i++)
		pair_close(&p[i % GROUPS][i / GROUPS]);
	comm_close(host_half);
	comm_close(half);
	return nothing_left(device);
}

static void groups_overlap(void **state)
{
	(void)state;
	struct ranks r = { .n = 4, .timeout_s = PATIENT_WAIT_S, .fn = overlap };
	fake_set_up(true);
	assert_int_equal(ranks_run(&r), 0);
	fake_set_up(true);
	r.hosts = "aaab";
	assert_int_equal(ranks_run(&r), 0);
}

/* Rank 2 dies between two operations. */
static int lose_one(struct comm *world, void *arg)
{
	struct comm *device;
	struct err e = ERR_INIT;
	(void)arg;
	if (open_device(world, "staged", &device))
		return 1;
	float *data = fake_memory(LARGEST * sizeof *data);
	RANK_CHECK(comm_all_reduce(device, data, data, LARGEST, COMM_F32, COMM_SUM, &e) == 0, "%s",
		   e.text);
	if (comm_rank(world) == 2)
		raise(SIGKILL);
	RANK_CHECK(comm_all_reduce(device, data, data, LARGEST, COMM_F32, COMM_SUM, &e) < 0 &&
			   e.code == ERR_PEER && strstr(e.text, "rank 2"),
		   "%s", e.text);
	RANK_CHECK(comm_sync(device, &e) < 0 && e.code == ERR_PEER, "%s", e.text);
	fake_release(data);
	return nothing_left(device);
}

static void a_death_is_reported(void **state)
{
	(void)state;
	struct ranks r = { .n = 4, .timeout_s = 0, .fn = lose_one };
	fake_set_up(true);
	ranks_start(&r);
	for (int i = 0; i < 4; i++)
		assert_int_equal(ranks_end(&r, i), i == 2 ? -SIGKILL : 0);
	munmap(r.board, sizeof *r.board);
}

static int want_library(struct comm *world, void *arg)
{
	struct comm *device;
	struct err e = ERR_INIT;
	struct comm_device_options opt = { .device = &fake_device, .backend = "nonsense" };
	(void)arg;
	RANK_CHECK(comm_on_device(world, &opt, "device", &device, &e) < 0 && e.code == ERR_USAGE &&
			   strstr(e.text, "auto, staged, fakes"),
		   "%s", e.text);
	opt.backend = "fakes";
	RANK_CHECK(comm_on_device(world, &opt, "device", &device, &e) < 0 &&
			   e.code == ERR_UNSUPPORTED &&
			   strstr(e.text, "two ranks share the device fake-0-0"),
		   "%s", e.text);
	RANK_CHECK(fake_open_things() == 0, "%d things of the device are still open",
		   fake_open_things());
	return 0;
}

static void ranks_that_share_a_device_cannot_use_the_library(void **state)
{
	(void)state;
	struct ranks r = { .n = 2, .timeout_s = PATIENT_WAIT_S, .fn = want_library };
	fake_set_up(true);
	assert_int_equal(ranks_run(&r), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(staged_results_equal_those_on_the_host),
		cmocka_unit_test(groups_overlap),
		cmocka_unit_test(a_death_is_reported),
		cmocka_unit_test(ranks_that_share_a_device_cannot_use_the_library),
	};
	return cmocka_run_group_tests_name("comm on device memory, staged", tests, NULL, NULL);
}
