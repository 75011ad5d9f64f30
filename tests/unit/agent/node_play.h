/* node_play — the relay of a node and the ranks that report to it, in one process, and in a time that a test
 * sets. */
#ifndef MUSTER_TESTS_UNIT_AGENT_NODE_PLAY_H
#define MUSTER_TESTS_UNIT_AGENT_NODE_PLAY_H

#include "agent/node_member.h"
#include "agent/node_packet.h"
#include "agent/node_relay.h"
#include "base/auth.h"
#include "base/rank_rows.h"
#include "tests/unit/patience.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

enum { LEADER = 4, FIRST = 5, SECOND = 7, WORLD = 8 };

static const double heartbeat_s = 0.5;

static struct {
	char secret[AUTH_SECRET_HEX];
	struct node_relay *relay;
	struct node_member *first, *second;
	double now;
	json_t *body; /* of the last message */
} t;

/* --- what a test does --------------------------------------------------------------------------- */

static inline struct msg_welcome welcome_of(int rank)
{
	struct msg_welcome w = { .rank = rank,
				 .world = WORLD,
				 .leader = LEADER,
				 .node_ranks = 3,
				 .heartbeat_s = heartbeat_s,
				 .silent_s = 15,
				 .group_secret = t.secret };
	return w;
}

static inline int open_relay_with(json_t *here, struct err *e)
{
	struct msg_welcome w = welcome_of(LEADER);
	w.here = here;
	w.has_here = true;
	int rc = agent_node_relay_open(&w, &t.relay, e);
	json_decref(here);
	return rc;
}

static inline void open_relay(void)
{
	assert_int_equal(open_relay_with(json_pack("[i, i, i]", LEADER, FIRST, SECOND), NULL), 0);
	assert_non_null(t.relay);
}

static inline struct node_member *open_member(int rank)
{
	struct node_member *m;
	struct msg_welcome w = welcome_of(rank);
	assert_int_equal(agent_node_member_open(&w, &m, NULL), 0);
	assert_non_null(m);
	return m;
}

static inline bool report_with(struct node_member *m, int64_t step, const struct train_times *times)
{
	const struct msg_progress p = {
		.step = step, .phase = "forward", .count = 10 * step, .done = step, .own_s = 0.25
	};
	return agent_node_member_report(m, &p, times, t.now);
}

static inline bool report(struct node_member *m, int64_t step)
{
	return report_with(m, step, NULL);
}

/* The relay looks, and hands on what has come. Returns how many ranks have a row. */
static inline int hand_on(void)
{
	const struct node_own own = { .progress = { .step = 1, .phase = "backward" } };
	json_decref(t.body);
	t.body = NULL;
	if (!agent_node_relay_take(t.relay))
		return 0;
	t.body = agent_node_relay_body(t.relay, &own);
	agent_node_relay_acknowledge(t.relay);
	return (int)json_array_size(json_object_get(t.body, "progress"));
}

/* The step that the last message has of a rank; -2: it has no row of it. */
static inline int64_t step_of(int rank)
{
	size_t i;
	json_t *row;
	json_array_foreach(json_object_get(t.body, "progress"), i, row)
	{
		struct msg_progress m;
		int of;
		assert_int_equal(msg_progress_row_read(row, &of, &m, NULL), 0);
		if (of == rank)
			return m.step;
	}
	return -2;
}

static inline int count_times(void)
{
	return (int)json_array_size(json_object_get(t.body, "times"));
}

static inline bool look(struct node_member *m)
{
	return agent_node_member_look(m, t.now);
}

/* The relay hands on what the member reports. */
static inline void join(struct node_member *m, int64_t step)
{
	assert_false(look(m));
	hand_on(); /* accepts it */
	assert_true(report(m, step));
	assert_int_equal(hand_on(), 2);
	assert_true(look(m));
}

static inline int setup(void **state)
{
	unsigned char secret[AUTH_SECRET_BYTES];
	(void)state;
	memset(&t, 0, sizeof t);
	t.now = 1000;
	auth_secret_new(secret);
	auth_secret_hex(secret, t.secret);
	t.first = open_member(FIRST);
	t.second = open_member(SECOND);
	return 0;
}

static inline int teardown(void **state)
{
	(void)state;
	agent_node_relay_close(t.relay);
	agent_node_member_close(t.first);
	agent_node_member_close(t.second);
	json_decref(t.body);
	return 0;
}

#endif
