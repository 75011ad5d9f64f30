#include "agent/task/devices.h"

#include <stdlib.h>
#include <string.h>

/* The entry of a list with this number, and its length; NULL: there is none. */
static const char *find_entry(const char *list, long number, size_t *len)
{
	while (list && *list) {
		*len = strcspn(list, ",");
		if (!number--)
			return *len ? list : NULL;
		list += *len + (list[*len] == ',');
	}
	return NULL;
}

void task_devices_name(const char *visible, const char *devices, struct buf *out)
{
	size_t len, n;
	for (const char *at = devices; *at; at += n + (at[n] == ',')) {
		n = strcspn(at, ",");
		const char *name = find_entry(visible, strtol(at, NULL, 10), &len);
		if (at != devices)
			buf_puts(out, ",");
		buf_add(out, name ? name : at, name ? len : n);
	}
}
