#include "agent/engine/parallel/device.h"

#include "base/log.h"
#include "libcomm/device/device.h"

#include <stdlib.h>
#include <string.h>

typedef const struct comm_device *table_fn(void);

int parallel_device_table(const struct comm_device **out, struct err *e)
{
	void *at;
	table_fn *table;
	if (backend_cuda_symbol("muster_comm_cuda", &at, e))
		return -1;
	memcpy(&table, &at, sizeof table);
	*out = table();
	return 0;
}

/* The number of devices that this process sees. 0: none, or the library is missing. */
static int device_count(void)
{
	const struct comm_device *table;
	struct device *d;
	int n = 0;
	if (parallel_device_table(&table, NULL))
		return 0;
	while (!table->open(n, &d, NULL)) {
		table->close(d);
		n++;
	}
	return n;
}

int parallel_device_of_slot(int slot)
{
	int n = device_count();
	return n && slot >= 0 ? slot % n : 0;
}

struct device_memory {
	const struct comm_device *table;
	struct device *device;
	bool failed;
};

static void *memory_alloc(void *of, size_t bytes)
{
	struct device_memory *m = of;
	const struct device_collectives *library = m->table->collectives;
	struct err why = ERR_INIT;
	void *p = NULL;
	if (m->failed || !library || !library->alloc)
		return NULL;
	int rc = library->alloc(m->device, bytes, &p, &why);
	if (rc == 0 && p)
		return p;
	m->failed = true;
	log_info("what ranks exchange is in memory that the library of collectives copies from and "
		 "to, because %s%s",
		 rc ? "it could not allocate: " : "this version cannot allocate", why.text);
	return NULL;
}

static void memory_free(void *of, void *p)
{
	struct device_memory *m = of;
	m->table->collectives->release(m->device, p);
}

int parallel_memory_open(const struct comm_device_options *device, struct backend_source *out,
			 struct err *e)
{
	struct device_memory *m = calloc(1, sizeof *m);
	if (!m)
		return err_set(e, ERR_NOMEM,
			       "no memory for a device's allocator; close other programs");
	m->table = device->device;
	if (m->table->open(device->index, &m->device, e)) {
		free(m);
		return -1;
	}
	*out = (struct backend_source){ memory_alloc, memory_free, m };
	return 0;
}

void parallel_memory_close(struct backend_source *s)
{
	struct device_memory *m = s->of;
	if (!m)
		return;
	m->table->close(m->device);
	free(m);
	*s = (struct backend_source){ 0 };
}

struct comm_memory parallel_memory_piece(const struct backend *k, void *at, size_t bytes)
{
	return (struct comm_memory){ at, bytes, backend_is_from_source(k, at) };
}

static bool all_reachable(const struct comm_memory *list, int n)
{
	while (n > 0 && (!list[n - 1].bytes || list[n - 1].reachable))
		n--;
	return n == 0;
}

/* Memory that is not reachable has a line of its own in the log (memory_alloc). */
int parallel_memory_register(struct comm *const groups[], int n_groups,
			     const struct comm_memory *list, int n, const char *what, struct err *e)
{
	struct err why = ERR_INIT;
	bool silent = true;
	for (int i = 0; i < n_groups; i++) {
		int rc = groups[i] ? comm_register(groups[i], list, n, &why) : 1;
		if (rc < 0) {
			if (e)
				*e = why;
			return -1;
		}
		silent &= rc || (!why.code && !all_reachable(list, n));
	}
	if (!silent)
		log_info("%s are copied inside the library of collectives, because %s", what,
			 why.code ? why.text : "another rank could not register its memory");
	return 0;
}
