/*
 * heartbeat — how often the agents of a generation send the message progress.
 *
 * An agent that ends is seen at once, because its connection closes. Heartbeats find what closes
 * nothing: a node that is gone, a process that is stopped, a rank that hangs. Their limits are many
 * seconds (restart.silent_timeout, hang_timeout). Each heartbeat that a rank sends itself costs the one
 * thread of the supervisor some 10 µs, so in a large world each rank sends fewer of them: all ranks together
 * send limits.heartbeats per second, but each rank sends at least HEARTBEATS_SILENT in the time after which a
 * silent rank counts as lost. By the default limits:
 *
 *     ranks                     up to 2,000   4,000   8,000   10,000 and more
 *     seconds between two of a rank   0.5       1       2       2.5
 *
 * As long as the first rank of each node reports for all of them (agent/node_relay.h), the supervisor gets one
 * message of a node, but the intervals depend on the number of ranks all the same:
 *   - The message has a row of each rank that has reported, because the silence of each is judged by itself: a
 *     rank that is stopped behind a relay that lives sends nothing, so no row of it comes, and it is lost after
 *     restart.silent_timeout as any other. A row costs more than half of what a message costs: 10,000 ranks cost
 *     3 to 4 % of a core in 500 messages per second, and 5 % in 6,200 if each reports itself (make bench-agents).
 *   - A rank whose relay does not answer reports itself after two heartbeats, before it looks silent, at the
 *     interval that its welcome has. All may have to at the same time, as in containers that do not share a
 *     network namespace.
 *
 * Only the files of this room include it.
 */
#ifndef MUSTER_LAUNCHER_SUPERVISE_HEARTBEAT_H
#define MUSTER_LAUNCHER_SUPERVISE_HEARTBEAT_H

struct supervisor;
struct supervise_limits;

enum { HEARTBEATS_SILENT = 6 };

/* Seconds between two heartbeats of a rank. */
double supervise_heartbeat(const struct supervise_limits *l, int world);
/* How many seconds later than in a small world the supervisor learns what a rank of this generation
 * does. It adds them to each limit on how long a rank is still, or is silent and not yet lost. */
double supervise_heartbeat_late(const struct supervisor *s);

#endif
