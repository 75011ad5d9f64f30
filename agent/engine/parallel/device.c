#include "agent/engine/parallel/device.h"

#include "kernels/ops.h"
#include "libcomm/device/device.h"

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
