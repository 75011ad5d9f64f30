/* collectives_order: in which order the operations of NCCL's double run: within a communicator, among those that
 * share resources, and on a device that has room for few. */
#include "tests/gpu/doubles/collectives_inside.h"

#include <stdlib.h>
#include <string.h>

enum { LAUNCHES = 4096 };

static struct { /* of this process */
	_Atomic int count;
	int area[LAUNCHES];
} launched;

static struct {           /* of this process's device; under the runtime's lock */
	int most, now;    /* resident kernels; most 0: no limit */
	bool ordered;     /* by launches */
	uint32_t arrived; /* launches that have become resident, if ordered */
	_Atomic uint32_t launched;
} residency;

void double_set_residency(int kernels)
{
	const char *ordered = getenv("NCCL_LAUNCH_ORDER_IMPLICIT");
	residency.most = kernels;
	residency.ordered = ordered && !strcmp(ordered, "1");
}

/* Whether the kernel is on the device, or finds room now. */
static bool reside(struct group *g)
{
	if (g->resident || !residency.most)
		return true;
	if (residency.now == residency.most ||
	    (residency.ordered && g->launch != residency.arrived + 1))
		return false;
	residency.now++;
	residency.arrived = g->launch;
	return g->resident = true;
}

/* A kernel that is aborted before it was resident no longer keeps later ones out. */
static void leave(struct group *g)
{
	residency.now -= g->resident;
	if (!g->resident && g->launch > residency.arrived)
		residency.arrived = g->launch;
}

int double_launches(int *comms, int most)
{
	int n = launched.count < most ? launched.count : most;
	memcpy(comms, launched.area, (size_t)n * sizeof *comms);
	return n;
}

static void note_launch(const struct ncclComm *c)
{
	int i = atomic_fetch_add(&launched.count, 1);
	if (i < LAUNCHES)
		launched.area[i] = double_comm_number(c);
}

/* NCCL runs the operations of a communicator one after the other, in their order. The caller's
 * streams, events and graphs are to say the same. */
static void take_turn(struct group *g)
{
	if (!g->begun && g->turn != g->comm->ended + 1)
		double_misuse("operation %u of a communicator runs after operation %u", g->turn,
			      g->comm->ended);
	g->begun = true;
}

/* NCCL runs the operations of communicators that share resources one after the other. */
static bool follows(const struct group *g)
{
	const struct family *f = g->comm->family;
	return g->begun || !f->shared || g->in_family == f->ended + 1;
}

void double_order_launch(struct group *g)
{
	struct ncclComm *c = g->comm;
	g->turn = ++c->queued;
	g->in_family = ++c->family->queued;
	g->launch = ++residency.launched;
	c->open++;
	note_launch(c);
}

bool double_order_begin(struct group *g)
{
	if (!follows(g) || !reside(g))
		return false;
	take_turn(g);
	return true;
}

void double_order_end(struct group *g)
{
	leave(g);
	g->comm->open--;
	g->comm->ended = g->turn;
	g->comm->family->ended = g->in_family;
}
