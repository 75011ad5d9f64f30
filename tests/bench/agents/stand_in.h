/* stand_in — the process that holds the connections of many agents (agents.h). */
#ifndef MUSTER_TESTS_BENCH_AGENTS_STAND_IN_H
#define MUSTER_TESTS_BENCH_AGENTS_STAND_IN_H

#include "base/auth.h"

#include <stdbool.h>
#include <stdint.h>

struct agent {
	int fd; /* -1: it has ended */
	struct channel *channel;
	int started_as, rank;
	int node;           /* by its number in the plan */
	int leader;         /* the first rank of its node, which reports for it */
	int64_t generation; /* of its last welcome */
	int at[3];          /* its coordinates: dp, tp, pp */
	bool welcome, mute, ends /* it has said that it has finished */, shut, writing;
	/* times: of the next message progress, of the next message times, and of the next window */
	double beat, next_times, next_window;
	double ready_at;
	int64_t windows; /* that it has reported */
	int64_t sent;    /* messages */
};

struct stand_in {
	struct agent *agents;
	int n, left, world;
	int epoll, commands /* -1: it takes none */;
	const char *dir;
	uint32_t generation;
	unsigned char secret[AUTH_SECRET_BYTES];
	double heartbeat_s;
	bool each; /* AGENTS_EACH */
	/* the agents in the order of their next messages progress: a ring of n + 1 */
	struct agent **queue;
	int first, end;
	int64_t step; /* finished steps of the run */
	double next_step, next_count;
};

/* agent.c */
/* Queues the first message of the agent, on a new connection. */
void agent_hello(const struct stand_in *s, struct agent *a);
/* Answers a message of the supervisor. False: the agent must leave. */
bool agent_take(struct stand_in *s, struct agent *a, const struct msg *m, double now);
/* Its message progress, and the times if they are due, and what its node and its links showed if a window is over. */
void agent_progress(const struct stand_in *s, struct agent *a, double now);
/* The same of all these agents in one message of the relay. */
void agent_node_progress(const struct stand_in *s, struct agent *relay, struct agent *const *node,
			 int n, double now);
/* A step of the run is finished. */
void agent_step(const struct stand_in *s, struct agent *a);
/* A rank of one of its groups has closed its connections. */
void agent_blame(struct agent *a, int rank);
bool agent_shares_group(const struct agent *a, const struct agent *b);

/* stand_in.c */
/* The agent sends the message progress every heartbeat from now on. */
void stand_in_beat(struct stand_in *s, struct agent *a, double now);

#endif
