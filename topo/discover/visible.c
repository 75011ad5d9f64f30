#include "topo/discover/visible.h"

#include <stdlib.h>
#include <string.h>

struct spot {
	int gpu, part; /* gpu -1: none; part -1: the whole GPU */
};

static struct spot by_number(const char *at, size_t len, const struct gpu_id *ids, int n)
{
	if (!len || strspn(at, "0123456789") != len || len > 6)
		return (struct spot){ -1, -1 };
	for (int i = 0; i < n; i++)
		if (ids[i].index == strtol(at, NULL, 10))
			return (struct spot){ i, -1 };
	return (struct spot){ -1, -1 };
}

/* A prefix of a UUID must match exactly one GPU; CUDA accepts no other. */
static struct spot by_uuid(const char *at, size_t len, const struct gpu_id *ids, int n)
{
	struct spot found = { -1, -1 };
	for (int i = 0; i < n; i++) {
		if (strncmp(at, ids[i].uuid, len))
			continue;
		if (found.gpu >= 0)
			return (struct spot){ -1, -1 };
		found.gpu = i;
	}
	return found;
}

static struct spot by_instance(const char *at, size_t len, const struct gpu_id *ids, int n)
{
	static const char old[] = "MIG-GPU-";
	const char *slash = memchr(at, '/', len);
	for (int i = 0; i < n; i++)
		for (int part = 0; part < ids[i].n_instances; part++)
			if (!strncmp(at, ids[i].instances[part].uuid, len))
				return (struct spot){ i, part };
	if (len <= sizeof old || strncmp(at, old, sizeof old - 1) || !slash)
		return (struct spot){ -1, -1 };
	struct spot found = by_uuid(at + 4, (size_t)(slash - at) - 4, ids, n);
	if (found.gpu >= 0 && ids[found.gpu].n_instances)
		/* The instance that the numbers name is unknown here, so the first one's memory is
		 * used. */
		found.part = 0;
	else
		found.gpu = -1;
	return found;
}

static struct spot find_gpu(const char *at, size_t len, const struct gpu_id *ids, int n)
{
	if (len > 4 && !strncmp(at, "GPU-", 4))
		return by_uuid(at, len, ids, n);
	if (len > 4 && !strncmp(at, "MIG-", 4))
		return by_instance(at, len, ids, n);
	return by_number(at, len, ids, n);
}

int topo_visible_select(const char *list, const struct gpu_id *ids, int n, int *picked, int *part)
{
	int kept = 0;
	for (int i = 0; !list && i < n; i++) {
		picked[kept] = i;
		part[kept++] = ids[i].n_instances ? 0 : -1;
	}
	for (const char *at = list; at;) {
		size_t len = strcspn(at, ",");
		struct spot s = find_gpu(at, len, ids, n);
		if (s.gpu < 0)
			break;
		int seen = 0;
		while (seen < kept && picked[seen] != s.gpu)
			seen++;
		if (seen == kept) {
			picked[kept] = s.gpu;
			part[kept++] = s.part;
		}
		if (s.part >= 0)
			break;
		at = at[len] ? at + len + 1 : NULL;
	}
	return kept;
}
