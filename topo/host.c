#include "topo/host.h"

#include "topo/internal.h"

#include <hwloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/sysinfo.h>

static struct host the_host;
static struct err the_error;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static int load_topology(hwloc_topology_t t, struct err *e)
{
	/* The CPUID component only repeats what the kernel reports, and binds to each core in turn
	 * for that. */
	hwloc_topology_set_components(t, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, "x86");
	if (hwloc_topology_set_all_types_filter(t, HWLOC_TYPE_FILTER_KEEP_NONE) ||
	    hwloc_topology_set_type_filter(t, HWLOC_OBJ_CORE, HWLOC_TYPE_FILTER_KEEP_ALL) ||
	    hwloc_topology_load(t))
		return err_errno(e, ERR_UNSUPPORTED,
				 "this host: hwloc cannot read its topology "
				 "(see the output of lstopo)");
	return 0;
}

static int numa_of(hwloc_topology_t t, hwloc_obj_t o)
{
	int os = o->nodeset ? hwloc_bitmap_first(o->nodeset) : -1;
	hwloc_obj_t node = os < 0 ? NULL : hwloc_get_numanode_obj_by_os_index(t, (unsigned)os);
	return node ? (int)node->logical_index : 0;
}

/* Adds a core. A core is left out if this process may use none of its hardware threads. */
static void add_core(struct host *h, hwloc_topology_t t, hwloc_obj_t o,
		     hwloc_const_cpuset_t allowed)
{
	hwloc_bitmap_t mine = hwloc_bitmap_alloc();
	if (!mine)
		return;
	hwloc_bitmap_and(mine, o->cpuset, allowed);
	struct host_core *c = &h->cores[h->n_cores];
	if (!hwloc_bitmap_iszero(mine) &&
	    hwloc_bitmap_list_snprintf(c->cpus, sizeof c->cpus, mine) < (int)sizeof c->cpus) {
		c->numa = numa_of(t, o);
		h->n_cores++;
	}
	hwloc_bitmap_free(mine);
}

static int read_cores(hwloc_topology_t t, struct host *h, struct err *e)
{
	/* Some virtual machines and old kernels report no cores. Each PU then counts as a core. */
	hwloc_obj_type_t type = HWLOC_OBJ_CORE;
	int n = hwloc_get_nbobjs_by_type(t, type);
	if (n <= 0)
		n = hwloc_get_nbobjs_by_type(t, type = HWLOC_OBJ_PU);
	hwloc_bitmap_t allowed = hwloc_bitmap_alloc();
	h->cores = calloc((size_t)(n > 0 ? n : 1), sizeof *h->cores);
	if (!allowed || !h->cores) {
		hwloc_bitmap_free(allowed);
		return err_set(e, ERR_NOMEM, "this host: no memory for its topology");
	}
	if (hwloc_get_cpubind(t, allowed, HWLOC_CPUBIND_PROCESS))
		hwloc_bitmap_copy(allowed, hwloc_topology_get_topology_cpuset(t));
	for (int i = 0; i < n; i++)
		add_core(h, t, hwloc_get_obj_by_type(t, type, (unsigned)i), allowed);
	hwloc_bitmap_free(allowed);
	if (!h->n_cores)
		return err_set(e, ERR_UNSUPPORTED,
			       "this host: hwloc names no core that this process may use "
			       "(see the output of lstopo)");
	return 0;
}

/* The memory that this process may use. hwloc adds up the NUMA nodes, which in a guest with memory
 * hotplug hold less than the guest may get. */
static double memory_of(hwloc_topology_t t)
{
	double plugged = (double)hwloc_get_root_obj(t)->total_memory;
	struct sysinfo info;
	if (sysinfo(&info))
		return plugged;
	double promised = (double)info.totalram * info.mem_unit;
	double most = promised > plugged ? promised : plugged;
	double allowed = topo_cgroup_memory("/proc/self/cgroup", "/sys/fs/cgroup");
	return allowed > 0 && allowed < most ? allowed : most;
}

static void discover(void)
{
	hwloc_topology_t t;
	if (hwloc_topology_init(&t)) {
		err_set(&the_error, ERR_NOMEM, "this host: no memory for its topology");
		return;
	}
	if (!load_topology(t, &the_error) && !read_cores(t, &the_host, &the_error)) {
		int numa = hwloc_get_nbobjs_by_type(t, HWLOC_OBJ_NUMANODE);
		the_host.n_numa = numa > 0 ? numa : 1;
		the_host.memory = memory_of(t);
	}
	hwloc_topology_destroy(t);
}

int topo_host_get(const struct host **out, struct err *e)
{
	pthread_once(&once, discover);
	if (the_error.code != ERR_NONE)
		return err_set(e, the_error.code, "%s", the_error.text);
	*out = &the_host;
	return 0;
}
