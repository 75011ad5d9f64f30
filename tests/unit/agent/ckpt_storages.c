#include "tests/unit/agent/ckpt_storages.h"

#include <stdlib.h>
#include <string.h>

/* The names that the linker gives to calls of ckpt_storage_of, and to that of the product. */
const struct ckpt_storage *__wrap_ckpt_storage_of(const char *path);
const struct ckpt_storage *__real_ckpt_storage_of(const char *path);

enum { ADDED_MAX = 4 };

static const struct ckpt_storage *added[ADDED_MAX];

const struct ckpt_storage *__wrap_ckpt_storage_of(const char *path)
{
	for (int i = 0; i < ADDED_MAX; i++)
		if (added[i] &&
		    !strncmp(path, added[i]->ops->scheme, strlen(added[i]->ops->scheme)))
			return added[i];
	return __real_ckpt_storage_of(path);
}

static void replace(const struct ckpt_storage *old, const struct ckpt_storage *new)
{
	int i = 0;
	while (i < ADDED_MAX && added[i] != old)
		i++;
	if (i == ADDED_MAX)
		abort();
	added[i] = new;
}

void ckpt_storages_add(const struct ckpt_storage *s)
{
	replace(NULL, s);
}

void ckpt_storages_drop(const struct ckpt_storage *s)
{
	replace(s, NULL);
}
