/* collectives_comm: the communicators of NCCL's double. */
#include "tests/gpu/doubles/collectives_inside.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { AREAS = 256 };

static struct hub {
	_Atomic int areas;
	struct area area[AREAS];
} * hub;

static struct { /* the communicators of this process, in the order of their making */
	int count;
	struct named {
		char name[32];
		int processors;
	} list[AREAS];
} given;

static _Atomic int open_comms;

__attribute__((constructor)) static void set_up(void)
{
	hub = mmap(NULL, sizeof *hub, PROT_READ | PROT_WRITE,
		   MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (hub == MAP_FAILED)
		abort();
}

int double_comm_processors(const char *name)
{
	for (int i = given.count; i-- > 0;)
		if (!strcmp(given.list[i].name, name))
			return given.list[i].processors;
	return -1;
}

int double_open_comms(void)
{
	return open_comms;
}

static int area_new(void)
{
	int i = atomic_fetch_add(&hub->areas, 1);
	if (i >= AREAS)
		double_misuse("more than %d communicators", AREAS);
	return i;
}

int double_comm_number(const struct ncclComm *c)
{
	return (int)(c->area - hub->area);
}

void double_comm_check(const struct ncclComm *c, const char *who)
{
	if (!c)
		double_misuse("%s without a communicator", who);
	if (c->over)
		double_misuse("%s after the communicator's end", who);
	if (c->looks || !c->begun || c->splitting)
		double_misuse("%s while the communicator is in progress", who);
	if (c->device != double_device())
		double_misuse("%s on device %d, of a communicator of device %d", who,
			      double_device(), c->device);
}

/* --- Begin --- */

/* The variable comes before the configuration, as in NCCL. */
static bool shares(const ncclConfig_t *config)
{
	const char *asked = getenv("NCCL_COMM_SPLIT_SHARE_RESOURCES");
	return asked ? strcmp(asked, "0") : config->splitShare == 1;
}

/* The smaller of two limits; 0: none. */
static int within(int a, int b)
{
	return a && b ? (a < b ? a : b) : a + b;
}

/* family: that it shares; NULL: it has its own. */
static ncclComm_t comm_new(struct area *area, struct family *family, int ranks, int rank,
			   const ncclConfig_t *config)
{
	const ncclConfig_t good = NCCL_CONFIG_INITIALIZER;
	if (!config || config->size != good.size || config->magic != good.magic ||
	    config->blocking != 0)
		double_misuse("a configuration that is not of a non-blocking communicator");
	int processors = config->maxCTAs == NCCL_CONFIG_UNDEF_INT ? 0 : config->maxCTAs;
	if (family)
		processors = within(processors, family->processors);
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
	if (!config->commName || !*config->commName)
		double_misuse("a communicator without a name");
	if (given.count < AREAS) {
		struct named *n = &given.list[given.count++];
		snprintf(n->name, sizeof n->name, "%s", config->commName);
		n->processors = processors;
	}
#endif
	if (family) {
		family->shared = true;
	} else {
		family = calloc(1, sizeof *family);
		family->processors = processors;
	}
	ncclComm_t c = calloc(1, sizeof *c);
	*c = (struct ncclComm){ .area = area,
				.family = family,
				.shares = shares(config),
				.ranks = ranks,
				.rank = rank,
				.device = double_device(),
				.looks = 3 };
	open_comms++;
	return c;
}

static void join(ncclComm_t c)
{
	c->area->device[c->rank] = c->device;
	if (double_fault_now != DOUBLE_NEVER_READY)
		c->area->joined[c->rank] = 1;
}

static bool all_joined(const struct ncclComm *c)
{
	for (int r = 0; r < c->ranks; r++)
		if (!c->area->joined[r])
			return false;
	for (int r = 0; r < c->ranks; r++)
		if (r != c->rank && c->area->device[r] == c->device)
			double_misuse("ranks %d and %d share device %d", r, c->rank, c->device);
	return true;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
	int area = area_new();
	memset(id, 0, sizeof *id);
	memcpy(id->internal, &area, sizeof area);
	return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *out, int ranks, ncclUniqueId id, int rank,
				    ncclConfig_t *config)
{
	int area;
	memcpy(&area, id.internal, sizeof area);
	if (area < 0 || area >= hub->areas || ranks < 1 || ranks > RANKS || rank < 0 ||
	    rank >= ranks)
		double_misuse("rank %d of %d, id %d", rank, ranks, area);
	*out = comm_new(&hub->area[area], NULL, ranks, rank, config);
	join(*out);
	return ncclInProgress;
}

/* --- Splits --- */

/* Continues a split if all ranks have given their color; returns whether they have. */
static bool split_further(ncclComm_t c)
{
	struct split *all = c->area->split[c->splits % SPLITS];
	int first = -1, ranks = 0, rank = 0;
	for (int r = 0; r < c->ranks; r++)
		if (all[r].came < c->splits)
			return false;
	if (!c->child)
		return true;
	for (int r = 0; r < c->ranks; r++) {
		if (all[r].color != c->color)
			continue;
		first = first < 0 ? r : first;
		ranks++;
		rank += all[r].key < c->key || (all[r].key == c->key && r < c->rank);
	}
	if (first == c->rank)
		all[first].child = area_new();
	if (all[first].child < 0)
		return false;
	c->child->area = &hub->area[all[first].child];
	c->child->ranks = ranks;
	c->child->rank = rank;
	join(c->child);
	return true;
}

ncclResult_t ncclCommSplit(ncclComm_t c, int color, int key, ncclComm_t *out, ncclConfig_t *config)
{
	double_comm_check(c, "ncclCommSplit");
	if (c->open)
		double_misuse("ncclCommSplit while %d operations are outstanding", c->open);
	if (color < 0 && color != NCCL_SPLIT_NOCOLOR)
		double_misuse("color %d", color);
	struct split *mine = &c->area->split[++c->splits % SPLITS][c->rank];
	c->child = color < 0 ? NULL : comm_new(NULL, c->shares ? c->family : NULL, 0, 0, config);
	c->splitting = true;
	mine->color = c->color = color;
	mine->key = c->key = key;
	mine->child = -1;
	mine->came = c->splits;
	c->looks = 2;
	*out = c->child;
	return ncclInProgress;
}

/* --- Progress --- */

static bool all_finalized(const struct ncclComm *c)
{
	for (int r = 0; r < c->ranks; r++)
		if (!c->area->finalized[r])
			return false;
	return !c->open;
}

/* Makes progress; returns whether the last call is complete. */
static bool progress(ncclComm_t c)
{
	if (c->looks && --c->looks)
		return false;
	if (!c->area)
		return false; /* a child whose parent's progress is not queried */
	c->begun = c->begun || all_joined(c);
	if (c->splitting && split_further(c)) {
		c->splitting = false;
		c->child = NULL;
	}
	double_memory_progress(c);
	c->quiet = c->finalized && all_finalized(c);
	return c->begun && !c->splitting && !c->window && c->quiet == c->finalized;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t c, ncclResult_t *state)
{
	if (!c || c->over)
		double_misuse("ncclCommGetAsyncError after the communicator's end");
	*state = double_fault_now == DOUBLE_ASYNC_ERROR ? ncclRemoteError
		 : progress(c)                          ? ncclSuccess
							: ncclInProgress;
	return ncclSuccess;
}

ncclResult_t ncclCommCount(const ncclComm_t c, int *count)
{
	double_comm_check(c, "ncclCommCount");
	*count = c->ranks;
	return ncclSuccess;
}

ncclResult_t ncclCommUserRank(const ncclComm_t c, int *rank)
{
	double_comm_check(c, "ncclCommUserRank");
	*rank = c->rank;
	return ncclSuccess;
}

/* --- End --- */

ncclResult_t ncclCommFinalize(ncclComm_t c)
{
	double_comm_check(c, "ncclCommFinalize");
	if (c->finalized)
		double_misuse("ncclCommFinalize twice");
	if (c->memory)
		double_misuse("ncclCommFinalize of a communicator with registered memory");
	c->finalized = true;
	c->area->finalized[c->rank] = 1;
	c->looks = 2;
	return ncclInProgress;
}

static void end(ncclComm_t c)
{
	double_memory_end(c);
	c->over = true;
	open_comms--;
}

ncclResult_t ncclCommDestroy(ncclComm_t c)
{
	double_comm_check(c, "ncclCommDestroy");
	if (c->recorded)
		double_misuse("ncclCommDestroy while a graph has %d of the communicator's calls: "
			      "it waits for the graph's end",
			      c->recorded);
	if (!c->quiet)
		double_misuse("ncclCommDestroy before the end of ncclCommFinalize: it may wait for "
			      "other ranks");
	end(c);
	return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t c)
{
	if (!c || c->over)
		double_misuse("ncclCommAbort after the communicator's end");
	if (c->quiet)
		double_misuse("ncclCommAbort of a communicator that ncclCommDestroy frees");
	c->family->aborted = true;
	end(c);
	while (c->recorded)
		double_progress();
	return ncclSuccess;
}

/* --- The library --- */

ncclResult_t ncclGetVersion(int *version)
{
	*version = double_fault_now == DOUBLE_TOO_OLD ? 21799
		   : double_fault_now == DOUBLE_WITHOUT_WINDOWS ||
				   double_fault_now == DOUBLE_UNREGISTERED
			   ? 22605
			   : NCCL_VERSION_CODE;
	return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t result)
{
	return result == ncclRemoteError   ? "remote error"
	       : result == ncclSystemError ? "system error"
					   : "error";
}

const char *ncclGetLastError(ncclComm_t c)
{
	if (c && c->over)
		double_misuse("ncclGetLastError after the communicator's end");
	return double_fault_now == DOUBLE_ASYNC_ERROR ? "the cable is out" : "";
}
