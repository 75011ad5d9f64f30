#include "plan/memory_library.h"

#include "plan/memory_programs.h"
#include "plan/spec/processors.h"

#include <math.h>

#define KIB 1024.0
#define MIB (1024 * KIB)

/* Bytes of the buffers of a connection's protocols. */
#define SIMPLE (4 * MIB)
#define LL128  (120.0 * 640 * 8 * 8) /* elements a thread, threads, steps, bytes */
#define LL     (8.0 * 512 * 8 * 16)  /* lines a thread, threads, steps, bytes */
#define PAGE   (2 * MIB)

enum { NODE = 8, CHANNELS_BETWEEN_NODES = 16, NVLS_CHANNELS = 16, STEPS = 8, POOLED = 16 };
#define CHUNK (128 * KIB)
#define PEER  576.0 /* four connections of the table of peers */

static double inside(void)
{
	double received = PAGE * ceil((SIMPLE + LL128 + LL) / PAGE);
	return PAGE + received;
}

static double between(void)
{
	return 2 * (SIMPLE + LL128);
}

static int least(int a, int b)
{
	return a < b ? a : b;
}

/* Neighbors in a ring of n ranks. */
static int neighbors(int n)
{
	return least(n - 1, 2);
}

static double table(int n, int channels)
{
	return n > 1 ? PEER * channels * n : 0;
}

/* A group inside a node, or one that can leave it: its ring, the trees, and its table of peers. */
static double ring_inside(int n, int channels)
{
	return neighbors(n) * channels * inside() + table(n, channels);
}

static double ring_anywhere(int n, int channels)
{
	double leaves = neighbors(n) * least(channels, CHANNELS_BETWEEN_NODES) * between();
	return fmax(ring_inside(n, channels), leaves + table(n, channels));
}

/* of a group with `here` ranks in a node */
static double nvls(int here)
{
	return here > 1 ? 2 * CHUNK * STEPS * NVLS_CHANNELS * here : 0;
}

/* How many ranks of a group of n are in a node, if each is `apart` ranks from the next. */
static int in_node(int n, int apart)
{
	int room = NODE / apart;
	return least(n, room > 1 ? room : 1);
}

/* All replicas of a parameter: ZeRO's shards, or all copies. Shards inside nodes have a second
 * group with the same neighbors at most. */
static double replicas(const struct job *job, int n)
{
	int channels = job->parallel.overlap ? PROCESSORS_BEHIND : PROCESSORS_DEFAULT;
	bool both = job->parallel.zero > 0 && job->parallel.zero_shard == ZERO_SHARD_NODE;
	if (n == 1 || job->parallel.sync == SYNC_SERVER)
		return 0;
	return (both ? 2 : 1) * ring_anywhere(n, channels);
}

static double tensor_parallel(const struct model_shape *m, const struct layout *l)
{
	int sharers = m->kv_heads < l->tp ? l->tp / (int)m->kv_heads : 1;
	return ring_inside(l->tp, PROCESSORS_DEFAULT) + ring_inside(sharers, PROCESSORS_DEFAULT) +
	       nvls(in_node(l->tp, 1));
}

/* A ring of messages in one direction has one connection's bytes, whichever its neighbors are. */
static double context_parallel(const struct layout *l)
{
	return l->cp > 1 ? PROCESSORS_DEFAULT * inside() + table(l->cp, PROCESSORS_DEFAULT) : 0;
}

static double expert_parallel(const struct layout *l)
{
	int here = in_node(l->ep, l->tp * l->cp);
	double pools = l->ep > here ? 2 * PROCESSORS_DEFAULT * POOLED * CHUNK : 0;
	return l->ep > 1 ? (here - 1) * PROCESSORS_DEFAULT * inside() + pools +
				   table(l->ep, PROCESSORS_DEFAULT)
			 : 0;
}

static double pipeline(const struct model_shape *m, const struct layout *l)
{
	int pp, chunk;
	layout_holder(l, layout_n_stages(l) - 1, &pp, &chunk);
	double tied = m->tied && pp != 0 ? ring_anywhere(2, PROCESSORS_DEFAULT) : 0;
	return l->pp > 1 ? ring_inside(l->pp, PROCESSORS_OF_MESSAGES) + tied : 0;
}

double plan_memory_library(const struct job *job, const struct model_shape *m,
			   const struct layout *l)
{
	int world = layout_world(l), dense = l->dp * l->cp, apart = l->tp;
	if (world == 1 || job->job.device != DEVICE_CUDA || plan_memory_foreign(job))
		return 0;
	double root = ring_anywhere(world, PROCESSORS_OF_ALL_RANKS);
	double experts = m->experts && l->ep > 1 ? replicas(job, dense / l->ep) : 0;
	bool served = job->parallel.sync == SYNC_SERVER;
	double sharp = served ? 0 : nvls(in_node(dense, apart));
	if (experts > 0)
		sharp += nvls(in_node(dense / l->ep, apart * l->ep));
	return root + replicas(job, dense) + experts + sharp + tensor_parallel(m, l) +
	       context_parallel(l) + expert_parallel(l) + pipeline(m, l);
}
