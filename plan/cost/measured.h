/*
 * measured — how fast this host's processors compute and its agents exchange, as `muster bench
 * calibrate` found it.
 *
 * Agents that run at once share caches, memory and cores, so all is measured with as many at once
 * as will train:
 *   machines   the curves of machine.h, of `agents` side by side with `threads` each, in one
 *              storage type
 *   exchanges  seconds of a collective over its bytes, in groups of `group` ranks, all groups at
 *              once of `crowd` ranks on the host; with more ranks than cores waking the others is
 *              most of a small one's time, and is in it
 *
 * Flat: copied by =, freed by free(). In the calibration file (calibration.h) as
 *
 *     "machines": [{"agents": 2, "threads": 1, "storage": "fp32", "op_s": 0, "packing": [7e9, 3e9, 0],
 *                   "rates": {"product_fwd": [[1e6, 5e10], …], …}}, …]
 *     "exchanges": [{"transport": "shm", "op": "all_reduce", "group": 2, "crowd": 8, "seconds": [[1024, 1e-5], …]}, …]
 */
#ifndef MUSTER_PLAN_COST_MEASURED_H
#define MUSTER_PLAN_COST_MEASURED_H

#include "base/err.h"
#include "plan/cost/machine.h"

#include <jansson.h>
#include <stdbool.h>

enum { MEASURED_MACHINES = 32, MEASURED_EXCHANGES = 256, MEASURED_AGENTS = 65536 };

enum measured_transport { MEASURED_SHM, MEASURED_TCP, MEASURED_TRANSPORTS };

/* Bytes: of the tensor that is reduced, of what is gathered or scattered in all, of what a rank
 * sends in all, of the message that each rank sends to the next while it receives. A meeting is
 * what equal work of all costs more when the ranks wait for one another after it than when they do
 * not, besides the exchange itself: the system disturbs one or the other, and of those that share a
 * core one is always late. In place of bytes it has the microseconds of work; no longer work makes
 * it cost more than the longest that was measured. */
enum measured_op {
	MEASURED_ALL_REDUCE,
	MEASURED_ALL_GATHER,
	MEASURED_REDUCE_SCATTER,
	MEASURED_ALL_TO_ALL,
	MEASURED_MESSAGE,
	MEASURED_MEETING,
	MEASURED_OPS
};

struct measured_machine {
	int agents, threads;
	bool narrow; /* 2-byte storage */
	struct machine machine;
};

struct measured_exchange {
	enum measured_transport transport;
	enum measured_op op;
	int group, crowd;
	int n;
	double bytes[RATE_POINTS], seconds[RATE_POINTS]; /* bytes ascend */
};

struct measured {
	int cores;
	enum measured_transport transport; /* that the job uses */
	int n_machines, n_exchanges;
	struct measured_machine machines[MEASURED_MACHINES];
	struct measured_exchange exchanges[MEASURED_EXCHANGES];
};

const char *topo_measured_transport_word(enum measured_transport transport);

/* Replaces what is there of the same kind; what has no room is left out. */
void topo_measured_add_machine(struct measured *m, const struct measured_machine *machine);
void topo_measured_add_exchange(struct measured *m, const struct measured_exchange *exchange);

/* An agent of so many threads, one of `agents` on the host, as fast as it is while it has its
 * cores: where agents × threads is more than cores, all take so much longer. False when nothing of
 * that storage is known. */
bool cost_measured_machine(const struct measured *m, int agents, int threads, bool narrow,
		      struct machine *out);

/* Seconds of one exchange over m->transport with `crowd` ranks on the host; as if the ranks had a
 * core each where they have not: times what place_exchange_share says it is what a clock shows. Group
 * sizes in between are interpolated. 0: not known. */
double place_exchange_seconds(const struct measured *m, enum measured_op op, int group, int crowd,
			 double bytes);
/* Seconds of a meeting after so many seconds of work, likewise. */
double place_exchange_meeting(const struct measured *m, int group, int crowd, double work);
/* How much longer everything takes when `busy` threads are: busy / cores, 1 at least. */
double place_exchange_share(const struct measured *m, double busy);

/* One operation's time, from which curves are made. */
struct measured_point {
	enum rate_class class;
	double x; /* on the class's curve */
	double work, seconds;
	double weights; /* bytes of a product's, else 0 */
};
/* The machine's curves through the points: of products, whose sizes come in many shapes, the mean
 * of those that are alike. False when a class that all need lacks. */
bool cost_measured_fit(const struct measured_point *points, int n, struct machine *out);

/* New references, NULL without memory; and what they hold, in range, added to *m. name: of the
 * file. ERR_USAGE. */
json_t *topo_measured_machines_json(const struct measured *m);
json_t *topo_measured_exchanges_json(const struct measured *m);
int topo_measured_read_machines(json_t *list, const char *name, struct measured *m, struct err *e);
int topo_measured_read_exchanges(json_t *list, const char *name, struct measured *m, struct err *e);

#endif
