/* Messages are distributed over the lanes of a link, and reassembled. */
#include "libcomm/p2p/exchange.h"
#include "libcomm/p2p/lanes.h"

#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { LANES = 3, MESSAGES = 40, ROOM = 64 << 10 };

static unsigned seed;

static size_t chance(size_t below)
{
	seed = seed * 1103515245u + 12345u;
	return (seed >> 8) % below;
}

static const size_t sizes[] = { 0,
				1,
				1000,
				LANE_WHOLE,
				LANE_WHOLE + 1,
				3 * LANE_STRIPE - 1,
				3 * LANE_STRIPE,
				3 * LANE_STRIPE + 1,
				7 * LANE_STRIPE + 77,
				1 << 20 };

enum { SIZES = sizeof sizes / sizeof *sizes };

static void every_byte_goes_over_one_lane(void **state)
{
	(void)state;
	for (int lanes = 1; lanes <= 5; lanes++)
		for (int s = 0; s < SIZES; s++) {
			size_t bytes = sizes[s], total = 0;
			char *data = calloc(1, bytes + 1);
			for (int lane = 0; lane < lanes; lane++) {
				size_t share = comm_lane_share(bytes, lanes, lane), done = 0;
				while (done < share) {
					struct iovec v[3];
					int n = comm_lane_pieces(data, bytes, lanes, lane, done, v,
								 3);
					assert_true(n > 0);
					/* a transfer resumes where it stopped, whatever the cut */
					size_t take = 1 + chance(v[0].iov_len);
					char *at = v[0].iov_base;
					assert_true(at >= data && at + take <= data + bytes);
					for (size_t i = 0; i < take; i++)
						at[i]++;
					done += take;
				}
				assert_int_equal(comm_lane_pieces(data, bytes, lanes, lane, done,
								  NULL, 3),
						 0);
				total += share;
			}
			assert_int_equal(total, bytes);
			for (size_t i = 0; i < bytes; i++)
				assert_int_equal(data[i], 1);
			free(data);
		}
}

static void short_messages_stay_on_the_first_lane(void **state)
{
	(void)state;
	assert_int_equal(comm_lane_share(LANE_WHOLE, LANES, 0), LANE_WHOLE);
	assert_int_equal(comm_lane_share(LANE_WHOLE, LANES, 1), 0);
	assert_true(comm_lane_share(LANE_WHOLE + 1, LANES, 1) > 0);
}

/* A link to itself: data that is written to a lane comes back on it, in random amounts. */
static struct pipe_lane {
	char data[ROOM];
	size_t head, tail;
} pipes[LANES];

static ssize_t pipe_put(struct endpoint *ep, int lane, struct iovec *v, int n, struct err *e)
{
	(void)ep;
	(void)e;
	struct pipe_lane *p = &pipes[lane];
	size_t room = chance(ROOM - (p->head - p->tail) + 1), put = 0;
	for (int i = 0; i < n; i++)
		for (size_t j = 0; j < v[i].iov_len && put < room; j++, put++)
			p->data[p->head++ % ROOM] = ((char *)v[i].iov_base)[j];
	return (ssize_t)put;
}

static ssize_t pipe_get(struct endpoint *ep, int lane, struct iovec *v, int n, struct err *e)
{
	(void)ep;
	(void)e;
	struct pipe_lane *p = &pipes[lane];
	size_t here = chance(p->head - p->tail + 1), got = 0;
	for (int i = 0; i < n; i++)
		for (size_t j = 0; j < v[i].iov_len && got < here; j++, got++)
			((char *)v[i].iov_base)[j] = p->data[p->tail++ % ROOM];
	return (ssize_t)got;
}

static const struct transport_ops pipe_ops = { .put = pipe_put, .get = pipe_get };

struct loop { /* rank 0 of two; rank 1 sends back what it gets */
	struct world world;
	struct comm comm;
	struct endpoint endpoints[2];
	struct lane self, lanes[LANES];
};

static void loop_open(struct loop *o)
{
	memset(pipes, 0, sizeof pipes);
	memset(o, 0, sizeof *o);
	o->world.spins = INT_MAX; /* it never sleeps: the pipes move data in the end */
	o->comm = (struct comm){
		.world = &o->world, .size = 2, .wakeup = WAKEUP_NONE, .endpoints = o->endpoints
	};
	o->self.out.at = o->self.in.at = -1;
	o->endpoints[0] = (struct endpoint){ .c = &o->comm,
					     .lanes = 1,
					     .lane = &o->self,
					     .out_tail = -1,
					     .in_tail = -1,
					     .rendezvous.oldest = -1 };
	o->endpoints[1] = (struct endpoint){ .ops = &pipe_ops,
					     .c = &o->comm,
					     .peer = 1,
					     .lanes = LANES,
					     .lane = o->lanes,
					     .out_tail = -1,
					     .in_tail = -1,
					     .rendezvous.oldest = -1 };
	for (int k = 0; k < LANES; k++)
		o->lanes[k].out.at = o->lanes[k].in.at = -1;
}

static void messages_arrive_whole_and_in_order(void **state)
{
	(void)state;
	const struct op op = { .kind = OP_P2P };
	for (seed = 1; seed <= 6; seed++) {
		struct loop o;
		struct err e = ERR_INIT;
		char *in[MESSAGES], *out[MESSAGES];
		size_t bytes[MESSAGES], total = 0;
		unsigned kept = seed;
		loop_open(&o);
		comm_exchange_begin(&o.comm);
		for (int i = 0; i < MESSAGES; i++) {
			total += bytes[i] = sizes[chance(SIZES)];
			in[i] = malloc(bytes[i] + 1);
			out[i] = calloc(1, bytes[i] + 1);
			for (size_t j = 0; j < bytes[i]; j++)
				in[i][j] = (char)chance(256);
			assert_int_equal(comm_exchange_send(&o.comm, &op, 1, in[i], bytes[i], &e),
					 0);
			assert_int_equal(comm_exchange_recv(&o.comm, &op, 1, out[i], bytes[i], &e),
					 0);
		}
		assert_int_equal(comm_exchange_run(&o.comm, &e), 0);
		assert_int_equal(atomic_load(&o.comm.sent), total);
		for (int i = 0; i < MESSAGES; i++) {
			assert_memory_equal(in[i], out[i], bytes[i]);
			free(in[i]);
			free(out[i]);
		}
		for (int k = 0; k < LANES; k++)
			assert_int_equal(pipes[k].head, pipes[k].tail);
		free(o.comm.exchange.transfers);
		seed = kept;
	}
}

static void an_unexpected_size_is_an_error(void **state)
{
	(void)state;
	const struct op op = { .kind = OP_P2P };
	static char in[4 * LANE_STRIPE], out[5 * LANE_STRIPE];
	struct peer peers[2] = { { .host = "a" }, { .host = "a" } };
	int members[2] = { 0, 1 };
	struct loop o;
	struct err e = ERR_INIT;
	loop_open(&o);
	o.world.peers = peers;
	o.comm.members = members;
	comm_exchange_begin(&o.comm);
	assert_int_equal(comm_exchange_send(&o.comm, &op, 1, in, sizeof in, &e), 0);
	assert_int_equal(comm_exchange_recv(&o.comm, &op, 1, out, sizeof out, &e), 0);
	assert_int_equal(comm_exchange_run(&o.comm, &e), -1);
	assert_int_equal(e.code, ERR_PROTO);
	free(o.comm.exchange.transfers);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_byte_goes_over_one_lane),
		cmocka_unit_test(short_messages_stay_on_the_first_lane),
		cmocka_unit_test(messages_arrive_whole_and_in_order),
		cmocka_unit_test(an_unexpected_size_is_an_error),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
